/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* guard: first-hop security. DHCP snooping (messages go to the control plane, which sends them on itself), ARP inspection, IP
 * source guard, RA guard (RFC 6105, RFC 7113), DHCPv6 guard (RFC 7610), ND inspection and IPv6 source guard (RFC 6620), the lock
 * of 802.1X. crates/pipeline/src/stages/guard.rs documents the checks.
 *
 * A packet whose headers cannot be read as far as a check needs them does not pass the check. The functions for access lists read
 * the headers (acl.h). A port has LY_PORT_GUARD if it has a check of its own, or is a member of a VLAN that has one; XDP passes its
 * frames to TC, and other ports pay only for the branch. Settings and bindings of a secondary private VLAN are those of its primary
 * VLAN. */
enum {
	DROP_ARP_INSPECTION = 46,
	DROP_ARP_RATE = 47,
	DROP_DHCP_SERVER = 48,
	DROP_DHCP_RATE = 49,
	DROP_SOURCE_GUARD = 50,
	DROP_RA_GUARD = 51,
	DROP_DHCPV6_GUARD = 52,
	DROP_UNAUTHORIZED = 53,
	DROP_ND_INSPECTION = 54,
};
#define LY_PORT_GUARD 0x20000000 /* ly_port.flags */

/* ly_guard.flags, in the row of LY_GUARD_ARP */
#define LY_GUARD_DHCP_TRUST 0x01
#define LY_GUARD_ARP_TRUST 0x02
#define LY_GUARD_VERIFY 0x04     /* IP source guard: checks the source address of IPv4 packets */
#define LY_GUARD_VERIFY_MAC 0x08 /* IP source guard also checks the source address of their frames */
#define LY_GUARD_NO_ROUTERS 0x10
#define LY_GUARD_NO_SERVERS 0x20 /* accepts no messages of DHCPv6 servers */
#define LY_GUARD_HOSTS 0x40      /* 802.1X: the port is open only for hosts that have a control-plane entry in the FDB at it */
#define LY_GUARD_CLOSED 0x80     /* 802.1X: the port is open for no host */
#define LY_GUARD_ND_TRUST 0x100
#define LY_GUARD_VERIFY6 0x200 /* IPv6 source guard: checks the source addresses of IPv6 packets and of their frames */

/* guard[LY_GUARD(rate, port)]: a rate as a clock (see ly_trap_group), and the settings of the port. */
enum ly_guard_rate { LY_GUARD_ARP = 0, LY_GUARD_DHCP = 1, LY_GUARD_RATES = 2 };
#define LY_GUARD(rate, port) ((rate) * LY_PORTS + (port))

struct ly_guard {
	__u64 interval_ns; /* 1e9 / rate; 0: nothing passes, 1: everything */
	__u64 tolerance_ns;
	__u64 arrival_ns;
	__u32 flags;
	__u32 pad;
};
TABLE(guard, struct ly_guard, LY_GUARD_RATES * LY_PORTS, BPF_F_MMAPABLE);

/* guard_vlans[vlan] */
#define LY_GUARD_VLAN_DHCP 0x01
#define LY_GUARD_VLAN_ARP 0x02
#define LY_GUARD_VLAN_SRC_MAC 0x04 /* ARP inspection compares the frame's source with the sender's MAC address */
#define LY_GUARD_VLAN_DST_MAC 0x08 /* ARP inspection compares the destination of a reply's frame with the target's MAC address */
#define LY_GUARD_VLAN_IP 0x10      /* ARP inspection refuses IP addresses that no host has */
#define LY_GUARD_VLAN_ZEROS 0x20   /* with LY_GUARD_VLAN_IP: the sender's address may be 0.0.0.0 */
#define LY_GUARD_VLAN_ND 0x40
ROWS(guard_vlans, __u64, LY_VLANS);

