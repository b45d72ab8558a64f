/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Routing at the TC hook: reading and rewriting an skb, and the stages after `route` for routed frames.
 *
 * A frame that goes to the kernel is unchanged, because a frame is rewritten only after its next hop has been found.
 *
 * This is a program of its own, to which the first one jumps (router_enter, router_begin). A jump does not return; on
 * processors that guard returns, a return costs as much as a table look-up. Also, the kernel copies the head of every
 * cloned frame for a program that writes into frames, and bridged frames are spared that copy. */
#ifndef LY_ROUTE_TC_H
#define LY_ROUTE_TC_H

/* Passes the frame on to the programs and filters after this one and then to the stack: TCX_NEXT.
 * TC_ACT_OK would skip them. */
#define TC_ACT_UNSPEC (-1)
#define MAC_BYTES 12

/* True if a header with options cannot be read, or its checksum is wrong. */
__noinline int tc_options_fail(struct __sk_buff *skb, __u32 at, __u32 len)
{
	__u32 word[15] = {};
	__u64 sum = 0, bytes = len;

	/* The compared and the passed length must be one register: the verifier up to Linux 6.12 loses the
	 * range otherwise. */
	asm volatile("" : "+r"(bytes));
	if (bytes < 20 || bytes > sizeof(word) || bpf_skb_load_bytes(skb, at, word, bytes))
		return true;
	for (int i = 0; i < 15; i++)
		sum += word[i];
	return fold(sum) != 0xffff;
}

/* True when a segment of a GSO buffer other than TCP is too long for the egress interface. After
 * UDP and GRE there may be a tunnel whose inner headers are repeated in each segment; the kernel
 * knows where they end. It compares with the MTU of the netdev that has the interface's MTU: the
 * host's end, or the routed port. A dry run has no netdevs: it assumes that UDP carries no tunnel. */
__noinline int tc_segments_exceed(struct __sk_buff *skb, __u32 rif)
{
	struct ly_rif *out = ROW(rifs, rif);

	return tc_segments_too_long(skb, ROW(ports, out->up ? out->up : out->port)->ifindex);
}

/* The transport ports of a packet that has them. Only the choice among several next hops needs
 * them. */
static __always_inline __u32 tc_flow_ports(void *skb, struct packet *p)
{
	__u32 ports = 0;

	return bpf_skb_load_bytes(skb, p->l4, &ports, 4) ? 0 : bpf_ntohl(ports);
}

/* Reads the header. Returns 0 or a drop reason. */
static __always_inline int tc_packet(struct __sk_buff *skb, struct frame *f, struct packet *p, __u32 at, bool six)
{
	__u32 room = f->bare_len - 14, need = six ? 40 : 20;
	bool whole = true;
	void *data = (void *)(long)skb->data + at;

	if (room < need)
		return DROP(DROP_IP_HEADER_INVALID);
	if (data + need > (void *)(long)skb->data_end) {
		bpf_skb_pull_data(skb, at + need);
		data = (void *)(long)skb->data + at;
	}
	if (six) {
		if (data + 40 > (void *)(long)skb->data_end || !read_ipv6(p, data, room, f->gso))
			return DROP(DROP_IP_HEADER_INVALID);
	} else {
		struct ipv4 *ip = data;
		if (data + 20 > (void *)(long)skb->data_end || !read_ipv4(p, ip, room, f->gso))
			return DROP(DROP_IP_HEADER_INVALID);
		if (p->options && tc_options_fail(skb, at, (ip->version_ihl & 15) * 4))
			return DROP(DROP_IP_HEADER_INVALID);
		whole = !p->options && !is_fragment(ip);
	}
	p->l4 = whole && p->len >= need + 4 ? at + need : 0;
	if (f->gso)
		p->len = p->protocol == IP_TCP || dry ? need + tc_segment(skb, at + need, p->protocol) : 0;
	return 0;
}

