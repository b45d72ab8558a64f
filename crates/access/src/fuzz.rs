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

#[cfg(test)]
mod tests {
    /// Random input of bytes that mean something to telnet or to the editor, in many more orders than the other tests have.
    #[test]
    fn random_input() {
        const BYTES: &[u8] = b"aa \x01\x02\x04\x05\x06\x08\x0b\x0c\x0e\x10\x15\x17\t\r\n?\x1b[[OABCDHF~1348;bf\x7f\xc3\xa9\xe6\x97\xff\xff\xfa\xfb\xfd\xf0\xf4\x1f\x01\x03\xee";
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..300 {
            let input: Vec<u8> = (0..600)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    BYTES[(state >> 20) as usize % BYTES.len()]
                })
                .collect();
            super::fuzz_terminal(&input);
        }
    }
}
