/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Routing at the XDP hook: ordinary packets to a resolved neighbour at a port that accepts frames from XDP. All other
 * packets are left to TC, unchanged. */
#ifndef LY_ROUTE_XDP_H
#define LY_ROUTE_XDP_H

/* The transport ports of a packet that has them. Only the choice among several next hops needs
 * them. */
static __always_inline __u32 xdp_flow_ports(void *ctx, struct packet *p)
{
	void *data = (void *)(long)((struct xdp_md *)ctx)->data, *end = (void *)(long)((struct xdp_md *)ctx)->data_end;
	__u32 *ports = data + (p->l4 & 63); /* 58 at most; the mask repeats this for the verifier */

	return (void *)(ports + 1) <= end ? bpf_ntohl(*ports) : 0;
}

/* Reads the header; false: leave the packet to TC. */
static __always_inline bool xdp_packet(struct xdp_md *ctx, struct frame *f, struct packet *p)
{
	__u32 at = f->form != LY_UNTAGGED ? 18 : 14;
	void *l3 = (void *)(long)ctx->data + at, *end = (void *)(long)ctx->data_end;
	__u32 room = f->bare_len - 14;
	__u16 *type = l3 - 2;

	if (l3 + 20 > end)
		return false;
	if (*type == bpf_htons(ETH_IPV4)) {
		struct ipv4 *ip = l3;
		if (!rif_routes(f->rif, ETH_IPV4) || !read_ipv4(p, ip, room, false) || p->options)
			return false;
		p->l4 = is_fragment(ip) || p->len < 24 ? 0 : at + 20;
	} else if (*type == bpf_htons(ETH_IPV6)) {
		if (l3 + 40 > end || !rif_routes(f->rif, ETH_IPV6) || !read_ipv6(p, l3, room, false) || p->options)
			return false;
		p->l4 = p->len < 44 ? 0 : at + 40;
	} else {
		return false;
	}
	return true;
}

/* Writes the next hop's addresses, after the tag that the packet leaves with. */
static __always_inline bool xdp_rewrite(struct xdp_md *ctx, struct packet *p, struct next_hop *w, bool tagged)
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

/* Routes a frame completely. False: TC has to handle it. */
static __always_inline bool xdp_route(struct xdp_md *ctx, struct frame *f)
{
	struct packet p = { .rif = f->rif };
	struct next_hop w = {};

	if (!f->rif || !xdp_packet(ctx, f, &p) || route_next_hop(&p, &w, ctx, xdp_flow_ports) || w.next & GROUP_BIT)
		return false;
	route_on(f, &w);
	f->vlan = f->shared = w.vlan;
	if (f->straight) {
		f->out = ROW(ports, f->out_id);
		if (!(f->out->flags & LY_PORT_ENABLED) || !egress_fits(f->bare_len, 0, f->out))
			return false;
		f->out_pv = f->vlan ? 0 : LY_PV_UNTAGGED;
	} else if (!(port_vlan(f->port_id, f->vlan) & LY_PV_ACTIVE) || stage_bridge(f) || !f->out_id ||
		   stage_vlan_egress(f)) {
		return false;
	}
	if (acl_leaves(f) || f->out->qos & LY_QOS_HAS_OUTPUT)
		return false;
	bool tagged = egress_form(f->out, f->out_pv) != LY_UNTAGGED;
	if (!xdp_unicast(ctx, f))
		return false;
	/* Memory that could be read can also be written. */
	if (!xdp_rewrite(ctx, &p, &w, tagged))
		f->action = XDP_DROP;
	adjacency_used(f);
	return true;
}

#endif
