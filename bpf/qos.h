/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Service policies: classification by the classifiers of access lists, policers, marks.
 *
 * crates/pipeline/src/qos.rs is the same in Rust, and documents the policers (RFC 2697, RFC 2698).
 *
 * A policy is one word of qos_policies, which names its lists and its block of rows. The control plane writes new rows and lists
 * before it stores the word, and reuses a block after all others, so a frame is handled by the old policy or by the new one. */
#ifndef LY_QOS_H
#define LY_QOS_H

#define LY_QOS_CLASSES 32 /* rows of a block */
#define LY_QOS_BLOCKS 512
#define LY_QOS_KEEP 0xff /* of a mark: the field stays as it is */
#define LY_QOS_COLOURS 3
#define LY_QOS_COST_SHIFT 16
#define LY_QOS_TIME_SHIFT 6
#define LY_QOS_QUEUES 64    /* minor numbers of the classes of a port's queueing discipline */
#define LY_QOS_MAJOR 0x4c59 /* major number of that queueing discipline */

enum ly_qos_kind { LY_QOS_FREE = 0, LY_QOS_ONE_BUCKET = 1, LY_QOS_OVERFLOW = 2, LY_QOS_PEAK = 3 };

/* A class of a policy at a port. Times are in 2^-6 ns, the time of a byte in 2^-16 ns. */
struct ly_qos_row {
	__u8 kind;  /* enum ly_qos_kind: the policer */
	__u8 drops; /* a bit for each colour that is dropped */
	__u8 dscp[LY_QOS_COLOURS], cos[LY_QOS_COLOURS]; /* the marks for each colour, or LY_QOS_KEEP */
	__u32 queue;   /* the minor number of the class of the queueing discipline; 0: the discipline chooses */
	__u32 pad;
	__u64 byte_cost[2], burst[2];
	__u64 clock[2]; /* by the programs: when the bucket is full; the second of LY_QOS_OVERFLOW: what it lacks */
	__u64 frames[LY_QOS_COLOURS], bytes[LY_QOS_COLOURS];
	__u64 unused[2];
};
_Static_assert(sizeof(struct ly_qos_row) == 128, "ly_qos_row");
TABLE(qos_rows, struct ly_qos_row, LY_QOS_BLOCKS * LY_QOS_CLASSES, BPF_F_MMAPABLE);

/* qos_policies[LY_QOS_POLICY(direction, port)]: a word with the list of each family, the policy's block of rows and the number of
 * its classes; 0: no policy */
#define LY_QOS_INPUT 0
#define LY_QOS_OUTPUT 1
#define LY_QOS_POLICY(direction, port) ((direction) * LY_PORTS + (port))
#define LY_QOS_LIST_BITS 10
#define LY_QOS_BLOCK_SHIFT 32
#define LY_QOS_COUNT_SHIFT 48
ROWS(qos_policies, __u64, 2 * LY_PORTS);
_Static_assert(LY_ACLS <= 1 << LY_QOS_LIST_BITS, "a list's number");

/* ly_port.qos */
#define LY_QOS_HAS_INPUT 0x01  /* has an input policy */
#define LY_QOS_HAS_OUTPUT 0x02 /* has an output policy */

/* The result of tc_qos: bits. */
#define QOS_DROPPED 0x01
#define QOS_HAS_COS 0x02 /* the class of service is to be set to QOS_COS */
#define QOS_COS(result) ((result) >> 4 & 7)
#define QOS_HAS_DSCP 0x04 /* the DSCP is to be set to QOS_DSCP */
#define QOS_DSCP(result) ((result) >> 8 & 63)
#define QOS_WAS(result) ((result) >> 16 & 63) /* the DSCP that the packet has */
#define QOS_IPV6 0x08 /* the packet is IPv6 */
#define QOS_QUEUE(result) ((result) >> 24 & 63)

#define QOS_TRIES 8

/* The argument `place` of tc_qos: the direction and the port of a policy, and the payload per segment of a segmentation buffer,
 * for which its bucket must have room. QOS_TUNNELLED has the meaning of ACL_TUNNELLED (stages/acl_egress.h). */
#define QOS_TUNNELLED 0x800
#define QOS_AT(direction, port, gso) ((direction) | (__u32)(port) << 1 | (__u32)((gso) > 0xffff ? 0xffff : (gso)) << 16)

static __always_inline __u64 qos_time(struct ly_qos_row *r, const __u32 bucket, __u64 len)
{
	return (len * r->byte_cost[bucket]) >> (LY_QOS_COST_SHIFT - LY_QOS_TIME_SHIFT);
}

/* Takes the time of a frame, `whole`, from a bucket if the bucket has room for `longest`, the time of the frame or of one segment
 * of a segmentation buffer. */
static __always_inline bool qos_take(__u64 *clock, __u64 longest, __u64 whole, __u64 burst, __u64 now)
{
	for (int tries = 0; tries < QOS_TRIES; tries++) {
		__u64 was = *(volatile __u64 *)clock, at = was > now ? was : now;
		if (at + longest > now + burst)
			return false;
		if (swap(clock, was, at + whole))
			return true;
	}
	return false;
}

