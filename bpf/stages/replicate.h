/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* replicate: sends the frame with as few copies as possible. N ports cost N-1 clones, which share the data. Ports
 * that need the frame as it arrived come first; then the tag is changed once for each other form. The frame itself
 * goes to the last port. After each copy, the copies of it for monitor sessions are sent. */

/* The order in which forms are emitted, four bits each: the received form first. A stale tag
 * matches no form. */
#define FORMS_END 0xf
#define FORM_ORDER(a, b, c, d) ((a) | (b) << 4 | (c) << 8 | (d) << 12 | FORMS_END << 16)

static __always_inline __u32 form_order(struct frame *f, __u8 own)
{
	if (f->form == LY_UNTAGGED || frame_stale(f))
		return own == LY_DOT1AD && frame_stale(f) ? FORM_ORDER(0, 2, 1, 3) : FORM_ORDER(0, 1, 2, 3);
	return own == LY_DOT1AD ? FORM_ORDER(2, 0, 1, 3) : FORM_ORDER(1, 0, 2, 3);
}

/* The state of a flood. The verifier follows every value that it knows from step to step, and
 * checks a step once for each combination of them. To keep it from knowing any, an unpredictable
 * zero (unknown_zero) is added to each, also where a flag is set. */
struct flood {
	struct __sk_buff *skb;
	struct ly_vlan_ports *sets;
	struct ly_mdb_row *members;  /* if `limited`: has the ports of the group's members */
	struct ly_snoop_vlan *snoop; /* if `limited`: has the ports of multicast routers */
	__u64 bits;     /* ports left in this word */
	__u32 order;    /* forms left, four bits each; the lowest is the current one */
	__u32 word;     /* next word of this form */
	__u32 at;       /* the word from which `bits` was read */
	__u32 bare_len;
	__u32 gso;
	__u16 pending;  /* the port held back until it is known whether it is the last; 0: none */
	__u16 pending_channel; /* the port-channel for which `pending` sends; 0: none */
	__u16 port_id;  /* the ingress port; 0 for a routed frame */
	__u8 isolated;  /* not 0: the ingress port is protected */
	__u8 limited;   /* not 0: a group's frame, which only some ports get */
	__u8 family;    /* enum ly_family of a group's frame */
	__u16 tci;
	__u8 unicast, multicast; /* not 0: leave out ports that block unknown unicast, or multicast */
	__u8 have;      /* the frame's current form */
	__u8 stale;     /* not 0: the frame's tag has another VLAN (frame_stale), and is not yet rewritten */
	__u8 sent;      /* sent to at least one port */
	__u8 too_long;  /* too long for at least one port */
	__u8 down;      /* no member of at least one port-channel can send */
	__u8 failed;
	__u64 address;  /* of a frame for TUNNEL: the destination that its protocol uses */
	__u32 carries;  /* of a frame for TUNNEL: the flag of the tunnel ports that carry it */
	__u8 tunnelled; /* not 0: a frame for TUNNEL */
	__u8 restored;  /* not 0: its destination is `address` at present, not TUNNEL */
	__u8 denied;    /* the drop reason of a list that denied it at a port; 0: none did */
	__u8 acl;       /* ACL_ROUTED: the lists of its VLAN are to judge it; ACL_DENIED: one of them denied it; ACL_TUNNELLED */
	__u16 type;     /* for access lists: the packet's EtherType */
	__u8 policed;   /* the output policy of at least one port has dropped it */
	__u8 host;      /* the trap reason of its copy for a VLAN interface; 0: that copy is not policed */
	__u8 refused;   /* that copy was refused by the policer */
	__u32 pending_qos; /* the result of the output policy of the port held back; 0: it has none */
	__u8 bucket;    /* the bucket by which members of port-channels are chosen */
	__u16 from;     /* for access lists: the ingress port, also of a routed frame */
	__u32 zero;     /* 0, but the verifier does not know that */
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
		bits &= ~ROW(global, 0)->isolated[w];
	if (s->unicast)
		bits &= ~ROW(global, 0)->no_unicast[w];
	if (s->multicast)
		bits &= ~ROW(global, 0)->no_multicast[w];
	if (s->limited && s->members && s->snoop)
		bits &= s->members->ports[w] | s->snoop->routers[s->family & 1][w];
	return bits;
}

