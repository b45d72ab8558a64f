//! The headers in `bpf/` against their mirrors in Rust: `abi.rs`, the files of `stages/`, `fdb.rs`, `lanyard_fib::layout`, and the
//! reasons and addresses of `lanyard_types`.
//!
//! The comparison is C: the compiler that has built the programs evaluates an assertion for each constant, size and offset.
//! A second test lists what the headers define, and fails when something is neither compared nor in the list of what the
//! programs alone use.

use crate::abi::{self, Structure, raw_mac};
use crate::{acl_layout as acl, fdb, qos_layout as qos, stages};
use lanyard_fib::{LINE, layout};
use lanyard_types::{DropReason, MacAddr, TrapGroup, TrapReason};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Constants that only the programs use: numbers of other standards, bounds of loops, codes between two functions.
const PROGRAMS_ALONE: &[&str] = &[
    // abi.h
    "LY_FACTS_VALID_S",
    "LY_FDB_CYCLE",
    "LY_FDB_SEEN_MASK",
    "LY_NH_ADJACENCY_MASK",
    "LY_NH_GUESS_MASK",
    "LY_NH_GUESS_SECOND",
    "LY_NH_GUESS_SHIFT",
    "LY_NH_GUESS_WAY_SHIFT",
    "LY_PORT_LAYER3",
    "LY_SRC_NONE",
    "LY_SRC_REFUSED",
    "LY_STEP_FLOOD",
    "LY_STEP_ROUTER",
    // trap.h
    "LINK_GROUP_IPV4",
    "LINK_GROUP_IPV6",
    "LINK_GROUP_MASK",
    // acl.h, acl_egress.h
    "ACL_ASKED",
    "ACL_DENIED",
    "ACL_FROM_SHIFT",
    "ACL_FOUND_CLASS",
    "ACL_FOUND_CLASS_SHIFT",
    "ACL_FOUND_LOG",
    "ACL_FOUND_PERMIT",
    "ACL_HIT",
    "ACL_MARKS",
    "ACL_NEAR",
    "ACL_NO_LIST",
    "ACL_ROUTED",
    "ACL_TUNNELLED",
    "IP_AUTHENTICATION",
    "IP_FRAGMENT",
    // qos.h
    "QOS_DROPPED",
    "QOS_HAS_COS",
    "QOS_HAS_DSCP",
    "QOS_IPV6",
    "QOS_TRIES",
    "QOS_TUNNELLED",
    // mirror.h
    "MIRROR_FORM_SHIFT",
    // checksum_xdp.h
    "IP_ICMP",
    "IP_ICMPV6",
    "IP_IGMP",
    "UDP_GENEVE",
    "UDP_GTP_U",
    "UDP_VXLAN",
    "UDP_VXLAN_LINUX",
    // frame_xdp.h
    "TAGS_IN_LINE",
    "TAGS_OF_DRIVER",
    "TAGS_OF_VETH",
    // memo_xdp.h
    "MEMO_COMPLETE",
    "MEMO_OTHER",
    "MEMO_PLAIN_IPV4",
    "MEMO_ROW",
    // fdb.h and fdb_control.h
    "CARRY_AGAIN",
    "CARRY_DONE",
    "CARRY_NO_COPY",
    "EAGAIN",
    "EBUSY",
    "ENOENT",
    "ENOSPC",
    "FDB_FOUND",
    "FDB_INSERTED",
    "FDB_NO_ROOM",
    "FDB_WITHDRAWN",
    "FDB_WITHDRAW_TRIES",
    // fib.h
    "FIB4_WIDE",
    "FIB_CHANGED",
    "FIB_LARGE",
    "FIB_MEDIUM",
    "FIB_SMALL",
    "FIB_TRIES",
    // frame.h, frame_tc.h, replicate.h, route.h, route_tc.h
    "ETH_IPV4",
    "ETH_IPV6",
    "FORMS_END",
    "GROUP_BIT",
    "IP_DCCP",
    "IP_HOP_BY_HOP",
    "IP_SCTP",
    "IP_TCP",
    "IP_UDP",
    "IP_UDPLITE",
    "MAC_BYTES",
    "NOT_FOR_ROUTER",
    "PACKET_HOST",
    "PACKET_MULTICAST",
    "PACKET_OTHERHOST",
    "PCP_DEI_MASK",
    "SSTP_OR_DISCOVERY",
    "TC_ACT_SHOT",
    "TC_ACT_UNSPEC",
    "VID_MASK",
    // snoop.h
    "IP_ICMPV6_NEXT",
    "IP_IGMP_MESSAGE",
    "IP_PIM",
    "MAC_IPV4_GROUP",
    "MAC_IPV6_GROUP",
    "PIM_HELLO",
    "SNOOPED_IPV6",
    "SNOOPED_NOBODY",
    "SNOOPED_SET",
    "SNOOP_BYTES",
    // guard.h
    "DHCPV6_CLIENT",
    "DHCP_CLIENT",
    "DHCP_SERVER",
    "ETH_ARP",
    "GUARD_FORWARDS",
    "ICMPV6_ADVERTISEMENT",
    "ICMPV6_REDIRECT",
    "IPV6_HEADER",
    "ND_ADVERTISEMENT",
    "ND_HOP_LIMIT",
    "ND_ROUTER_SOLICITATION",
    "ND_SOLICITATION",
    // traps.h, watchdog.h
    "TRAP_SHORT",
    "WATCHDOG_CLOCK",
    "WATCHDOG_FAMILIES",
    "WATCHDOG_TAKES",
    "WATCHED_BYTES",
];

