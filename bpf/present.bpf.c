// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/* The form in which the kernel presents a frame to TC, for test runs (crates/ebpf/src/present.rs).
 *
 * The kernel takes the outermost 802.1Q or 802.1ad tag out of a received frame's bytes before TC sees it. BPF_PROG_TEST_RUN
 * hands a program the bytes that it was given. This program moves the tag out of the bytes, as reception does, and jumps to the
 * program that is to be run.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define TYPE_AT 12 /* offset of a frame's outer EtherType */
#define TC_ACT_SHOT 2

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} presented SEC(".maps");

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct tag {
	__be16 proto, tci;
};

SEC("tc")
int present_tag_out_of_band(struct __sk_buff *skb)
{
	struct tag tag = {};

	/* Reception, too, takes no tag out of a frame that is too short for it. */
	if (!bpf_skb_load_bytes(skb, TYPE_AT, &tag, sizeof(tag)) && skb->len >= TYPE_AT + 6 &&
	    (tag.proto == bpf_htons(0x8100) || tag.proto == bpf_htons(0x88a8)) && !bpf_skb_vlan_pop(skb))
		bpf_skb_vlan_push(skb, tag.proto, bpf_ntohs(tag.tci));
	bpf_tail_call(skb, &presented, 0);
	return TC_ACT_SHOT;
}
