/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* XDP's memo: on each processor, the decision about the last frame that came twice in a row.
 *
 * Frames come in trains: the next frame is often from and to the same stations. The memo holds every
 * word that the stages read from the tables for such a frame, and its location. When a frame with the
 * same first 16 bytes arrives at the same netdev, XDP reads these words again and compares them. If
 * none has changed, the stages would decide the same, and the frame is sent without them. So nothing
 * has to invalidate the memo: the control plane, the watchdog and other processors ignore it.
 *
 * The memo holds only known unicast that is bridged between ports in no port-channel and of no private VLAN, that no access list
 * and no first-hop security judges, that no service policy handles, that no monitor session copies and from which no samples are
 * drawn, and that leaves in the form in which it came. Both FDB entries are in the near part of the table. A dry run does not use
 * the memo.
 */
#ifndef LY_MEMO_XDP_H
#define LY_MEMO_XDP_H

/* All that the stages read of a struct ly_port, except max_len. */
#define MEMO_ROW 2
_Static_assert(__builtin_offsetof(struct ly_port, max_len) == MEMO_ROW * sizeof(__u64), "the fields before max_len");

/* How to find out whether the frame's transport checksum is missing; MEMO_OTHER: by checksum_missing. */
enum memo_checksum {
	MEMO_COMPLETE,  /* it is not: the port receives no such frames */
	MEMO_PLAIN_IPV4, /* by checksum_missing_ipv4: an untagged IPv4 packet without options */
	MEMO_OTHER,
};

struct memo {
	__u64 head[2]; /* the frame's first 16 bytes: addresses, EtherType and the two bytes after it */
	__u64 in[MEMO_ROW], out[MEMO_ROW]; /* the rows of the ports */
	__u64 src_word, dst_word;          /* the FDB entries */
	__u64 tick;                        /* the tick in which the memo was made; the source was last seen in its second.
	                                    * 0, a tick that has passed: the memo is empty */
	__u64 masks;                       /* the part of the FDB in use when the memo was made */
	__u32 src_at, dst_at;              /* offsets in bytes: of the FDB entries in fdb_near */
	__u32 pv_at, out_pv_at;            /* of `pv` and `out_pv` in port_vlans */
	__u32 in_at, out_at;               /* of the rows `in` and `out` in ports */
	__u16 port_id, out_id, vlan;
	__u8 form, pv, out_pv;
	__u8 checksum; /* an enum memo_checksum */
	__u8 more;     /* the bytes by which a frame for the egress port must be shorter than its max_len (xdp_fits) */
	__u64 seen[2]; /* the first 16 bytes of the last frame that the memo did not hold */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct memo);
} memos SEC(".maps");

/* The `size` bytes of a table that begin at byte `at`. The mask keeps them inside the table, as the verifier requires. */
#define PLACE(table, at, size) ((void *)(table) + ((at) & (sizeof(table) - (size))))

static __always_inline void memo_read(__u64 *row, struct ly_port *port)
{
	volatile __u64 *word = (void *)port;

	row[0] = word[0];
	row[1] = word[1];
}

/* True if a port's row, without max_len, is still `was`. It is compared by words, because clang would load a row that is passed
 * by value as single bytes. */
static __always_inline bool memo_same(const __u64 *was, struct ly_port *port)
{
	volatile __u64 *word = (void *)port;

	return OFTEN(word[0] == was[0]) && OFTEN(word[1] == was[1]);
}

static __always_inline __u32 memo_at(struct fdb_hit hit)
{
	return hit.bucket * sizeof(struct ly_fdb_bucket) + hit.way * sizeof(__u64);
}

static __always_inline __u64 memo_word(__u32 at)
{
	return *(volatile __u64 *)PLACE(fdb_near, at, sizeof(__u64));
}

static __always_inline __u8 memo_pv(__u32 at)
{
	return *(volatile __u8 *)PLACE(port_vlans, at, sizeof(__u8));
}

static __always_inline __u64 memo_masks(void)
{
	return *(volatile __u64 *)&ROW(fdb_state, 0)->masks;
}

