/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The interface between the programs in bpf/ and crates/ebpf: every structure and number that both use.
 *
 * crates/ebpf/src/abi.rs repeats these definitions by hand, crates/ebpf/src/stages those of single stages, which are in
 * the headers of the stages. A test compares all values, sizes and offsets (crates/ebpf/src/tests/mirror.rs). A change
 * of layout raises LY_ABI, and a daemon that finds pins of another LY_ABI builds a new plane.
 *
 * Addresses are "raw": the frame's six octets, loaded little-endian, in the low 48 bits. Numbers are
 * in host order unless the name ends in _be. */
#ifndef LY_ABI_H
#define LY_ABI_H

#define LY_ABI 40

#define LY_PORTS 1024 /* slot 0 is "no port" */
#define LY_PORT_WORDS (LY_PORTS / 64)
#define LY_VLANS 4096
#define LY_XDP_FLOOD 64 /* XDP floods if every port is below this number: the kernel walks the whole device map */
#define LY_IFMAP 4096 /* direct-mapped slots from ifindex to port */
#define LY_FDB_WAYS 8 /* entries per bucket: one cache line */
#define LY_DROPS 64   /* slots for drop reasons; lanyard_types::DropReason numbers them */
#define LY_GROUPS 32  /* slots for trap groups; lanyard_types::TrapGroup */
#define LY_TRAP_BYTES 2048 /* the longest part of a trapped frame that is copied to the control plane */
#define LY_JOURNAL_BYTES 16384

/* Multipliers of the hashes: of the FDB, of the prefixes of routes, of flows, of the switch's own addresses. */
#define LY_HASH_A 0x9e3779b97f4a7c15ULL
#define LY_HASH_B 0xd6e8feb86659fd93ULL

#define LY_UNLIMITED 0xffffffffU /* ly_usage.limit: no limit of its own */
#define LY_NO_AGE 0xffffffffU    /* ly_fdb_call.ageing_s: the sweep removes nothing; oldest_s: there is no dynamic entry */
#define LY_NO_TARGET 0xffffffffU /* ly_journal.target: not looked up */
#define LY_NOT_FOUND 0xffff      /* ly_journal.target_port: the destination was not found */

/* The forms of a frame on the wire: untagged, or with a tag of this TPID. They index ly_vlan_ports.form, and have the numbers of
 * Tpid in crates/pipeline. */
enum ly_form { LY_UNTAGGED = 0, LY_DOT1Q = 1, LY_DOT1AD = 2, LY_FORMS = 4 };
#define LY_RESTORED 3 /* in the journal only: an untagged control frame of a customer, whose own destination has been
                       * restored */

/* The slots of the journal for the bytes of frames: the forms above; received frames that monitor sessions copy, as they arrived,
 * without their tag, or with one more tag; the head of a sampled frame. Each slot from LY_JOURNAL_OWN on is for one copy that an
 * output policy has marked; copies beyond the last slot get no slot of their own. */
enum {
	LY_MIRRORED = 4,
	LY_MIRRORED_BARE = 5,
	LY_SAMPLED = 6,
	LY_MIRRORED_NAMED = 7, /* for ERSPAN: as received, with one more tag, which has the frame's VLAN */
	LY_JOURNAL_OWN = 16,
	LY_JOURNAL_FORMS = 64
};
#define LY_MIRRORED_REMOTE 0x08 /* added to a slot: the copy has the tag of an RSPAN VLAN, or, sent for ERSPAN, of its own VLAN */
#define LY_MIRRORED_SENT 0x80 /* in ly_journal.egress_form: a monitor session's copy of a frame that a port sends */

