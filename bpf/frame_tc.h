/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Access to a frame at the TC hook. The kernel has removed the outermost 802.1Q or 802.1ad tag from the bytes before
 * TC sees them; in a test run (and with a few drivers) the tag is still in line. Both cases are handled here. */
#ifndef LY_FRAME_TC_H
#define LY_FRAME_TC_H

#define PACKET_HOST 0
#define PACKET_MULTICAST 2
#define PACKET_OTHERHOST 3
#define TC_ACT_SHOT 2

struct eth_words { /* an Ethernet header and a tag; not packed, because clang would load it byte by byte */
	__u32 dst_low;
	__u16 dst_high;
	__u16 src_low;
	__u32 src_high;
	__u16 type;
	__u16 tci;
	__u16 inner_type;
};

static __always_inline void frame_addresses(struct frame *f, struct eth_words *eth)
{
	f->dst = (__u64)eth->dst_high << 32 | eth->dst_low;
	f->src = (__u64)eth->src_high << 16 | eth->src_low;
}

static __always_inline void frame_ingress(struct frame *f, __u32 ifindex)
{
	if (dry) {
		struct ly_journal *j = dry_journal();
		f->port_id = j ? j->port & (LY_PORTS - 1) : 0;
	} else {
		f->port_id = port_of_ifindex(ifindex);
	}
	if (f->port_id)
		f->port = ROW(ports, f->port_id);
}

/* Reads addresses, lengths and the outermost tag. Returns false when the frame is too short for
 * addresses. */
static __always_inline bool tc_read(struct __sk_buff *skb, struct frame *f)
{
	struct eth_words *eth = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;

	if ((void *)eth + 18 > end) {
		bpf_skb_pull_data(skb, skb->len < 18 ? skb->len : 18);
		eth = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		if ((void *)eth + 14 > end)
			return false;
	}
	frame_addresses(f, eth);
	f->len = skb->len;
	f->gso = skb->gso_size;
	if (skb->vlan_present) {
		f->len += 4;
		f->outer = bpf_ntohs(skb->vlan_proto);
		f->tci = skb->vlan_tci;
	} else {
		f->outer = bpf_ntohs(eth->type);
		if ((void *)eth + 18 <= end)
			f->tci = bpf_ntohs(eth->tci);
	}
	f->len += dry_extra();
	return true;
}

static __always_inline bool tc_open(struct __sk_buff *skb, struct frame *f)
{
	if (!tc_read(skb, f))
		return false;
	frame_ingress(f, skb->ifindex);
	return true;
}

/* The offset of the packet in the skb's bytes. */
static __always_inline __u32 tc_l3(struct __sk_buff *skb, struct frame *f)
{
	return f->form != LY_UNTAGGED && !skb->vlan_present ? 18 : 14;
}

/* The EtherType of the payload, which begins at `at`; 0 when it can't be read. A tag that the port does not recognise (a tunnel
 * port, another TPID) is payload, also while the kernel keeps it out of band: such a frame carries no packet to route. */
static __always_inline __u16 tc_l3_type(struct __sk_buff *skb, struct frame *f, __u32 at)
{
	__u16 *type = (void *)(long)skb->data + at - 2;

	if (f->form == LY_UNTAGGED)
		return f->outer;
	return (void *)(type + 1) <= (void *)(long)skb->data_end ? bpf_ntohs(*type) : 0;
}

/* Jumps to another program; returns only if that program is missing. What the other program cannot
 * read from the frame is passed in skb->cb. Its layout is part of LY_ABI, because the two programs
 * may be of different versions. The step defines the meaning of `other` and `more`. */
static __always_inline int step_enter(struct __sk_buff *skb, struct frame *f, __u32 step, __u16 other, __u32 more)
{
	skb->cb[0] = f->port_id | (__u32)f->member << 10 | (__u32)f->came << 20;
	skb->cb[1] = f->tci | (__u32)other << 16;
	skb->cb[2] = more;
	skb->cb[3] = f->form | (__u32)f->straight << 8 | (__u32)f->routed << 16;
	skb->cb[4] = f->now_s;
	bpf_tail_call_static(skb, &steps, step);
	return DROP(DROP_TRANSMIT_FAILED);
}

#define STEP_OTHER(skb) ((__u16)((skb)->cb[1] >> 16))
#define STEP_MORE(skb) ((skb)->cb[2])

/* Restores the frame that step_enter passed; false when there is none. */
static __always_inline bool step_begin(struct __sk_buff *skb, struct frame *f)
{
	if (!tc_read(skb, f))
		return false;
	f->port_id = skb->cb[0] & (LY_PORTS - 1);
	f->member = skb->cb[0] >> 10 & (LY_PORTS - 1);
	f->came = skb->cb[0] >> 20;
	f->tci = skb->cb[1];
	f->form = skb->cb[3];
	f->straight = skb->cb[3] >> 8;
	f->routed = skb->cb[3] >> 16;
	f->now_s = skb->cb[4];
	f->bare_len = f->len - (f->form != LY_UNTAGGED ? 4 : 0);
	return true;
}

/* Rewrites the tag to the form `want`. Returns the number of tag operations, or < 0 when memory ran
 * out. A global function, as tc_copy below: the call is cheap for frames that need it, and the
 * verifier checks it once. */
