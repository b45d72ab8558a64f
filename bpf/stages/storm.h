/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* storm: limits the rate of broadcast, multicast and unknown unicast frames that each port receives (storm control).
 *
 * A frame over the rate is dropped before `learn`: in a loop its source address is not a station behind this port. XDP passes
 * floods from ports with a rate to TC. A frame for a router interface (f->rif) has a known destination, whatever the FDB holds.
 */

/* A global function, so that ports without a rate pay only for the branch on their flags. */
__noinline int storm_admits(__u64 dst, __u32 vlan, __u32 port)
{
	__u32 kind = dst == BROADCAST ? STORM_BROADCAST : dst & GROUP_BIT ? STORM_MULTICAST : STORM_UNICAST;
	struct ly_storm *s = LOOKUP(storm, LY_STORM(kind, port));

	if (!s || (kind == STORM_UNICAST && fdb_find(fdb_masks(), fdb_key(dst, vlan)).word))
		return true;
	return !leaves_marks(LY_DRY_POLICE) || trap_take(&s->arrival_ns, s->interval_ns, s->tolerance_ns, now_ns());
}

static __always_inline int stage_storm(struct frame *f)
{
	if (!(f->port->flags & LY_PORT_STORM) || f->rif)
		return 0;
	return storm_admits(f->dst, f->vlan, f->port_id) ? 0 : DROP(DROP_STORM);
}