/* ly_port.flags. The flag of a single stage is in the stage's header. */
#define LY_PORT_ENABLED 0x01  /* admin up and link up; clear: dropped as port_down or egress_down */
#define LY_PORT_ACCESS 0x02   /* access port: selects the drop reason for a frame with a tag of another VLAN */
#define LY_PORT_ISOLATED 0x04 /* a protected port: no frame is bridged from it to another protected port */
#define LY_PORT_SVI 0x08      /* the pipeline's side of a VLAN interface's veth */
#define LY_PORT_PEER 0x10     /* unicast for peer_mac, the far end's address, is delivered by bpf_redirect_peer */
#define LY_PORT_PEER_ANY 0x200 /* with LY_PORT_PEER: known unicast for other addresses, too */
#define LY_PORT_PARTIAL 0x20  /* XDP receives frames whose transport checksum may be missing */
#define LY_PORT_ROUTED 0x80   /* a routed port: in no VLAN */
#define LY_PORT_SUB 0x100     /* the host's side of a subinterface; `parent` is its routed port, and `pvid` its tag */
#define LY_PORT_TUNNEL_STP 0x800   /* a tunnel port (tpid 0) that carries the customer's BPDUs, IEEE and PVST+ */
#define LY_PORT_TUNNEL_CDP 0x1000  /* a tunnel port that carries the customer's CDP frames */
#define LY_PORT_TUNNEL_LLDP 0x2000 /* a tunnel port that carries the customer's LLDP frames */
#define LY_PORT_WHOLE 0x4000  /* XDP receives each frame in one buffer: a veth whose MTU fits one */
#define LY_PORT_XDP_SG 0x8000 /* accepts frames of several buffers from XDP */
#define LY_PORT_LEASED 0x10000 /* LY_PORT_XDP_TX and _SG end when the control plane stops confirming them: a veth port */
#define LY_PORT_LEASED_TAGS 0x20000 /* XDP sees tags only while the control plane keeps the driver from parsing them */
#define LY_PORT_XDP_ENDED 0x40000   /* the lease of LY_PORT_LEASED_TAGS has ended: XDP passes all received frames to TC */
#define LY_PORT_SNOOP 0x80000 /* a member of a VLAN with multicast snooping */
#define LY_PORT_CHANNEL 0x100000 /* a port-channel, whose members are channels[channel]; it has no netdev */
#define LY_PORT_MEMBER 0x200000 /* a member of the port-channel `parent`, channels[channel] */
#define LY_PORT_PRIVATE 0x40000000 /* a port of private VLANs: see ly_port.private, and shared_vlans */
#define LY_PORT_LAYER3 (LY_PORT_ROUTED | LY_PORT_SUB)
#define LY_PORT_XDP_TX 0x40   /* accepts frames redirected by XDP (the port is in xdp_ports) */

struct ly_port {
	__u32 ifindex; /* 0: no such port */
	__u32 flags;
	__u16 pvid; /* 0: untagged frames are refused */
	__u16 tpid; /* EtherType of the port's tag; 0: the port recognises no tag */
	__u8 form;  /* enum ly_form of tagged frames that leave; LY_UNTAGGED when tpid is 0 */
	__u8 channel; /* the number of the port-channel; 0: none */
	__u8 private; /* not 0: a host or promiscuous port. It receives in `pvid` only, and need not be its member */
	__u8 qos; /* LY_QOS_HAS_*, bpf/qos.h */
	__u32 max_len; /* longest frame, its own tag not counted: MTU + 18 */
	__u16 rif;    /* a routed port's own router interface; 0: none */
	__u16 parent; /* a subinterface's routed port, or a member's port-channel */
	__u64 peer_mac; /* raw; LY_PORT_PEER says that it is set */
};
_Static_assert(sizeof(struct ly_port) == 32, "ly_port");

/* Leases that the control plane has not confirmed for this many milliseconds end. The time is several times the
 * control plane's interval, and short, because until then frames are lost for a veth that no longer accepts them from
 * XDP. */
#define LY_LEASE_MS 2000

/* Seconds for which peer_mac is trusted without confirmation: longer than a restart of the control plane takes. */
#define LY_FACTS_VALID_S 5

/* if_slots[ifindex modulo LY_IFMAP] */
struct ly_if_slot {
	__u32 ifindex;
	__u32 port;
};

/* channels[number]: the members of a port-channel that are in use. Frames leave by the member of their bucket. */
#define LY_CHANNELS 256
#define LY_CHANNEL_BUCKETS 256

struct ly_channel {
	__u64 collecting[LY_PORT_WORDS];   /* the members whose frames are accepted */
	__u16 member[LY_CHANNEL_BUCKETS]; /* 0: the port-channel cannot send */
};
_Static_assert(sizeof(struct ly_channel) == 128 + 2 * LY_CHANNEL_BUCKETS, "ly_channel");

/* ly_global.balance: the fields of a frame that are hashed to its bucket */
#define LY_BALANCE_FIELDS 0x03
enum ly_balance { LY_BALANCE_MAC = 0, LY_BALANCE_IP = 1, LY_BALANCE_PORT = 2, LY_BALANCE_IP_PORT = 3 };
#define LY_BALANCE_SRC 0x04
#define LY_BALANCE_DST 0x08
#define LY_BALANCE_SYMMETRIC 0x10
#define LY_BALANCE_USED 0x80 /* there is a port-channel */

