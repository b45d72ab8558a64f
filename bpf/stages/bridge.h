/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* bridge: where to (IEEE 802.1Q-2018, 8.8)? A port, or out_id 0: a flood set. */
static __always_inline int stage_bridge(struct frame *f)
{
	if (f->dst & GROUP_BIT)
		return 0;
	__u64 *place = fdb_find(fdb_masks(), fdb_key(f->dst, f->vlan));
	union ly_fdb_value to = { .raw = place ? *place : 0 };

	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j) {
			/* A dry run that does not learn still knows where the source would be by now. */
			if (f->dst == f->src && (j->source == LY_SRC_NEW || j->source == LY_SRC_MOVED))
				to = (union ly_fdb_value){ .port = f->port_id, .kind = LY_FDB_DYNAMIC };
			j->target_port = to.raw ? to.port : 0xffff;
		}
	}
	if (to.raw == 0)
		return 0;
	if (to.port == 0)
		return DROP(DROP_DESTINATION_BLACKHOLE);
	if (to.port == f->port_id)
		return DROP(DROP_SAME_PORT);
	f->out_id = to.port;
	return 0;
}
