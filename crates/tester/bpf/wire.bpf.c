/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A wire between two devices, by each mechanism of the kernel, without look-ups, learning or VLANs. Its cost is that
 * of receiving and sending a frame, which no switch on the same hook can go below. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

const volatile __u32 far_end = 0; /* ifindex of the egress device */

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

SEC("tc")
int wire_tc(struct __sk_buff *skb)
{
	return bpf_redirect(far_end, 0);
}

SEC("tc")
int wire_tc_peer(struct __sk_buff *skb)
{
	return bpf_redirect_peer(far_end, 0);
}

SEC("xdp.frags")
int wire_xdp(struct xdp_md *ctx)
{
	return bpf_redirect_map(&devices, 0, XDP_DROP);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