/* port_vlans[port].bits[vlan]: all properties of a (port, VLAN) pair that the pipeline uses, in one byte. */
#define LY_PV_MEMBER 0x01
#define LY_PV_UNTAGGED 0x02     /* sent untagged */
#define LY_PV_LEARN 0x04        /* sources are learned: enabled for the port, for the VLAN and by spanning tree */
#define LY_PV_FORWARD 0x08      /* spanning tree forwards */
#define LY_PV_ACTIVE 0x10       /* the VLAN exists; the same for every port */
#define LY_PV_STP_LEARNING 0x20 /* spanning tree learns but does not forward */
#define LY_PV_ROUTES 0x40       /* the VLAN has a router interface, and the port is not the host's side of one */
#define LY_PV_WATCHED 0x80      /* the watchdog clears LEARN, FORWARD and STP_LEARNING when it expires */

struct ly_port_vlans {
	__u8 bits[LY_VLANS];
};

/* shared_vlans[vlan]: for a secondary private VLAN its primary VLAN, under which the FDB and the MDB have its addresses and
 * groups; 0: they are under `vlan` itself. The programs read it only for frames of ports with LY_PORT_PRIVATE. */

/* The flood set of a VLAN: enabled and forwarding members, by the form in which frames leave. */
struct ly_vlan_ports {
	__u64 form[LY_FORMS][LY_PORT_WORDS];
};
_Static_assert(sizeof(struct ly_vlan_ports) == 512, "ly_vlan_ports");

/* watchdog[kind]: the state of a watchdog (bpf/watchdog.h) */
enum ly_watchdog_kind {
	LY_WATCHDOG_TREES = 0,
	LY_WATCHDOG_LEASES = 1,
	LY_WATCHDOG_SNOOPING = 2,
	LY_WATCHDOG_ROUTING = 3,
	LY_WATCHDOGS = 4
};
/* EXPIRING: the watchdog has begun to remove state, and has not finished. */
enum ly_watchdog_phase { LY_WATCHDOG_WAITS = 0, LY_WATCHDOG_EXPIRING = 1, LY_WATCHDOG_EXPIRED = 2 };

struct ly_watchdog {
	__u64 due_ns;     /* when it expires, on CLOCK_BOOTTIME; 0: stopped */
	__u64 expired_ns; /* when it last expired, on CLOCK_BOOTTIME */
	__u64 phase;      /* enum ly_watchdog_phase; the control plane sets it back to LY_WATCHDOG_WAITS */
	__u64 affected;   /* the last time it expired: (port, VLAN) pairs it blocked, ports whose lease it ended, or
	                   * interfaces whose routing it stopped */
};
_Static_assert(sizeof(struct ly_watchdog) == 32, "ly_watchdog");

/* global[0] */
struct ly_global {
	__u8 reserved[16]; /* ReservedAction by the last nibble: 0 drop, 1 forward, 2 trap */
	__u8 trap_pvst; /* not 0: PVST+ BPDUs are trapped in some VLAN, and so are those without a VLAN */
	__u8 trap_cdp;  /* not 0: frames for CISCO_DISCOVERY are trapped */
	__u8 balance; /* LY_BALANCE_* */
	__u8 unused;
	__u16 first_word, end_word; /* the words of a port set that can be non-zero: lowest port / 64, highest port / 64 + 1 */
	__u64 isolated[LY_PORT_WORDS];
	__u64 no_unicast[LY_PORT_WORDS];   /* ports left out of unknown-unicast floods */
	__u64 no_multicast[LY_PORT_WORDS]; /* ports left out of multicast floods */
	__u64 xdp_flood;     /* ports below LY_XDP_FLOOD that are in the device map of the same name */
	__u32 xdp_flood_len; /* the longest frame without tag that fits all of them */
	__u32 facts_s;       /* now_s() when the control plane last confirmed what it wrote about netdevs */
	__u64 pvst_vlans[LY_VLANS / 64]; /* the VLANs whose PVST+ BPDUs are trapped */
};
_Static_assert(sizeof(struct ly_global) == 24 + 3 * 128 + 16 + LY_VLANS / 8, "ly_global");

