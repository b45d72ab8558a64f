//! Text from neighbours, made safe for a terminal.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The text of `bytes`: UTF-8, with `.` for control characters and for bytes that are no UTF-8. A neighbour could
/// otherwise send escape sequences to the operator's terminal. NUL bytes and blanks at the end are removed.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let safe =
        |c: char| if c.is_control() && c != '\n' || c == char::REPLACEMENT_CHARACTER { '.' } else { c };
    text.trim_end_matches(['\0', ' ', '\n', '\r']).chars().map(safe).collect()
}

/// An IP address of 4 or 16 bytes.
pub(crate) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(bytes).into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).into())
}

/// `text` cut to at most `most` bytes, at a character's end.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::{cut, printable};

    #[test]
    fn escapes_do_not_reach_a_terminal() {
        assert_eq!(printable(b"sw\x1b[2J\x07\xff\0\0"), "sw.[2J..");
        assert_eq!(printable("Zürich\nline 2 ".as_bytes()), "Zürich\nline 2");
    }

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!((cut("aü", 2), cut("aü", 3), cut("", 0)), ("a", "aü", ""));
    }
}
