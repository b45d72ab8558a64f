//! The names of kernel functions, and the part of the work to which each belongs.
//!
//! Invariant: every sample belongs to exactly one part. The work of a helper counts for the program
//! that called it.

use super::perf::Sample;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Receiving and sending frames: drivers, NAPI, queues.
    Interface,
    /// Deciding where a frame goes: the device under test itself.
    Switch,
    /// Pages, buffers, copies.
    Memory,
    /// Locks, RCU, softirqs disabled and enabled.
    Locks,
    /// Generating and checking frames.
    Tester,
    /// Everything else.
    Other,
}

impl Part {
    /// All parts, in the order of reports.
    pub const ALL: [Self; 6] =
        [Self::Interface, Self::Switch, Self::Memory, Self::Locks, Self::Tester, Self::Other];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interface => "interface",
            Self::Switch => "switch",
            Self::Memory => "memory",
            Self::Locks => "locks",
            Self::Tester => "tester",
            Self::Other => "other",
        }
    }
}

/// Functions whose names begin with these prefixes belong to the part; the first match counts.
const PARTS: [(Part, &[&str]); 5] = [
    (Part::Tester, &["xdp_test_run", "bpf_test_run", "bpf_test_timer", "bpf_prog_test_run", "bpf_csum_diff"]),
    (
        Part::Locks,
        &[
            "_raw_",
            "native_queued_spin",
            "queued_spin",
            "mutex_",
            "__mutex",
            "rcu_",
            "__rcu",
            "__local_bh",
            "local_bh",
            "lock_",
            "preempt_",
            "__raw_spin",
            "do_raw",
            "__raw_callee_save___pv",
            "pv_queued",
            "migrate_",
        ],
    ),
    (
        Part::Memory,
        &[
            "page_pool",
            "__page_pool",
            "kmem_cache",
            "__kmem_cache",
            "kmalloc",
            "__kmalloc",
            "kfree",
            "__kfree",
            "skb_release",
            "__alloc_skb",
            "alloc_skb",
            "build_skb",
            "__build_skb",
            "napi_build_skb",
            "napi_skb_cache",
            "consume_skb",
            "memcpy",
            "__memcpy",
            "memset",
            "__memset",
            "memmove",
            "copy_",
            "clear_page",
            "alloc_pages",
            "__alloc_pages",
            "get_page",
            "free_",
            "__free",
            "pskb_expand",
            "skb_clone",
            "__skb_clone",
            "page_frag",
            "__page_frag",
            "skb_free",
            "__skb_free",
            "napi_consume",
            "___slab",
            "__slab",
            "skb_copy",
            "put_page",
            "__put_page",
            "rmqueue",
            "xdp_return",
            "__xdp_return",
            "sk_skb_reason",
            "get_random",
            "__get_free",
        ],
    ),
    (
        Part::Switch,
        &[
            "br_",
            "fdb_",
            "__br",
            "nf_",
            "ip_",
            "__ip_",
            "fib_",
            "ip6_",
            "ipv6_",
            "neigh_",
            "arp_",
            "htab_",
            "__htab",
            "array_map",
            "trie_",
            "tcf_",
            "tcx_",
            "cls_bpf",
            "sch_handle_ingress",
            "__dev_map_lookup",
            "bpf_",
            "__bpf_",
            "jhash",
            "ovs_",
        ],
    ),
    (
        Part::Interface,
        &[
            "veth",
            "xdp_",
            "__xdp",
            "dev_",
            "__dev",
            "netif_",
            "__netif",
            "napi_",
            "__napi",
            "net_rx",
            "net_tx",
            "gro_",
            "bq_",
            "eth_",
            "process_backlog",
            "enqueue_to_backlog",
            "skb_",
            "__skb",
            "skb",
            "validate_xmit",
            "sch_",
            "qdisc",
            "__qdisc",
            "packet_",
            "tpacket",
            "xsk_",
            "__xsk",
            "xp_",
            "handle_softirqs",
            "do_softirq",
            "__do_softirq",
            "is_skb_forwardable",
            "passthru",
            "generic_xdp",
            "do_xdp",
            "tun_",
            "virtnet",
            "ptr_ring",
            "inet_gro",
            "udp_gro",
            "udp4_gro",
            "udp6_gro",
            "__raise_softirq",
        ],
    ),
];

/// Helpers whose work counts for the program that calls them.
const HELPERS: [&str; 9] =
    ["ktime_get", "bpf_", "__bpf_", "array_map", "htab_", "__htab", "kvm_clock", "read_tsc", "pvclock"];

/// Functions whose work counts for their caller.
const LEAVES: [&str; 4] = ["memcmp", "its_return_thunk", "__x86_", "srso_"];

/// The kernel's functions: start addresses, ascending, and names.
pub struct Symbols(Vec<(u64, String)>);