/* The FDB: fdb_near[bucket] for the first LY_FDB_NEAR buckets, fdb[bucket - LY_FDB_NEAR] for the others; lock-free.
 * An entry is one word, so it is inserted, changed and removed by compare-and-swap:
 *
 *   63..19  tag     the key's 59-bit hash without its lowest 14 bits
 *   18      second  the entry is in the second of its two buckets
 *   17..10  seen    the second in which it was last seen, modulo 251; or LY_FDB_LONG_AGO; or a kind that is not dynamic
 *   9..0    port    0: frames from and to the address are dropped
 *
 * The hash is a permutation, and the number of the bucket contains the bits that the tag lacks (therefore there are
 * at least LY_FDB_NEAR buckets), so the key can be computed from the entry. The exact time at which an entry was last
 * seen is in fdb_times, which is written at most once per second and read for ageing and for display.
 *
 * A few hosts fit into the first LY_FDB_NEAR buckets, which stay in the processor's cache. When these are five
 * eighths full, the programs begin to use the whole table (fdb_state[0].masks: now = all, was = near), and look in
 * both places until the control plane has run `fdb_migrate`. A word of 0 means that both are the whole table. */
#define LY_FDB_NEAR_BITS 14
#define LY_FDB_NEAR (1 << LY_FDB_NEAR_BITS)
#define LY_FDB_MASKS(now, was) ((__u64)(was) << 32 | (now))

/* fdb_state[0]: set once by the control plane, afterwards changed by the programs only. */
struct ly_fdb_state {
	__u64 masks; /* buckets in use - 1; in the high half the same value before the last change */
};

#define LY_FDB_TAG_SHIFT 19
#define LY_FDB_SECOND 0x40000
#define LY_FDB_SEEN_SHIFT 10
#define LY_FDB_SEEN_MASK 0x3fc00
#define LY_FDB_PORT_MASK 0x3ff
#define LY_FDB_CYCLE 251    /* seconds until `seen` wraps around: a prime, so that it coincides with no usual period
                             * of frames */
#define LY_FDB_LONG_AGO 251 /* a sweep writes it into entries older than half a cycle */
#define LY_FDB_KINDS 250    /* `seen` of an entry that is not dynamic: this number plus its kind */

struct ly_fdb_bucket {
	__u64 way[LY_FDB_WAYS]; /* 0: free */
};
_Static_assert(sizeof(struct ly_fdb_bucket) == 64, "ly_fdb_bucket");

struct ly_fdb_times {
	__u32 updated_s[LY_FDB_WAYS]; /* now_s() when last seen */
};
_Static_assert(sizeof(struct ly_fdb_times) == 32, "ly_fdb_times");

enum ly_fdb_kind { LY_FDB_DYNAMIC = 1, LY_FDB_STATIC = 2, LY_FDB_STICKY = 3, LY_FDB_SELF = 4 };

/* An entry as it is passed to and from the control plane. Its key is VLAN << 48 | raw address, which is never a group
 * address. */
union ly_fdb_value {
	__u64 raw;
	struct {
		__u32 updated_s; /* now_s() when last seen */
		__u16 port;      /* 0: frames from and to the address are dropped */
		__u8 kind;       /* enum ly_fdb_kind, never 0 */
		__u8 pad;
	};
};
_Static_assert(sizeof(union ly_fdb_value) == 8, "ly_fdb_value");

/* fdb_usage: slot 0 is the whole table, then a slot per port, then a slot per VLAN. Dynamic entries only. */
#define LY_USAGE_TABLE 0
#define LY_USAGE_PORT(port) (port) /* 1..1023 */
#define LY_USAGE_VLAN(vlan) (LY_PORTS + (vlan))
#define LY_USAGES (LY_PORTS + LY_VLANS)

struct ly_usage {
	__u32 limit; /* entries allowed, or LY_UNLIMITED */
	__s32 count;
	__u32 high_water;
	__u32 pad;
	__u64 refused; /* entries not learned because of this limit */
};
_Static_assert(sizeof(struct ly_usage) == 24, "ly_usage");

/* Multicast snooping (stages/snoop.h). snoop_vlans[vlan]; the index [2] is the family, enum ly_family. */
enum ly_family { LY_IPV4 = 0, LY_IPV6 = 1 };
#define LY_SNOOP_ON 0x01
#define LY_SNOOP_ROUTERS 0x02 /* frames of unregistered groups go to the ports of routers only */
#define LY_SNOOP_FLOOD_UNREGISTERED 1 /* flooded[]: for the time being, frames of unregistered groups go to all ports */
#define LY_SNOOP_FLOOD_ALL 2          /* flooded[]: for the time being, frames of every group do */