/* Counts a copy at the port that sends it and at the port-channel for which it does. */
static __always_inline void count_copy(__u32 port, __u32 channel, __u32 len, bool sent)
{
	if (sent)
		count_tx(port, len);
	else
		count_tx_dropped(port);
	if (!channel)
		return;
	if (sent)
		count_tx(channel, len);
	else
		count_tx_dropped(channel);
}

/* Sends a copy of the frame to a port that is not the last. Returns 1 if it was sent. */
__noinline int tc_copy(struct __sk_buff *skb, __u32 port, __u32 channel, __u32 len, __u32 form)
{
	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j)
			j->clones++;
		tc_journal_emit(skb, port, form);
	} else if (bpf_clone_redirect(skb, ROW(ports, port)->ifindex, 0)) {
		count_copy(port, channel, len, false);
		return 0;
	}
	count_copy(port, channel, len, true);
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
	s->stale = s->zero;
	return true;
}

/* Gives a customer's control frame its own destination, for tunnel ports that carry it (`restore`), or TUNNEL, for other ports.
 * False if the frame cannot be written. */
static __always_inline bool flood_readdress(struct flood *s, __u8 restore)
{
	if (restore == s->restored)
		return true;
	if (!tunnel_readdress(s->skb, restore ? s->address : TUNNEL))
		return false;
	s->restored = restore + s->zero;
	return true;
}

/* The frame's present form, for the journal of a dry run. */
static __always_inline __u8 flood_form(struct flood *s)
{
	return s->restored ? LY_RESTORED : s->have;
}

/* The length of a copy in the frame's current form. */
static __always_inline __u32 flood_len(struct flood *s)
{
	return s->bare_len + (s->have != LY_UNTAGGED ? 4 : 0);
}

/* The EtherType of the packet. Only valid before the tag is changed: when the kernel removes a tag, it moves the next one out of
 * band. */
__noinline __u32 flood_type(struct __sk_buff *skb, __u32 form, __u32 outer)
{
	__u16 *type = (void *)(long)skb->data + (skb->vlan_present ? 12 : 16);

	if (form == LY_UNTAGGED)
		return outer;
	return (void *)(type + 1) <= (void *)(long)skb->data_end ? bpf_ntohs(*type) : 0;
}

/* Judges the frame by the lists for its egress port `id`. True if it may not leave there. A list of its VLAN denies it for all
 * ports. */
static __always_inline bool flood_denied(struct flood *s, __u32 id, __u32 flags)
{
	if (!(flags & LY_PORT_ACL_OUT) && !(s->acl & (ACL_ROUTED | ACL_DENIED)))
		return false;
	if (s->acl & ACL_DENIED)
		return true;
	int end = tc_acl_out(s->skb, ACL_WHERE(s->type, LY_UNTAGGED, s->have), ACL_WHAT(id, s->tci & VID_MASK, s->tci),
			     s->acl | (__u32)s->from << ACL_FROM_SHIFT);
	s->acl &= ACL_TUNNELLED;
	if (!end)
		return false;
	if (end == DROP_ACL_VLAN_OUT || end == DROP_ACL_ROUTER_OUT) {
		s->acl = ACL_DENIED + s->zero; /* other ports still count a frame that is too long or finds no member */
		s->denied = end + s->zero;
	} else if (!s->denied || end == DROP_ACL_PORT_OUT) {
		s->denied = end + s->zero;
	}
	return true;
}

/* The tag of the copy for the port held back. */
static __always_inline __u32 flood_tci(struct flood *s)
{
	return s->pending_qos & QOS_HAS_COS ? QOS_COS(s->pending_qos) << 13 | (s->tci & 0x1fff) : s->tci;
}

/* Sends the copy for the port held back, which is not the last. Output policies classify the frame as it was before a policy of
 * another port has marked it. False: the frame cannot be sent to further ports. */
static __always_inline bool flood_pending(struct flood *s)
{
	bool going = true;

	if (s->pending_qos && tc_copy_marks(s->skb, s->pending_qos, s->have, s->tci, false) < 0)
		return false;
	if (tc_copy(s->skb, s->pending, s->pending_channel, flood_len(s), flood_form(s))) {
		s->sent = 1 + s->zero;
		going = mirror_sent(s->skb, s->pending, flood_tci(s), flood_form(s)) >= 0;
	}
	return going && (!s->pending_qos || tc_copy_marks(s->skb, s->pending_qos, s->have, s->tci, true) >= 0);
}

