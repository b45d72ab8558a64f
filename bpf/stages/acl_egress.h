/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* acl_egress: judges a frame by the outbound access lists: of a routed frame those of its egress VLAN interface and VLAN, then
 * those of each egress port. The end of a VLAN interface at the pipeline is a port whose outbound list is the interface's
 * inbound one. */
enum {
	DROP_ACL_PORT_OUT = 38,
	DROP_ACL_VLAN_OUT = 39,
	DROP_ACL_ROUTER_OUT = 40,
	DROP_ACL_HOST_IN = 41,
};
#ifdef LY_WITHOUT_ACL
#define LY_PORT_ACL_OUT 0
#else
#define LY_PORT_ACL_OUT 0x2000000 /* ly_port.flags: has a list */
#endif

/* The argument `how` of tc_acl_out. ACL_ROUTED: the frame is routed into a VLAN whose lists have not judged it yet.
 * ACL_TUNNELLED: see acl_judgement.tunnelled. */
#define ACL_ROUTED 1
#define ACL_TUNNELLED 2
#define ACL_DENIED 4 /* in floods only: a list of the VLAN has denied the frame */
#define ACL_FROM_SHIFT 16 /* from this bit of `how` on: the port that received the frame */

static __always_inline void acl_outbound(struct acl_judgement *a, __u32 what, __u32 how)
{
	__u32 id = what & (LY_PORTS - 1), vlan = what >> 16 & 0x0fff, family = acl_family(a->type);

	a->tunnelled = how & ACL_TUNNELLED;
	if (how & ACL_ROUTED && vlan) {
		__u32 rif = *ROW(vlan_rifs, vlan) >> LY_VLAN_RIF_SHIFT & (LY_RIFS - 1);
		if (rif)
			acl_add(a, 0, ROW(acl_ports, ROW(rifs, rif)->up)->inbound[family], DROP_ACL_ROUTER_OUT);
		acl_add(a, 1, ROW(acl_vlans, vlan)->inbound[family], DROP_ACL_VLAN_OUT);
	}
	acl_add(a, 2, ROW(acl_ports, id)->outbound[family], ROW(ports, id)->flags & LY_PORT_SVI ? DROP_ACL_HOST_IN : DROP_ACL_PORT_OUT);
}

__noinline int tc_acl_out(struct __sk_buff *skb, __u32 where, __u32 what, __u32 how)
{
	struct acl_work *w = acl_begin();

	if (!w)
		return 0;
	acl_place(skb, false, &w->judgement, where, what);
	acl_outbound(&w->judgement, what, how);
	return acl_judge(skb, false, w, how >> ACL_FROM_SHIFT & (LY_PORTS - 1), false);
}

/* True if lists judge the frame where it leaves by f->out. A port has LY_PORT_ACL_IN if any VLAN has a list. */
static __always_inline bool acl_leaves(struct frame *f)
{
	return f->out->flags & LY_PORT_ACL_OUT || (f->routed && !f->straight && f->port->flags & LY_PORT_ACL_IN);
}

static __always_inline int stage_acl_egress(struct frame *f, struct __sk_buff *skb)
{
	if (!acl_leaves(f))
		return 0;
	if (f->out->flags & LY_PORT_CHANNEL && !ROW(channels, f->out->channel)->member[0])
		return DROP(DROP_EGRESS_DOWN); /* as in tc_unicast, but before lists count the frame: there is no member for any bucket */
	return tc_acl_out(skb, ACL_WHERE(f->outer, f->form, f->form), ACL_WHAT(f->out_id, f->vlan, f->tci),
			  (f->routed && !f->straight ? ACL_ROUTED : 0) | (__u32)f->port_id << ACL_FROM_SHIFT);
}
