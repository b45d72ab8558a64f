/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Routing at the XDP hook: packets without anything special about them, to a known neighbour at a port that takes frames from
 * XDP. Everything else goes up to TC, untouched. */
#ifndef LY_ROUTE_XDP_H
#define LY_ROUTE_XDP_H

/* Reads the header; false: up to TC. */
static __always_inline bool xdp_packet(struct xdp_md *ctx, struct frame *f, struct packet *p)
{
	void *l3 = (void *)(long)ctx->data + (f->form != LY_UNTAGGED ? 18 : 14), *end = (void *)(long)ctx->data_end;
	__u32 room = f->bare_len - 14, at = 20;
	__u16 *type = l3 - 2;

	if (l3 + 20 > end)
		return false;
	if (*type == bpf_htons(ETH_IPV4)) {
		struct ipv4 *ip = l3;
		if (!rif_routes(f->rif, ETH_IPV4) || !read_ipv4(p, ip, room, false) || p->options)
			return false;
		if (is_fragment(ip))
			return true;
	} else if (*type == bpf_htons(ETH_IPV6)) {
		at = 40;
		if (l3 + 40 > end || !rif_routes(f->rif, ETH_IPV6) || !read_ipv6(p, l3, room, false) || p->options)
			return false;
	} else {
		return false;
	}
	__u32 *ports = l3 + at;
	if (has_ports(p->protocol) && p->len >= at + 4 && (void *)(ports + 1) <= end)
		p->ports = bpf_ntohl(*ports);
	return true;
}

/* Writes a packet's next hop into it, behind the tag it leaves with. */
static __always_inline bool xdp_rewrite(struct xdp_md *ctx, struct packet *p, struct way *w, bool tagged)
{
	struct mac_words *mac = (void *)(long)ctx->data;
	void *l3 = (void *)(long)ctx->data + (tagged ? 18 : 14), *end = (void *)(long)ctx->data_end;

	if (l3 + 20 > end)
		return false;
	write_macs(mac, w);
	if (p->six) {
		struct ipv6 *ip = l3;
		ip->ttl--;
	} else {
		struct ipv4 *ip = l3;
		ip->check = hop_check(ip->check, ip->ttl, ip->protocol);
		ip->ttl--;
	}
	return true;
}

/* The whole way of a frame for the router, on a copy of it: true when it has been sent. A global function: it is verified
 * once for a program, and this program once for each device (lanyard_xdp_bound). */
__noinline int xdp_route(struct xdp_md *ctx, struct frame *came)
{
	struct packet p = {};
	struct way w = {};

	if (!came || !came->rif)
		return false;
	struct frame f = {
		TAKE(came, src), TAKE(came, bare_len), TAKE(came, now_s), TAKE(came, port_id), TAKE(came, tci),
		TAKE(came, form), TAKE(came, rif),
	};
	p.rif = f.rif;
	if (!xdp_packet(ctx, &f, &p) || route_way(&p, &w) || w.next & GROUP_BIT)
		return false;
	route_on(&f, &w);
	f.port = LOOKUP(ports, f.port_id & (LY_PORTS - 1));
	if (!f.port)
		return false;
	f.vlan = w.vlan;
	if (f.straight) {
		f.out = LOOKUP(ports, f.out_id);
		if (!f.out || !(f.out->flags & LY_PORT_ENABLED) || !egress_fits(f.bare_len, 0, f.out))
			return false;
		f.out_pv = f.vlan ? 0 : LY_PV_UNTAGGED;
	} else if (!(port_vlan(f.port_id, f.vlan) & LY_PV_ACTIVE) || stage_bridge(&f) || !f.out_id ||
		   stage_vlan_egress(&f)) {
		return false;
	}
	bool tagged = egress_form(f.out, f.out_pv) != LY_UNTAGGED;
	if (!xdp_unicast(ctx, &f))
		return false;
	/* What has been read can be written. */
	came->action = xdp_rewrite(ctx, &p, &w, tagged) ? f.action : XDP_DROP;
	came->out_id = f.out_id;
	adjacency_used(&f);
	return true;
}

#endif