/* One step: takes the next word of ports, or the next port. 1 ends the loop. */
static long flood_step(__u32 index, struct flood *s)
{
	if (s->bits == 0) {
		if (s->word >= ROW(global, 0)->end_word) {
			s->word = ROW(global, 0)->first_word;
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
	struct ly_port *out = ROW(ports, id);
	__u32 flags = out->flags, sender = id, channel = s->zero;
	__u8 restore = (s->tunnelled && is_tunnel(out)) + s->zero;
	if (restore && !(flags & s->carries))
		return 0;
	if (!egress_fits(s->bare_len, s->gso, out)) {
		s->too_long = 1 + s->zero;
		count_tx_dropped(id);
		return 0;
	}
	if (flags & LY_PORT_CHANNEL) {
		sender = channel_member(out->channel, s->bucket) & (LY_PORTS - 1);
		if (!sender) {
			s->down = 1 + s->zero;
			count_tx_dropped(id);
			return 0;
		}
		channel = id;
	}
	if (s->gso && !dry && tc_bridged_too_long(s->skb, sender, s->have)) {
		s->too_long = 1 + s->zero;
		count_copy(sender, channel, 0, false);
		return 0;
	}
	if (flood_denied(s, id, flags))
		return 0;
	__u32 qos = s->zero;
	if (out->qos & LY_QOS_HAS_OUTPUT) {
		qos += tc_qos(s->skb, ACL_WHERE(s->type, LY_UNTAGGED, s->have), ACL_WHAT(id, s->tci & VID_MASK, s->tci), s->bare_len,
			      QOS_AT(LY_QOS_OUTPUT, id, s->gso) | (s->tunnelled ? QOS_TUNNELLED : 0));
		if (qos & QOS_DROPPED) {
			s->policed = 1 + s->zero;
			return 0;
		}
	}
	if (flags & LY_PORT_SVI && s->host && !host_admits(s->from, s->host)) {
		s->refused = 1 + s->zero;
		count_tx_dropped(id);
		return 0;
	}
	if (channel)
		balance_note(s->bucket);
	if (s->pending && !flood_pending(s)) {
		s->failed = 1 + s->zero;
		return 1;
	}
	s->pending = s->zero;
	__u8 form = s->order & (LY_FORMS - 1);
	if (!flood_retag(s, form) || (s->tunnelled && !flood_readdress(s, restore))) {
		s->failed = 1 + s->zero;
		return 1;
	}
	s->pending = sender;
	s->pending_channel = channel;
	s->pending_qos = qos;
	return 0;
}

/* Floods the frame to the VLAN's flood set. f->action becomes what the program returns for the
 * frame itself. A global function: the verifier checks it once, with an unknown frame, and not once
 * for each path that leads here. */
__noinline int tc_flood(struct __sk_buff *skb, struct frame *f)
{
	if (!f)
		return DROP(DROP_NO_EGRESS);
	struct ly_port *in = ROW(ports, f->port_id);
	bool broadcast = f->dst == BROADCAST, group = f->dst & GROUP_BIT;
	__u32 zero = unknown_zero(f->len);
	struct flood s = {
		.skb = skb,
		.sets = LOOKUP(vlan_ports, f->vlan),
		.members = mdb_entry(SNOOPED_ENTRY(f->members)),
		.snoop = LOOKUP(snoop_vlans, shared_vlan(in, f->vlan)),
		.limited = !!f->members + zero,
		.family = (f->members & SNOOPED_IPV6 ? LY_IPV6 : LY_IPV4) + zero,
		.address = zero,
		.carries = zero,
		.bits = zero,
		.order = form_order(f, in->form) + zero,
		.at = zero,
		.pending = zero,
		.sent = zero,
		.too_long = zero,
		.down = zero,
		.bucket = zero,
		.pending_channel = zero,
		.failed = zero,
		.zero = zero,
		.port_id = f->port_id & (f->routed - 1), /* a routed frame comes from no port; no branch: see above */
		.bare_len = f->bare_len,
		.gso = f->gso,
		.isolated = (in ? in->flags / LY_PORT_ISOLATED & 1 & ~f->routed : 0) + zero,
		.tci = (f->tci & PCP_DEI_MASK) | f->vlan,
		.unicast = !group + zero,
		.multicast = (group && !broadcast) + zero,
		.have = f->form,
		.stale = frame_stale(f) + zero,
		.tunnelled = (f->dst == TUNNEL) + zero,
		.restored = zero,
		.denied = zero,
		.policed = zero,
		.host = zero,
		.refused = zero,
		.pending_qos = zero,
		.acl = (f->routed && in->flags & LY_PORT_ACL_IN ? ACL_ROUTED : 0) + (f->dst == TUNNEL ? ACL_TUNNELLED : 0) + zero,
		.type = flood_type(skb, f->form, f->outer),
		.from = f->port_id,
	};

	if (!s.sets || !s.members || !s.snoop)
		return DROP(DROP_NO_EGRESS);
	if (f->dst == TUNNEL) {
		s.address = tunnel_address(skb, f->form) + zero;
		s.carries = tunnel_flag(s.address) + zero;
	}
	int host = tc_host_reason(skb, f->dst, s.type, tc_l3(skb, f));
	if (host == TRAP_NEIGHBOUR || !f->members) /* policed, unless the host has joined the group */
		s.host = (host ? host : TRAP_FLOODED) + zero;
	if (ROW(global, 0)->balance & LY_BALANCE_USED)
		s.bucket = tc_balance(skb, f->dst, f->form, f->bare_len);
	s.word = ROW(global, 0)->first_word;
	bpf_loop(LY_PORTS + LY_FORMS * LY_PORT_WORDS + 1, flood_step, &s, 0);
	if (s.pending) {
		if (s.pending_qos && tc_copy_marks(skb, s.pending_qos, s.have, s.tci, false) < 0)
			return DROP(DROP_TRANSMIT_FAILED);
		count_copy(s.pending, s.pending_channel, flood_len(&s), true);
		if (dry)
			tc_journal_emit(skb, s.pending, flood_form(&s));
		if (mirror_sent(skb, s.pending, flood_tci(&s), flood_form(&s)) < 0)
			return DROP(DROP_TRANSMIT_FAILED);
		if (!dry)
			f->action = bpf_redirect(ROW(ports, s.pending)->ifindex, 0);
		return 0;
	}
	if (s.sent)
		return 0;
	return s.failed	  ? DROP(DROP_TRANSMIT_FAILED) :
	       s.refused  ? DROP(DROP_TRAP_POLICED) :
	       s.policed  ? DROP(DROP_POLICED_OUT) :
	       s.denied	  ? s.denied :
	       s.too_long ? DROP(DROP_MTU_EXCEEDED) :
	       s.down	  ? DROP(DROP_EGRESS_DOWN) :
			    DROP(DROP_NO_EGRESS);
}

/* Flooding is a program of its own, so that it is verified once for all programs that jump to it. */
static __always_inline int flood_enter(struct __sk_buff *skb, struct frame *f)
{
	return step_enter(skb, f, LY_STEP_FLOOD, f->vlan, f->routed ? f->named.word : f->members);
}

static __always_inline bool flood_begin(struct __sk_buff *skb, struct frame *f)
{
	if (!step_begin(skb, f))
		return false;
	f->vlan = STEP_OTHER(skb);
	if (f->routed)
		f->named.word = STEP_MORE(skb);
	else
		f->members = STEP_MORE(skb);
	return true;
}

/* Whether the frame may be delivered directly to the far end. eth_type_trans has set the packet
 * type by the address of the ingress port's netdev; here it becomes what the far end's own receive
 * path would have set, because older kernels do not correct it (crates/ebpf/src/facts.rs). False
 * for addresses other than the far end's if these may have changed since the control plane
 * confirmed them. */
static __always_inline bool peer_takes(struct __sk_buff *skb, struct frame *f, __u32 flags, __u64 peer_mac)
{
	__u32 type = PACKET_HOST;

	if (f->dst != peer_mac) {
		if (!(flags & LY_PORT_PEER_ANY) || f->now_s - ROW(global, 0)->facts_s > LY_FACTS_VALID_S)
			return false;
		type = f->dst & GROUP_BIT ? PACKET_MULTICAST : PACKET_OTHERHOST;
	}
	return skb->pkt_type == type || !bpf_skb_change_type(skb, type);
}

/* True for ARP and neighbour discovery. */
static __always_inline bool tc_is_neighbour(struct __sk_buff *skb, struct frame *f)
{
	__u32 type = flood_type(skb, f->form, f->outer);

	return type == ETH_ARP || (type == ETH_IPV6 && tc_discovers(skb, tc_l3(skb, f)));
}

/* Sends known unicast, or a group's frame that one port gets, to its port. */
static __always_inline int tc_unicast(struct __sk_buff *skb, struct frame *f)
{
	__u8 want = egress_form(f->out, f->out_pv);
	__u32 id = f->out_id, channel = 0;
	struct ly_port *out = f->out;

	if (out->flags & LY_PORT_CHANNEL) {
		__u32 bucket = tc_balance(skb, f->dst, f->form, f->bare_len);
		channel = id;
		id = channel_member(out->channel, bucket);
		if (!id)
			return DROP(DROP_EGRESS_DOWN);
		balance_note(bucket);
		out = ROW(ports, id);
	}
	__u32 flags = out->flags, ifindex = out->ifindex;
	__u64 peer_mac = out->peer_mac;

	if (flags & LY_PORT_SVI && !f->up && tc_is_neighbour(skb, f) && !host_admits(f->port_id, TRAP_NEIGHBOUR)) {
		count_tx_dropped(id);
		return DROP(DROP_TRAP_POLICED);
	}

	if (f->gso && !dry && tc_bridged_too_long(skb, id, f->form))
		return DROP(DROP_MTU_EXCEEDED);
	if (want != f->form || frame_stale(f)) {
		int ops = tc_retag(skb, f->form, want, (f->tci & PCP_DEI_MASK) | f->vlan);
		if (ops < 0)
			return DROP(DROP_TRANSMIT_FAILED);
		if (dry) {
			struct ly_journal *j = dry_journal();
			if (j)
				j->tag_ops = ops;
		}
	}
	count_copy(id, channel, f->bare_len + (want ? 4 : 0), true);
	if (dry)
		tc_journal_emit(skb, id, want);
	if (mirror_sent(skb, id, (f->tci & PCP_DEI_MASK) | f->vlan, want) < 0)
		return DROP(DROP_TRANSMIT_FAILED);
	if (dry)
		return 0;
	/* With an output policy the frame has to pass the port's own netdev, whose queueing discipline has the queues. */
	if (flags & LY_PORT_PEER && !(f->out->qos & LY_QOS_HAS_OUTPUT) && peer_takes(skb, f, flags, peer_mac)) {
		f->action = bpf_redirect_peer(ifindex, 0);
	} else {
		f->action = bpf_redirect(ifindex, 0);
	}
	return 0;
}

/* Whether the kernel takes the frame from XDP for this port: it allows one tag beyond the MTU, and in line a frame may have
 * one of its own besides ours. On TC ours is out of band and not counted. */
static __always_inline bool xdp_fits(__u32 bare_len, __u32 max_len)
{
	return bare_len + 4 <= max_len;
}

/* Sends known unicast from XDP to a port that accepts frames from XDP. Returns false, with the
 * frame unchanged, if TC has to handle it. The helper records the target before the frame is
 * changed. It finds none if the port's device has left `xdp_ports`: the kernel removes a device
 * that is deleted, while the port's row keeps LY_PORT_XDP_TX until a daemon changes it. A routed frame for a port-channel is
 * left to TC: its addresses, which may be hashed, are rewritten only after it has been redirected. */
static __always_inline bool xdp_unicast(struct xdp_md *ctx, struct frame *f)
{
	__u8 want = egress_form(f->out, f->out_pv);
	__u32 id = f->out_id, channel = 0;
	struct ly_port *out = f->out;

	if (out->flags & LY_PORT_CHANNEL) {
		if (f->routed)
			return false;
		__u32 bucket = xdp_balance(ctx, f->dst, f->form, f->bare_len);
		channel = id;
		id = channel_member(out->channel, bucket);
		if (!id)
			return false;
		balance_note(bucket);
		out = ROW(ports, id);
	}
	if (out->flags & LY_PORT_MIRROR_TX)
		return false;
	if (!dry) {
		if (!(out->flags & (f->several ? LY_PORT_XDP_SG : LY_PORT_XDP_TX)) || !xdp_fits(f->bare_len, out->max_len))
			return false;
		f->action = bpf_redirect_map(&xdp_ports, id, XDP_PASS);
		if (f->action != XDP_REDIRECT)
			return false;
	}
	if ((want != f->form || frame_stale(f)) &&
	    !xdp_retag(ctx, f->form, want, (f->tci & PCP_DEI_MASK) | f->vlan))
		return false;
	count_copy(id, channel, f->bare_len + (want ? 4 : 0), true);
	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j) {
			j->egress_port[0] = id;
			j->egress_form[0] = want;
			j->egress_count = 1;
		}
		f->action = XDP_TX; /* the test run hands back the bytes */
	}
	return true;
}