/* bindings: address << 32 | port << 16 | VLAN -> raw MAC address. The address is in host order. */
#define LY_BINDINGS 16384
#define LY_BINDING(address, port, vlan) ((__u64)(address) << 32 | (__u64)(port) << 16 | (vlan))

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LY_BINDINGS);
	__type(key, __u64);
	__type(value, __u64);
} bindings SEC(".maps");

/* bindings6: the bindings of IPv6 addresses, with this key -> raw MAC address */
struct ly_binding6 {
	__u64 address[2]; /* as it is in a packet */
	__u32 place;      /* port << 16 | VLAN */
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LY_BINDINGS);
	__type(key, struct ly_binding6);
	__type(value, __u64);
} bindings6 SEC(".maps");

/* Added to the argument `what` of the functions below (ACL_WHAT), in place of the class of service: spanning tree lets the port
 * forward. */
#define GUARD_FORWARDS (1 << 29)

#define DHCP_SERVER 67
#define DHCP_CLIENT 68
#define DHCPV6_CLIENT 546
#define ICMPV6_ADVERTISEMENT 134
#define ICMPV6_REDIRECT 137
#define ND_ROUTER_SOLICITATION 133
#define ND_SOLICITATION 135
#define ND_ADVERTISEMENT 136
#define ND_HOP_LIMIT 255 /* RFC 4861, 3.1: hosts accept no other */
#define IPV6_HEADER 40

/* True if a frame is within the rate of this row of `guard`. A global function, so that the verifier checks it once. */
__noinline int guard_admits(__u32 row)
{
	struct ly_guard *g = LOOKUP(guard, row);

	if (!g || g->interval_ns == 1 || !leaves_marks(LY_DRY_POLICE))
		return true;
	return trap_take(&g->arrival_ns, g->interval_ns, g->tolerance_ns, now_ns());
}

/* The MAC address in the binding of an IPv4 address at this port and VLAN; 0: there is no binding. */
static __always_inline __u64 guard_bound(__u32 address, __u32 port, __u32 vlan)
{
	__u64 key = LY_BINDING(address, port, vlan);
	__u64 *mac = bpf_map_lookup_elem(&bindings, &key);

	return mac ? *mac : 0;
}

static __always_inline __u32 guard_u32(__u8 *at)
{
	return (__u32)at[0] << 24 | (__u32)at[1] << 16 | (__u32)at[2] << 8 | at[3];
}

static __always_inline __u64 guard_mac(__u8 *at)
{
	return RAW_MAC(at[0], at[1], at[2], at[3], at[4], at[5]);
}

/* True for an address that no host has. */
static __always_inline bool guard_odd(__u32 address)
{
	return address == 0 || address == 0xffffffff || address >> 28 == 0xe;
}

/* Inspects an ARP packet, at a port that is not trusted. `what`: ACL_WHAT; `on`: the settings of the VLAN; `src` and `dst`: the
 * frame's addresses. Returns 0 or a drop reason. */
static __always_inline int guard_arp(struct acl_work *w, struct __sk_buff *skb, __u32 what, __u32 on, __u64 src, __u64 dst)
{
	__u8 *arp = w->header;

	if (!acl_load(w, skb, false, w->judgement.at, arp, 28))
		return DROP(DROP_ARP_INSPECTION);
	__u16 op = acl_half(arp, 6);
	if (acl_half(arp, 0) != 1 || acl_half(arp, 2) != ETH_IPV4 || acl_half(arp, 4) != 0x0604 || (op != 1 && op != 2))
		return DROP(DROP_ARP_INSPECTION);
	bool reply = op == 2;
	__u64 mac = guard_mac(arp + 8);
	__u32 sender = guard_u32(arp + 14);
	if ((on & LY_GUARD_VLAN_SRC_MAC && mac != src) ||
	    (on & LY_GUARD_VLAN_DST_MAC && reply && guard_mac(arp + 18) != dst) ||
	    (on & LY_GUARD_VLAN_IP && guard_odd(sender) && !(on & LY_GUARD_VLAN_ZEROS && !sender)) ||
	    (on & LY_GUARD_VLAN_IP && reply && guard_odd(guard_u32(arp + 24))))
		return DROP(DROP_ARP_INSPECTION);
	if (!sender && !reply)
		return 0; /* a probe (RFC 5227, 2.1.1) claims no address */
	__u64 bound = guard_bound(sender, what & (LY_PORTS - 1), what >> 16 & 0x0fff);
	return bound && bound == mac ? 0 : DROP(DROP_ARP_INSPECTION);
}