struct ly_snoop_vlan {
	__u8 config[2];
	__u8 flooded[2];
	__u32 pad;
	__u64 routers[2][LY_PORT_WORDS]; /* the ports that lead to multicast routers */
};
_Static_assert(sizeof(struct ly_snoop_vlan) == 8 + 256, "ly_snoop_vlan");

/* The MDB consists of segments, of which the first mdb_state[0] + 1 (a power of two) are in use; bits of a key's hash choose
 * the segment. index[bucket] has words `tag << 16 | row`, 0: free; row[row] is an entry, and row 0 is one without ports.
 *
 * The control plane writes an entry's row before its word. A row whose word it has removed is not used again while a program
 * may still read it. The ports of an entry change in place if only one word of them differs; otherwise the entry gets a new
 * row. To double the table, the control plane copies the entries that belong to new segments there, then stores mdb_state[0], and
 * later removes the old copies: a program finds one of the two copies, whichever number of segments it has read. */
#define LY_MDB_SEGMENTS 16
#define LY_MDB_SEGMENT 8192 /* entries of a segment */
#define LY_MDB (LY_MDB_SEGMENTS * LY_MDB_SEGMENT) /* entries */
#define LY_MDB_ROW_BITS 14
#define LY_MDB_ROWS (1 << LY_MDB_ROW_BITS) /* twice LY_MDB_SEGMENT: as many rows as entries can be in quarantine */
#define LY_MDB_BUCKET_BITS 12
#define LY_MDB_BUCKETS (1 << LY_MDB_BUCKET_BITS)
#define LY_MDB_WAYS 16
#define LY_MDB_FAMILY 0x1000 /* in ly_mdb_row.place, above the VLAN: the entry is for IPv6 */
#define LY_MDB_SOURCE 0x2000 /* in ly_mdb_row.place: the entry is for one source */

struct ly_mdb_bucket {
	__u32 way[LY_MDB_WAYS];
};
_Static_assert(sizeof(struct ly_mdb_bucket) == 64, "ly_mdb_bucket");

struct ly_mdb_row {
	__u64 group[2], source[2]; /* the packet's bytes, loaded little-endian; an IPv4 address is in the first word */
	__u32 place; /* 0: free */
	__u32 sources; /* not 0: there are entries for sources of the group */
	__u64 ports[LY_PORT_WORDS];
};
_Static_assert(sizeof(struct ly_mdb_row) == 40 + 8 * LY_PORT_WORDS, "ly_mdb_row");

/* A segment is the only element of an array; kernels allow 4 MB for an element. */
struct ly_mdb_segment {
	struct ly_mdb_bucket index[LY_MDB_BUCKETS];
	struct ly_mdb_row row[LY_MDB_ROWS];
};
_Static_assert(sizeof(struct ly_mdb_segment) < 4 << 20, "ly_mdb_segment");

/* port_stats[port], one per CPU */
struct ly_port_stats {
	__u64 rx_frames, rx_bytes;
	__u64 tx_frames, tx_bytes;
	__u64 forwarded;  /* received and sent to at least one port */
	__u64 trapped;    /* received and only trapped */
	__u64 tx_dropped; /* copies of a flood not sent here: MTU exceeded, or refused by the kernel */
	__u64 pad;
	__u64 dropped[LY_DROPS]; /* received and dropped, by reason */
};
_Static_assert(sizeof(struct ly_port_stats) == 64 + 8 * LY_DROPS, "ly_port_stats");

/* vlan_stats[vlan], one per CPU: frames classified into the VLAN at ingress */
struct ly_vlan_stats {
	__u64 frames, bytes;
};

/* trap_reasons[reason]: frames trapped for this reason, including those for which a ring had no room */
#define LY_TRAP_REASONS 32

/* trap_groups[group]: a token bucket as a virtual clock (ITU-T I.371's GCRA): one word, changed by one compare-and-
 * swap. */
struct ly_trap_group {
	__u64 interval_ns;  /* 1e9 / rate; 0: nothing passes */
	__u64 tolerance_ns; /* (burst - 1) * interval_ns */
	__u64 arrival_ns;   /* theoretical arrival time of the next frame */
	__u64 passed, policed, lost; /* lost: the ring was full */
	__u64 port_interval_ns, port_tolerance_ns; /* the share of one port; its clocks are trap_ports[] */
};

