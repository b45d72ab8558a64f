/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* acl_ingress: judges a frame by the inbound access lists: of its port, then of its VLAN (a VLAN map), then of the VLAN
 * interface if the frame is for the router. A frame from the host's stack is judged by the outbound list of its VLAN
 * interface: that is the inbound list of the interface's end at the pipeline.
 *
 * A port has LY_PORT_ACL_IN if it has a list, or if any VLAN or VLAN interface of the switch has one; other ports pay only for the
 * branch. */
enum {
	DROP_ACL_PORT_IN = 34,
	DROP_ACL_VLAN_IN = 35,
	DROP_ACL_ROUTER_IN = 36,
	DROP_ACL_HOST_OUT = 37,
};
#ifdef LY_WITHOUT_ACL /* an experiment: what the stages cost where no list is configured (docs/performance.md) */
#define LY_PORT_ACL_IN 0
#else
#define LY_PORT_ACL_IN 0x1000000 /* ly_port.flags */
#endif

/* Arguments of the functions that judge a frame, packed because a global function takes at most five. ACL_WHERE: the outer
 * EtherType, and the frame's form when it arrived and now. ACL_WHAT: the port, the VLAN and the class of service. */
#define ACL_WHERE(outer, came, is) ((__u32)(outer) | (__u32)(came) << 16 | (__u32)(is) << 20)
#define ACL_WHAT(port, vlan, tci) ((__u32)(port) | (__u32)(vlan) << 16 | (__u32)((tci) >> 13) << 29)

/* Finds the offset and the EtherType of the packet. The EtherType is 0 if the frame ends before it. */
static __always_inline void acl_place(void *ctx, const bool xdp, struct acl_judgement *a, __u32 where, __u32 what)
{
	__u8 type[2] __attribute__((aligned(2))) = {};
	bool in_line = xdp || !((struct __sk_buff *)ctx)->vlan_present;

	a->vlan = (what >> 16 & 0x0fff) | (what >> 29 << 13);
	a->at = (where >> 20 & 3) != LY_UNTAGGED && in_line ? 18 : 14;
	a->type = where;
	if ((where >> 16 & 3) != LY_UNTAGGED)
		a->type = acl_bytes(ctx, xdp, a->at - 2, type, 2) ? acl_half(type, 0) : 0;
}

static __always_inline void acl_inbound(struct acl_judgement *a, __u32 what, __u32 rif)
{
	__u32 id = what & (LY_PORTS - 1), vlan = what >> 16 & 0x0fff, family = acl_family(a->type);

	acl_add(a, 0, ROW(acl_ports, id)->inbound[family], ROW(ports, id)->flags & LY_PORT_SVI ? DROP_ACL_HOST_OUT : DROP_ACL_PORT_IN);
	if (!vlan)
		return;
	acl_add(a, 1, ROW(acl_vlans, vlan)->inbound[family], DROP_ACL_VLAN_IN);
	if (rif)
		acl_add(a, 2, ROW(acl_ports, ROW(rifs, rif)->up)->outbound[family], DROP_ACL_ROUTER_IN);
}

__noinline int tc_acl_in(struct __sk_buff *skb, __u32 where, __u32 what, __u32 rif)
{
	struct acl_work *w = acl_begin();

	if (!w)
		return 0;
	acl_place(skb, false, &w->judgement, where, what);
	acl_inbound(&w->judgement, what, rif);
	return acl_judge(skb, false, w, what & (LY_PORTS - 1), true);
}

/* As tc_acl_in, at XDP, for a frame that is not for a VLAN interface. */
__noinline int xdp_acl_in(struct xdp_md *ctx, __u32 where, __u32 what)
{
	struct acl_work *w = acl_begin();

	if (!w)
		return 0;
	for (__u32 n = 0; n < ACL_ASKED; n++)
		w->hit[n] = 0;
	acl_place(ctx, true, &w->judgement, where, what);
	acl_inbound(&w->judgement, what, 0);
	return acl_judge(ctx, true, w, what & (LY_PORTS - 1), true);
}

static __always_inline int stage_acl_ingress(struct frame *f, struct __sk_buff *skb)
{
	if (!(f->port->flags & LY_PORT_ACL_IN))
		return 0;
	return tc_acl_in(skb, ACL_WHERE(f->outer, f->form, f->form), ACL_WHAT(f->port_id, f->vlan, f->tci), f->rif);
}

static __always_inline int xdp_acl_ingress(struct frame *f, struct xdp_md *ctx)
{
	if (!(f->port->flags & LY_PORT_ACL_IN))
		return 0;
	return xdp_acl_in(ctx, ACL_WHERE(f->outer, f->form, f->form), ACL_WHAT(f->port_id, f->vlan, f->tci));
}

/* Counts the rules that have judged a frame, when XDP has handled it. */
static __always_inline void xdp_acl_counts(struct frame *f)
{
	if (f->port->flags & LY_PORT_ACL_IN)
		acl_count_hits(f->port_id);
}