/* Writes the next hop's addresses, and decrements the TTL. */
static __always_inline bool tc_rewrite(struct __sk_buff *skb, struct packet *p, struct next_hop *w, __u32 at)
{
	struct mac_words *mac = (void *)(long)skb->data;
	struct ipv4 *ip = (void *)mac + at;

	if ((void *)(ip + 1) > (void *)(long)skb->data_end)
		return false;
	write_macs(mac, w);
	if (p->six) {
		__u8 ttl = p->ttl - 1;
		return !bpf_skb_store_bytes(skb, at + 7, &ttl, 1, BPF_F_RECOMPUTE_CSUM);
	}
	ip->check = hop_check(ip->check, ip->ttl, ip->protocol);
	ip->ttl--;
	return true;
}

/* The trap group of a reason for which packets go to the kernel: lanyard_types::TrapReason::group. */
static __always_inline __u32 up_group(__u32 reason)
{
	switch (reason) {
	case TRAP_LOCAL_ADDRESS:
	case TRAP_ROUTE_POLICY:
	case TRAP_HOST_STACK:
		return GROUP_HOST;
	case TRAP_GLEAN:
		return GROUP_GLEAN;
	case TRAP_TTL_EXPIRED:
		return GROUP_TTL_EXPIRED;
	case TRAP_ROUTE_MTU:
		return GROUP_ROUTE_MTU;
	case TRAP_IP_OPTIONS:
		return GROUP_IP_OPTIONS;
	case TRAP_NEIGHBOUR:
	case TRAP_LINK_MULTICAST:
	case TRAP_FLOODED:
		return host_group(reason);
	default:
		return GROUP_ROUTE_EXCEPTION;
	}
}

/* Sends the frame to the kernel, at f->out_id or at the receiving netdev, if the policer of the
 * reason's group admits it. */
static __always_inline int tc_up(struct frame *f, __u32 reason)
{
	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j)
			j->up = reason;
	}
	if (f->out_id) {
		struct ly_port *out = ROW(ports, f->out_id);
		if (!(out->flags & LY_PORT_ENABLED))
			return DROP(DROP_EGRESS_DOWN);
		if (!egress_fits(f->bare_len, f->gso, out))
			return DROP(DROP_MTU_EXCEEDED);
	}
	if (!trap_admit(up_group(reason), f->port_id, reason))
		return DROP(DROP_TRAP_POLICED);
	f->up = reason + unknown_zero(f->len); /* otherwise the verifier checks the following stages once for each reason */
	f->straight = 1;
	f->out_vlan = 0;
	return 0;
}

/* The stage `route`, for a frame that may be addressed to f->rif. Returns 0 when the frame
 * continues as f says, NOT_FOR_ROUTER, a drop reason, or minus the reason for which it goes to the
 * kernel. f->out_id is the port for the exceptions of a routed port. */
static __always_inline int tc_route(struct __sk_buff *skb, struct frame *f)
{
	struct packet p = {};
	struct next_hop w = {};
	__u32 at = tc_l3(skb, f);
	__u16 type = tc_l3_type(skb, f, at);

	if (!f->rif || !rif_routes(f->rif, type)) {
		if (f->vlan)
			return NOT_FOR_ROUTER;
		int reason = tc_host_reason(skb, f->dst, type, at);
		return TRAPPED(reason ? reason : TRAP_HOST_STACK);
	}
	f->out_id = ROW(rifs, f->rif)->up;
	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j)
			j->route_rif = f->rif;
	}
	p.rif = f->rif;
	int end = tc_packet(skb, f, &p, at, type == ETH_IPV6);
	if (!end)
		end = route_next_hop(&p, &w, skb, tc_flow_ports);
	if (!end && f->gso && p.protocol != IP_TCP && !dry && tc_segments_exceed(skb, next_rif(w.next)))
		end = TRAPPED(TRAP_ROUTE_MTU);
	if (end == TRAPPED(TRAP_LOCAL_ADDRESS) && p.six && tc_discovers(skb, at))
		end = TRAPPED(TRAP_NEIGHBOUR);
	if (end)
		return end;
	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j) {
			j->ttl = p.ttl;
			j->rewritten = 1;
			j->out_vlan = w.vlan;
		}
	}
	if (!tc_rewrite(skb, &p, &w, at))
		return DROP(DROP_TRANSMIT_FAILED);
	route_on(f, &w);
	return 0;
}