/* The time in which a group wakes the control plane at most once. */
#define LY_TRAP_WAKE_NS 500000

/* trap_ports[LY_TRAP_PORT(group, port)]: arrival_ns of the port's share of a group */
#define LY_TRAP_PORT(group, port) ((group) * LY_PORTS + (port))

/* Records of the ring `fdb_events` */
enum ly_event {
	LY_EVENT_ADDED = 1,
	LY_EVENT_MOVED = 2,
	LY_EVENT_AGED = 3,
	LY_EVENT_FLUSHED = 4,
	LY_EVENT_VIOLATION = 5 /* of port security: the address has no entry, and only the port in `value` is valid */
};

struct ly_fdb_event {
	__u64 key;
	__u64 value;
	__u16 from; /* LY_EVENT_MOVED: the port before the move */
	__u8 event;
	__u8 pad[5];
};
_Static_assert(sizeof(struct ly_fdb_event) == 24, "ly_fdb_event");

/* Records of the ring `traps`: this header, then min(len, LY_TRAP_BYTES) bytes. A tag that the kernel keeps out of
 * band is in the header. */
struct ly_trap {
	__u32 len;  /* the frame's length, the out-of-band tag not counted */
	__u16 port;
	__u16 vlan; /* 0: trapped before the frame was assigned to a VLAN */
	__u16 tag_proto; /* out-of-band tag; 0: none */
	__u16 tag_tci;
	__u8 reason; /* lanyard_types::TrapReason */
	__u8 pad[3];
};
_Static_assert(sizeof(struct ly_trap) == 16, "ly_trap");

/* Routing. rifs[rif] */
#define LY_RIFS 4096
#define LY_VIRTUAL_MACS 8
#define LY_RIF_LIVE 0x01 /* the row is in use */
#define LY_RIF_IPV4 0x02
#define LY_RIF_IPV6 0x04
#define LY_RIF_URPF_SHIFT 3 /* two bits IPv4, two bits IPv6: 0 off, 1 loose, 2 strict */
#define LY_RIF_CONFIRMED 0x80 /* the watchdog clears LY_RIF_IPV4 and LY_RIF_IPV6 when it expires */

struct ly_rif {
	__u64 mac; /* raw: its own address, and the source of routed frames that leave by it */
	__u32 mtu;
	__u16 port; /* the routed port by which frames leave; 0: by the FDB of `vlan` */
	__u16 vlan; /* the VLAN, or a subinterface's tag; 0: untagged */
	__u16 up;   /* the port to which exceptions are sent; 0: the stack of the netdev that received the frame */
	__u8 vrf;
	__u8 flags;
	__u8 virtuals; /* number of addresses in virtual_mac[] */
	__u8 pad[3];
	__u64 virtual_mac[LY_VIRTUAL_MACS];
};
_Static_assert(sizeof(struct ly_rif) == 24 + 8 * LY_VIRTUAL_MACS, "ly_rif");

/* vlan_rifs[vlan]: the router interface of the VLAN and its own address in one word; 0: none */
#define LY_VLAN_RIF_SHIFT 48
#define LY_VLAN_RIF_VIRTUAL (1ULL << 63) /* the interface also answers for the addresses in its virtual_mac[] */

/* own_addresses: a bitmap of the hashes of the switch's own addresses, of all VRFs and both families. If the bit of a
 * packet's source is clear, the source is not an own address. If it is set, the FIB decides (stages/route.h). */
#define LY_OWN_WORDS 128
#define LY_OWN_SHIFT 51 /* the remaining 13 bits of the product with LY_HASH_A are the number of a bit */
_Static_assert(LY_OWN_WORDS * 64ULL == 1ULL << (64 - LY_OWN_SHIFT), "a bit for each value of the hash");

/* sub_rifs[port << 16 | tag]: the tags of routed ports that have a subinterface */
#define LY_SUB_RIFS 4096
#define LY_SUB_RIF(up, rif) ((__u32)(rif) << 16 | (up))

/* fib_small[slot], fib_medium[slot], fib_large[slot]: a VRF's table of one family is in one of them, as an array of
 * lines. crates/fib writes and documents its contents; bpf/fib.h reads it. While a larger table replaces a smaller
 * one there are two, and programs read the smaller one. A slot is the VRF's number; IPv6 tables follow after all IPv4
 * tables. */
