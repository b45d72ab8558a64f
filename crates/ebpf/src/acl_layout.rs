//! The mirror of `bpf/acl.h`: constants, the lists of a port or VLAN, and the names of the maps.

use crate::abi::{constants, structures};
use lanyard_acl::classifier::{self, Field, Head, LARGE_WORDS, RECORD_HEAD, SMALL_WORDS, verdict};
use lanyard_acl::key;
use lanyard_acl::note::Note;
use lanyard_types::AclId;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

constants! {
    PORT_ACL_IN: u32 = 0x100_0000;
    PORT_ACL_OUT: u32 = 0x200_0000;
    ACLS: usize = AclId::MAX.index() + 1;
    ACL_SMALL_WORDS: usize = SMALL_WORDS;
    ACL_LARGE_WORDS: usize = LARGE_WORDS;
    ACL_HALVES: usize = key::HALVES;
    ACL_FAMILIES: usize = lanyard_acl::FrameFamily::ALL.len();
    ACL_RULES: usize = Head::Rules as usize;
    ACL_FIELDS: usize = Head::Fields as usize;
    ACL_STRIDE: usize = Head::Stride as usize;
    ACL_VERDICTS: usize = Head::Verdicts as usize;
    ACL_COUNTERS: usize = Head::Counters as usize;
    ACL_OTHERWISE: usize = Head::Otherwise as usize;
    ACL_ALL_LOW: usize = Head::AllLow as usize;
    ACL_ALL_HIGH: usize = Head::AllHigh as usize;
    ACL_HEAD_WORDS: usize = classifier::HEAD_WORDS;
    ACL_HALF: usize = Field::Half as usize;
    ACL_INDEX: usize = Field::Index as usize;
    ACL_RECORDS: usize = Field::Records as usize;
    ACL_BLOCKS: usize = Field::Blocks as usize;
    ACL_ABSENT: usize = Field::Absent as usize;
    ACL_UNKNOWN: usize = Field::Unknown as usize;
    ACL_FIELD_WORDS: usize = classifier::FIELD_WORDS;
    ACL_RECORD_HEAD: usize = RECORD_HEAD;
    ACL_BLOCK_WORDS: usize = classifier::BLOCK_WORDS;
    ACL_PERMIT: u32 = verdict::PERMIT;
    ACL_LOG: u32 = verdict::LOG;
    ACL_SKIP: u32 = verdict::SKIP;
    ACL_SKIP_SHIFT: u32 = verdict::SKIP_SHIFT;
    ACL_CLASS_SHIFT: u32 = verdict::CLASS_SHIFT;
    ACL_SRC: usize = key::SRC;
    ACL_DST: usize = key::DST;
    ACL_L4_SRC: usize = key::L4_SRC;
    ACL_L4_DST: usize = key::L4_DST;
    ACL_PROTOCOL: usize = key::PROTOCOL;
    ACL_TOS: usize = key::TOS;
    ACL_ETHERTYPE: usize = key::ETHERTYPE;
    ACL_VLAN: usize = key::VLAN;
    ACL_TCP_FLAGS: usize = key::TCP_FLAGS;
    ACL_LATER_FRAGMENT: u16 = key::LATER_FRAGMENT;
    ACL_TRANSPORT: u32 = key::TRANSPORT;
    ACL_MAX_EXTENSIONS: usize = key::MAX_EXTENSIONS;
    ACL_MAX_SKIPS: usize = lanyard_acl::MAX_RULES;
    ACL_STEPS: usize = lanyard_acl::MAX_RULES / 64 + ACL_MAX_SKIPS;
}

structures! {
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_acl_bindings = Bindings {
        pub inbound: [u16; 4],
        pub outbound: [u16; 4],
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_acl_note = NoteRow {
        pub list: u16,
        pub rule: u16,
        pub half: [u16; ACL_HALVES],
        pub absent: u32,
        pub unknown: u32,
        pub src: [u8; 6],
        pub pad: [u8; 2],
    }
}

// `Note::read` in crates/acl reads the fields at these offsets.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<NoteRow>() == Note::LEN && offset_of!(NoteRow, half) == 4);
    assert!(offset_of!(NoteRow, absent) == 4 + 2 * ACL_HALVES && offset_of!(NoteRow, src) == Note::LEN - 8);
};

/// The arrays of arrays, the smaller kind first.
pub(crate) const KINDS: [&str; 2] = ["acl_small", "acl_large"];