/* Floods from XDP. The kernel's broadcast sends a copy of the frame to every device of `xdp_flood`.
 * A program that runs once for each copy before it leaves drops the copies for ports outside the
 * flood set, and changes the tag. So the tables are read when a copy leaves, as on TC, and no list of
 * members is needed. */
struct flood_note { /* in front of the frame, from lanyard_xdp to lanyard_xdp_copy */
	__u16 vlan;
	__u16 tci;
	__u8 form, stale;
	__u8 unicast, multicast;
};

static __always_inline __u32 count_bits(__u64 bits)
{
	bits -= bits >> 1 & 0x5555555555555555ULL;
	bits = (bits & 0x3333333333333333ULL) + (bits >> 2 & 0x3333333333333333ULL);
	return ((bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fULL) * 0x0101010101010101ULL >> 56;
}

/* False: TC has to handle the frame. XDP floods frames of one buffer when every port in the flood
 * set accepts frames from XDP and has room for this one, and when at least half of the devices that
 * get a copy are in the flood set. */
static __always_inline bool xdp_flood_out(struct xdp_md *ctx, struct frame *f)
{
	struct ly_vlan_ports *sets = LOOKUP(vlan_ports, f->vlan);
	struct ly_global *g = ROW(global, 0);
	bool group = f->dst & GROUP_BIT, broadcast = f->dst == BROADCAST;

	if (dry || !sets || f->several || g->end_word > 1 || f->port->flags & LY_PORT_ISOLATED)
		return false;
	__u64 to = sets->form[LY_UNTAGGED][0] | sets->form[LY_DOT1Q][0] | sets->form[LY_DOT1AD][0];
	to &= ~(1ULL << (f->port_id & 63));
	to &= ~(broadcast ? 0 : group ? g->no_multicast[0] : g->no_unicast[0]);
	if (to == 0 || to & ~g->xdp_flood || !xdp_fits(f->bare_len, g->xdp_flood_len))
		return false;
	if (count_bits(to) * 2 < count_bits(g->xdp_flood))
		return false;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(struct flood_note)))
		return false;
	struct flood_note *note = (void *)(long)ctx->data_meta;
	if ((void *)(note + 1) > (void *)(long)ctx->data)
		return false;
	*note = (struct flood_note){
		.vlan = f->vlan,
		.tci = (f->tci & PCP_DEI_MASK) | f->vlan,
		.form = f->form,
		.stale = frame_stale(f),
		.unicast = !group,
		.multicast = group && !broadcast,
	};
	f->action = bpf_redirect_map(&xdp_flood, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
	return true;
}