/* Sends the frame out of f->out_id, tagged with f->vlan or untagged. */
static __always_inline int tc_straight(struct __sk_buff *skb, struct frame *f)
{
	if (dry && !f->up) {
		struct ly_journal *j = dry_journal();
		if (j) {
			j->straight = 1;
			j->target_port = f->out_id;
			j->out_vlan = f->vlan;
		}
	}
	f->out = ROW(ports, f->out_id);
	if (!(f->out->flags & LY_PORT_ENABLED))
		return DROP(DROP_EGRESS_DOWN);
	if (!egress_fits(f->bare_len, f->gso, f->out))
		return DROP(DROP_MTU_EXCEEDED);
	f->out_pv = f->vlan ? 0 : LY_PV_UNTAGGED;
	if (!f->up && f->out->flags & LY_PORT_ACL_OUT) {
		int end = stage_acl_egress(f, skb);
		if (end)
			return end;
	}
	if (!f->up) {
		int end = stage_qos_egress(f, skb);
		if (end)
			return end;
	}
	return tc_unicast(skb, f);
}

static __always_inline int tc_bridge(struct __sk_buff *skb, struct frame *f)
{
	f->port = ROW(ports, f->port_id);
	f->shared = shared_vlan(f->port, f->vlan);
	if (f->routed && !(port_vlan(f->port_id, f->vlan) & LY_PV_ACTIVE))
		return DROP(DROP_NO_EGRESS);
	return tc_bridged(skb, f);
}

/* `route` and the stages after it. */
static __always_inline int router_stages(struct __sk_buff *skb, struct frame *f)
{
	int end = f->straight ? 0 : tc_route(skb, f);

	if (end < 0)
		end = tc_up(f, -end);
	else if (end == NOT_FOR_ROUTER)
		end = 0;
	if (end)
		return end;
	if (f->up && !f->out_id) {
		f->action = TC_ACT_UNSPEC;
		return TRAPPED(f->up);
	}
	if (f->routed || f->straight) {
		if (f->vlan != f->out_vlan)
			f->src = 0; /* it has been learned already, in the ingress VLAN */
		f->vlan = f->out_vlan;
	}
	end = f->straight ? tc_straight(skb, f) : tc_bridge(skb, f);
	if (end)
		return end;
	if (f->routed)
		adjacency_used(f);
	return f->up ? TRAPPED(f->up) : 0;
}

static __always_inline int router_enter(struct __sk_buff *skb, struct frame *f)
{
	return step_enter(skb, f, LY_STEP_ROUTER, f->rif, f->out_id | (__u32)f->out_vlan << 16);
}

static __always_inline bool router_begin(struct __sk_buff *skb, struct frame *f)
{
	if (!step_begin(skb, f))
		return false;
	f->vlan = f->came;
	f->rif = STEP_OTHER(skb);
	f->out_id = STEP_MORE(skb);
	f->out_vlan = STEP_MORE(skb) >> 16;
	return true;
}

/* A port in no VLAN: a routed port, or the host's end of a subinterface. */
static __always_inline int tc_layer3(struct __sk_buff *skb, struct frame *f)
{
	if (f->port->flags & LY_PORT_SUB) {
		f->straight = 1;
		f->out_id = f->port->parent;
		f->out_vlan = f->port->pvid;
		return router_enter(skb, f);
	}
	f->now_s = now_s();
	port_rif(f);
	int end = stage_qos_ingress(f, skb);
	if (end)
		return end;
	return router_enter(skb, f);
}

#endif
