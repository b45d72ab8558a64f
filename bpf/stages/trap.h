/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* trap: frames for the control plane, before any later stage may drop them (a BPDU on a blocked port).
 *
 * Reserved addresses (IEEE 802.1Q-2018, table 8-1) are dropped, relayed or trapped, as the control plane has
 * configured; PAUSE is always dropped. A dot1q-tunnel port drops the control frames of the customer's network, or
 * sends them through the provider's (tunnel.h). Only a port that is enabled traps frames; on other ports the next
 * stage drops them. */
enum {
	DROP_PAUSE = 4,
	DROP_RESERVED_ADDRESS = 5,
	DROP_TUNNEL_PROTOCOL = 32,
	DROP_TUNNEL_ADDRESS = 33,
};

/* Takes a token from the bucket whose state is `clock`. */
static __always_inline int trap_take(__u64 *clock, __u64 interval_ns, __u64 tolerance_ns, __u64 now)
{
	if (interval_ns <= 1) /* no frame passes, or all do */
		return interval_ns;
	for (int tries = 0; tries < 8; tries++) {
		__u64 arrival = *clock;
		__u64 at = arrival > now ? arrival : now;
		if (at - now > tolerance_ns)
			return false;
		if (swap(clock, arrival, at + interval_ns))
			return true;
	}
	return false;
}

/* Takes a token of the port's share and then one of the group, so that traffic above a port's share
 * takes nothing from other ports. */
__noinline int trap_admit(__u32 group, __u32 port, __u32 reason)
{
	struct ly_trap_group *g = LOOKUP(trap_groups, group);
	__u64 *share = LOOKUP(trap_ports, LY_TRAP_PORT(group, port)), *frames = LOOKUP(trap_reasons, reason);

	if (!leaves_marks(LY_DRY_POLICE))
		return true;
	if (!g || !share || !frames)
		return false;
	__u64 now = now_ns();
	if (trap_take(share, g->port_interval_ns, g->port_tolerance_ns, now) &&
	    trap_take(&g->arrival_ns, g->interval_ns, g->tolerance_ns, now)) {
		__sync_fetch_and_add(&g->passed, 1);
		__sync_fetch_and_add(frames, 1);
		return true;
	}
	__sync_fetch_and_add(&g->policed, 1);
	return false;
}

#define LINK_GROUP_MASK 0xffffffffffULL /* all octets but the last: */
#define LINK_GROUP_IPV4 RAW_MAC(0x01, 0x00, 0x5e, 0, 0, 0)
#define LINK_GROUP_IPV6 RAW_MAC(0x33, 0x33, 0, 0, 0, 0)

/* True for an ICMPv6 message of neighbour discovery (RFC 4861, types 133 to 137). `at` is the offset of the IPv6 header. */
static __always_inline bool tc_discovers(struct __sk_buff *skb, __u32 at)
{
	__u8 next = 0, type = 0;

	return !bpf_skb_load_bytes(skb, at + 6, &next, 1) && next == IP_ICMPV6 && !bpf_skb_load_bytes(skb, at + 40, &type, 1) &&
	       type >= 133 && type <= 137;
}

/* The trap reason under which a frame for the kernel's stack is policed and counted if it is not ordinary traffic of the switch's
 * own addresses: ARP or neighbour discovery, link-local multicast, or broadcast; 0 for other frames. The packet begins at
 * `at`. */
__noinline int tc_host_reason(struct __sk_buff *skb, __u64 dst, __u32 type, __u32 at)
{
	if (type == ETH_ARP || (type == ETH_IPV6 && tc_discovers(skb, at)))
		return TRAP_NEIGHBOUR;
	if ((dst & LINK_GROUP_MASK) == LINK_GROUP_IPV4 || (dst & LINK_GROUP_MASK) == LINK_GROUP_IPV6)
		return TRAP_LINK_MULTICAST;
	return dst == BROADCAST ? TRAP_FLOODED : 0;
}

/* The trap group of a reason of tc_host_reason. */
static __always_inline __u32 host_group(__u32 reason)
{
	return reason == TRAP_NEIGHBOUR ? GROUP_NEIGHBOUR : reason == TRAP_LINK_MULTICAST ? GROUP_LINK_MULTICAST : GROUP_FLOODED;
}

/* Takes a token for a copy for the kernel's stack. False: none is left. */
static __always_inline bool host_admits(__u32 port, __u32 reason)
{
	return trap_admit(host_group(reason), port, reason);
}

/* True if PVST+ BPDUs of the frame's VLAN are trapped. In a VLAN without a tree they are ordinary multicast. */
static __always_inline bool traps_pvst(struct ly_global *g, struct frame *f)
{
	__u32 vlan = f->tci & VID_MASK;

	if (f->form == LY_UNTAGGED || vlan == 0)
		vlan = f->port && !(f->port->flags & LY_PORT_SUB) ? f->port->pvid : 0; /* for a subinterface it is the tag */
	if (vlan == 0 || vlan == VID_MASK)
		return g->trap_pvst;
	return g->pvst_vlans[vlan / 64 & (LY_VLANS / 64 - 1)] >> (vlan & 63) & 1;
}

