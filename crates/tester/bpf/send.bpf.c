/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Sends all streams of one core in a trial. Each run of the program fills in one live frame (generate.bpf.c describes
 * how) and sends it from its port, in the namespace of that port.
 *
 * User space has written each stream's header once, as a template. This program fills in the fields that differ from
 * frame to frame: host numbers, sequence number, time, and the resulting checksums. Streams take turns; a paced
 * stream whose next frame is not due is skipped. */
#include "trial.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sender);
} senders SEC(".maps");

/* A device map stores devices, not their numbers, so it can hold devices of several namespaces. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} ports SEC(".maps");

struct sending sending = {};

/* The number of streams that one run examines. */
#define TURNS 8
/* A paced stream that is late by less than this catches up at once. A longer delay is a debt, which is caught up by a
 * sixteenth of an interval with each frame, so that a pause (by the hypervisor, for example) does not cause a burst. */
#define AT_ONCE_256 (50000ull << 8)
/* The most debt; the rest of a delay is given up. */
#define DEBT_MAX_256 (100000000ull << 8)

static __always_inline int due(struct sender *s, __u64 now_ns)
{
	__u64 interval = s->interval_256, now = now_ns << 8, late, paid;

	if (!interval)
		return 1;
	if (sending.change_ns && now_ns >= sending.change_ns)
		interval = s->later_256;
	if (now < s->due_256)
		return 0;
	late = now - s->due_256;
	if (late > AT_ONCE_256) {
		s->debt_256 += late - AT_ONCE_256;
		if (s->debt_256 > DEBT_MAX_256)
			s->debt_256 = DEBT_MAX_256;
		s->due_256 = now - AT_ONCE_256;
	}
	paid = interval >> 4;
	if (paid > s->debt_256)
		paid = s->debt_256;
	s->debt_256 -= paid;
	s->due_256 += interval - paid;
	return 1;
}

static __always_inline __u32 step(__u32 *next, __u32 count)
{
	__u32 now = *next;

	*next = now + 1 >= count ? 0 : now + 1;
	return now;
}

static __always_inline void pick(struct sender *s, __u32 *src, __u32 *dst)
{
	if (s->flags & SEND_RANDOM) {
		/* SplitMix64's finaliser: it gives every sequence number a pair of its own, the same in every run. */
		__u64 h = (s->sent + 1) * 0x9e3779b97f4a7c15ull;

		h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
		h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
		h ^= h >> 31;
		*src = ((h & 0xffffffff) * s->src_count) >> 32;
		*dst = ((h >> 32) * s->dst_count) >> 32;
	} else {
		*src = step(&s->next_src, s->src_count);
		*dst = step(&s->next_dst, s->dst_count);
	}
	*src += s->src_first;
	*dst += s->dst_first;
}

/* Writes a host's number, which has 3 bytes: the high one to `high`, the others to `low`. */
static __always_inline void put(__u8 *high, __u8 *low, __u32 host)
{
	*high = host >> 16;
	*(__u16 *)low = bpf_htons(host);
}