__noinline int tc_retag(struct __sk_buff *skb, __u32 have, __u32 want, __u32 tci)
{
	int ops = 0;

	if (have != LY_UNTAGGED) {
		if (bpf_skb_vlan_pop(skb))
			return -1;
		ops++;
	}
	if (want != LY_UNTAGGED) {
		if (bpf_skb_vlan_push(skb, bpf_htons(form_tpid(want)), tci))
			return -1;
		ops++;
	}
	return ops;
}

/* Copies the frame's first bytes, at most `most`, to `to`; false when it has no Ethernet header or cannot be read. The verifier
 * of Linux 6.1 knows the range of a helper's length argument only from comparisons of that very register with constants
 * other than zero: hence one 64-bit number, which the compiler cannot split or merge with `len`, and two comparisons that it
 * cannot make one. */
static __always_inline bool tc_head(struct __sk_buff *skb, void *to, __u32 len, const __u64 most)
{
	__u64 bytes = len < most ? len : most;

	asm volatile("" : "+r"(bytes));
	if (bytes < 14)
		return false;
	asm volatile("" : "+r"(bytes));
	return bytes <= most && !bpf_skb_load_bytes(skb, 0, to, bytes);
}

#define TC_TRAP_RECORD(type_, most_)                              \
	type_ *r = bpf_ringbuf_reserve(&traps, sizeof(type_), 0); \
	if (!r) {                                                 \
		trap_lost(group);                                 \
		return 0;                                         \
	}                                                         \
	r->header = header;                                       \
	if (tc_head(skb, r->byte, len, (most_))) {                \
		bpf_ringbuf_submit(r, trap_wake(group));          \
	} else {                                                  \
		bpf_ringbuf_discard(r, 0);                        \
		trap_lost(group);                                 \
	}

/* When a frame of each group last woke the control plane. */
TABLE(trap_woken, __u64, LY_GROUPS, 0);

/* The flags of bpf_ringbuf_submit, which decide whether a record wakes the control plane. With 0, the kernel wakes it only if it
 * has read all earlier records. So the record that sets the group's time in trap_woken forces the wake-up: another processor may
 * have submitted an earlier record without a wake-up because of that time. A wake-up is an interrupt, which costs a virtual
 * machine as much as ten frames. Groups that may have thousands of frames a second therefore wake it once in LY_TRAP_WAKE_NS;
 * after each record it looks at the ring again when that time has passed (crates/daemon/src/protocols). */
static __always_inline __u64 trap_wake(__u32 group)
{
	if (group <= GROUP_DISCOVERY || group == GROUP_EAPOL)
		return 0;
	__u64 *woken = LOOKUP(trap_woken, group), now = bpf_ktime_get_ns();
	if (!woken)
		return 0;
	if (now - *(volatile __u64 *)woken < LY_TRAP_WAKE_NS)
		return BPF_RB_NO_WAKEUP;
	*(volatile __u64 *)woken = now;
	return BPF_RB_FORCE_WAKEUP;
}

/* Sends the frame to the control plane. A frame that the ring has no room for is counted as lost. */
__noinline int tc_trap(struct __sk_buff *skb, __u32 port, __u32 reason, __u32 group)
{
	__u32 len = skb->len;
	struct ly_trap header = { .len = len, .port = port, .reason = reason };

	if (skb->vlan_present) {
		header.tag_proto = bpf_ntohs(skb->vlan_proto);
		header.tag_tci = skb->vlan_tci;
	}
	if (len <= TRAP_SHORT) {
		TC_TRAP_RECORD(struct trap_short_record, TRAP_SHORT)
	} else {
		TC_TRAP_RECORD(struct trap_record, LY_TRAP_BYTES)
	}
	return 0;
}

/* Records in the journal of a dry run that a frame is sent: the port, the form, and the bytes in their slot (abi.h). */
static __always_inline void tc_journal_emit(struct __sk_buff *skb, __u32 port, __u8 form)
{
	struct ly_journal *j = dry_journal();
	__u32 slot = form & (LY_JOURNAL_OWN - 1);

	if (!j || j->egress_count >= LY_PORTS)
		return;
	if (j->marked && j->own_slots < LY_JOURNAL_FORMS - LY_JOURNAL_OWN)
		slot = LY_JOURNAL_OWN + j->own_slots++;
	slot &= LY_JOURNAL_FORMS - 1;
	struct ly_journal_frame *bytes = LOOKUP(journal_bytes, slot);
	if (!bytes)
		return;
	j->egress_slot[j->egress_count & (LY_PORTS - 1)] = slot;
	j->egress_port[j->egress_count & (LY_PORTS - 1)] = port;
	j->egress_form[j->egress_count & (LY_PORTS - 1)] = form;
	j->egress_count++;
	__u32 len = skb->len;
	j->form[slot].len = len;
	j->form[slot].tag_proto = skb->vlan_present ? bpf_ntohs(skb->vlan_proto) : 0;
	j->form[slot].tag_tci = skb->vlan_tci;
	tc_head(skb, bytes->byte, len, LY_JOURNAL_BYTES);
}

#endif