/* Sends a frame to the control plane, and ends it. */
static __always_inline int trap_frame(struct frame *f, struct __sk_buff *skb, int reason, __u32 group)
{
	if (!trap_admit(group, f->port_id, reason))
		return DROP(DROP_TRAP_POLICED);
	if (leaves_marks(LY_DRY_POLICE))
		tc_trap(skb, f->port_id, reason, group);
	return TRAPPED(reason);
}

/* The reason for which a frame to a group address is trapped, with its trap group; minus the reason for which it is dropped; 0: the
 * next stage decides. */
static __always_inline int trap_why(struct frame *f, __u32 *group)
{
	struct ly_global *g = ROW(global, 0);

	if (f->dst == SSTP && traps_pvst(g, f)) {
		*group = GROUP_STP;
		return TRAP_PVST_BPDU;
	}
	*group = GROUP_DISCOVERY;
	if (f->dst == CISCO_DISCOVERY && g->trap_cdp)
		return TRAP_CDP;
	if ((f->dst & 0xf0ffffffffffULL) != RESERVED_BLOCK)
		return 0;
	__u32 last = f->dst >> 40 & 0x0f;
	if (last == 1)
		return -DROP_PAUSE;
	__u8 action = g->reserved[last];
	if (action == 0)
		return -DROP_RESERVED_ADDRESS;
	if (action == 1)
		return 0;
	*group = last == 0 ? GROUP_STP : last == 2 ? GROUP_SLOW : last == 3 ? GROUP_EAPOL : GROUP_DISCOVERY;
	return last == 0 ? TRAP_BPDU : last == 2 ? TRAP_SLOW_PROTOCOL : last == 3 ? TRAP_EAPOL : last == 14 ? TRAP_LLDP : TRAP_RESERVED;
}

static __always_inline int stage_trap(struct frame *f, struct __sk_buff *skb)
{
	__u32 group;

	/* One comparison for most frames: all addresses that are trapped are group addresses. */
	if (!(f->dst & GROUP_BIT))
		return 0;
	if (is_tunnel(f->port)) {
		if (f->dst == TUNNEL)
			return DROP(DROP_TUNNEL_ADDRESS);
		if (f->dst == SSTP || f->dst == CISCO_DISCOVERY || f->dst == RESERVED_BLOCK || f->dst == LLDP) {
			if (!tunnel_enter(skb, f->port_id, f->form, f->dst))
				return DROP(DROP_TUNNEL_PROTOCOL);
			f->dst = TUNNEL;
			return 0;
		}
	}
	int reason = trap_why(f, &group);
	if (reason < 0)
		return DROP(-reason);
	if (!reason || !f->port || !(f->port->flags & LY_PORT_ENABLED))
		return 0;
	return trap_frame(f, skb, reason, group);
}

/* True if a bucket has no token for a frame that arrives now. */
static __always_inline bool trap_empty(__u64 *clock, __u64 interval_ns, __u64 tolerance_ns, __u64 now)
{
	__u64 arrival = *(volatile __u64 *)clock;

	return interval_ns != 1 && (interval_ns == 0 || (arrival > now && arrival - now > tolerance_ns));
}

/* For XDP: counts the frame as policed, and returns true, if the stage above would drop it because a bucket is empty. It takes no
 * token: the frame is passed to TC, where the stage takes it. So a flood costs the processor no more than a look at its buckets.
 * A global function, so that other frames pay only for the comparison of their destination. */
__noinline int trap_refused(__u64 dst, __u64 src, __u32 port_id, __u32 tag, __u32 len)
{
	struct frame f = { .dst = dst, .src = src, .port_id = port_id & (LY_PORTS - 1), .outer = tag >> 16, .tci = tag, .len = len };
	__u32 group;

	f.port = ROW(ports, f.port_id);
	if (dry || is_tunnel(f.port) || !(f.port->flags & LY_PORT_ENABLED) || stage_parse(&f) || trap_why(&f, &group) <= 0)
		return false;
	struct ly_trap_group *g = LOOKUP(trap_groups, group);
	__u64 *share = LOOKUP(trap_ports, LY_TRAP_PORT(group, f.port_id));
	if (!g || !share)
		return false;
	__u64 now = now_ns();
	if (!trap_empty(share, g->port_interval_ns, g->port_tolerance_ns, now) &&
	    !trap_empty(&g->arrival_ns, g->interval_ns, g->tolerance_ns, now))
		return false;
	__sync_fetch_and_add(&g->policed, 1);
	return true;
}