#define LY_VRFS 32
#define LY_FIB_SLOTS (2 * LY_VRFS)
#define LY_FIB_SMALL 16384 /* lines */
#define LY_FIB_MEDIUM 262144
#define LY_LINE_WORDS 16

struct ly_line {
	__u32 word[LY_LINE_WORDS];
};
_Static_assert(sizeof(struct ly_line) == 64, "ly_line");

/* The result of a route: a leaf of the FIB. */
#define LY_TARGET(kind, value) ((__u32)(kind) << 24 | (value))
enum ly_target {
	LY_TARGET_GROUP = 1,     /* nh_groups[value] */
	LY_TARGET_UP = 2,        /* the packet goes to the kernel; the value is a trap_reason */
	LY_TARGET_BLACKHOLE = 3,
	LY_TARGET_CONNECTED = 4, /* the value is the interface of the connected network */
};

/* There are two banks of each table: an adopted plane continues with one while its new daemon fills the other. */
#define LY_BANKS 2
#define LY_BANK_ROWS 65536      /* adjacencies, and groups, per bank */
#define LY_BANK_BUCKETS 262144

/* nh_groups[group]: the group's first bucket, with the number of buckets in the high half. With one bucket: the
 * contents of that bucket. 0: no group */
#define LY_NH_COUNT_SHIFT 32

/* nh_buckets: words, each of which names an adjacency. Its upper bits are a guess of the next hop's position in
 * the FDB, which the programs write, and check for each frame. The guess gives the egress port before the words that
 * lead to it have been read. */
#define LY_NH_ADJACENCY_MASK (LY_BANKS * LY_BANK_ROWS - 1)
#define LY_NH_GUESS_SHIFT 17 /* the port; 0: no guess */
#define LY_NH_GUESS_WAY_SHIFT 27
#define LY_NH_GUESS_SECOND 0x40000000U /* the entry is in the second bucket */
#define LY_NH_GUESS_MASK 0x7ffe0000U
#define LY_NH_GUESS(port, way, second) \
	((__u32)(port) << LY_NH_GUESS_SHIFT | (__u32)(way) << LY_NH_GUESS_WAY_SHIFT | ((second) ? LY_NH_GUESS_SECOND : 0))
_Static_assert(LY_NH_ADJACENCY_MASK >> LY_NH_GUESS_SHIFT == 0, "room for an adjacency");

struct ly_adjacency {
	__u64 next;   /* raw address | interface << 48 | LY_ADJ_RESOLVED: one word, so that both change together */
	__u32 used_s; /* now_s() when a frame was last sent to it; 0: never */
	__u32 pad;
};
_Static_assert(sizeof(struct ly_adjacency) == 16, "ly_adjacency");
#define LY_ADJ_RIF_SHIFT 48
#define LY_ADJ_RESOLVED (1ULL << 63)

/* lost[0]: events for which a ring had no room */
struct ly_lost {
	__u64 fdb_events;
};

/* The contexts of the syscall programs. They are no part of LY_ABI: a daemon that adopts maps calls only programs of its own
 * build. */

/* fdb_set, fdb_delete, fdb_scan, fdb_migrate */
enum ly_scan { LY_SCAN_FLUSH = 1, LY_SCAN_SWEEP = 2 };

struct ly_fdb_call {
	__u64 key;   /* set, delete: the entry. flush: 0, or VLAN << 48 and raw address, either of which may be 0 */
	__u64 value; /* set: the entry's value; updated_s is filled in */
	__u32 scan;  /* enum ly_scan */
	__u32 ageing_s; /* sweep: the age in seconds from which dynamic entries are removed, or LY_NO_AGE */
	__u16 port;     /* flush: only this port; 0: any */
	__u16 pad;
	__s32 result;   /* 0, or -ENOENT, -EAGAIN, -ENOSPC */
	__u64 removed;  /* flush, sweep: removed entries; migrate: 1 while entries still wait for room, else 0 */
	__u32 oldest_s; /* sweep: age in seconds of the oldest dynamic entry that stays, or LY_NO_AGE */
	__u32 now_s;    /* always: the programs' clock */
};
_Static_assert(sizeof(struct ly_fdb_call) == 48, "ly_fdb_call");

