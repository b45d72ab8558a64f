/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* mirror: copies received frames for monitor sessions (SPAN), and drops frames that the destination port of a session
 * receives. `replicate` calls tc_mirror for the frames that a port sends.
 *
 * XDP leaves to TC the frames that are copied and those that a destination receives. Other ports pay for a branch on their
 * flags. */
enum { DROP_MIRROR_DESTINATION = 44 };
/* ly_port.flags: received frames are copied, sent frames are copied, the port is a destination */
#define LY_PORT_MIRROR_RX 0x4000000
#define LY_PORT_MIRROR_TX 0x8000000
#define LY_PORT_MIRROR_TO 0x10000000

/* mirror[LY_MIRROR(n, port)]: the copies of a port's frames */
#define LY_MIRRORS 4
#define LY_MIRROR(n, port) ((n) * LY_PORTS + (port))

#define MIRROR_FORM_SHIFT 8 /* in the argument `how` of mirror_copy */

/* ly_mirror.how */
#define LY_MIRROR_RX 0x01
#define LY_MIRROR_TX 0x02
#define LY_MIRROR_KEEP_TAG 0x04
#define LY_MIRROR_ALL 0x08 /* copies frames of every VLAN, and frames without a VLAN */
#define LY_MIRROR_NAME_VLAN 0x10 /* ERSPAN: the copies have one more tag before their own, with the frame's VLAN or 0 */

struct ly_mirror {
	__u16 to; /* the port that sends the copies */
	__u16 remote; /* not 0: the RSPAN VLAN whose tag the copies have in place of their own */
	__u32 how; /* 0: no copy */
	__u64 vlans[LY_VLANS / 64]; /* without LY_MIRROR_ALL: the VLANs whose frames are copied */
};
_Static_assert(sizeof(struct ly_mirror) == 8 + LY_VLANS / 8, "ly_mirror");
TABLE(mirror, struct ly_mirror, LY_MIRRORS * LY_PORTS, BPF_F_MMAPABLE);

/* The slot of the journal for a copy. */
static __always_inline __u8 mirror_slot(__u32 direction, __u32 form, bool strip, bool name_vlan)
{
	if (name_vlan && direction == LY_MIRROR_RX)
		return LY_MIRRORED_NAMED;
	if (name_vlan) /* 0x06 for a frame without a tag, in either form: otherwise it would share the slot of an RSPAN copy */
		return (form == LY_UNTAGGED || form == LY_RESTORED ? 0x06 | (form & 1) : form) | LY_MIRRORED_REMOTE | LY_MIRRORED_SENT;
	if (direction == LY_MIRROR_RX)
		return strip ? LY_MIRRORED_BARE : LY_MIRRORED;
	return (strip ? LY_UNTAGGED : form) | LY_MIRRORED_SENT;
}

/* Sends a copy of the frame, in its present form, out of port `id`. The frame has `bare_len` bytes without its tags, which have
 * `tag_len` bytes. `slot`: see mirror_slot. */
static __always_inline void mirror_send(struct __sk_buff *skb, __u32 id, __u32 bare_len, __u32 tag_len, __u8 slot)
{
	bool sent = true;

	if (dry)
		tc_journal_emit(skb, id, slot);
	else
		sent = !bpf_clone_redirect(skb, ROW(ports, id)->ifindex, 0);
	if (sent)
		count_tx(id, bare_len + tag_len);
	else
		count_tx_dropped(id);
}

/* Sends a copy with one more tag: of an RSPAN VLAN, or of the frame's VLAN. Returns < 0 when the tag could not be removed
 * again. */
__noinline int mirror_tagged(struct __sk_buff *skb, __u32 id, __u32 len, __u32 vlan, __u32 slot)
{
	if (bpf_skb_vlan_push(skb, bpf_htons(0x8100), vlan & VID_MASK)) {
		count_tx_dropped(id);
		return 0;
	}
	mirror_send(skb, id, len, 4, slot);
	return bpf_skb_vlan_pop(skb);
}

/* Sends the copy for one session, if the session copies this frame: `session` is the index of its row, and `how` is the direction
 * and, above it, the frame's form. Returns < 0 when memory ran out while the frame's own tag was put back. A global function, so
 * that the kernel verifies it once and not for each session. */