/* Handles a copy that is about to leave by one port. False if the port is not in the flood set, or the copy cannot be changed. */
static __always_inline bool xdp_copy(struct xdp_md *ctx)
{
	struct flood_note *place = (void *)(long)ctx->data_meta;
	__u16 id = port_of_ifindex(ctx->egress_ifindex);
	struct ly_port *out = ROW(ports, id);
	struct ly_global *g = ROW(global, 0);

	if ((void *)(place + 1) > (void *)(long)ctx->data || id >= LY_XDP_FLOOD)
		return false;
	struct flood_note note = *place;
	const __u8 wanted = LY_PV_MEMBER | LY_PV_FORWARD | LY_PV_ACTIVE;
	__u8 pv = port_vlan(id, note.vlan);
	__u64 out_of_it = (note.unicast ? g->no_unicast[0] : 0) | (note.multicast ? g->no_multicast[0] : 0);
	if (!(out->flags & LY_PORT_ENABLED) || (pv & wanted) != wanted || out_of_it >> (id & 63) & 1)
		return false;
	__u8 want = egress_form(out, pv);
	__u32 len = ctx->data_end - ctx->data - (note.form ? 4 : 0) + (want ? 4 : 0);
	if ((want != note.form || note.stale) && !xdp_retag(ctx, note.form, want, note.tci)) {
		count_tx_dropped(id);
		return false;
	}
	bpf_xdp_adjust_meta(ctx, sizeof(struct flood_note));
	count_tx(id, len);
	return true;
}
