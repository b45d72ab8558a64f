/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* bridge: where to (IEEE 802.1Q-2018, 8.8)? A port, or out_id 0: a flood set. */
static __always_inline int stage_bridge(struct frame *f)
{
	if (f->dst & GROUP_BIT)
		return 0;
	__u64 word = fdb_find(fdb_masks(), fdb_key(f->dst, f->vlan)).word;
	bool known = word != 0;
	__u16 to = fdb_port(word);

	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j) {
			/* A dry run that does not learn still knows where the source would be by now. */
			if (f->dst == f->src && (j->source == LY_SRC_NEW || j->source == LY_SRC_MOVED))
				known = true, to = f->port_id;
			j->target_port = known ? to : 0xffff;
		}
	}
	if (!known)
		return 0;
	if (to == 0)
		return DROP(DROP_DESTINATION_BLACKHOLE);
	if (to == f->port_id && !f->routed)
		return DROP(DROP_SAME_PORT);
	f->out_id = to;
	return 0;
}