/* The colour of a frame by RFC 2697, as qos_colour returns it. The processor that moves the first clock forward credits the
 * second bucket with the time for which the first was full. */
static __always_inline __u32 qos_overflow(struct ly_qos_row *r, __u32 longest, __u32 whole, __u64 now)
{
	for (int tries = 0; tries < QOS_TRIES; tries++) {
		__u64 was = *(volatile __u64 *)&r->clock[0];
		if (was >= now)
			break;
		if (!swap(&r->clock[0], was, now))
			continue;
		__u64 lacks = *(volatile __u64 *)&r->clock[1], credit = now - was;
		swap(&r->clock[1], lacks, lacks > credit ? lacks - credit : 0);
		break;
	}
	if (qos_take(&r->clock[0], qos_time(r, 0, longest), qos_time(r, 0, whole), r->burst[0], now))
		return 0;
	__u64 needs = qos_time(r, 1, longest), takes = qos_time(r, 1, whole);
	for (int tries = 0; tries < QOS_TRIES; tries++) {
		__u64 lacks = *(volatile __u64 *)&r->clock[1];
		if (lacks + needs > r->burst[1])
			return 2;
		if (swap(&r->clock[1], lacks, lacks + takes))
			return 1;
	}
	return 2;
}

/* The colour of a frame: 0 it conforms, 1 it exceeds, 2 it violates. */
static __always_inline __u32 qos_colour(struct ly_qos_row *r, __u32 longest, __u32 whole)
{
	__u32 kind = r->kind;

	if (kind == LY_QOS_FREE || !leaves_marks(LY_DRY_POLICE))
		return 0;
	__u64 now = now_ns() << LY_QOS_TIME_SHIFT;
	if (kind == LY_QOS_OVERFLOW)
		return qos_overflow(r, longest, whole, now);
	if (kind == LY_QOS_PEAK && !qos_take(&r->clock[1], qos_time(r, 1, longest), qos_time(r, 1, whole), r->burst[1], now))
		return 2;
	return !qos_take(&r->clock[0], qos_time(r, 0, longest), qos_time(r, 0, whole), r->burst[0], now);
}

/* The class, in the policy `word`, of the packet whose key is in `w`. `valid` is false if the key could not be read: then it is
 * the last class. */
static __always_inline __u32 qos_class(struct acl_work *w, __u64 word, bool valid)
{
	__u32 family = acl_family(w->judgement.type);
	__u32 list = word >> family * LY_QOS_LIST_BITS & (LY_ACLS - 1);
	__u32 last = ((word >> LY_QOS_COUNT_SHIFT) - 1) & (LY_QOS_CLASSES - 1);

	if (!list || !valid)
		return last;
	__u32 found = acl_find(w, list);
	return found == ACL_NO_LIST || !(found & ACL_FOUND_CLASS) ? last : found >> ACL_FOUND_CLASS_SHIFT & (LY_QOS_CLASSES - 1);
}

/* Applies the policy of a port in one direction: classifies, polices and counts the frame. Returns the actions as bits (QOS_*).
 * `where` and `what` are ACL_WHERE and ACL_WHAT, `place` is QOS_AT. */
__noinline int tc_qos(struct __sk_buff *skb, __u32 where, __u32 what, __u32 len, __u32 place)
{
	struct acl_work *w = acl_begin();
	__u32 slot = LY_QOS_POLICY(place & 1, place >> 1 & (LY_PORTS - 1));

	/* Without this the compiler omits the mask of ROW, and the verifier of Linux 6.1 does not see that the index is in
	 * range. */
	asm volatile("" : "+r"(slot));
	__u64 word = *ROW(qos_policies, slot);

	if (!w || !word)
		return 0;
	acl_place(skb, false, &w->judgement, where, what);
	w->judgement.tunnelled = !!(place & QOS_TUNNELLED);
	w->key = (struct acl_key){};
	if (dry)
		w->end = skb->len + dry_extra();
	bool valid = acl_read(w, skb, false);
	__u32 class = qos_class(w, word, valid), longest = place >> 16;
	struct ly_qos_row *r = LOOKUP(qos_rows, (word >> LY_QOS_BLOCK_SHIFT & (LY_QOS_BLOCKS - 1)) * LY_QOS_CLASSES + class);
	if (!r)
		return 0;
	/* The statement keeps the mask of the colour, for the same reason as above. */
	__u64 colour = qos_colour(r, longest && longest < len ? longest : len, len);
	asm volatile("" : "+r"(colour));
	colour &= 3;
	if (leaves_marks(LY_DRY_COUNT)) {
		__sync_fetch_and_add(&r->frames[colour], 1);
		__sync_fetch_and_add(&r->bytes[colour], len);
	}
	if (r->drops >> colour & 1)
		return QOS_DROPPED;
	__u32 result = (r->queue & (LY_QOS_QUEUES - 1)) << 24;
	__u8 cos = r->cos[colour], dscp = r->dscp[colour];
	if (cos != LY_QOS_KEEP)
		result |= QOS_HAS_COS | (cos & 7) << 4;
	__u32 was = w->key.half[LY_ACL_TOS] >> 2 & 63;
	if (dscp != LY_QOS_KEEP && valid && w->judgement.type == ETH_IPV4)
		result |= QOS_HAS_DSCP | (dscp & 63) << 8 | was << 16;
	if (dscp != LY_QOS_KEEP && valid && w->judgement.type == ETH_IPV6)
		result |= QOS_HAS_DSCP | QOS_IPV6 | (dscp & 63) << 8 | was << 16;
	return result;
}

