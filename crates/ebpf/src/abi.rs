//! `bpf/abi.h` in Rust: every structure and number that the programs and this crate share, except those of single stages
//! ([`crate::stages`]).
//!
//! Invariant: every constant, and every structure's size, offsets and field sizes, are those of the headers. A test
//! compiles the comparison (`tests/mirror.rs`), and another one fails when a definition of a header is not compared. An
//! address here is "raw": the frame's six octets, loaded little-endian.

use lanyard_fib::{LINE, layout};
use lanyard_pipeline::route::Urpf;
use lanyard_pipeline::state::{self, ReservedAction, Tpid};
use lanyard_pipeline::tables::mdb::Flooded;
use lanyard_plane::FdbKind;
use lanyard_types::{
    AdjacencyId, BalanceFields, ChannelId, DropReason, Family, GroupId, MAX_PORTS, MAX_VLANS, MacAddr, RifId,
    TrapGroup, TrapReason, VlanId, VrfId,
};
use std::mem::{offset_of, size_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Constants of the header, named there with the prefix LY_. A test compares all of them (`CONSTANTS`).
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$doc])* #[allow(dead_code)] // some are only compared, because this crate uses values of other types
        pub(crate) const $name: $type = $value;)*

        /// Every constant and its value.
        #[cfg(test)]
        pub(crate) const CONSTANTS: &[(&str, u64)] = &[$((stringify!($name), $name as u64)),*];
    };
}

