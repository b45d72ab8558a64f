/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The generator. User space runs it with BPF_PROG_TEST_RUN and BPF_F_TEST_XDP_LIVE_FRAMES: the kernel passes it
 * frames of a page pool as a driver would, and each redirect sends a frame through a real device.
 *
 * Frames are recycled with the changes that the device under test made to them, so every header byte that a switch
 * may change (addresses, tag, type) is written each time. */
#include "traffic.h"

const volatile struct stream stream = {};
struct progress progress = {};

/* A paced stream that is late by more than this gives up the arrears, to avoid a burst. */
#define ARREARS_256 (50000ull << 8)

static __always_inline int not_yet(void)
{
	__u64 now = bpf_ktime_get_ns() << 8, due = progress.due_256;

	if (now < due)
		return 1;
	if (now - due > ARREARS_256)
		due = now;
	progress.due_256 = due + stream.interval_256;
	return 0;
}

/* The system call's set-up and clean-up (it creates and destroys a page pool) are not part of the load, so the time
 * that counts is measured here. */
static __always_inline void read_clock(void)
{
	progress.latest_ns = bpf_ktime_get_ns();
	if (!progress.started_ns)
		progress.started_ns = progress.latest_ns;
}

static __always_inline __u32 step(__u32 *next, __u32 count)
{
	__u32 now = *next;

	*next = now + 1 == count ? 0 : now + 1;
	return now;
}

/* SplitMix64's finaliser: it gives every sequence number a value of its own, the same in every run. */
static __always_inline __u64 shuffled(__u64 seq)
{
	__u64 h = (seq + 1) * 0x9e3779b97f4a7c15ull;

	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
	h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
	return h ^ (h >> 31);
}

static __always_inline void pick(__u64 seq, __u32 *src, __u32 *dst)
{
	if (stream.random) {
		__u64 h = shuffled(seq);

		*src = ((h & 0xffffffff) * stream.src_count) >> 32;
		*dst = ((h >> 32) * stream.dst_count) >> 32;
	} else {
		*src = step(&progress.next_src, stream.src_count);
		*dst = step(&progress.next_dst, stream.dst_count);
	}
	*src += stream.src_first;
	*dst += stream.dst_first;
}

/* A random one of the stream's prefixes, scattered over the address space. crates/bench/src/rows/forward/routed.rs creates
 * routes for the same prefixes. */
static __always_inline __u32 prefix(__u64 h)
{
	return (((h >> 32) * stream.prefixes) >> 32) * 0x9e3779b1u;
}

static __always_inline void write_ip6(struct ipv6 *ip, __u64 h)
{
	__u32 net = prefix(h);

	ip->version_flow = bpf_htonl(6u << 28);
	ip->length = bpf_htons(stream.ip_length - 40);
	ip->next = 17;
	ip->hops = 64;
	ip->src[0] = bpf_htonl(0x20010002);
	ip->src[1] = ip->src[2] = 0;
	ip->src[3] = bpf_htonl(5);
	ip->dst[0] = bpf_htonl(0x20000000 | net >> 16);
	ip->dst[1] = bpf_htonl(net << 16 | (h & 0xffff));
	ip->dst[2] = h;
	ip->dst[3] = h >> 16;
}

static __always_inline void write_ip(struct ipv4 *ip, __u32 src, __u32 dst, __u64 h)
{
	__u32 sum;

	ip->version_ihl = 0x45;
	ip->tos = 0;
	ip->length = bpf_htons(stream.ip_length);
	ip->id = 0;
	ip->fragment = bpf_htons(0x4000);
	ip->ttl = 64;
	ip->protocol = 17;
	ip->src[0] = bpf_htons(10 << 8 | ((src >> 16) & 0xff));
	ip->src[1] = bpf_htons(src & 0xffff);
	ip->dst[0] = bpf_htons(10 << 8 | ((dst >> 16) & 0xff));
	ip->dst[1] = bpf_htons(dst & 0xffff);
	if (stream.prefixes) {
		__u32 to = 0x10000000 + ((prefix(h) & 0x3fffff) << 8) + (h & 15);

		ip->dst[0] = bpf_htons(to >> 16);
		ip->dst[1] = bpf_htons(to & 0xffff);
	}
	if (stream.group)
		ip->dst[0] = bpf_htons(239 << 8 | ((dst >> 16) & 0xff));
	/* RFC 1071 over the fields above, in their order. */
	sum = bpf_htons(0x4500) + bpf_htons(stream.ip_length) + bpf_htons(0x4000) + bpf_htons(64 << 8 | 17) +
	      ip->src[0] + ip->src[1] + ip->dst[0] + ip->dst[1];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->checksum = ~sum;
}

