/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* vlan_egress: the restrictions of the egress port (IEEE 802.1Q-2018, 8.6.4 and 8.6.1), here for known unicast. A
 * flood set already contains only members that are up and forwarding, and `replicate` removes the others. */
enum {
	DROP_EGRESS_NOT_MEMBER = 19,
	DROP_EGRESS_STP = 20,
	DROP_ISOLATED = 21,
	DROP_PRIVATE_VLAN = 45,
};

static __always_inline int stage_vlan_egress(struct frame *f)
{
	struct ly_port *out = ROW(ports, f->out_id);

	if (!(out->flags & LY_PORT_ENABLED))
		return DROP(DROP_EGRESS_DOWN);
	f->out = out;
	f->out_pv = port_vlan(f->out_id, f->vlan);
	if (!(f->out_pv & LY_PV_MEMBER))
		return out->private ? DROP(DROP_PRIVATE_VLAN) : DROP(DROP_EGRESS_NOT_MEMBER);
	if (!(f->out_pv & LY_PV_FORWARD))
		return DROP(DROP_EGRESS_STP);
	if (f->port->flags & out->flags & LY_PORT_ISOLATED && !f->routed)
		return DROP(DROP_ISOLATED);
	if (!egress_fits(f->bare_len, f->gso, out))
		return DROP(DROP_MTU_EXCEEDED);
	return 0;
}

static __always_inline __u8 egress_form(struct ly_port *out, __u8 pv)
{
	return pv & LY_PV_UNTAGGED ? LY_UNTAGGED : out->form;
}
