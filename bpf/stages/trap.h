/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* trap: frames for the control plane, before anything else may drop them (a BPDU on a blocked port).
 *
 * Reserved addresses (IEEE 802.1Q-2018, table 8-1) are dropped, relayed or trapped as the control plane says;
 * PAUSE is always dropped. Only a port that is enabled traps: for the rest the next stage has a reason.
 */
__noinline int trap_admit(__u32 group)
{
	struct ly_trap_group *g = LOOKUP(trap_groups, group);

	if (!leaves_marks(LY_DRY_POLICE))
		return true;
	if (!g || g->interval_ns == 0)
		goto police;
	__u64 now = now_ns(false);
	for (int tries = 0; tries < 8; tries++) {
		__u64 arrival = g->arrival_ns;
		__u64 at = arrival > now ? arrival : now;
		if (at - now > g->tolerance_ns)
			break;
		if (swap(&g->arrival_ns, arrival, at + g->interval_ns)) {
			__sync_fetch_and_add(&g->passed, 1);
			return true;
		}
	}
police:
	if (g && leaves_marks(LY_DRY_POLICE))
		__sync_fetch_and_add(&g->policed, 1);
	return false;
}

static __always_inline int stage_trap(struct frame *f, struct __sk_buff *skb)
{
	/* One compare for the rest of the world: both families begin with 01. */
	if (!(f->dst & GROUP_BIT))
		return 0;
	struct ly_global *g = LOOKUP(global, 0);
	int reason = 0;
	__u32 group = GROUP_DISCOVERY;
	if (!g)
		return 0;
	if (f->dst == SSTP && g->trap_pvst) {
		reason = TRAP_PVST_BPDU;
		group = GROUP_STP;
	} else if ((f->dst & 0xf0ffffffffffULL) == RESERVED_BLOCK) {
		__u32 last = f->dst >> 40 & 0x0f;
		if (last == 1)
			return DROP(DROP_PAUSE);
		__u8 action = g->reserved[last];
		if (action == 0)
			return DROP(DROP_RESERVED_ADDRESS);
		if (action == 1)
			return 0;
		reason = last == 0 ? TRAP_BPDU : last == 2 ? TRAP_SLOW_PROTOCOL : last == 14 ? TRAP_LLDP : TRAP_RESERVED;
		group = last == 0 ? GROUP_STP : last == 2 ? GROUP_SLOW : GROUP_DISCOVERY;
	}
	if (!reason || !f->port || !(f->port->flags & LY_PORT_ENABLED))
		return 0;
	if (!trap_admit(group))
		return DROP(DROP_TRAP_POLICED);
	if (leaves_marks(LY_DRY_POLICE))
		tc_trap(skb, f->port_id, reason, group);
	return TRAPPED(reason);
}