/// Structures of the header, with their names there. A test compares sizes and all fields (`STRUCTURES`).
macro_rules! structures {
    ($($(#[$attribute:meta])* $c:ident = $name:ident { $(pub $field:ident: $type:ty,)* })*) => {
        $($(#[$attribute])* #[repr(C)]
        pub(crate) struct $name { $(pub $field: $type,)* })*

        /// Every structure.
        #[cfg(test)]
        pub(crate) const STRUCTURES: &[$crate::abi::Structure] = &[$($crate::abi::Structure {
            name: stringify!($c),
            size: size_of::<$name>(),
            fields: &[$((stringify!($field), std::mem::offset_of!($name, $field), size_of::<$type>())),*],
        }),*];
    };
}

pub(crate) use {constants, structures};

/// A structure of the header as it is here.
#[cfg(test)]
pub(crate) struct Structure {
    pub name: &'static str,
    pub size: usize,
    /// Name, offset and size.
    pub fields: &'static [(&'static str, usize, usize)],
}

constants! {
    /// LY_ABI: the layout of the maps. Pins with another number cannot be adopted.
    ABI: u32 = 40;
    PORTS: usize = 1024;
    PORT_WORDS: usize = PORTS / 64;
    VLANS: usize = 4096;
    IFMAP: u32 = 4096;
    /// XDP floods to ports below this number only.
    XDP_FLOOD: usize = 64;
    /// The number of programs that others jump to: the slots of `steps[]`.
    STEPS: usize = 2;
    /// The number of buckets in the near part of the FDB, which is used while few hosts are known.
    FDB_NEAR: u32 = 1 << 14;
    FDB_WAYS: usize = 8;
    DROPS: usize = 64;
    GROUPS: usize = 32;
    TRAP_BYTES: usize = 2048;
    TRAP_WAKE_NS: u64 = lanyard_plane::TRAP_WAKE.as_nanos() as u64;
    JOURNAL_BYTES: usize = 16384;
    HASH_A: u64 = 0x9e37_79b9_7f4a_7c15;
    HASH_B: u64 = 0xd6e8_feb8_6659_fd93;
    /// ly_usage.limit of an object without a limit of its own.
    UNLIMITED: u32 = u32::MAX;
    /// ly_fdb_call.ageing_s of a sweep that removes nothing, and oldest_s when there is no dynamic entry.
    NO_AGE: u32 = u32::MAX;
    /// ly_journal.target when the destination was not looked up.
    NO_TARGET: u32 = u32::MAX;
    /// ly_journal.target_port when the destination was not found.
    NOT_FOUND: u16 = 0xffff;
    FORMS: usize = 4;
    /// Slots of ly_journal.form.
    JOURNAL_OWN: usize = 16;
    JOURNAL_FORMS: usize = 64;
    MIRRORED: u8 = 4;
    MIRRORED_BARE: u8 = 5;
    SAMPLED: u8 = 6;
    MIRRORED_NAMED: u8 = 7;
    MIRRORED_REMOTE: u8 = 0x08;
    MIRRORED_SENT: u8 = 0x80;
    PORT_ENABLED: u32 = 0x01;
    PORT_ACCESS: u32 = 0x02;
    PORT_ISOLATED: u32 = 0x04;
    PORT_SVI: u32 = 0x08;
    PORT_PEER: u32 = 0x10;
    PORT_PARTIAL: u32 = 0x20;
    PORT_PEER_ANY: u32 = 0x200;
    PORT_XDP_TX: u32 = 0x40;
    PORT_ROUTED: u32 = 0x80;
    PORT_SUB: u32 = 0x100;
    PORT_TUNNEL_STP: u32 = 0x800;
    PORT_TUNNEL_CDP: u32 = 0x1000;
    PORT_TUNNEL_LLDP: u32 = 0x2000;
    RESTORED: usize = 3;
    PORT_WHOLE: u32 = 0x4000;
    PORT_XDP_SG: u32 = 0x8000;
    PORT_SNOOP: u32 = 0x8_0000;
    PORT_PRIVATE: u32 = 0x4000_0000;
    /// [`PORT_XDP_TX`] and [`PORT_XDP_SG`] end when the daemon no longer renews the port's lease.
    PORT_LEASED: u32 = 0x1_0000;
    /// XDP sees tags only while the control plane keeps the driver from parsing them.
    PORT_LEASED_TAGS: u32 = 0x2_0000;
    /// The lease of [`PORT_LEASED_TAGS`] has ended: XDP passes all received frames to TC.
    PORT_XDP_ENDED: u32 = 0x4_0000;
    PORT_CHANNEL: u32 = 0x10_0000;
    PORT_MEMBER: u32 = 0x20_0000;
    CHANNELS: usize = 256;
    CHANNEL_BUCKETS: usize = state::CHANNEL_BUCKETS;
    BALANCE_FIELDS: u8 = 0x03;
    BALANCE_MAC: u8 = BalanceFields::Mac as u8;
    BALANCE_IP: u8 = BalanceFields::Ip as u8;
    BALANCE_PORT: u8 = BalanceFields::Port as u8;
    BALANCE_IP_PORT: u8 = BalanceFields::IpPort as u8;
    BALANCE_SRC: u8 = 0x04;
    BALANCE_DST: u8 = 0x08;
    BALANCE_SYMMETRIC: u8 = 0x10;
    BALANCE_USED: u8 = 0x80;
    /// Milliseconds after which a lease ends that has not been confirmed.
    LEASE_MS: u64 = 2000;
    PV_MEMBER: u8 = 0x01;
    PV_UNTAGGED: u8 = 0x02;
    PV_LEARN: u8 = 0x04;
    PV_FORWARD: u8 = 0x08;
    PV_ACTIVE: u8 = 0x10;
    PV_STP_LEARNING: u8 = 0x20;
    PV_ROUTES: u8 = 0x40;
    PV_WATCHED: u8 = 0x80;
    WATCHDOG_TREES: u16 = 0;
    WATCHDOG_LEASES: u16 = 1;
    WATCHDOG_SNOOPING: u16 = 2;
    WATCHDOG_ROUTING: u16 = 3;
    WATCHDOGS: usize = 4;
    WATCHDOG_WAITS: u64 = 0;
    WATCHDOG_EXPIRING: u64 = 1;
    WATCHDOG_EXPIRED: u64 = 2;
    RIFS: usize = 4096;
    RIF_LIVE: u8 = 0x01;
    RIF_IPV4: u8 = 0x02;
    RIF_IPV6: u8 = 0x04;
    RIF_URPF_SHIFT: u8 = 3;
    RIF_CONFIRMED: u8 = 0x80;
    VLAN_RIF_VIRTUAL: u64 = 1 << 63;
    TRAP_REASONS: usize = 32;
    SUB_RIFS: usize = 4096;
    VRFS: usize = 32;
    OWN_WORDS: usize = 128;
    OWN_SHIFT: u32 = 51;
    FIB_SLOTS: usize = 2 * VRFS;
    FIB_SMALL: u32 = 16_384;
    FIB_MEDIUM: u32 = 262_144;
    BANKS: u32 = 2;
    BANK_ROWS: u32 = 65_536;
    BANK_BUCKETS: u32 = 262_144;
    TARGET_GROUP: u32 = 1;
    TARGET_UP: u32 = 2;
    TARGET_BLACKHOLE: u32 = 3;
    TARGET_CONNECTED: u32 = 4;
    ADJ_RESOLVED: u64 = 1 << 63;
    IPV4: u8 = Family::V4 as u8;
    IPV6: u8 = Family::V6 as u8;
    SNOOP_ON: u8 = 0x01;
    SNOOP_ROUTERS: u8 = 0x02;
    SNOOP_FLOOD_UNREGISTERED: u8 = Flooded::Unregistered as u8;
    SNOOP_FLOOD_ALL: u8 = Flooded::All as u8;
    MDB_SEGMENTS: usize = 16;
    /// Entries of a segment of the MDB, and of all segments.
    MDB_SEGMENT: usize = 8192;
    MDB: usize = MDB_SEGMENTS * MDB_SEGMENT;
    MDB_ROW_BITS: u32 = 14;
    MDB_ROWS: usize = 1 << MDB_ROW_BITS;
    MDB_BUCKET_BITS: u32 = 12;
    MDB_BUCKETS: usize = 1 << MDB_BUCKET_BITS;
    MDB_WAYS: usize = 16;
    MDB_FAMILY: u32 = 0x1000;
    MDB_SOURCE: u32 = 0x2000;
    USAGE_TABLE: usize = 0;
    USAGES: usize = PORTS + VLANS;
    EVENT_ADDED: u8 = 1;
    EVENT_MOVED: u8 = 2;
    EVENT_AGED: u8 = 3;
    EVENT_FLUSHED: u8 = 4;
    EVENT_VIOLATION: u8 = 5;
    SCAN_FLUSH: u32 = 1;
    SCAN_SWEEP: u32 = 2;
    DRY_LEARN: u32 = 0x01;
    DRY_COUNT: u32 = 0x02;
    DRY_POLICE: u32 = 0x04;
    FORWARDED: u8 = 1;
    TRAPPED: u8 = 2;
    DROPPED: u8 = 3;
    SRC_NEW: u8 = 1;
    SRC_KNOWN: u8 = 2;
    SRC_MOVED: u8 = 3;
    SRC_FIXED: u8 = 5;
    LINE_WORDS: usize = LINE;
    VIRTUAL_MACS: usize = lanyard_pipeline::route::VIRTUAL_MACS;
    UNTAGGED: u8 = Tpid::None as u8;
    DOT1Q: u8 = Tpid::Dot1q as u8;
    DOT1AD: u8 = Tpid::Dot1ad as u8;
    FDB_DYNAMIC: u8 = FdbKind::Dynamic as u8;
    FDB_STATIC: u8 = FdbKind::Static as u8;
    FDB_STICKY: u8 = FdbKind::Sticky as u8;
    FDB_SELF: u8 = FdbKind::SelfAddress as u8;
    /// The layout of an FDB entry's word.
    FDB_TAG_SHIFT: u32 = 19;
    FDB_SECOND: u64 = 1 << 18;
    FDB_SEEN_SHIFT: u32 = 10;
    FDB_PORT_MASK: u64 = 0x3ff;
    /// The value of `seen` for a dynamic entry that was last seen long ago.
    FDB_LONG_AGO: u8 = 251;
    /// The value of `seen` minus this is the kind of an entry that is not dynamic.
    FDB_KINDS: u8 = 250;
    FDB_NEAR_BITS: u32 = 14;
    ADJ_RIF_SHIFT: u32 = 48;
    VLAN_RIF_SHIFT: u32 = 48;
    NH_COUNT_SHIFT: u32 = 32;
}

structures! {
    /// One slot of `if_slots`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_if_slot = IfSlot {
        pub ifindex: u32,
        pub port: u32,
    }

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_port = Port {
        pub ifindex: u32,
        pub flags: u32,
        pub pvid: u16,
        pub tpid: u16,
        pub form: u8,
        pub channel: u8,
        pub private: u8,
        pub qos: u8,
        pub max_len: u32,
        pub rif: u16,
        pub parent: u16,
        pub peer_mac: u64,
    }

    #[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_port_vlans = PortVlans {
        pub bits: [u8; VLANS],
    }

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_vlan_ports = VlanPorts {
        pub form: [[u64; PORT_WORDS]; FORMS],
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_global = Global {
        pub reserved: [u8; 16],
        pub trap_pvst: u8,
        pub trap_cdp: u8,
        pub balance: u8,
        pub unused: u8,
        pub first_word: u16,
        pub end_word: u16,
        pub isolated: [u64; PORT_WORDS],
        pub no_unicast: [u64; PORT_WORDS],
        pub no_multicast: [u64; PORT_WORDS],
        pub xdp_flood: u64,
        pub xdp_flood_len: u32,
        pub facts_s: u32,
        pub pvst_vlans: [u64; VLANS / 64],
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_channel = Channel {
        pub collecting: [u64; PORT_WORDS],
        pub member: [u16; CHANNEL_BUCKETS],
    }

    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_watchdog = Watchdog {
        pub due_ns: u64,
        pub expired_ns: u64,
        pub phase: u64,
        pub affected: u64,
    }

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_snoop_vlan = SnoopVlan {
        pub config: [u8; 2],
        pub flooded: [u8; 2],
        pub pad: u32,
        pub routers: [[u64; PORT_WORDS]; 2],
    }

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_mdb_bucket = MdbBucket {
        pub way: [u32; MDB_WAYS],
    }

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_mdb_row = MdbRow {
        pub group: [u64; 2],
        pub source: [u64; 2],
        pub place: u32,
        pub sources: u32,
        pub ports: [u64; PORT_WORDS],
    }

    /// Too large for the stack: only its offsets are used.
    #[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_mdb_segment = MdbSegment {
        pub index: [MdbBucket; MDB_BUCKETS],
        pub row: [MdbRow; MDB_ROWS],
    }

    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_fdb_bucket = FdbBucket {
        pub way: [u64; FDB_WAYS],
    }

    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_fdb_times = FdbTimes {
        pub updated_s: [u32; FDB_WAYS],
    }

    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_usage = Usage {
        pub limit: u32,
        pub count: i32,
        pub high_water: u32,
        pub pad: u32,
        pub refused: u64,
    }

    #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_port_stats = PortStats {
        pub rx_frames: u64,
        pub rx_bytes: u64,
        pub tx_frames: u64,
        pub tx_bytes: u64,
        pub forwarded: u64,
        pub trapped: u64,
        pub tx_dropped: u64,
        pub pad: u64,
        pub dropped: [u64; DROPS],
    }

    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_vlan_stats = VlanStats {
        pub frames: u64,
        pub bytes: u64,
    }

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_rif = Rif {
        pub mac: u64,
        pub mtu: u32,
        pub port: u16,
        pub vlan: u16,
        pub up: u16,
        pub vrf: u8,
        pub flags: u8,
        pub virtuals: u8,
        pub pad: [u8; 3],
        pub virtual_mac: [u64; VIRTUAL_MACS],
    }

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_line = Line {
        pub word: [u32; 16],
    }

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_adjacency = AdjacencyRow {
        pub next: u64,
        pub used_s: u32,
        pub pad: u32,
    }

    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_trap_group = TrapGroupRow {
        pub interval_ns: u64,
        pub tolerance_ns: u64,
        pub arrival_ns: u64,
        pub passed: u64,
        pub policed: u64,
        pub lost: u64,
        pub port_interval_ns: u64,
        pub port_tolerance_ns: u64,
    }

    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_fdb_event = FdbEvent {
        pub key: u64,
        pub value: u64,
        pub from: u16,
        pub event: u8,
        pub pad: [u8; 5],
    }

    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_trap = TrapHeader {
        pub len: u32,
        pub port: u16,
        pub vlan: u16,
        pub tag_proto: u16,
        pub tag_tci: u16,
        pub reason: u8,
        pub pad: [u8; 3],
    }

    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_fdb_call = FdbCall {
        pub key: u64,
        pub value: u64,
        pub scan: u32,
        pub ageing_s: u32,
        pub port: u16,
        pub pad: u16,
        pub result: i32,
        pub removed: u64,
        pub oldest_s: u32,
        pub now_s: u32,
    }

    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_clock_call = ClockCall {
        pub now_ns: u64,
    }

    #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_watchdog_call = WatchdogCall {
        pub after_ns: u64,
        pub kind: u32,
        pub result: i32,
    }

    #[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
    ly_journal = Journal {
        pub now_ns: u64,
        pub port: u32,
        pub mode: u32,
        pub verdict: u8,
        pub reason: u8,
        pub arrived: u8,
        pub priority_tagged: u8,
        pub vlan: u16,
        pub tci: u16,
        pub source: u8,
        pub flooded: u8,
        pub source_port: u16,
        pub target_port: u16,
        pub egress_count: u16,
        pub clones: u16,
        pub tag_ops: u16,
        pub len: u32,
        pub route_rif: u16,
        pub bucket: u16,
        pub bucket_count: u16,
        pub out_vlan: u16,
        pub target: u32,
        pub adjacency: u32,
        pub next: u64,
        pub ttl: u8,
        pub rewritten: u8,
        pub up: u8,
        pub straight: u8,
        pub extra: u32,
        pub balanced: u32,
        pub member: u32,
        pub sampled_len: u32,
        pub sampled_port: u32,
        pub marked: u32,
        pub own_slots: u32,
        pub form: [JournalForm; JOURNAL_FORMS],
        pub egress_port: [u16; PORTS],
        pub egress_form: [u8; PORTS],
        pub egress_slot: [u8; PORTS],
    }
}