/* clock_read */
struct ly_clock_call {
	__u64 now_ns; /* the programs' clock */
};
_Static_assert(sizeof(struct ly_clock_call) == 8, "ly_clock_call");

/* watchdog_set */
struct ly_watchdog_call {
	__u64 after_ns; /* nanoseconds until the watchdog expires; 0 stops it */
	__u32 kind;     /* enum ly_watchdog_kind */
	__s32 result;   /* 0, or the kernel's error, negative */
};
_Static_assert(sizeof(struct ly_watchdog_call) == 16, "ly_watchdog_call");

/* journal[0]: the input and the results of a dry run (BPF_PROG_TEST_RUN of the programs loaded with `dry` set). LY_DRY_* are the
 * changes that the run makes to the tables. */
#define LY_DRY_LEARN 0x01  /* learn, refresh and move addresses */
#define LY_DRY_COUNT 0x02  /* count frames */
#define LY_DRY_POLICE 0x04 /* spend tokens, send trapped frames to the control plane */

enum ly_step { LY_STEP_ROUTER, LY_STEP_FLOOD, LY_STEPS }; /* steps[]: the programs to which others jump */

enum ly_verdict { LY_FORWARDED = 1, LY_TRAPPED = 2, LY_DROPPED = 3 };
enum ly_source { /* what `learn` did or, without LY_DRY_LEARN, would do */
	LY_SRC_NONE = 0, /* not reached, or learning is off */
	LY_SRC_NEW = 1,
	LY_SRC_KNOWN = 2,
	LY_SRC_MOVED = 3,
	LY_SRC_REFUSED = 4, /* a limit was reached, or the bucket is full */
	LY_SRC_FIXED = 5    /* a control-plane entry, or one that was learned at a port with port security */
};

struct ly_journal {
	/* input */
	__u64 now_ns;
	__u32 port;
	__u32 mode; /* LY_DRY_* */
	/* results */
	__u8 verdict; /* enum ly_verdict; 0: XDP passed it up */
	__u8 reason;  /* DropReason or TrapReason */
	__u8 arrived; /* enum ly_form, as recognised */
	__u8 priority_tagged;
	__u16 vlan; /* 0: not reached */
	__u16 tci;
	__u8 source; /* enum ly_source */
	__u8 flooded;
	__u16 source_port; /* the port at which the source was known */
	__u16 target_port; /* known unicast: the egress port, or LY_NOT_FOUND */
	__u16 egress_count;
	__u16 clones;
	__u16 tag_ops;
	__u32 len; /* the frame's length as received, tags included */
	/* results of `route`: the interface to which the frame is addressed, 0: none */
	__u16 route_rif;
	__u16 bucket, bucket_count;
	__u16 out_vlan;    /* the VLAN, or tag, into which it was routed */
	__u32 target;      /* the leaf of the destination, or LY_NO_TARGET */
	__u32 adjacency;   /* 0: not chosen */
	__u64 next;        /* the adjacency's word `next` */
	__u8 ttl;          /* as received */
	__u8 rewritten;
	__u8 up;       /* the reason why it goes to the kernel; 0: it does not */
	__u8 straight; /* it leaves by target_port regardless of the FDB */
	__u32 extra; /* input: the length of the frame minus that of the bytes given to the test run, modulo 2^32 */
	__u32 balanced; /* the bucket by which members of port-channels were chosen, plus 1; 0: none was */
	__u32 member;   /* the member that received the frame, if its port-channel accepted it; 0: none */
	__u32 sampled_len;  /* the length of a frame that is sampled; 0: it is not */
	__u32 sampled_port; /* the port at which the frame is sampled */
	__u32 marked;       /* not 0: an output policy has marked the frame in its present form */
	__u32 own_slots;    /* the slots from LY_JOURNAL_OWN on that are in use */
	struct {
		__u32 len;
		__u16 tag_proto; /* the out-of-band tag when it was sent; 0: none */
		__u16 tag_tci;
	} form[LY_JOURNAL_FORMS]; /* journal_bytes[form] holds the bytes */
	__u16 egress_port[LY_PORTS]; /* in the order in which they were sent */
	__u8 egress_form[LY_PORTS];
	__u8 egress_slot[LY_PORTS]; /* the index of form[] and journal_bytes[] */
};
_Static_assert(sizeof(struct ly_journal) == 96 + 8 * LY_JOURNAL_FORMS + 4 * LY_PORTS, "ly_journal");

#endif
