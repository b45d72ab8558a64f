/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* XDP's memo: on each processor, the decision about the last frame that came twice in a row.
 *
 * Frames come in trains: the next frame is often from and to the same stations. The memo holds every
 * word that the stages read from the tables for such a frame, and its location. When a frame with the
 * same addresses and tag arrives at the same port, XDP reads these words again and compares them. If
 * none has changed, the stages would decide the same, and the frame is sent without them. So nothing
 * has to invalidate the memo: the control plane, the watchdog and other processors ignore it.
 *
 * The memo holds only known unicast that is bridged between ports in no port-channel and of no private VLAN, that no access list
 * and no first-hop security judges, that no service policy handles and no monitor session copies, and that leaves in the form in which it came. A dry run does
 * not use it.
 */
#ifndef LY_MEMO_XDP_H
#define LY_MEMO_XDP_H

struct memo_row { /* all that the stages read of a struct ly_port, except max_len */
	__u64 word[2];
};
_Static_assert(__builtin_offsetof(struct ly_port, max_len) == sizeof(struct memo_row), "the fields before max_len");

struct memo {
	__u64 dst, src; /* raw; dst 0: the memo is empty */
	__u64 seen_dst, seen_src; /* the last frame that the memo did not hold */
	__u64 src_word, dst_word; /* the FDB entries */
	struct memo_row in, out;
	__u64 masks;          /* the part of the FDB in use when the memo was made */
	__u32 src_at, dst_at; /* the places of the entries: bucket and way */
	__u32 tag;            /* the outer EtherType and the two bytes after it */
	__u16 port_id, out_id, vlan;
	__u8 form, pv, out_pv;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct memo);
} memos SEC(".maps");

static __always_inline struct memo_row memo_row(struct ly_port *port)
{
	volatile __u64 *word = (void *)port;

	return (struct memo_row){ { word[0], word[1] } };
}

static __always_inline bool memo_same(struct memo_row was, struct ly_port *port)
{
	struct memo_row is = memo_row(port);

	return is.word[0] == was.word[0] && is.word[1] == was.word[1];
}

static __always_inline __u32 memo_at(struct fdb_hit hit)
{
	return hit.bucket * LY_FDB_WAYS + hit.way;
}

static __always_inline __u64 memo_word(__u32 at)
{
	struct ly_fdb_bucket *b = fdb_bucket(at / LY_FDB_WAYS);

	return b ? *(volatile __u64 *)&b->way[at & (LY_FDB_WAYS - 1)] : 0;
}

static __always_inline __u64 memo_masks(void)
{
	return *(volatile __u64 *)&ROW(fdb_state, 0)->masks;
}

/* Stores the decision of the stages about this frame if it may be remembered. The stages run again on
 * the words that are stored, because the tables may have changed since they ran for the frame itself.
 * A global function, because it is called only when a frame comes the second time in a row. */
__noinline int memo_take(__u64 dst, __u64 src, __u32 port_id, __u32 tag, __u32 len)
{
	struct memo *m = LOOKUP(memos, 0);
	struct frame f = { .dst = dst, .src = src, .port_id = port_id & (LY_PORTS - 1), .len = len };
	const __u32 excluded = LY_PORT_LAYER3 | LY_PORT_XDP_ENDED | LY_PORT_ACL_IN | LY_PORT_MEMBER |
			       LY_PORT_MIRROR_RX | LY_PORT_MIRROR_TO | LY_PORT_PRIVATE | LY_PORT_GUARD;

	if (!m)
		return 0;
	m->dst = 0;
	__u64 masks = memo_masks();
	if ((__u32)masks != masks >> 32) /* entries move to other buckets */
		return 0;
	f.outer = tag >> 16;
	f.tci = tag;
	f.port = ROW(ports, f.port_id);
	struct memo_row in = memo_row(f.port);
	if (f.port->flags & excluded || f.port->qos || stage_parse(&f) || stage_port(&f) || stage_vlan_ingress(&f) || f.pv & LY_PV_ROUTES)
		return 0;
	struct fdb_hit from = fdb_find(fdb_masks(), fdb_key(src, f.shared)), to = fdb_find(fdb_masks(), fdb_key(dst, f.shared));
	if (!learn_is_known(&f, from.word) || !(f.pv & LY_PV_FORWARD))
		return 0;
	if (!to.word || stage_bridge(&f) || !f.out_id || f.out_id != fdb_port(to.word))
		return 0;
	struct ly_port *egress = ROW(ports, f.out_id);
	struct memo_row out = memo_row(egress);
	if (stage_vlan_egress(&f) || egress_form(egress, f.out_pv) != f.form || frame_stale(&f))
		return 0;
	if (!(egress->flags & LY_PORT_XDP_TX) || egress->flags & (LY_PORT_ACL_OUT | LY_PORT_MIRROR_TX) || egress->qos || !memo_same(in, ROW(ports, f.port_id)) || !memo_same(out, egress))
		return 0;
	*m = (struct memo){
		.src = src,
		.src_word = from.word,
		.dst_word = to.word,
		.masks = masks,
		.in = in,
		.out = out,
		.src_at = memo_at(from),
		.dst_at = memo_at(to),
		.tag = tag,
		.port_id = f.port_id,
		.out_id = f.out_id,
		.vlan = f.vlan,
		.form = f.form,
		.pv = f.pv,
		.out_pv = f.out_pv,
	};
	m->dst = dst;
	return 0;
}

/* True when the frame has the addresses, port and tag of the memo and every stored word is unchanged;
 * then f is what the stages would make of it. */
static __always_inline bool memo_holds(struct frame *f)
{
	struct memo *m = LOOKUP(memos, 0);
	__u32 tag = (__u32)f->outer << 16 | f->tci;

	if (dry || !m || f->dst & GROUP_BIT)
		return false;
	if (m->dst != f->dst || m->src != f->src || m->tag != tag || m->port_id != f->port_id) {
		if (m->seen_dst == f->dst && m->seen_src == f->src) {
			m->seen_dst = 0;
			memo_take(f->dst, f->src, f->port_id, tag, f->len);
		} else {
			m->seen_dst = f->dst;
			m->seen_src = f->src;
		}
		return false;
	}
	f->now_s = now_s();
	f->out = ROW(ports, m->out_id);
	f->bare_len = f->len - (m->form != LY_UNTAGGED ? 4 : 0);
	if (f->several || !xdp_fits(f->bare_len, f->out->max_len) || fdb_seen(m->src_word) != f->now_s % LY_FDB_CYCLE ||
	    memo_word(m->src_at) != m->src_word || memo_word(m->dst_at) != m->dst_word || memo_masks() != m->masks ||
	    !memo_same(m->in, f->port) || !memo_same(m->out, f->out) || port_vlan(f->port_id, m->vlan) != m->pv ||
	    port_vlan(m->out_id, m->vlan) != m->out_pv) {
		m->dst = 0;
		return false;
	}
	f->form = m->form;
	f->out_id = m->out_id;
	f->came = f->vlan = m->vlan;
	return true;
}

/* Sends the frame unchanged. False: TC has to handle it. */
static __always_inline bool memo_sends(struct xdp_md *ctx, struct frame *f)
{
	if (f->port->flags & LY_PORT_PARTIAL && checksum_missing(ctx, f))
		return false;
	f->action = bpf_redirect_map(&xdp_ports, f->out_id, XDP_PASS);
	if (f->action != XDP_REDIRECT)
		return false;
	count_tx(f->out_id, f->len);
	return true;
}

#endif