/// union ly_fdb_value, as its fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FdbValue {
    pub updated_s: u32,
    pub port: u16,
    pub kind: u8,
}

impl FdbValue {
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self { updated_s: raw as u32, port: (raw >> 32) as u16, kind: (raw >> 48) as u8 }
    }
    pub(crate) const fn raw(self) -> u64 {
        self.updated_s as u64 | (self.port as u64) << 32 | (self.kind as u64) << 48
    }
}

/// One entry of ly_journal.form.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct JournalForm {
    pub len: u32,
    pub tag_proto: u16,
    pub tag_tci: u16,
}

const _: () = {
    assert!(PORTS == MAX_PORTS && VLANS == MAX_VLANS);
    assert!(size_of::<IfSlot>() == 8);
    assert!(size_of::<Port>() == 32);
    assert!(offset_of!(Port, pvid) == 8 && offset_of!(Port, form) == 12);
    assert!(offset_of!(Port, max_len) == 16 && offset_of!(Port, peer_mac) == 24);
    assert!(size_of::<PortVlans>() == VLANS);
    assert!(size_of::<VlanPorts>() == 512);
    assert!(size_of::<Global>() == 24 + 3 * 128 + 16 + VLANS / 8);
    assert!(offset_of!(Global, isolated) == 24 && offset_of!(Global, no_multicast) == 24 + 256);
    assert!(size_of::<Watchdog>() == 32 && offset_of!(Watchdog, phase) == 16);
    assert!(size_of::<SnoopVlan>() == 8 + 256 && size_of::<MdbRow>() == 40 + 8 * PORT_WORDS);
    assert!(size_of::<FdbBucket>() == 64 && size_of::<FdbTimes>() == 32);
    assert!(size_of::<Usage>() == 24);
    assert!(
        offset_of!(Usage, count) == 4
            && offset_of!(Usage, high_water) == 8
            && offset_of!(Usage, refused) == 16
    );
    assert!(size_of::<PortStats>() == 64 + 8 * DROPS && offset_of!(PortStats, dropped) == 64);
    assert!(size_of::<VlanStats>() == 16);
    assert!(size_of::<TrapGroupRow>() == 64 && offset_of!(TrapGroupRow, lost) == 40);
    assert!(size_of::<FdbEvent>() == 24 && offset_of!(FdbEvent, event) == 18);
    assert!(size_of::<TrapHeader>() == 16 && offset_of!(TrapHeader, reason) == 12);
    assert!(size_of::<FdbCall>() == 48 && size_of::<ClockCall>() == 8 && size_of::<WatchdogCall>() == 16);
    assert!(offset_of!(FdbCall, port) == 24 && offset_of!(FdbCall, result) == 28);
    assert!(offset_of!(FdbCall, removed) == 32 && offset_of!(FdbCall, now_s) == 44);
    assert!(size_of::<Channel>() == 128 + 2 * CHANNEL_BUCKETS && CHANNELS == ChannelId::MAX.index() + 1);
    assert!(size_of::<Journal>() == 96 + 8 * JOURNAL_FORMS + 4 * PORTS);
    assert!(offset_of!(Journal, vlan) == 20 && offset_of!(Journal, source_port) == 26);
    assert!(
        offset_of!(Journal, len) == 36
            && offset_of!(Journal, target) == 48
            && offset_of!(Journal, next) == 56
            && offset_of!(Journal, form) == 96
            && offset_of!(Journal, egress_port) == 96 + 8 * JOURNAL_FORMS
    );
    assert!(size_of::<Rif>() == 24 + 8 * VIRTUAL_MACS && offset_of!(Rif, up) == 16);
    assert!(offset_of!(Rif, virtuals) == 20 && offset_of!(Rif, virtual_mac) == 24);
    assert!(LINE * 4 == size_of::<Line>());
    assert!(layout::HASH_A == HASH_A && layout::HASH_B == HASH_B);
    assert!(
        lanyard_pipeline::route::FLOW_HASH[0] == HASH_A && lanyard_pipeline::route::FLOW_HASH[1] == HASH_B
    );
    assert!(size_of::<Line>() == 64 && size_of::<AdjacencyRow>() == 16);
    assert!(RIFS == RifId::MAX.index() + 1 && VRFS == VrfId::MAX.index() + 1);
    assert!(BANK_ROWS == AdjacencyId::MAX.get() + 1 && BANK_ROWS == GroupId::MAX.get() + 1);
    assert!(Urpf::Off as u8 == 0 && Urpf::Loose as u8 == 1 && Urpf::Strict as u8 == 2);

    // The numbers of these types fit the programs' slots. `tests/mirror.rs` compares their names.
    assert!(DropReason::SLOTS <= DROPS && TrapGroup::SLOTS <= GROUPS && TrapReason::SLOTS <= TRAP_REASONS);
    assert!(
        ReservedAction::Drop as u8 == 0
            && ReservedAction::Forward as u8 == 1
            && ReservedAction::Trap as u8 == 2
    );
    assert!(Tpid::None as u8 == 0 && Tpid::Dot1q as u8 == 1 && Tpid::Dot1ad as u8 == 2);
    assert!((Tpid::Stacked9100 as usize) < FORMS);
    assert!(FdbKind::Dynamic as u8 == 1 && FdbKind::Static as u8 == 2);
    assert!(FdbKind::Sticky as u8 == 3 && FdbKind::SelfAddress as u8 == 4);
};

