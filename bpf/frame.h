/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* A frame on its way through the stages: the facts known about it, independent of the hook.
 *
 * A stage returns 0 (continue), a drop reason (> 0), or minus a trap reason (the frame was trapped and processing
 * ends). */
#ifndef LY_FRAME_H
#define LY_FRAME_H

#define DROP(reason) (reason)
#define TRAPPED(reason) (-(reason))

/* Drop reasons, numbered as in lanyard_types::DropReason. Here are the reasons that more than one file uses; those of a single
 * stage are in its header. No program uses `overrun`: only the soft plane receives by a ring. */
enum {
	DROP_TRUNCATED = 1,
	DROP_TRAP_POLICED = 6,
	DROP_NO_EGRESS = 18,
	DROP_MTU_EXCEEDED = 22,
	DROP_EGRESS_DOWN = 23,
	DROP_TRANSMIT_FAILED = 24,
};

/* lanyard_types::TrapReason */
enum trap_reason {
	TRAP_BPDU = 1,
	TRAP_PVST_BPDU,
	TRAP_SLOW_PROTOCOL,
	TRAP_LLDP,
	TRAP_RESERVED,
	TRAP_LOCAL_ADDRESS,
	TRAP_GLEAN,
	TRAP_TTL_EXPIRED,
	TRAP_ROUTE_MTU,
	TRAP_IP_OPTIONS,
	TRAP_MARTIAN,
	TRAP_NO_ROUTE,
	TRAP_ROUTE_POLICY,
	TRAP_HOST_STACK,
	TRAP_CDP,
	TRAP_IGMP,
	TRAP_MLD,
	TRAP_PIM_HELLO,
	TRAP_DHCP,
	TRAP_GUARDED,
	TRAP_EAPOL,
	TRAP_UNAUTHORIZED,
	TRAP_ND,
	TRAP_ACL_LOG,
	TRAP_NEIGHBOUR,
	TRAP_LINK_MULTICAST,
	TRAP_FLOODED,
	TRAP_ACL_DIVERTED, /* used by chips only */
};
/* lanyard_types::TrapGroup */
enum trap_group {
	GROUP_STP = 1,
	GROUP_SLOW,
	GROUP_DISCOVERY,
	GROUP_ROUTE_EXCEPTION,
	GROUP_HOST,
	GROUP_GLEAN,
	GROUP_TTL_EXPIRED,
	GROUP_ROUTE_MTU,
	GROUP_IP_OPTIONS,
	GROUP_MULTICAST,
	GROUP_DHCP,
	GROUP_GUARDED,
	GROUP_EAPOL,
	GROUP_ND,
	GROUP_ACL_LOG,
	GROUP_NEIGHBOUR,
	GROUP_LINK_MULTICAST,
	GROUP_FLOODED,
};

/* Hints for the order of instructions: the usual case follows without a jump. */
#define OFTEN(condition) __builtin_expect(!!(condition), 1)
#define RARELY(condition) __builtin_expect(!!(condition), 0)

#define GROUP_BIT 0x01ULL /* of a raw address: its first octet is the lowest */
#define BROADCAST 0xffffffffffffULL
#define RAW_MAC(a, b, c, d, e, f)                                                                      \
	((__u64)(a) | (__u64)(b) << 8 | (__u64)(c) << 16 | (__u64)(d) << 24 | (__u64)(e) << 32 | (__u64)(f) << 40)
#define RESERVED_BLOCK RAW_MAC(0x01, 0x80, 0xc2, 0, 0, 0) /* ..0F: IEEE 802.1Q-2018, table 8-1 */
#define LLDP RAW_MAC(0x01, 0x80, 0xc2, 0, 0, 0x0e)
#define SSTP RAW_MAC(0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcd)
#define SSTP_OR_DISCOVERY (1ULL << 40) /* the bit in which SSTP and CISCO_DISCOVERY differ */
#define CISCO_DISCOVERY RAW_MAC(0x01, 0x00, 0x0c, 0xcc, 0xcc, 0xcc) /* CDP, VTP, UDLD, DTP, PAgP */

