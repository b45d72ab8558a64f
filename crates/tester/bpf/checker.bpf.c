/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The checker at a port of the tester, as an XDP and as a TC program. It counts the frames of each stream (missing,
 * duplicate, late or corrupted ones, and the latency) and ends them there; other frames go on to the stack. Read RFC
 * 4737 section 3.3 for the definition of reordered, RFC 6479 for the window that distinguishes a duplicate from a
 * late frame. */
#include "trial.h"
#include <linux/pkt_cls.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} flows SEC(".maps");

struct judging judging = {};

/* The positions of the parts of a frame. */
struct place {
	__u32 l3, udp, stamp;
	__u8 layout;
};

#define HEADS (14 + 4 + 40 + 8 + (int)sizeof(struct stamp))

/* Returns 1 if the frame may have a stamp; `place` then holds its position. Otherwise returns -1 if the source address marks
 * the frame as one of the tester's, and 0 if not. */
static __always_inline int locate(__u8 *frame, __u8 *end, struct place *place)
{
	struct eth *eth = (void *)frame;
	__u32 l3 = sizeof(*eth);
	__be16 type;

	if (frame + sizeof(*eth) > end)
		return 0;
	type = eth->type;
	if (type == bpf_htons(0x8100)) {
		if (frame + 18 > end)
			return 0;
		type = *(__be16 *)(frame + 16);
		l3 = 18;
	}
	place->l3 = l3;
	if (type == bpf_htons(0x0800)) {
		place->layout = LAYOUT_V4;
		place->udp = l3 + 20;
	} else if (type == bpf_htons(0x86dd)) {
		place->layout = LAYOUT_V6;
		place->udp = l3 + 40;
	} else if (type == bpf_htons(0x88b5)) {
		place->layout = LAYOUT_RAW;
		place->stamp = l3;
		return 1;
	} else {
		return eth->src_mark == HOST_MARK ? -1 : 0;
	}
	place->stamp = place->udp + sizeof(struct udp);
	return 1;
}

/* Loads bytes from any position in a frame, also from later buffers. */
static __always_inline int load(void *ctx, int skb, __u32 at, void *to, __u32 length)
{
	return skb ? bpf_skb_load_bytes(ctx, at, to, length) : bpf_xdp_load_bytes(ctx, at, to, length);
}

#define CHUNK 128
#define CHUNKS_MAX 72 /* 9,216 bytes */