static __always_inline __u16 qos_corrected(__u16 check, __u16 old, __u16 new)
{
	__u32 sum = (__u16)~check + (__u32)(__u16)~old + new;

	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

/* Writes the DSCP into the packet at offset `at`. A global function, as it is called from several places. Returns 0, or < 0 when
 * memory ran out. */
__noinline int tc_mark(struct __sk_buff *skb, __u32 at, __u32 dscp, __u32 ipv6)
{
	__u8 head[12] __attribute__((aligned(4)));

	at &= 31;
	dscp &= 63;
	if (ipv6) {
		if (bpf_skb_load_bytes(skb, at, head, 2))
			return -1;
		__u8 class = (head[0] << 4 | head[1] >> 4) & 3;
		class |= dscp << 2;
		head[0] = (head[0] & 0xf0) | class >> 4;
		head[1] = (head[1] & 0x0f) | class << 4;
		return bpf_skb_store_bytes(skb, at, head, 2, BPF_F_RECOMPUTE_CSUM);
	}
	if (bpf_skb_load_bytes(skb, at, head, 12))
		return -1;
	__u8 tos = (head[1] & 3) | dscp << 2;
	__u16 check = qos_corrected((__u16)head[10] << 8 | head[11], (__u16)head[0] << 8 | head[1], (__u16)head[0] << 8 | tos);
	__u8 word[2] = { check >> 8, check };
	/* The header's checksum changes by as much as the byte, in the other direction. So a sum over the packet that the device
	 * has made (CHECKSUM_COMPLETE) stays right. */
	if (bpf_skb_store_bytes(skb, at + 1, &tos, 1, 0))
		return -1;
	return bpf_skb_store_bytes(skb, at + 10, word, 2, 0);
}

/* The offset of the packet in a frame of this form. */
static __always_inline __u32 qos_packet(struct __sk_buff *skb, __u8 form)
{
	return form != LY_UNTAGGED && !skb->vlan_present ? 18 : 14;
}

/* Gives the frame to its queue: the class of the port's queueing discipline. */
static __always_inline void qos_queue(struct __sk_buff *skb, __u32 result)
{
	skb->priority = QOS_QUEUE(result) ? (__u32)LY_QOS_MAJOR << 16 | QOS_QUEUE(result) : 0;
}

/* Carries out the marks of a result of tc_qos on a copy of a flood, which has this form and tag. With `undo` it restores the
 * frame's own marks. Returns 0, or < 0 when memory ran out. */
__noinline int tc_copy_marks(struct __sk_buff *skb, __u32 result, __u32 form, __u32 tci, __u32 undo)
{
	__u32 was = tci >> 13 & 7, cos = QOS_COS(result);

	if (result & QOS_HAS_DSCP && QOS_DSCP(result) != QOS_WAS(result) &&
	    tc_mark(skb, qos_packet(skb, form), undo ? QOS_WAS(result) : QOS_DSCP(result), result & QOS_IPV6))
		return -1;
	if (result & QOS_HAS_COS && form != LY_UNTAGGED && cos != was &&
	    tc_retag(skb, form, form, (undo ? was : cos) << 13 | (tci & 0x1fff)) < 0)
		return -1;
	if (!dry) {
		qos_queue(skb, undo ? 0 : result);
		return 0;
	}
	struct ly_journal *j = dry_journal();
	if (j)
		j->marked = !undo && result & (QOS_HAS_DSCP | QOS_HAS_COS);
	return 0;
}

/* Carries out the marks of a result of tc_qos. The tag with which the frame leaves gets the class of service. If it came with
 * another one, its VID in f->tci becomes 0, which makes its tag stale and has it replaced (frame_stale). */
static __always_inline int qos_marks(struct __sk_buff *skb, struct frame *f, __u32 result)
{
	if (result & QOS_HAS_COS && QOS_COS(result) != f->tci >> 13)
		f->tci = QOS_COS(result) << 13 | (f->tci & 0x1000);
	if (result & QOS_HAS_DSCP && QOS_DSCP(result) != QOS_WAS(result) &&
	    tc_mark(skb, qos_packet(skb, f->form), QOS_DSCP(result), result & QOS_IPV6))
		return DROP(DROP_TRANSMIT_FAILED);
	return 0;
}

#endif