static __always_inline int guard_ipv4(struct acl_work *w, struct __sk_buff *skb, __u32 what, __u32 flags, __u64 src, bool forwards)
{
	struct acl_key *k = &w->key;

	if (!acl_ipv4(w, skb, false, w->judgement.at))
		return flags & LY_GUARD_VERIFY ? DROP(DROP_SOURCE_GUARD) : 0;
	if (k->half[LY_ACL_PROTOCOL] == IP_UDP && !k->absent) {
		__u16 to = k->half[LY_ACL_L4_DST];
		if (!(flags & LY_GUARD_DHCP_TRUST) && (to == DHCP_CLIENT || k->unknown))
			return DROP(DROP_DHCP_SERVER);
		if ((to == DHCP_SERVER || to == DHCP_CLIENT) && forwards)
			return guard_admits(LY_GUARD(LY_GUARD_DHCP, what & (LY_PORTS - 1))) ? TRAPPED(TRAP_DHCP) : DROP(DROP_DHCP_RATE);
	}
	if (!(flags & LY_GUARD_VERIFY))
		return 0;
	__u32 from = (__u32)k->half[LY_ACL_SRC] << 16 | k->half[LY_ACL_SRC + 1];
	__u64 bound = guard_bound(from, what & (LY_PORTS - 1), what >> 16 & 0x0fff);
	return bound && (!(flags & LY_GUARD_VERIFY_MAC) || bound == src) ? 0 : DROP(DROP_SOURCE_GUARD);
}

static __always_inline int guard_ipv6(struct acl_work *w, struct __sk_buff *skb, __u32 flags)
{
	struct acl_key *k = &w->key;
	int drops = flags & LY_GUARD_NO_ROUTERS ? DROP(DROP_RA_GUARD) : DROP(DROP_DHCPV6_GUARD);

	if (!(flags & (LY_GUARD_NO_ROUTERS | LY_GUARD_NO_SERVERS)) || !acl_ipv6(w, skb, false, w->judgement.at))
		return 0;
	if (k->unknown & 1 << LY_ACL_PROTOCOL)
		return (k->half[LY_ACL_SRC] & 0xffc0) == 0xfe80 ? drops : 0;
	bool hidden = k->unknown & 1 << LY_ACL_L4_DST;
	__u16 protocol = k->half[LY_ACL_PROTOCOL];
	if (protocol == IP_ICMPV6 && flags & LY_GUARD_NO_ROUTERS) {
		__u16 type = k->half[LY_ACL_L4_SRC] >> 8;
		return hidden || type == ICMPV6_ADVERTISEMENT || type == ICMPV6_REDIRECT ? drops : 0;
	}
	if (protocol == IP_UDP && flags & LY_GUARD_NO_SERVERS)
		return hidden || k->half[LY_ACL_L4_DST] == DHCPV6_CLIENT ? DROP(DROP_DHCPV6_GUARD) : 0;
	return 0;
}

static __always_inline bool nd_is_inspected(__u8 type)
{
	return type == ND_ROUTER_SOLICITATION || type == ND_SOLICITATION || type == ND_ADVERTISEMENT;
}

/* True for a message of neighbour discovery behind extension headers or in a fragment, and for a packet that may be one. */
static __always_inline bool nd_hides(struct acl_work *w, struct __sk_buff *skb, __u32 at)
{
	struct acl_key *k = &w->key;

	w->key = (struct acl_key){};
	if (!acl_ipv6(w, skb, false, at))
		return false;
	if (k->unknown & 1 << LY_ACL_PROTOCOL)
		return true;
	return k->half[LY_ACL_PROTOCOL] == IP_ICMPV6 && !k->absent && (k->unknown || nd_is_inspected(k->half[LY_ACL_L4_SRC] >> 8));
}

