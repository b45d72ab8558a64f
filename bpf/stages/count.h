/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* count: counts per port, per VLAN and per reason. Received = forwarded + trapped + dropped holds at every port at
 * any time. */
static __always_inline void count_tx(__u32 port, __u32 len)
{
	if (!leaves_marks(LY_DRY_COUNT))
		return;
	struct ly_port_stats *s = LOOKUP(port_stats, port);
	if (s) {
		s->tx_frames++;
		s->tx_bytes += len;
	}
}

static __always_inline void count_tx_dropped(__u32 port)
{
	if (!leaves_marks(LY_DRY_COUNT))
		return;
	struct ly_port_stats *s = LOOKUP(port_stats, port);
	if (s)
		s->tx_dropped++;
}

static __always_inline void count_rx(__u32 port, __u32 len, int end)
{
	struct ly_port_stats *s = LOOKUP(port_stats, port);
	if (s) {
		s->rx_frames++;
		s->rx_bytes += len;
		if (end > 0)
			s->dropped[end & (LY_DROPS - 1)]++;
		else if (end < 0)
			s->trapped++;
		else
			s->forwarded++;
	}
}

/* Counts a frame of a member of a port-channel at the member; stage_count counts it at the port-channel. A global function, so
 * that other frames pay for the branch only. */
__noinline int count_member(__u32 port, __u32 len, int end)
{
	count_rx(port, len, end);
	return 0;
}

static __always_inline void count_vlan(__u32 vlan, __u32 len)
{
	struct ly_vlan_stats *v = LOOKUP(vlan_stats, vlan);
	if (v) {
		v->frames++;
		v->bytes += len;
	}
}

/* Counts a received frame; `end` is the result of the stages. */
static __always_inline void stage_count(struct frame *f, int end)
{
	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j) {
			j->verdict = end > 0 ? LY_DROPPED : end < 0 ? LY_TRAPPED : LY_FORWARDED;
			j->reason = end > 0 ? end : -end;
			j->arrived = f->form;
			j->priority_tagged = f->form != LY_UNTAGGED && (f->tci & VID_MASK) == 0;
			j->vlan = f->came;
			j->tci = f->tci;
			j->flooded = (f->came || f->routed) && !f->out_id;
			j->len = f->len;
			j->member = f->member;
		}
	}
	if (!leaves_marks(LY_DRY_COUNT))
		return;
	count_rx(f->port_id, f->len, end);
	if (f->member)
		count_member(f->member, f->len, end);
	if (f->came)
		count_vlan(f->came, f->len);
}
