/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* replicate: emission in minimum-copy order. N ports cost N-1 clones, which share the data; ports that want
 * the frame as it arrived come first, then the tag is changed once for each other form. The frame itself goes
 * to the last port.
 */

/* The lowest set bit's number, by de Bruijn multiplication: BPF has no such instruction. */
static const __u8 lowest_bit[64] = {
	0,  1,  2,  53, 3,  7,  54, 27, 4,  38, 41, 8,  34, 55, 48, 28, 62, 5,  39, 46, 44, 42,
	22, 9,  24, 35, 59, 56, 49, 18, 29, 11, 63, 52, 6,  26, 37, 40, 33, 47, 61, 45, 43, 21,
	23, 58, 17, 10, 51, 25, 36, 32, 60, 20, 57, 16, 50, 31, 19, 15, 30, 14, 13, 12,
};

static __always_inline __u32 bit_number(__u64 bits)
{
	return lowest_bit[((bits & -bits) * 0x022fdd63cc95386dULL) >> 58 & 63];
}

/* The forms in the order they are emitted, four bits each: as it arrived first; a priority tag fits nobody. */
#define FORMS_END 0xf
#define FORM_ORDER(a, b, c, d) ((a) | (b) << 4 | (c) << 8 | (d) << 12 | FORMS_END << 16)

static __always_inline __u32 form_order(struct frame *f, __u8 own)
{
	if (f->form == LY_UNTAGGED || frame_priority(f))
		return own == LY_DOT1AD && frame_priority(f) ? FORM_ORDER(0, 2, 1, 3) : FORM_ORDER(0, 1, 2, 3);
	return own == LY_DOT1AD ? FORM_ORDER(2, 0, 1, 3) : FORM_ORDER(1, 0, 2, 3);
}

/* The verifier follows every value it knows from step to step. What counts the steps (word, order) therefore
 * starts from values it does not know, read from a table; what is sent is a flag, not a count. */
struct flood {
	struct __sk_buff *skb;
	struct ly_vlan_ports *sets;
	struct ly_global *global;
	__u64 bits;     /* ports left in this word */
	__u32 order;    /* forms left, four bits each; the lowest is this one */
	__u32 word;     /* next word of this form */
	__u32 at;       /* the word `bits` came from */
	__u32 pending;  /* the port that waits to know whether it is the last; 0 none */
	__u32 pending_ifindex;
	__u32 pending_len;
	__u32 bare_len;
	__u16 port_id;  /* the ingress port, */
	__u8 isolated;  /* and whether it is protected */
	__u32 gso;
	__u16 tci;
	__u8 unicast, multicast; /* leave out ports that do not want unknown unicast, multicast */
	__u8 have;      /* the frame's form now */
	__u8 stale;     /* a priority tag, not yet rewritten */
	__u8 sent;      /* to one port at least */
	__u8 too_long;  /* for one port at least */
	__u8 failed;
};

static __always_inline __u64 flood_word(struct flood *s)
{
	__u32 w = s->word & (LY_PORT_WORDS - 1);
	__u64 bits = s->sets->form[s->order & (LY_FORMS - 1)][w];

	if (bits == 0)
		return 0;
	if (w == s->port_id / 64)
		bits &= ~(1ULL << (s->port_id & 63));
	if (s->isolated)
		bits &= ~s->global->isolated[w];
	if (s->unicast)
		bits &= ~s->global->no_unicast[w];
	if (s->multicast)
		bits &= ~s->global->no_multicast[w];
	return bits;
}

/* A copy of the frame to a port that was not the last; 1 when it went. */
__noinline int tc_copy(struct __sk_buff *skb, __u32 port, __u32 ifindex, __u32 len, __u32 form)
{
	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j)
			j->clones++;
		tc_journal_emit(skb, port, form);
	} else if (bpf_clone_redirect(skb, ifindex, 0)) {
		count_tx_dropped(port);
		return 0;
	}
	count_tx(port, len);
	return 1;
}

static __always_inline bool flood_retag(struct flood *s, __u8 want)
{
	if (want == s->have && !s->stale)
		return true;
	int ops = tc_retag(s->skb, s->have, want, s->tci);
	if (ops < 0)
		return false;
	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j)
			j->tag_ops += ops;
	}
	s->have = want;
	s->stale = 0;
	return true;
}

