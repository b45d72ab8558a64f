//! The entry point of the fuzz target of remote terminals.

use crate::editor::{Editor, MAX_LINE};
use crate::telnet::Telnet;

/// Feeds `data` to a telnet decoder in pieces, and what it decodes to a line editor.
///
/// # Panics
/// When the decoder or the editor exceed their bounds, which is what the fuzzer looks for.
pub fn fuzz_terminal(data: &[u8]) {
    let (mut telnet, mut editor) = (Telnet::default(), Editor::default());
    let mut echo = Vec::new();
    for piece in data.chunks(7) {
        let input = telnet.feed(piece);
        assert!(input.data.len() <= piece.len());
        for byte in input.data {
            echo.clear();
            let before = editor.text().len();
            let _ = editor.feed(byte, &mut echo);
            let text = editor.text();
            assert!(text.len() <= MAX_LINE && !text.chars().any(char::is_control));
            assert!(echo.len() <= 8 * (before + text.len() + 16));
            editor.hide(byte == 0xee);
        }
    }
}