/* The contribution of a host's number to the sum over its IP address, of either version. */
static __always_inline __u32 sum_of(__u32 host)
{
	return bpf_htons((host >> 16) & 0xff) + bpf_htons(host & 0xffff);
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Fills in a frame; `l3` and `layout` are constants at each call. */
static __always_inline int fill(struct sender *s, __u8 *frame, __u8 *end, __u64 now, int l3, int layout)
{
	const int stamp_at = l3 + (layout == LAYOUT_V4 ? 28 : layout == LAYOUT_V6 ? 48 : 0);
	__u32 *to = (void *)frame, *from = (void *)s->head;
	struct stamp *stamp = (void *)(frame + stamp_at);
	__u32 src, dst, seq = s->sent;
	__u64 sum;

	if ((__u8 *)(stamp + 1) > end)
		return -1;
#pragma unroll
	for (int i = 0; i < (stamp_at + (int)sizeof(*stamp)) / 4; i++)
		to[i] = from[i];
	pick(s, &src, &dst);
	put(frame + 9, frame + 10, src);
	if (s->flags & SEND_DST_MAC)
		put(frame + 3, frame + 4, dst);
	stamp->seq = seq;
	if (s->flags & SEND_STAMP) {
		stamp->time_lo = now;
		stamp->time_hi = now >> 32;
	}
	if (layout == LAYOUT_RAW)
		return 0;

	sum = sum_of(src);
	if (s->flags & SEND_DST_IP)
		sum += sum_of(dst);
	if (layout == LAYOUT_V4) {
		struct ipv4 *ip = (void *)(frame + l3);

		put((__u8 *)ip->src + 1, (__u8 *)ip->src + 2, src);
		if (s->flags & SEND_DST_IP)
			put((__u8 *)ip->dst + 1, (__u8 *)ip->dst + 2, dst);
		ip->checksum = ~fold(sum + s->ip_sum);
	} else {
		put(frame + l3 + 8 + 7, frame + l3 + 8 + 14, src);
		if (s->flags & SEND_DST_GROUP)
			put(frame + l3 + 24 + 13, frame + l3 + 24 + 14, dst);
		else if (s->flags & SEND_DST_IP)
			put(frame + l3 + 24 + 7, frame + l3 + 24 + 14, dst);
	}
	if (s->flags & SEND_CHECKSUM) {
		struct udp *udp = (void *)(frame + stamp_at - sizeof(*udp));
		__u16 checksum;

		sum += (__u64)s->udp_sum + stamp->seq + stamp->time_lo + stamp->time_hi;
		checksum = ~fold(sum);
		udp->checksum = checksum ? checksum : 0xffff;
	}
	return 0;
}

static __always_inline int fill_any(struct sender *s, __u8 *frame, __u8 *end, __u64 now)
{
	if (s->tagged) {
		if (s->layout == LAYOUT_V4)
			return fill(s, frame, end, now, 18, LAYOUT_V4);
		if (s->layout == LAYOUT_V6)
			return fill(s, frame, end, now, 18, LAYOUT_V6);
		return fill(s, frame, end, now, 18, LAYOUT_RAW);
	}
	if (s->layout == LAYOUT_V4)
		return fill(s, frame, end, now, 14, LAYOUT_V4);
	if (s->layout == LAYOUT_V6)
		return fill(s, frame, end, now, 14, LAYOUT_V6);
	return fill(s, frame, end, now, 14, LAYOUT_RAW);
}

/* Fills the payload after the stamp. */
static __always_inline void fill_rest(struct sender *s, __u8 *frame, __u8 *end)
{
	__u32 at = (s->tagged ? 18 : 14) + (s->layout == LAYOUT_V4 ? 42 : 62);
	__u8 *p = frame + at;

	for (int i = 0; i < 900; i++) {
		if (p + 4 > end)
			break;
		*(__u32 *)p = FILL;
		p += 4;
	}
	for (int i = 0; i < 3; i++) {
		if (p + 1 > end)
			break;
		*(volatile __u8 *)p = (__u8)FILL;
		p++;
	}
}

/* The stream whose next frame is due; NULL if there is none. */
static __always_inline struct sender *next_sender(__u64 now)
{
	for (int turn = 0; turn < TURNS; turn++) {
		__u32 position = sending.position;
		struct sender *s = bpf_map_lookup_elem(&senders, &position);

		sending.position = position + 1 >= sending.streams ? 0 : position + 1;
		if (!s)
			return 0;
		if (s->sent < s->limit && due(s, now))
			return s;
		if (sending.streams == 1)
			return 0;
	}
	return 0;
}

SEC("xdp")
int send(struct xdp_md *ctx)
{
	__u64 now = sending.now_ns;
	struct sender *s;
	int cut;

	if (sending.done)
		return XDP_DROP;
	if (sending.every_run || !(sending.runs & 63)) {
		now = bpf_ktime_get_ns();
		sending.now_ns = now;
	}
	sending.runs++;
	if (now < sending.start_ns)
		return XDP_DROP;
	if (now >= sending.end_ns || !sending.unfinished) {
		sending.done = 1;
		return XDP_DROP;
	}
	s = next_sender(now);
	if (!s)
		return XDP_DROP;
	cut = (int)(ctx->data_end - ctx->data) - s->length;
	if (cut > 0 && bpf_xdp_adjust_tail(ctx, -cut))
		return XDP_ABORTED;
	if (fill_any(s, (void *)(long)ctx->data, (void *)(long)ctx->data_end, now))
		return XDP_ABORTED;
	if (s->flags & SEND_VERIFY)
		fill_rest(s, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	if (!s->sent)
		s->first_ns = now;
	s->last_ns = now;
	if (++s->sent == s->limit)
		sending.unfinished--;
	return bpf_redirect_map(&ports, s->port, XDP_ABORTED);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