/// Structures that only the programs use, or that are one word or an array of bytes here.
const STRUCTURES_ALONE: &[&str] = &[
    "acl_judgement",
    "acl_key",
    "acl_note_record",
    "acl_search",
    "acl_work",
    "addresses",
    "balance_side",
    "eth_words",
    "fdb_choice",
    "fdb_hit",
    "fdb_masks",
    "fdb_migrate_state",
    "fdb_scan_state",
    "flood",
    "flood_note",
    "frame",
    "ipv4",
    "ipv6",
    "ly_fdb_state",
    "ly_journal_frame",
    "ly_lost",
    "ly_watchdog_timer",
    "mac_words",
    "mdb_segment",
    "memo",
    "memo_row",
    "next_hop",
    "nh_word",
    "packet",
    "rate_clock",
    "reach",
    "sample_count",
    "sample_work",
    "sk_buff",
    "sk_buff_head",
    "snoop_key",
    "trap_record",
    "trap_short_record",
    "udp_ports",
    "veth_xdp_buff",
    "watchdog_walk",
];

/// Drop reasons that no program has: the soft plane receives by a ring, which can overrun, and only a chip diverts lists.
const NOT_IN_PROGRAMS: &[DropReason] = &[DropReason::Overrun, DropReason::AclUnjudged];

fn structures() -> impl Iterator<Item = &'static Structure> {
    [abi::STRUCTURES, acl::STRUCTURES, qos::STRUCTURES]
        .into_iter()
        .chain(stages::STRUCTURES.iter().copied())
        .flatten()
}

/// Every constant that is compared: its name in C and its value.
fn constants() -> Vec<(String, u64)> {
    let ours = [abi::CONSTANTS, acl::CONSTANTS, qos::CONSTANTS]
        .into_iter()
        .chain(stages::CONSTANTS.iter().copied())
        .flatten();
    let mut all: Vec<(String, u64)> = ours.map(|(name, value)| (format!("LY_{name}"), *value)).collect();
    let mut named = |prefix: &str, name: &str, value: usize| {
        all.push((format!("{prefix}_{}", name.to_uppercase()), value as u64));
    };
    let drops = DropReason::ALL.iter().filter(|reason| !NOT_IN_PROGRAMS.contains(reason));
    drops.for_each(|reason| named("DROP", reason.name(), reason.index()));
    TrapReason::ALL.iter().for_each(|reason| named("TRAP", reason.name(), reason.index()));
    TrapGroup::ALL.iter().for_each(|group| named("GROUP", group.name(), group.index()));
    let addresses = [
        ("BROADCAST", MacAddr::BROADCAST),
        ("RESERVED_BLOCK", MacAddr::BRIDGE_GROUP),
        ("LLDP", MacAddr::LLDP),
        ("SSTP", MacAddr::SSTP),
        ("CISCO_DISCOVERY", MacAddr::CISCO_DISCOVERY),
        ("TUNNEL", MacAddr::TUNNEL),
    ];
    all.extend(addresses.map(|(name, mac)| (name.to_owned(), raw_mac(mac))));
    let hash = [
        ("HASH_BITS", fdb::MASK.count_ones().into()),
        ("HASH_MASK", fdb::MASK),
        ("HASH_A_INVERSE", fdb::A_INVERSE),
        ("HASH_B_INVERSE", fdb::B_INVERSE),
        ("KEY_VLAN_SHIFT", 48),
        ("KEY_MAC_MASK", raw_mac(MacAddr::BROADCAST)),
    ];
    all.extend(hash.iter().chain(layout::CONSTANTS).map(|(name, value)| ((*name).to_owned(), *value)));
    all
}