static __always_inline enum memo_checksum memo_checksum(struct memo *m)
{
	const __u64 plain = (__u64)bpf_htons(ETH_IPV4) | 0x45 << 16; /* bytes 12 to 14 */

	if (!(m->in[0] >> 32 & LY_PORT_PARTIAL))
		return MEMO_COMPLETE;
	return (m->head[1] >> 32 & 0xffffff) == plain ? MEMO_PLAIN_IPV4 : MEMO_OTHER;
}

static __always_inline bool memo_lacks_checksum(struct memo *m, void *frame, void *end)
{
	struct ipv4 *ip = frame + 14;

	if (RARELY(m->checksum == MEMO_OTHER))
		return checksum_missing(frame, end, m->form);
	return (void *)(ip + 1) > end || checksum_missing_ipv4(ip, end);
}

/* Stores the decision of the stages about this frame if it may be remembered. The stages run again on
 * the words that are stored, because the tables may have changed since they ran for the frame itself.
 * A global function, because it is called only when a frame comes the second time in a row. */
__noinline int memo_take(__u64 dst, __u64 src, __u32 port_id, __u32 tag, __u32 len)
{
	struct memo *m = LOOKUP(memos, 0);
	struct frame f = { .dst = dst, .src = src, .port_id = port_id & (LY_PORTS - 1), .len = len };
	const __u32 excluded = LY_PORT_LAYER3 | LY_PORT_XDP_ENDED | LY_PORT_ACL_IN | LY_PORT_MEMBER | LY_PORT_SAMPLE |
			       LY_PORT_MIRROR_RX | LY_PORT_MIRROR_TO | LY_PORT_PRIVATE | LY_PORT_GUARD;

	if (!m)
		return 0;
	m->tick = 0;
	__u64 masks = memo_masks();
	if ((__u32)masks != masks >> 32) /* entries move to other buckets */
		return 0;
	f.outer = tag >> 16;
	f.tci = tag;
	f.port = ROW(ports, f.port_id);
	__u64 tick = bpf_jiffies64();
	f.now_s = seconds(tick * tick_ns);
	memo_read(m->in, f.port);
	if (f.port->flags & excluded || f.port->qos || stage_parse(&f) || stage_port(&f) || stage_vlan_ingress(&f) || f.pv & LY_PV_ROUTES)
		return 0;
	struct fdb_hit from = fdb_find(fdb_masks(), fdb_key(src, f.shared)), to = fdb_find(fdb_masks(), fdb_key(dst, f.shared));
	if (!learn_is_known(&f, from.word) || fdb_seen(from.word) != f.now_s % LY_FDB_CYCLE || !(f.pv & LY_PV_FORWARD))
		return 0;
	if (!to.word || stage_bridge(&f) || !f.out_id || f.out_id != fdb_port(to.word))
		return 0;
	if (from.bucket >= LY_FDB_NEAR || to.bucket >= LY_FDB_NEAR)
		return 0;
	struct ly_port *egress = ROW(ports, f.out_id);
	memo_read(m->out, egress);
	if (stage_vlan_egress(&f) || egress_form(egress, f.out_pv) != f.form || frame_stale(&f))
		return 0;
	if (!(egress->flags & LY_PORT_XDP_TX) || egress->flags & (LY_PORT_ACL_OUT | LY_PORT_MIRROR_TX) || egress->qos || !memo_same(m->in, f.port) || !memo_same(m->out, egress))
		return 0;
	m->head[0] = dst | src << 48;
	m->head[1] = src >> 16 | (__u64)bpf_htons(f.outer) << 32 | (__u64)bpf_htons(tag) << 48;
	m->src_word = from.word;
	m->dst_word = to.word;
	m->masks = masks;
	m->src_at = memo_at(from);
	m->dst_at = memo_at(to);
	m->pv_at = f.port_id * sizeof(struct ly_port_vlans) + f.vlan;
	m->out_pv_at = f.out_id * sizeof(struct ly_port_vlans) + f.vlan;
	m->in_at = f.port_id * sizeof(struct ly_port);
	m->out_at = f.out_id * sizeof(struct ly_port);
	m->port_id = f.port_id;
	m->out_id = f.out_id;
	m->vlan = f.vlan;
	m->form = f.form;
	m->pv = f.pv;
	m->out_pv = f.out_pv;
	m->checksum = memo_checksum(m);
	m->more = f.form == LY_UNTAGGED ? 4 : 0; /* as xdp_fits */
	m->tick = tick;
	return 0;
}