/// The raw form of an address.
pub(crate) const fn raw_mac(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// The address of a raw form.
pub(crate) const fn mac_of(raw: u64) -> MacAddr {
    let [a, b, c, d, e, f, _, _] = raw.to_le_bytes();
    MacAddr([a, b, c, d, e, f])
}

/// An FDB key.
pub(crate) const fn fdb_key(vlan: VlanId, mac: MacAddr) -> u64 {
    (vlan.get() as u64) << 48 | raw_mac(mac)
}

/// The VLAN and the address of an FDB key; `None` for a key that no entry has.
pub(crate) fn split_key(key: u64) -> Option<(VlanId, MacAddr)> {
    let [a, b, c, d, e, f, _, _] = key.to_le_bytes();
    VlanId::new((key >> 48) as u16).map(|vlan| (vlan, MacAddr([a, b, c, d, e, f])))
}

/// ly_usage's slot of a port.
pub(crate) const fn usage_port(port: lanyard_types::PortId) -> usize {
    port.index()
}

/// ly_usage's slot of a VLAN.
pub(crate) const fn usage_vlan(vlan: VlanId) -> usize {
    PORTS + vlan.index()
}

/// The kind with this number.
pub(crate) const fn fdb_kind(number: u8) -> Option<FdbKind> {
    Some(match number {
        1 => FdbKind::Dynamic,
        2 => FdbKind::Static,
        3 => FdbKind::Sticky,
        4 => FdbKind::SelfAddress,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_round_trip() {
        let (vlan, mac) = (VlanId::new(4094).expect("a VLAN"), MacAddr([2, 3, 4, 5, 6, 7]));
        assert_eq!(raw_mac(mac), 0x0706_0504_0302);
        assert_eq!(split_key(fdb_key(vlan, mac)), Some((vlan, mac)));
        assert_eq!(split_key(0), None);
        let value = FdbValue { updated_s: u32::MAX - 1, port: 1023, kind: 4 };
        assert_eq!(FdbValue::from_raw(value.raw()), value);
    }
}