/* True if the address has a binding whose MAC address is `src`. */
static __always_inline bool nd_explains(struct ly_binding6 *key, __u64 src)
{
	__u64 *mac = bpf_map_lookup_elem(&bindings6, key);

	return mac && *mac == src;
}

/* A message of neighbour discovery in an inspected VLAN, at a port that is not trusted. `key` is the key of a binding for
 * the packet's source address. Returns 0, a drop reason, or minus a trap reason. */
static __always_inline int nd_message(struct acl_work *w, struct __sk_buff *skb, __u32 at, __u8 type, __u32 length, struct ly_binding6 *key, __u64 src)
{
	__u64 *target = (void *)(w->header + 8);
	__u8 *option = w->header + 24;
	const __u32 options = type == ND_ROUTER_SOLICITATION ? 8 : 24;
	bool unspecified = !key->address[0] && !key->address[1];

	at += IPV6_HEADER;
	if (type == ND_ROUTER_SOLICITATION ? !acl_load(w, skb, false, at, w->header, 8) : !acl_load(w, skb, false, at, w->header, 24))
		return DROP(DROP_ND_INSPECTION);
	if (length != options && length != options + 8)
		return TRAPPED(TRAP_ND);
	if (length != options) {
		if (!acl_load(w, skb, false, at + options, option, 8))
			return DROP(DROP_ND_INSPECTION);
		if (option[0] != (type == ND_ADVERTISEMENT ? 2 : 1) || option[1] != 1 || guard_mac(option + 2) != src)
			return TRAPPED(TRAP_ND);
	}
	if (unspecified && length != options)
		return TRAPPED(TRAP_ND);
	if (type == ND_ADVERTISEMENT) {
		if (target[0] != key->address[0] || target[1] != key->address[1])
			return TRAPPED(TRAP_ND);
	} else if (unspecified) {
		if (type == ND_ROUTER_SOLICITATION)
			return 0;
		key->address[0] = target[0];
		key->address[1] = target[1];
	}
	return nd_explains(key, src) ? 0 : TRAPPED(TRAP_ND);
}

/* ND inspection and IPv6 source guard for an IPv6 packet at `at` in an inspected VLAN. `what`: ACL_WHAT with GUARD_FORWARDS;
 * `flags`: ly_guard.flags. A global function, so that the verifier checks it once. */
__noinline int tc_guard_nd(struct __sk_buff *skb, __u32 at, __u32 what, __u32 flags, __u64 src)
{
	struct acl_work *w = LOOKUP(acl_works, 0);

	if (!w)
		return 0;
	__u8 *header = w->header;
	bool valid = acl_load(w, skb, false, at, header, IPV6_HEADER) && header[0] >> 4 == 6;
	struct ly_binding6 key = { .place = (what & (LY_PORTS - 1)) << 16 | (what >> 16 & 0x0fff) };
	if (valid) {
		key.address[0] = *(__u64 *)(header + 8);
		key.address[1] = *(__u64 *)(header + 16);
	}
	if (valid && header[7] == ND_HOP_LIMIT) {
		__u32 length = acl_half(header, 4);
		bool trusted = flags & LY_GUARD_ND_TRUST, to_all = header[24] == 0xff;
		if (header[6] != IP_ICMPV6) {
			if (!trusted && acl_is_extension(header[6]) && nd_hides(w, skb, at))
				return DROP(DROP_ND_INSPECTION);
		} else if (!acl_load(w, skb, false, at + IPV6_HEADER, header, 2)) {
			if (!trusted)
				return DROP(DROP_ND_INSPECTION);
		} else if (nd_is_inspected(header[0])) {
			__u8 type = header[0];
			int end = type == ND_ADVERTISEMENT && to_all ? TRAPPED(TRAP_ND) :
				  trusted                            ? 0 :
								       nd_message(w, skb, at, type, length, &key, src);
			return end < 0 && !(what & GUARD_FORWARDS) ? 0 : end;
		}
	}
	if (!(flags & LY_GUARD_VERIFY6) || (valid && !key.address[0] && !key.address[1]))
		return 0;
	return valid && nd_explains(&key, src) ? 0 : DROP(DROP_SOURCE_GUARD);
}

