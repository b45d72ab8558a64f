/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The tables, except those of single stages, which are in the headers of the stages. The control plane writes the
 * mmapable ones with plain word-sized stores. The programs write fdb, fdb_times, fdb_usage.count, adjacencies.used_s,
 * guesses (abi.h), the statistics and the rings. crates/ebpf sets the sizes of `fdb` and `fdb_times` before it loads
 * the programs. */
#ifndef LY_MAPS_H
#define LY_MAPS_H

/* Constants set at load time: the verifier knows their values and removes the branches that they
 * disable. */
const volatile __u32 fdb_mask = LY_FDB_NEAR - 1; /* buckets - 1 */
const volatile __u64 fdb_salt = 0;
const volatile __u64 tick_ns = 0; /* nanoseconds between two jiffies */
const volatile __u32 dry = 0; /* 1: a dry run, which writes to the journal instead of sending */
const volatile __u32 never = 0;

#define TABLE(name_, value_, entries_, flags_)            \
	struct {                                          \
		__uint(type, BPF_MAP_TYPE_ARRAY);         \
		__uint(map_flags, flags_);                \
		__uint(max_entries, entries_);            \
		__type(key, __u32);                       \
		__type(value, value_);                    \
	} name_ SEC(".maps")

/* A table at an address that the programs know. libbpf makes the section a map, an array of one
 * element (crates/ebpf/src/tables.rs, Shape::Section). A look-up in a TABLE passes its index in memory,
 * even where the JIT inlines the look-up, and that takes longer than the table access itself; here
 * it is an addition. Use it for what each frame reads, up to the 4 MB that kernels allow for an
 * element. The number of rows must be a power of two. */
#define ROWS(name_, value_, entries_) value_ name_[entries_] SEC(".bss." #name_)

ROWS(if_slots, struct ly_if_slot, LY_IFMAP);
ROWS(ports, struct ly_port, LY_PORTS);
ROWS(channels, struct ly_channel, LY_CHANNELS);
ROWS(port_vlans, struct ly_port_vlans, LY_PORTS);
ROWS(shared_vlans, __u64, LY_VLANS);
TABLE(vlan_ports, struct ly_vlan_ports, LY_VLANS, BPF_F_MMAPABLE);
ROWS(global, struct ly_global, 1);
TABLE(fdb_usage, struct ly_usage, LY_USAGES, BPF_F_MMAPABLE);
TABLE(trap_groups, struct ly_trap_group, LY_GROUPS, BPF_F_MMAPABLE);
TABLE(trap_reasons, __u64, LY_TRAP_REASONS, BPF_F_MMAPABLE);
TABLE(trap_ports, __u64, LY_GROUPS * LY_PORTS, BPF_F_MMAPABLE);
TABLE(lost, struct ly_lost, 1, BPF_F_MMAPABLE);
ROWS(fdb_state, struct ly_fdb_state, 1);
ROWS(fdb_near, struct ly_fdb_bucket, LY_FDB_NEAR); /* the first buckets: those in use while few hosts are known */
TABLE(fdb, struct ly_fdb_bucket, 1, BPF_F_MMAPABLE); /* the others; mmapable, so that it begins at a cache line */
TABLE(fdb_times, struct ly_fdb_times, LY_FDB_NEAR, BPF_F_MMAPABLE);
TABLE(journal, struct ly_journal, 1, 0);

struct ly_journal_frame {
	__u8 byte[LY_JOURNAL_BYTES];
};
TABLE(journal_bytes, struct ly_journal_frame, LY_JOURNAL_FORMS, 0);

/* The watchdogs, by enum ly_watchdog_kind. The kernel cancels a timer when the last descriptor and pin of its map are gone. */
struct ly_watchdog_timer {
	struct bpf_timer timer;
};
_Static_assert(sizeof(struct ly_watchdog_timer) == 16, "ly_watchdog_timer");
TABLE(watchdog_timer, struct ly_watchdog_timer, LY_WATCHDOGS, 0);
ROWS(watchdog, struct ly_watchdog, LY_WATCHDOGS);

/* Routing: the interfaces by which frames reach the router, and the routes by which they leave. */
ROWS(rifs, struct ly_rif, LY_RIFS);
ROWS(vlan_rifs, __u64, LY_VLANS);
ROWS(own_addresses, __u64, LY_OWN_WORDS);
ROWS(nh_groups, __u64, LY_BANKS * LY_BANK_ROWS);
TABLE(nh_buckets, struct ly_line, LY_BANKS * LY_BANK_BUCKETS / LY_LINE_WORDS, BPF_F_MMAPABLE);
ROWS(adjacencies, struct ly_adjacency, LY_BANKS * LY_BANK_ROWS);

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LY_SUB_RIFS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u32);
} sub_rifs SEC(".maps");

/* A VRF's table is created with its first route, and copied into a larger one when it is full.
 * Small and medium tables have one size each, so that the verifier inlines look-ups in them. Large
 * tables may have any size, at the price of a helper call for each look-up. */
#define FIB_TABLES(name, lines, flags)                                                                           \
	struct name##_table {                                                                                    \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                \
		__uint(map_flags, BPF_F_MMAPABLE | (flags));                                                     \
		__uint(max_entries, lines);                                                                      \
		__uint(key_size, sizeof(__u32));                                                                 \
		__uint(value_size, sizeof(struct ly_line)); /* clang 14 loses a type behind two pointers */    \
	};                                                                                                       \
	struct {                                                                                                 \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                                                        \
		__uint(max_entries, LY_FIB_SLOTS);                                                               \
		__type(key, __u32);                                                                              \
		__array(values, struct name##_table);                                                            \
	} name SEC(".maps")
FIB_TABLES(fib_small, LY_FIB_SMALL, 0);
FIB_TABLES(fib_medium, LY_FIB_MEDIUM, 0);
FIB_TABLES(fib_large, 1, BPF_F_INNER_MAP);

/* Programs that other programs jump to. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, LY_STEPS);
	__type(key, __u32);
	__type(value, __u32);
} steps SEC(".maps");

/* Ports whose slot of if_slots is taken by another ifindex. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LY_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} if_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LY_PORTS);
	__type(key, __u32);
	__type(value, struct ly_port_stats);
} port_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LY_VLANS);
	__type(key, __u32);
	__type(value, struct ly_vlan_stats);
} vlan_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, LY_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} xdp_ports SEC(".maps");

/* The ports of xdp_ports below LY_XDP_FLOOD, for floods, each with the program that finishes its copy. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, LY_XDP_FLOOD);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} xdp_flood SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 * 1024);
} fdb_events SEC(".maps");

/* Separate from fdb_events, so that many new addresses do not displace BPDUs. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1024 * 1024);
} traps SEC(".maps");

#endif