__noinline int mirror_copy(struct __sk_buff *skb, __u32 session, __u32 how, __u32 tag, __u32 bare_len)
{
	__u32 direction = how & (LY_MIRROR_RX | LY_MIRROR_TX), form = how >> MIRROR_FORM_SHIFT;
	bool tagged = form == LY_DOT1Q || form == LY_DOT1AD;
	__u32 vlan = tag >> 16 & (LY_VLANS - 1);
	const __u8 member = LY_PV_MEMBER | LY_PV_FORWARD | LY_PV_ACTIVE;
	struct ly_mirror *m = LOOKUP(mirror, session);

	if (!m || !(m->how & direction))
		return 0;
	if (!(m->how & LY_MIRROR_ALL) && !(m->vlans[vlan / 64] >> (vlan & 63) & 1))
		return 0;
	__u32 id = m->to & (LY_PORTS - 1);
	__u32 remote = m->remote;
	if (remote && (port_vlan(id, remote) & member) != member)
		return 0;
	bool name_vlan = m->how & LY_MIRROR_NAME_VLAN;
	bool strip = tagged && !name_vlan && (remote || !(m->how & LY_MIRROR_KEEP_TAG));
	struct ly_port *to = ROW(ports, id);
	if (!(to->flags & LY_PORT_ENABLED) || !egress_fits(bare_len, skb->gso_size, to) ||
	    (strip && tc_retag(skb, form, LY_UNTAGGED, 0) < 0)) {
		count_tx_dropped(id);
		return 0;
	}
	__u32 tag_len = tagged && !strip ? 4 : 0;
	__u8 slot = mirror_slot(direction, form, strip, name_vlan);
	if (!remote && !name_vlan)
		mirror_send(skb, id, bare_len, tag_len, slot);
	else if (mirror_tagged(skb, id, bare_len + tag_len, name_vlan ? vlan % (LY_VLANS - 1) : remote,
			       remote ? slot | LY_MIRRORED_REMOTE : slot) < 0)
		return -1;
	return strip && tc_retag(skb, LY_UNTAGGED, form, tag & 0xffff) < 0 ? -1 : 0;
}

/* Copies a frame that `port` receives or sends in the form `form`; its tag is the low half of `tag`, and its VLAN the high
 * half. Returns < 0 as mirror_copy does. A global function: it is called only for sources of sessions. */
__noinline int tc_mirror(struct __sk_buff *skb, __u32 port, __u32 direction, __u32 tag, __u32 form)
{
	bool tagged = form == LY_DOT1Q || form == LY_DOT1AD;
	__u32 bare_len = skb->len + (skb->vlan_present ? 4 : 0) - (tagged ? 4 : 0) + dry_extra();

	for (__u32 n = 0; n < LY_MIRRORS; n++) {
		if (mirror_copy(skb, LY_MIRROR(n, port & (LY_PORTS - 1)), direction | form << MIRROR_FORM_SHIFT, tag, bare_len) < 0)
			return -1;
	}
	return 0;
}

static __always_inline int stage_mirror(struct frame *f, struct __sk_buff *skb)
{
	if (!f->port || !(f->port->flags & (LY_PORT_MIRROR_RX | LY_PORT_MIRROR_TO)) || !(f->port->flags & LY_PORT_ENABLED))
		return 0;
	if (f->port->flags & LY_PORT_MIRROR_TO)
		return DROP(DROP_MIRROR_DESTINATION);
	__u32 vlan = f->tci & VID_MASK ?: f->port->pvid;
	return tc_mirror(skb, f->port_id, LY_MIRROR_RX, f->tci | vlan << 16, f->form) ? DROP(DROP_TRANSMIT_FAILED) : 0;
}

/* Copies a frame that `port` is about to send; see tc_mirror. */
static __always_inline int mirror_sent(struct __sk_buff *skb, __u32 port, __u32 tci, __u32 form)
{
	if (!(ROW(ports, port)->flags & LY_PORT_MIRROR_TX))
		return 0;
	return tc_mirror(skb, port, LY_MIRROR_TX, tci | (tci & VID_MASK) << 16, form);
}