/* Returns 1 if the checksum of the UDP datagram at `at` is correct (RFC 768, RFC 8200 section 8.1). */
static __always_inline int sound(void *ctx, int skb, __u32 l3, __u32 at, __u32 addresses)
{
	__u8 chunk[CHUNK];
	__u32 left;
	__be16 length;
	__u64 sum;

	if (load(ctx, skb, at + 4, &length, sizeof(length)))
		return 0;
	left = bpf_ntohs(length);
	__builtin_memset(chunk, 0, 32);
	if (addresses == 8) {
		if (load(ctx, skb, l3 + 12, chunk, 8))
			return 0;
	} else if (load(ctx, skb, l3 + 8, chunk, 32)) {
		return 0;
	}
	sum = bpf_csum_diff(0, 0, (void *)chunk, 32, 0) & 0xffffffff;
	sum += length + bpf_htons(17);
	for (int i = 0; i < CHUNKS_MAX && left; i++) {
		__u32 take = left;

		if (take >= CHUNK) {
			if (load(ctx, skb, at, chunk, CHUNK))
				return 0;
			take = CHUNK;
		} else {
			__builtin_memset(chunk, 0, CHUNK);
			/* clang knows the range of `take` and would drop the test of it below, but the verifier needs that test. */
			asm volatile("" : "+r"(take));
			if (take < 1 || take >= CHUNK || load(ctx, skb, at, chunk, take))
				return 0;
		}
		sum += bpf_csum_diff(0, 0, (void *)chunk, CHUNK, 0) & 0xffffffff;
		at += take;
		left -= take;
	}
	if (left)
		return 0;
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

/* Global functions: the kernel verifies each once, and not for every layout of a frame. */
__noinline int sound_xdp(struct xdp_md *ctx, __u32 l3, __u32 at, __u32 addresses)
{
	return sound(ctx, 0, l3, at, addresses);
}

__noinline int sound_skb(struct __sk_buff *ctx, __u32 l3, __u32 at, __u32 addresses)
{
	return sound(ctx, 1, l3, at, addresses);
}

/* Moves the window up to `seq` and clears the words that enter it. */
static __always_inline void advance(struct flow *f, __u64 seq)
{
	__u64 word = f->next ? (f->next - 1) >> 6 : 0, last = seq >> 6;

	if (last - word > WINDOW_WORDS)
		word = last - WINDOW_WORDS;
	for (int i = 0; i < WINDOW_WORDS; i++) {
		if (word >= last)
			break;
		word++;
		f->window[word & (WINDOW_WORDS - 1)] = 0;
	}
	f->next = seq + 1;
}

/* Returns 1 if the number has not arrived before. */
static __always_inline int follow(struct flow *f, __u64 seq, __u64 now)
{
	__u64 *word = &f->window[(seq >> 6) & (WINDOW_WORDS - 1)], bit = 1ull << (seq & 63);

	if (seq >= f->next) {
		if (seq > f->next)
			f->loss_ns = now;
		advance(f, seq);
		*word |= bit;
		return 1;
	}
	/* A frame older than the window counts as late, not as a duplicate. */
	if (f->next - seq <= (WINDOW_WORDS - 1) * 64) {
		if (*word & bit) {
			f->duplicated++;
			return 0;
		}
		*word |= bit;
	}
	f->reordered++;
	return 1;
}

static __always_inline void note(struct flow *f, struct stamp *stamp, __u64 now)
{
	__u64 sent_ns = stamp->time_lo | (__u64)stamp->time_hi << 32, latency;
	__u32 bucket;

	bpf_spin_lock(&f->lock);
	if (!f->first_ns)
		f->first_ns = now;
	else if (now > f->last_ns && now - f->last_ns > f->gap_ns) {
		f->gap_at_ns = f->last_ns;
		f->gap_ns = now - f->last_ns;
	}
	if (now > f->last_ns)
		f->last_ns = now;
	if (!follow(f, stamp->seq, now))
		goto out;
	f->received++;
	if (!sent_ns)
		goto out;
	latency = (now - sent_ns) & ((1ull << 48) - 1);
	if (latency >> 47) /* negative: the clocks of two cores differ */
		latency = 0;
	bucket = bucket_of(latency);
	f->buckets[bucket]++;
	f->latency_sum += latency;
	if (latency < f->latency_min)
		f->latency_min = latency;
	if (latency > f->latency_max)
		f->latency_max = latency;
out:
	bpf_spin_unlock(&f->lock);
}

/* Returns 1 if the frame was one of the tester's. */
static __always_inline int check(void *ctx, int skb, __u8 *frame, __u8 *end)
{
	__u64 now = bpf_ktime_get_ns();
	struct place place;
	struct stamp stamp;
	struct flow *f;
	__u32 slot, addresses;
	int ours = locate(frame, end, &place);

	if (!ours)
		return 0;
	if (ours < 0)
		goto unidentified;
	if (load(ctx, skb, place.stamp, &stamp, sizeof(stamp)))
		stamp.magic = 0;
	if (stamp.magic != STAMP_MAGIC) {
		__be16 port = 0;

		/* The stamp is corrupted. It is still a frame of the tester if its source or its UDP port says so. */
		if (((struct eth *)frame)->src_mark == HOST_MARK)
			goto unidentified;
		if (place.layout == LAYOUT_RAW || load(ctx, skb, place.udp, &port, sizeof(port)))
			return 0;
		if (port != bpf_htons(49184))
			return 0;
		goto unidentified;
	}
	if (stamp.stream >> SLOT_BITS != judging.epoch)
		return 1;
	slot = stamp.stream & (SLOTS_MAX - 1);
	if (slot >= judging.streams)
		goto unidentified;
	f = bpf_map_lookup_elem(&flows, &slot);
	if (!f)
		goto unidentified;
	addresses = place.layout == LAYOUT_V4 ? 8 : 32;
	if (f->verify && !(skb ? sound_skb(ctx, place.l3, place.udp, addresses) :
				 sound_xdp(ctx, place.l3, place.udp, addresses))) {
		__sync_fetch_and_add(&f->corrupted, 1);
		return 1;
	}
	note(f, &stamp, now);
	return 1;
unidentified:
	__sync_fetch_and_add(&judging.unidentified, 1);
	return 1;
}

SEC("xdp.frags")
int check_xdp(struct xdp_md *ctx)
{
	return check(ctx, 0, (void *)(long)ctx->data, (void *)(long)ctx->data_end) ? XDP_DROP : XDP_PASS;
}

SEC("tc")
int check_tc(struct __sk_buff *ctx)
{
	/* The headers may be in a page fragment: pull as many of their bytes as exist into the linear part of the skb. */
	if (ctx->data_end - ctx->data < HEADS && ctx->data_end - ctx->data < ctx->len)
		bpf_skb_pull_data(ctx, ctx->len < HEADS ? ctx->len : HEADS);
	return check(ctx, 1, (void *)(long)ctx->data, (void *)(long)ctx->data_end) ? TC_ACT_SHOT : TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