/// Every structure and every constant, compared by the compiler.
#[test]
fn the_headers_and_their_mirrors_agree() {
    let mut source = "#include \"lanyard.bpf.c\"\n".to_owned();
    let mut equal = |what: &str, c: &str, rust: u64| {
        source += &format!("_Static_assert({c} == {rust}ULL, \"{what}\");\n");
    };
    for Structure { name, size, fields } in structures() {
        equal(name, &format!("sizeof(struct {name})"), *size as u64);
        for (field, offset, size) in *fields {
            let what = format!("{name}.{field}");
            equal(&what, &format!("__builtin_offsetof(struct {name}, {field})"), *offset as u64);
            equal(&what, &format!("sizeof(((struct {name} *)0)->{field})"), *size as u64);
        }
    }
    for (name, field, offset) in layout::OFFSETS {
        equal(
            &format!("{name}.{field}"),
            &format!("__builtin_offsetof(struct {name}, {field})"),
            *offset as u64,
        );
        equal(name, &format!("sizeof(struct {name})"), 4 * LINE as u64);
    }
    for (field, raw) in [
        ("updated_s", abi::FdbValue { updated_s: 1, ..abi::FdbValue::default() }),
        ("port", abi::FdbValue { port: 1, ..abi::FdbValue::default() }),
        ("kind", abi::FdbValue { kind: 1, ..abi::FdbValue::default() }),
    ] {
        let offset = u64::from(raw.raw().trailing_zeros()) / 8;
        equal(field, &format!("__builtin_offsetof(union ly_fdb_value, {field})"), offset);
    }
    for (name, value) in constants() {
        equal(&name, &format!("(unsigned long long)({name})"), value);
    }
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let asm = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut compiler = Command::new(clang)
        .args(["-fsyntax-only", "-target", "bpf", "-mcpu=v3", "-x", "c"])
        .args(["-I".as_ref(), bpf().as_os_str(), "-I".as_ref(), asm.as_ref()])
        .args(["-I", env!("LIBBPF_INCLUDE"), "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("clang, which has built this crate");
    compiler.stdin.take().expect("a pipe").write_all(source.as_bytes()).expect("written");
    assert!(compiler.wait().expect("an end").success(), "the assertion above says what differs");
}

fn bpf() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf")
}

/// The text of every header and of the program, without comments.
fn headers() -> String {
    let mut all = String::new();
    for dir in [bpf(), bpf().join("stages")] {
        for entry in std::fs::read_dir(dir).expect("bpf/").flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".h") || name == "lanyard.bpf.c" {
                all += &std::fs::read_to_string(&path).expect("readable");
            }
        }
    }
    all.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect()
}

/// The enumerators of every enumeration.
fn enumerators(code: &str) -> impl Iterator<Item = &str> {
    code.split("enum ")
        .skip(1)
        .flat_map(|rest| {
            let name = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(0);
            let list = rest[name..].trim_start().strip_prefix('{').and_then(|rest| rest.split_once('}'));
            list.map_or("", |(list, _)| list).split(',')
        })
        .map(|item| item.split('=').next().unwrap_or_default().trim())
        .filter(|name| !name.is_empty())
}

/// Nothing that a header defines is left out of the comparison by oversight.
#[test]
fn the_mirrors_are_complete() {
    let code = headers();
    let mut known: BTreeSet<&str> = structures().map(|structure| structure.name).collect();
    known.extend(layout::OFFSETS.iter().map(|(name, ..)| *name));
    for name in code.lines().filter_map(|line| line.trim_end().strip_prefix("struct ")?.strip_suffix(" {")) {
        assert_ne!(
            known.contains(name),
            STRUCTURES_ALONE.contains(&name),
            "struct {name} is compared and listed, or neither: give it a mirror, or add it to STRUCTURES_ALONE"
        );
    }
    let constants = constants();
    let known: BTreeSet<&str> = constants.iter().map(|(name, _)| name.as_str()).collect();
    let defined = code.lines().filter_map(|line| line.strip_prefix("#define ")).filter_map(|rest| {
        let (name, value) = rest.split_once([' ', '\t'])?;
        (!name.contains('(') && !value.trim().is_empty()).then_some(name)
    });
    let mut found = 0;
    for name in defined.chain(enumerators(&code)) {
        assert_ne!(
            known.contains(name),
            PROGRAMS_ALONE.contains(&name),
            "{name} is compared and listed, or neither: give it a mirror, or add it to PROGRAMS_ALONE"
        );
        found += 1;
    }
    assert!(found > 200, "only {found} constants were found");
}

/// No two flags of a port are the same bit.
#[test]
fn flags_of_ports_are_different_bits() {
    let all = [abi::CONSTANTS, acl::CONSTANTS, qos::CONSTANTS]
        .into_iter()
        .chain(stages::CONSTANTS.iter().copied())
        .flatten();
    let flags = all.filter(|(name, _)| name.starts_with("PORT_") && *name != "PORT_WORDS");
    let mut taken = 0;
    for (name, flag) in flags {
        assert!(flag.is_power_of_two() && taken & flag == 0, "{name}: {flag:#x} is taken");
        taken |= flag;
    }
    assert_ne!(taken, 0);
}
