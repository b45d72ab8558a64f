//! [`Note`]: a plane's report to the control plane about a frame that a rule with `log` has matched.
//!
//! Planes send it as the bytes of a trapped frame with `TrapReason::AclLog`, in the order of bytes of the machine; `bpf/acl.h`
//! (`ly_acl_note`) writes the same. It holds the key instead of the frame, so reading it needs no parser and is the same wherever
//! the list is bound, and its length does not depend on the frame.

use crate::key::{HALVES, Key};
use lanyard_types::{AclId, MacAddr};

/// The note about one judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// The list.
    pub list: AclId,
    /// The index of the rule in its [`crate::PlaneList`].
    pub rule: u16,
    /// The fields of the frame.
    pub key: Key,
    /// The source address of the frame as it was received; zero if an outbound list has decided.
    pub src: MacAddr,
}

impl Note {
    /// The length of [`Note::bytes`].
    pub const LEN: usize = 4 + 2 * HALVES + 8 + 8;

    /// The note as planes send it.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::LEN);
        bytes.extend(self.list.get().to_ne_bytes());
        bytes.extend(self.rule.to_ne_bytes());
        self.key.half.iter().for_each(|half| bytes.extend(half.to_ne_bytes()));
        bytes.extend(self.key.absent.to_ne_bytes());
        bytes.extend(self.key.unknown.to_ne_bytes());
        bytes.extend(self.src.0);
        bytes.extend([0; 2]);
        bytes
    }
    /// Reads a note; `None` if `bytes` does not contain one.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let half = |n: usize| u16::from_ne_bytes([bytes[2 * n], bytes[2 * n + 1]]);
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let at = 4 + 2 * HALVES;
        let mut key = Key { absent: word(at), unknown: word(at + 4), ..Key::default() };
        key.half.iter_mut().enumerate().for_each(|(n, to)| *to = half(2 + n));
        let src = MacAddr(bytes[at + 8..].first_chunk().copied()?);
        Some(Self { list: AclId::new(half(0))?, rule: half(1), key, src })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let mut key = Key { absent: 1 << 16, unknown: 1 << 22, ..Key::default() };
        key.half.iter_mut().enumerate().for_each(|(n, half)| *half = 0x100 + n as u16);
        let list = AclId::new(7).expect("a list");
        let note = Note { list, rule: 4095, key, src: MacAddr([2, 0, 0, 0, 0, 9]) };
        let bytes = note.bytes();
        assert_eq!(bytes.len(), Note::LEN);
        assert_eq!(Note::read(&bytes), Some(note));
        for len in [0, 1, Note::LEN - 1] {
            assert_eq!(Note::read(&bytes[..len]), None, "{len} bytes");
        }
        assert_eq!(Note::read(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Note::read(&[0; Note::LEN]), None, "list 0 is none");
    }
}
