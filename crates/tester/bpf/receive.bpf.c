/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The receiver, as an XDP and as a TC program: it counts the generator's frames and ends them; other frames go on to
 * the stack. The generator's frames are recognised by the source address, so floods and broadcasts count, too. */
#include "traffic.h"
#include <linux/pkt_cls.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DEVICE_SLOTS);
	__type(key, __u32);
	__type(value, struct arrivals);
} arrivals SEC(".maps");

/* 1: check sequence numbers. Meant for one stream at a time, whose frames arrive on one CPU. */
const volatile __u32 check_sequence = 0;

static __always_inline void follow(struct arrivals *seen, void *data, void *end)
{
	struct eth *eth = data;
	/* The stamp follows Ethernet, IPv4 and UDP, and a tag unless the kernel has removed it from the frame. */
	struct stamp *stamp = data + (eth->type == bpf_htons(0x8100) ? 46 : 42);
	__u32 expected = seen->expected;
	__s32 ahead;

	if ((void *)(stamp + 1) > end || stamp->magic != STAMP_MAGIC)
		return;
	ahead = stamp->seq - expected;
	if (ahead < 0) {
		seen->late++;
		return;
	}
	seen->missing += ahead;
	seen->expected = stamp->seq + 1;
}

/* Returns 1 if the frame is the generator's; it has been counted then. */
static __always_inline int count(void *data, void *end, __u32 ifindex, __u32 length)
{
	__u32 slot = ifindex & (DEVICE_SLOTS - 1);
	struct eth *eth = data;
	struct arrivals *seen;

	if ((void *)(eth + 1) > end || eth->src_mark != HOST_MARK)
		return 0;
	seen = bpf_map_lookup_elem(&arrivals, &slot);
	if (!seen)
		return 0;
	if (!seen->frames)
		seen->first_ns = bpf_ktime_get_ns();
	seen->frames++;
	seen->bytes += length;
	if (check_sequence)
		follow(seen, data, end);
	return 1;
}

/* A frame in several buffers is counted with the length of the first one. */
SEC("xdp.frags")
int receive_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	return count(data, end, ctx->ingress_ifindex, end - data) ? XDP_DROP : XDP_PASS;
}

SEC("tc")
int receive_tc(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;

	return count(data, end, skb->ifindex, skb->len) ? TC_ACT_SHOT : TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