/* Writes the next of the frames that user space has made. */
static __always_inline void write_template(void *data, __u64 seq)
{
	__u32 *to = data, at = seq & (stream.templates - 1) & (TEMPLATES - 1);
	struct eth *eth = data;

	for (int word = 0; word < 15; word++)
		to[word] = stream.words[at][word];
	if (stream.sources) {
		__u32 source = shuffled(seq);

		eth->src_zero_hi = (eth->src_zero_hi & 0xff) | source >> 24 << 8;
		eth->src_lo = source;
	}
}

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct eth *eth = data;
	__u64 seq = progress.sent;
	struct stamp *stamp;
	struct ipv4 *ip;
	struct udp *udp;
	__u32 src, dst;

	if (data + 60 > end)
		return XDP_ABORTED;
	if (!(progress.runs++ & (CLOCK_EVERY - 1)))
		read_clock();
	/* Not yet due: the frame goes back to the pool, and interrupts and softirqs run between batches. */
	if (stream.interval_256 && not_yet())
		return XDP_DROP;
	if (stream.templates) {
		write_template(data, seq);
		progress.sent = seq + 1;
		return bpf_redirect(stream.ifindex, 0);
	}
	pick(seq, &src, &dst);

	eth->dst_mark = stream.group ? bpf_htons(0x0100) : HOST_MARK;
	eth->dst_zero_hi = bpf_htons(stream.group ? 0x5e00 | ((dst >> 16) & 0x7f) : (dst >> 16) & 0xff);
	eth->dst_lo = bpf_htons(dst & 0xffff);
	eth->src_mark = HOST_MARK;
	eth->src_zero_hi = bpf_htons((src >> 16) & 0xff);
	eth->src_lo = bpf_htons(src & 0xffff);
	if (stream.tci) {
		__be16 *tag = (void *)(eth + 1);

		eth->type = bpf_htons(0x8100);
		tag[0] = bpf_htons(stream.tci);
		tag[1] = bpf_htons(0x0800);
		ip = (void *)(tag + 2);
	} else {
		eth->type = bpf_htons(0x0800);
		ip = (void *)(eth + 1);
	}
	if (stream.six) {
		struct ipv6 *six = (void *)ip;

		if ((void *)(six + 1) + sizeof(*udp) > end)
			return XDP_ABORTED;
		eth->type = bpf_htons(0x86dd);
		write_ip6(six, shuffled(seq));
		udp = (void *)(six + 1);
		udp->sport = bpf_htons(49184);
		udp->dport = bpf_htons(7);
		udp->length = six->length;
		udp->checksum = 0;
		progress.sent = seq + 1;
		return bpf_redirect(stream.ifindex, 0);
	}
	write_ip(ip, src, dst, stream.prefixes ? shuffled(seq) : 0);
	udp = (void *)(ip + 1);
	udp->sport = bpf_htons(49184);
	udp->dport = bpf_htons(7); /* echo, as RFC 2544 C.2.6.4.2 has it */
	udp->length = bpf_htons(stream.ip_length - 20);
	udp->checksum = 0;
	stamp = (void *)(udp + 1);
	stamp->magic = STAMP_MAGIC;
	stamp->stream = stream.stream;
	stamp->seq = seq;
	if (stream.stamp) {
		__u64 now = bpf_ktime_get_ns();

		stamp->time_lo = now;
		stamp->time_hi = now >> 32;
	}
	progress.sent = seq + 1;
	return bpf_redirect(stream.ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
