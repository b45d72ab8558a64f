/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* vlan_ingress: classification (IEEE 802.1Q-2018, 6.9), membership (8.6.2), spanning-tree state (8.6.1).
 *
 * A host or promiscuous port of private VLANs receives in its PVID only, of which it need not be a member, and sends in other
 * VLANs.
 *
 * A frame on a port in the learning state continues up to `learn`, which drops it. */
enum {
	DROP_VLAN_INVALID = 8,
	DROP_TAGGED_ON_ACCESS = 9,
	DROP_VLAN_NOT_ALLOWED = 10,
	DROP_VLAN_INACTIVE = 11,
	DROP_UNTAGGED_NOT_ALLOWED = 12,
	DROP_STP_DISCARDING = 13,
};

static __always_inline int stage_vlan_ingress(struct frame *f)
{
	__u16 vlan = f->tci & VID_MASK;
	bool tagged = f->form != LY_UNTAGGED && vlan != 0;

	if (!tagged)
		vlan = f->port->pvid;
	if (vlan == 0)
		return DROP(DROP_UNTAGGED_NOT_ALLOWED);
	if (vlan == 4095)
		return DROP(DROP_VLAN_INVALID);
	f->pv = port_vlan(f->port_id, vlan);
	if (!(f->port->flags & LY_PORT_PRIVATE && f->port->private ? vlan == f->port->pvid : f->pv & LY_PV_MEMBER))
		return DROP(tagged && f->port->flags & LY_PORT_ACCESS ? DROP_TAGGED_ON_ACCESS : DROP_VLAN_NOT_ALLOWED);
	if (!(f->pv & LY_PV_ACTIVE))
		return DROP(DROP_VLAN_INACTIVE);
	if (!(f->pv & (LY_PV_FORWARD | LY_PV_STP_LEARNING)))
		return DROP(DROP_STP_DISCARDING);
	f->vlan = f->came = vlan;
	f->shared = shared_vlan(f->port, vlan);
	return 0;
}
