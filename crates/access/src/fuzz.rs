//! The entry points of the fuzz targets of remote terminals and logins: the input of telnet clients, the input of SSH clients
//! that the SSH server passes on, and the replies of TACACS+ servers.

use crate::editor::{Editor, MAX_LINE};
use crate::tacacs::{Answer, Exchange, Login, MAX_BODY, Step, testing};
use crate::telnet::{self, Telnet};
use lanyard_config::access::{MAX_KEY, PublicKey};

/// Feeds `data` to a telnet decoder in pieces, and the decoded bytes to a line editor.
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

/// Feeds `data` to the parsers of the input that an SSH client sends behind the cryptography, in the form in which the SSH server
/// passes it on: a public key as text, and the bytes and window sizes of a terminal in telnet's framing. The first byte of `data`
/// is the length of the key, which follows. The rest are pieces of 11 bytes: a window size if the first byte is 0xfe, otherwise
/// bytes of the terminal.
///
/// # Panics
/// When formatting and parsing a key changes it, when telnet's framing changes the terminal's bytes, or when the editor exceeds
/// its bounds.
pub fn fuzz_ssh(data: &[u8]) {
    let Some((length, data)) = data.split_first() else { return };
    let (key, terminal) = data.split_at(data.len().min(usize::from(*length)));
    if let Ok(key) = PublicKey::parse(&String::from_utf8_lossy(key)) {
        let text = key.to_string();
        assert!(text.len() <= 2 * MAX_KEY && !text.chars().any(char::is_control));
        assert_eq!(PublicKey::parse(&text).as_ref(), Ok(&key));
    }
    let (mut decoder, mut editor, mut echo) = (Telnet::default(), Editor::default(), Vec::new());
    for piece in terminal.chunks(11) {
        if let [0xfe, a, b, c, d, ..] = *piece {
            let size = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            let input = decoder.feed(&telnet::window(size.0, size.1));
            assert!(input.data.is_empty() && input.answer.is_empty());
            assert_eq!(input.window, Some(size));
            continue;
        }
        let encoded = telnet::encode(piece);
        // The connection may divide the encoded bytes anywhere.
        let (first, second) = encoded.split_at(usize::from(piece[0]) % (encoded.len() + 1));
        let mut bytes = decoder.feed(first).data;
        bytes.extend(decoder.feed(second).data);
        assert_eq!(bytes, piece);
        for byte in bytes {
            echo.clear();
            let _ = editor.feed(byte, &mut echo);
            let text = editor.text();
            assert!(text.len() <= MAX_LINE && !text.chars().any(char::is_control));
        }
    }
}

/// Feeds `data` to the session of a TACACS+ client. The first byte selects the kind of the session. Pieces follow, each with a
/// byte for its kind and two for its length: the bytes that a server without the key sends, or the body of a reply by a server
/// with the key, received at once or in two parts.
///
/// # Panics
/// When the session buffers or sends more than its bounds permit, or returns an answer that does not belong to its question.
pub fn fuzz_tacacs(data: &[u8]) {
    const KEY: &[u8] = b"key";
    let Some((kind, mut rest)) = data.split_first() else { return };
    let login = Login { user: "ann".into(), line: "vty".into(), host: "10.0.0.1".into() };
    let is_login = kind & 1 == 0;
    let (mut exchange, mut request) = if is_login {
        Exchange::authentication(7, KEY, &login, "tiger")
    } else {
        Exchange::authorization(7, KEY, &login, kind & 2 == 0)
    };
    let mut sent = 0;
    while let Some(([kind, high, low], behind)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(behind.len());
        let (piece, behind) = behind.split_at(length);
        rest = behind;
        let by_server = kind % 3 > 0;
        let bytes = if by_server { testing::reply(&request, KEY, piece) } else { piece.to_vec() };
        let (first, second) = bytes.split_at(if kind % 3 == 2 { bytes.len() / 2 } else { 0 });
        let mut step = exchange.receive(first);
        if step == Ok(Step::Wait) {
            step = exchange.receive(second);
        }
        assert!(exchange.waiting() <= MAX_BODY + 16);
        match step {
            Ok(Step::Wait) => {}
            Ok(Step::Send(packet)) => {
                sent += 1;
                assert!(is_login && sent <= 2, "a name and a secret are all that is sent");
                assert!(testing::body(&packet, KEY).is_ok_and(|body| body.is_some()));
                request = packet;
            }
            Ok(Step::Done(answer)) => {
                match answer {
                    Answer::Accepted => assert!(is_login),
                    Answer::Permitted(level) => assert!(!is_login && level.is_none_or(|level| level <= 15)),
                    Answer::Rejected(why) | Answer::Unable(why) => {
                        assert!(why.len() < 256 && !why.chars().any(char::is_control));
                    }
                }
                return;
            }
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    /// The next number of a deterministic pseudo-random sequence (xorshift).
    fn next(state: &mut u64) -> usize {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 20) as usize
    }

    /// Successful sessions of TACACS+ with random mutations: bytes that are changed, removed or repeated.
    #[test]
    fn tacacs_with_mistakes() {
        let seeds = ["login", "shell"].map(|name| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/regressions/tacacs/");
            std::fs::read(format!("{folder}{name}")).expect("an input")
        });
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for number in 0..20_000 {
            let mut input = seeds[number % 2].clone();
            for _ in 0..=next(&mut state) % 4 {
                let at = next(&mut state) % input.len();
                match next(&mut state) % 4 {
                    0 => input[at] ^= 1 << (next(&mut state) % 8),
                    1 => input[at] = next(&mut state) as u8,
                    2 if input.len() > 1 => drop(input.remove(at)),
                    _ => input.extend_from_within(at..),
                }
            }
            super::fuzz_tacacs(&input);
        }
    }

    /// Random input of bytes that mean something to telnet or to the editor, in many more orders than the other tests have.
    #[test]
    fn random_input() {
        const BYTES: &[u8] = b"aa \x01\x02\x04\x05\x06\x08\x0b\x0c\x0e\x10\x15\x17\t\r\n?\x1b[[OABCDHF~1348;bf\x7f\xc3\xa9\xe6\x97\xff\xff\xfa\xfb\xfd\xf0\xf4\x1f\x01\x03\xee";
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..300 {
            let input: Vec<u8> = (0..600).map(|_| BYTES[next(&mut state) % BYTES.len()]).collect();
            super::fuzz_terminal(&input);
            super::fuzz_ssh(&input);
            super::fuzz_tacacs(&input);
        }
    }
}