/* Remembers a frame that the memo did not hold, and makes a memo of it if it is the second one in a row. */
static __always_inline void memo_note(struct xdp_md *ctx, struct frame *f)
{
	struct memo *m = LOOKUP(memos, 0);
	struct eth_words *eth = (void *)(long)ctx->data;
	__u64 *head = (void *)eth;

	if (dry || !m || f->dst & GROUP_BIT || (void *)(eth + 1) > (void *)(long)ctx->data_end)
		return;
	if (m->seen[0] == head[0] && m->seen[1] == head[1]) {
		m->seen[0] = 0;
		memo_take(f->dst, f->src, f->port_id, (__u32)f->outer << 16 | f->tci, f->len);
	} else {
		m->seen[0] = head[0];
		m->seen[1] = head[1];
	}
}

/* True if the tick, and every word of the tables that the memo holds, is unchanged. */
static __always_inline bool memo_holds(struct memo *m)
{
	return OFTEN(bpf_jiffies64() == m->tick) && OFTEN(memo_same(m->in, PLACE(ports, m->in_at, sizeof(struct ly_port)))) &&
	       OFTEN(memo_same(m->out, PLACE(ports, m->out_at, sizeof(struct ly_port)))) && OFTEN(memo_word(m->src_at) == m->src_word) &&
	       OFTEN(memo_word(m->dst_at) == m->dst_word) && OFTEN(memo_masks() == m->masks) && OFTEN(memo_pv(m->pv_at) == m->pv) &&
	       OFTEN(memo_pv(m->out_pv_at) == m->out_pv);
}

/* Sends a frame as the memo records. Returns the program's verdict, or -1: the stages have to decide. The branches are marked so
 * that the instructions of a frame that is sent follow each other, and loads from memory come before the calls: the processor
 * performs them while it waits for the returns of the calls. */
static __always_inline int memo_sends(struct xdp_md *ctx, enum tag_source tags)
{
	void *end = (void *)(long)ctx->data_end;
	__u64 *head = (void *)(long)ctx->data;
	struct memo *m = LOOKUP(memos, 0);
	__u32 len = end - (void *)head;

	if (dry || !m || RARELY((void *)head + 18 > end) || RARELY(m->head[0] != head[0]) || RARELY(m->head[1] != head[1]))
		return -1;
	if (RARELY((__u32)m->in[0] != ctx->ingress_ifindex)) /* the port's row begins with the netdev */
		return -1;
	if (!(m->in[0] >> 32 & LY_PORT_WHOLE)) {
		__u32 first = len;

		len = bpf_xdp_get_buff_len(ctx);
		if (len != first && !(m->out[0] >> 32 & LY_PORT_XDP_SG)) /* several buffers */
			return -1;
	}
	if (RARELY(!memo_holds(m))) {
		m->tick = 0;
		return -1;
	}
	struct ly_port *out = PLACE(ports, m->out_at, sizeof(struct ly_port));
	if (RARELY(len + m->more > out->max_len))
		return -1;
	if (m->checksum != MEMO_COMPLETE && RARELY(memo_lacks_checksum(m, head, end)))
		return XDP_PASS;
	if (RARELY(xdp_hides_tag(ctx, tags)))
		return XDP_PASS;
	if (RARELY(bpf_redirect_map(&xdp_ports, m->out_id, XDP_PASS) != XDP_REDIRECT))
		return XDP_PASS;
	count_tx(m->out_id, len);
	count_rx(m->port_id, len, 0);
	count_vlan(m->vlan, len);
	return XDP_REDIRECT;
}

#endif