/* True if the port is not open for the frame's source. */
static __always_inline bool guard_locked(__u32 flags, __u32 what, __u64 src)
{
	if (flags & LY_GUARD_CLOSED)
		return true;
	if (!(flags & LY_GUARD_HOSTS))
		return false;
	__u64 word = fdb_word_of(fdb_masks(), fdb_key(src, what >> 16 & 0x0fff));
	return !word || fdb_kind(word) == LY_FDB_DYNAMIC || fdb_port(word) != (what & (LY_PORTS - 1));
}

/* Makes the checks of the port and of its VLAN. Returns 0, a drop reason, or minus a trap reason. */
__noinline int tc_guard(struct __sk_buff *skb, __u32 where, __u32 what, __u64 src, __u64 dst)
{
	struct acl_work *w = acl_begin();
	__u32 port = what & (LY_PORTS - 1), on = *ROW(guard_vlans, what >> 16 & 0x0fff);
	struct ly_guard *g = LOOKUP(guard, LY_GUARD(LY_GUARD_ARP, port));

	if (!w || !g)
		return 0;
	__u32 flags = g->flags;
	if (guard_locked(flags, what, src))
		return DROP(DROP_UNAUTHORIZED);
	acl_place(skb, false, &w->judgement, where, what);
	w->key = (struct acl_key){};
	if (dry)
		w->end = skb->len + dry_extra();
	if (w->judgement.type == ETH_ARP) {
		if (!(on & LY_GUARD_VLAN_ARP))
			return 0;
		if (!guard_admits(LY_GUARD(LY_GUARD_ARP, port)))
			return DROP(DROP_ARP_RATE);
		return flags & LY_GUARD_ARP_TRUST ? 0 : guard_arp(w, skb, what, on, src, dst);
	}
	if (w->judgement.type == ETH_IPV4)
		return on & LY_GUARD_VLAN_DHCP ? guard_ipv4(w, skb, what, flags, src, what & GUARD_FORWARDS) : 0;
	if (w->judgement.type != ETH_IPV6)
		return 0;
	int end = guard_ipv6(w, skb, flags);
	return end || !(on & LY_GUARD_VLAN_ND) ? end : tc_guard_nd(skb, w->judgement.at, what, flags, src);
}

static __always_inline int stage_guard(struct frame *f, struct __sk_buff *skb)
{
	if (!(f->port->flags & LY_PORT_GUARD))
		return 0;
	__u32 what = ACL_WHAT(f->port_id, f->shared, 0) | (f->pv & LY_PV_FORWARD ? GUARD_FORWARDS : 0);
	int end = tc_guard(skb, ACL_WHERE(f->outer, f->form, f->form), what, f->src, f->dst);

	if (end < 0)
		return trap_frame(f, skb, -end, end == TRAPPED(TRAP_ND) ? GROUP_ND : GROUP_DHCP);
	/* The control plane gets copies of dropped frames, at a limited rate; but no frame that was dropped because it exceeded a
	 * rate. */
	__u32 why = end == DROP_UNAUTHORIZED ? TRAP_UNAUTHORIZED : TRAP_GUARDED;
	if (end > 0 && end != DROP_ARP_RATE && end != DROP_DHCP_RATE && leaves_marks(LY_DRY_POLICE) &&
	    trap_admit(GROUP_GUARDED, f->port_id, why))
		tc_trap(skb, f->port_id, why, GROUP_GUARDED);
	return end;
}