#define TUNNEL RAW_MAC(0x01, 0x00, 0x0c, 0xcd, 0xcd, 0xd0) /* customers' control frames inside the provider's network (GBPT) */

#define ETH_IPV4 0x0800
#define ETH_ARP 0x0806
#define ETH_IPV6 0x86dd
#define IP_HOP_BY_HOP 0
#define IP_TCP 6
#define IP_UDP 17
#define IP_DCCP 33
#define IP_SCTP 132
#define IP_UDPLITE 136
#define IP_ICMP 1
#define IP_IGMP 2
#define IP_ICMPV6 58

#define VID_MASK 0x0fff
#define PCP_DEI_MASK 0xf000

/* An adjacency's word (abi.h) and its position: either a whole row of nh_groups whose count is 1,
 * or a word of nh_buckets. The position is a number and not a pointer, because the verifier would
 * check each kind of pointer separately. */
struct nh_word {
	__u64 word;
	__u32 at;
};

struct frame {
	__u64 dst, src; /* raw */
	struct ly_port *port; /* of port_id; NULL when the netdev is no port */
	struct ly_port *out;  /* known unicast: the egress port */
	__u32 len;            /* as received, tags included */
	__u32 bare_len;       /* without the recognised tag */
	__u32 now_s;
	__s32 action;         /* the program's return code for the frame itself */
	__u16 port_id;  /* the ingress port, or its port-channel */
	__u16 member;   /* the member of the port-channel that received the frame; 0: no member did */
	__u16 out_id;   /* 0: flood */
	__u16 outer;    /* EtherType at offset 12 on the wire, in or out of band */
	__u16 tci;      /* of the recognised tag; 0 without one */
	__u16 vlan;     /* 0 until vlan_ingress has accepted it */
	__u16 came;     /* the VLAN in which it arrived and is counted */
	__u8 form;      /* enum ly_form, as recognised */
	__u8 pv;        /* port_vlans of the ingress port */
	__u8 out_pv;    /* port_vlans of the egress port */
	__u8 straight;  /* not 0: it leaves by out_id regardless of the FDB, tagged with out_vlan unless that is 0 */
	__u8 routed;    /* not 0: it comes from the router, as if no port had received it */
	__u8 several;   /* XDP: not 0 if the frame is in several buffers */
	__u8 up;        /* the trap reason of a frame that goes to the kernel; 0: none */
	__u16 rif;      /* the router interface to which it may be addressed; 0: none */
	__u16 out_vlan; /* the VLAN into which `route` sends it */
	__u16 shared;   /* the VLAN under which the FDB and the MDB have its addresses: see shared_vlans */
	__u32 members;  /* the ports to which a group's frame is limited, as stages/snoop.h returns them; 0: all */
	struct nh_word named;
	__u32 gso;      /* not 0: one buffer of many frames, which the kernel divides later */
};

struct mac_words { /* both addresses, moved as one */
	__u32 word[3];
};

/* True when the recognised tag names another VLAN than the frame's: a priority tag (VID 0), or the
 * frame was routed. Computed on demand and not stored, because the verifier would follow both
 * values of a stored flag. */
static __always_inline bool frame_stale(struct frame *f)
{
	return f->form != LY_UNTAGGED && (f->tci & VID_MASK) != f->vlan;
}

/* Looks up a table's element: an array look-up, which the JIT turns into a bounds check and an
 * addition. */
#define LOOKUP(map, index)                          \
	({                                          \
		__u32 key__ = (index);              \
		bpf_map_lookup_elem(&(map), &key__); \
	})

/* The number of the lowest set bit, by de Bruijn multiplication, because BPF has no instruction for
 * it. */
static const __u8 lowest_bit[64] = {
	0,  1,  2,  53, 3,  7,  54, 27, 4,  38, 41, 8,  34, 55, 48, 28, 62, 5,  39, 46, 44, 42,
	22, 9,  24, 35, 59, 56, 49, 18, 29, 11, 63, 52, 6,  26, 37, 40, 33, 47, 61, 45, 43, 21,
	23, 58, 17, 10, 51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14, 13, 12,
};