/* One step: takes the next word of ports, or the next port. 1 ends the loop. */
static long flood_step(__u32 index, struct flood *s)
{
	if (s->bits == 0) {
		if (s->word >= s->global->end_word) {
			s->word = s->global->first_word;
			s->order >>= 4;
		}
		if ((s->order & 0xf) == FORMS_END)
			return 1;
		s->bits = flood_word(s);
		s->at = s->word++;
		if (s->bits == 0)
			return 0;
	}
	__u32 id = (s->at * 64 + bit_number(s->bits)) & (LY_PORTS - 1);
	s->bits &= s->bits - 1;
	struct ly_port *out = LOOKUP(ports, id);
	if (!out)
		return 1;
	if (!egress_fits(s->bare_len, s->gso, out)) {
		s->too_long = 1;
		count_tx_dropped(id);
		return 0;
	}
	__u32 ifindex = out->ifindex;
	if (s->pending && tc_copy(s->skb, s->pending, s->pending_ifindex, s->pending_len, s->have))
		s->sent = 1;
	s->pending = 0;
	__u8 form = s->order & (LY_FORMS - 1);
	if (!flood_retag(s, form)) {
		s->failed = 1;
		return 1;
	}
	s->pending = id;
	s->pending_ifindex = ifindex;
	s->pending_len = s->bare_len + (form ? 4 : 0);
	return 0;
}

/* Sends to the VLAN's flood set. f->action is what the program returns for the frame itself. A global function:
 * the verifier looks at it once, with an unknown frame, instead of once for each way that leads here. */
__noinline int tc_flood(struct __sk_buff *skb, struct frame *f)
{
	if (!f)
		return DROP(DROP_NO_EGRESS);
	struct ly_port *in = LOOKUP(ports, f->port_id & (LY_PORTS - 1));
	bool broadcast = f->dst == BROADCAST, group = f->dst & GROUP_BIT;
	struct flood s = {
		.skb = skb,
		.sets = LOOKUP(vlan_ports, f->vlan),
		.global = LOOKUP(global, 0),
		.order = in ? form_order(f, in->form) : 0,
		.port_id = f->port_id,
		.bare_len = f->bare_len,
		.gso = f->gso,
		.isolated = in && in->flags & LY_PORT_ISOLATED,
		.tci = (f->tci & PCP_DEI_MASK) | f->vlan,
		.unicast = !group,
		.multicast = group && !broadcast,
		.have = f->form,
		.stale = frame_priority(f),
	};

	if (!s.sets || !s.global)
		return DROP(DROP_NO_EGRESS);
	s.word = s.global->first_word;
	s.order += s.global->trap_pvst & 0x80000000; /* never set: the verifier does not know that */
	bpf_loop(LY_PORTS + LY_FORMS * LY_PORT_WORDS + 1, flood_step, &s, 0);
	if (s.pending) {
		count_tx(s.pending, s.pending_len);
		if (dry)
			tc_journal_emit(skb, s.pending, s.have);
		else
			f->action = bpf_redirect(s.pending_ifindex, 0);
		return 0;
	}
	if (s.sent)
		return 0;
	return s.failed ? DROP(DROP_TRANSMIT_FAILED) : s.too_long ? DROP(DROP_MTU_EXCEEDED) : DROP(DROP_NO_EGRESS);
}

/* Sends known unicast to its port. */
static __always_inline int tc_unicast(struct __sk_buff *skb, struct frame *f)
{
	__u8 want = egress_form(f->out, f->out_pv);
	__u32 flags = f->out->flags, ifindex = f->out->ifindex;
	__u64 peer_mac = f->out->peer_mac;

	if (want != f->form || frame_priority(f)) {
		int ops = tc_retag(skb, f->form, want, (f->tci & PCP_DEI_MASK) | f->vlan);
		if (ops < 0)
			return DROP(DROP_TRANSMIT_FAILED);
		if (dry) {
			struct ly_journal *j = dry_journal();
			if (j)
				j->tag_ops = ops;
		}
	}
	count_tx(f->out_id, f->bare_len + (want ? 4 : 0));
	if (dry) {
		tc_journal_emit(skb, f->out_id, want);
		return 0;
	}
	if (flags & LY_PORT_PEER_ALL || (flags & LY_PORT_PEER && f->dst == peer_mac)) {
		/* The far end does not look at the destination again: say that it is its own. */
		bpf_skb_change_type(skb, PACKET_HOST);
		f->action = bpf_redirect_peer(ifindex, 0);
	} else {
		f->action = bpf_redirect(ifindex, 0);
	}
	return 0;
}

/* Known unicast from XDP to a port that takes frames from XDP; false: up to TC. */
static __always_inline bool xdp_unicast(struct xdp_md *ctx, struct frame *f)
{
	__u8 want = egress_form(f->out, f->out_pv);

	if (!(f->out->flags & LY_PORT_XDP_TX) && !dry)
		return false;
	if ((want != f->form || frame_priority(f)) &&
	    !xdp_retag(ctx, f->form, want, (f->tci & PCP_DEI_MASK) | f->vlan))
		return false;
	count_tx(f->out_id, f->bare_len + (want ? 4 : 0));
	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j) {
			j->egress_port[0] = f->out_id;
			j->egress_form[0] = want;
			j->egress_count = 1;
		}
		f->action = XDP_TX; /* the test run hands back the bytes */
		return true;
	}
	f->action = bpf_redirect_map(&xdp_ports, f->out_id, XDP_PASS);
	return true;
}