impl Symbols {
    /// The symbols of the running kernel and of the BPF programs that are loaded now.
    ///
    /// # Errors
    /// When the kernel hides its addresses.
    pub fn load() -> Result<Self> {
        let symbols = Self::parse(&std::fs::read_to_string("/proc/kallsyms").context("/proc/kallsyms")?);
        ensure!(!symbols.0.is_empty(), "the kernel hides its addresses (kernel.kptr_restrict, not root)");
        Ok(symbols)
    }

    /// Parses lines of `ADDRESS TYPE NAME [MODULE]`.
    fn parse(text: &str) -> Self {
        let symbol = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok().filter(|a| *a > 0)?;
            let _kind = words.next()?;
            Some((address, words.next()?.to_owned()))
        };
        let mut symbols: Vec<(u64, String)> = text.lines().filter_map(symbol).collect();
        symbols.sort();
        Self(symbols)
    }

    /// The function that contains an address. For a BPF program: its name, without its tag.
    #[must_use]
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        Some(&self.0.get(after.checked_sub(1)?)?.1)
    }

    /// The part and the function of a kernel sample.
    #[must_use]
    pub fn classify(&self, sample: &Sample) -> (Part, String) {
        let Some(name) = self.name(sample.ip) else { return (Part::Other, "?".to_owned()) };
        if let Some(part) = program_part(name) {
            return (part, show(name));
        }
        if HELPERS.iter().any(|helper| name.starts_with(helper)) {
            let caller = sample.callers.iter().find_map(|ip| program_part(self.name(*ip)?));
            if let Some(part) = caller {
                return (part, name.to_owned());
            }
        }
        if LEAVES.iter().any(|leaf| name.starts_with(leaf))
            && let Some(caller) = sample.callers.first().and_then(|ip| self.name(*ip))
        {
            return (program_part(caller).unwrap_or_else(|| part_of(caller)), name.to_owned());
        }
        (part_of(name), name.to_owned())
    }
}

fn part_of(name: &str) -> Part {
    let fits = |names: &[&str]| names.iter().any(|beginning| name.starts_with(beginning));
    PARTS.iter().find(|(_, names)| fits(names)).map_or(Part::Other, |(part, _)| *part)
}

/// The part to which a BPF program belongs: the tester or the device under test.
fn program_part(name: &str) -> Option<Part> {
    let program = show(name.strip_prefix("bpf_prog_").map(|_| name)?);
    let ours =
        ["bpf:send", "bpf:check_xdp", "bpf:check_tc", "bpf:generate", "bpf:receive_xdp", "bpf:receive_tc"];
    Some(if ours.contains(&program.as_str()) { Part::Tester } else { Part::Switch })
}

/// Writes `bpf_prog_0123456789abcdef_name` as `bpf:name`.
fn show(name: &str) -> String {
    match name.strip_prefix("bpf_prog_").and_then(|rest| rest.split_once('_')) {
        Some((_tag, program)) => format!("bpf:{program}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_names_and_parts() {
        let text = "ffff0100 T veth_poll\nffff0200 t ktime_get_mono_fast_ns\n0 t hidden\n\
                    ffff0400 t bpf_prog_6deef7357e7b4530_send [bpf]\nffff0300 T page_pool_alloc_pages\n\
                    ffff0500 t bpf_prog_1234567812345678_lanyard_tc [bpf]\nffff0600 T _raw_spin_lock\n\
                    ffff0700 T br_handle_frame\nffff0800 T schedule\nffff0900 T memcmp\n";
        let symbols = Symbols::parse(text);
        let check = |ip: u64, callers: &[u64], part: Part, name: &str| {
            let sample = Sample { cpu: 0, pid: 1, time_ns: 0, ip, callers: callers.to_vec() };
            assert_eq!(symbols.classify(&sample), (part, name.to_owned()));
        };
        check(0xffff_0100, &[], Part::Interface, "veth_poll");
        check(0xffff_02ff, &[0xffff_0410], Part::Tester, "ktime_get_mono_fast_ns");
        check(0xffff_0201, &[0xffff_0510, 0xffff_0410], Part::Switch, "ktime_get_mono_fast_ns");
        check(0xffff_0201, &[0xffff_0101], Part::Other, "ktime_get_mono_fast_ns");
        check(0xffff_0301, &[], Part::Memory, "page_pool_alloc_pages");
        check(0xffff_0400, &[], Part::Tester, "bpf:send");
        check(0xffff_0555, &[], Part::Switch, "bpf:lanyard_tc");
        check(0xffff_0600, &[], Part::Locks, "_raw_spin_lock");
        check(0xffff_0700, &[], Part::Switch, "br_handle_frame");
        check(0xffff_0801, &[], Part::Other, "schedule");
        check(0xffff_0901, &[0xffff_0701], Part::Switch, "memcmp");
        check(0x10, &[], Part::Other, "?");
    }
}