static __always_inline __u32 bit_number(__u64 bits)
{
	return lowest_bit[((bits & -bits) * 0x022fdd63cc95386dULL) >> 58 & 63];
}

/* A zero that neither the verifier nor the compiler can predict: the verifier does not evaluate the
 * quotient. */
static __always_inline __u32 unknown_zero(__u32 any)
{
	__u32 a = any | 1, b = a;

	asm volatile("" : "+r"(b));
	return a / b - 1;
}

/* A row of ROWS. The index is taken modulo the number of rows, so that there always is one. */
#define ROW(rows, index) (&(rows)[(index) & (sizeof(rows) / sizeof((rows)[0]) - 1)])

static __always_inline struct ly_journal *dry_journal(void)
{
	return LOOKUP(journal, 0);
}

static __always_inline __u64 dry_now_ns(void)
{
	struct ly_journal *j = dry_journal();
	return j ? j->now_ns : 0;
}

/* In a dry run: the length of the frame minus that of the bytes given to the kernel's test run, modulo 2^32. */
static __always_inline __u32 dry_extra(void)
{
	struct ly_journal *j = dry ? dry_journal() : NULL;
	return j ? j->extra : 0;
}

/* True when the frame may leave marks of the kind `mode`: always, except in a dry run that did not
 * ask for them. */
static __always_inline bool leaves_marks(__u32 mode)
{
	if (!dry)
		return true;
	struct ly_journal *j = dry_journal();
	return j && (j->mode & mode);
}

/* The clock by which entries are dated, in nanoseconds with the resolution of a tick (1-10 ms): the
 * kernel's jiffies, which the JIT reads with one load, where the kernel's other clocks cost three
 * calls. Its offset from CLOCK_MONOTONIC is constant while the machine runs (clock_read). */
static __always_inline __u64 ticks_ns(void)
{
	return dry ? dry_now_ns() : bpf_jiffies64() * tick_ns;
}

/* Nanoseconds of CLOCK_MONOTONIC. */
static __always_inline __u64 now_ns(void)
{
	return dry ? dry_now_ns() : bpf_ktime_get_ns();
}

/* Converts nanoseconds to seconds by a multiplication, because a 64-bit division costs as much as a
 * table look-up. 2^20 ns are 1.048576 ms; 1125900 / 2^30 turns that into seconds, 1e-7 too slow.
 * All times that are compared have this error. */
static __always_inline __u32 seconds(__u64 ns)
{
	return (__u32)(((ns >> 20) * 1125900) >> 30);
}

static __always_inline __u32 now_s(void)
{
	return seconds(ticks_ns());
}

static __always_inline __u16 form_tpid(__u8 form)
{
	return form == LY_DOT1AD ? 0x88a8 : 0x8100;
}

static __always_inline __u16 port_of_ifindex(__u32 ifindex)
{
	struct ly_if_slot *slot = ROW(if_slots, ifindex);
	if (slot->ifindex == ifindex)
		return slot->port & (LY_PORTS - 1);
	__u32 *port = bpf_map_lookup_elem(&if_ports, &ifindex);
	return port ? *port & (LY_PORTS - 1) : 0;
}

/* True if a frame of this length without tag fits the MTU of a port, and for a segmentation buffer, whose segments are checked
 * where it leaves (segments_tc.h). */
static __always_inline bool egress_fits(__u32 bare_len, __u32 gso, struct ly_port *out)
{
	return bare_len <= out->max_len || gso;
}

/* The VLAN under which the FDB and the MDB have the addresses and groups of `vlan`, for a frame from `port`. */
static __always_inline __u16 shared_vlan(struct ly_port *port, __u16 vlan)
{
	if (!(port->flags & LY_PORT_PRIVATE))
		return vlan;
	__u16 primary = *ROW(shared_vlans, vlan);
	return primary ? primary : vlan;
}

static __always_inline __u8 port_vlan(__u32 port, __u32 vlan)
{
	return ROW(port_vlans, port)->bits[vlan & (LY_VLANS - 1)];
}

#endif
