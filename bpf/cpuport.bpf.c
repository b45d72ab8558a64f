// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/* The CPU port of a switch chip inside the kernel (docs/offload.md, crates/ebpf/src/cpuport.rs).
 *
 * The chip sends and receives frames of its CPU port at a netdev. They carry the CPU header as a tag before the frame's own
 * EtherType, so that the kernel's tag operations add and remove it without a copy of the frame:
 *
 *   0x88A8  bits 0-9 the port of the interface that the frame is for; towards the chip, the port by which it leaves or, with bit
 *           11, at which it enters the pipeline; bit 10 the chip has sent the frame to other ports as well; bits 12-15 version 1
 *
 * One tag and not two: the kernel divides a buffer of segments before it sends it with two tags. With one tag, a buffer crosses
 * undivided in both directions.
 *
 * Both programs run at TC ingress: one at the CPU port's netdev, one at the far end of each interface's veth pair. They need
 * no process, so interfaces of the chip stay reachable while the daemon is down.
 */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define TC_ACT_SHOT 2
#define CPU_TPID 0x88a8
#define PORT_MASK 0x03ff
#define FORWARDED (1 << 10)
#define PIPELINE (1 << 11)
#define VERSION (1 << 12)
#define VERSION_MASK 0xf000
#define PORTS 1024

/* outlets[port]: the netdev to which frames for a port of the chip go. With BPF_F_INGRESS the netdev receives them, without it
 * the netdev sends them. */
struct ly_outlet {
	__u32 ifindex;
	__u32 flags; /* of bpf_redirect: 0 or BPF_F_INGRESS */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PORTS);
	__type(key, __u32);
	__type(value, struct ly_outlet);
} outlets SEC(".maps");

/* inlets[ifindex]: the port of the chip to which frames belong that a netdev receives, with PIPELINE for the port of a VLAN
 * interface or subinterface. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * PORTS);
	__type(key, __u32);
	__type(value, __u32);
} inlets SEC(".maps");

/* The index of the CPU port's netdev. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} cpu SEC(".maps");

/* Packets that were redirected and packets that were dropped, from the chip and from the kernel. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} counted SEC(".maps");

enum { FROM_CHIP, FROM_CHIP_DROPPED, FROM_KERNEL, FROM_KERNEL_DROPPED };

/* The mark of frames that the chip has sent to other ports already. A bridge of the kernel that sends such a frame to another port
 * of the chip would double it: the frame ends here, as with the kernel's offload_fwd_mark. */
#define MARK_FORWARDED 0x1a4f0001

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline int count(__u32 what, int verdict)
{
	__u64 *counter = bpf_map_lookup_elem(&counted, &what);

	if (counter)
		__sync_fetch_and_add(counter, 1);
	return verdict;
}

SEC("tc")
int cpu_to_netdev(struct __sk_buff *skb)
{
	struct ly_outlet *outlet;
	__u32 tag, port;

	if (!skb->vlan_present || skb->vlan_proto != bpf_htons(CPU_TPID))
		return count(FROM_CHIP_DROPPED, TC_ACT_SHOT);
	tag = skb->vlan_tci;
	if ((tag & VERSION_MASK) != VERSION || bpf_skb_vlan_pop(skb))
		return count(FROM_CHIP_DROPPED, TC_ACT_SHOT);
	port = tag & PORT_MASK;
	outlet = bpf_map_lookup_elem(&outlets, &port);
	if (!outlet || !outlet->ifindex)
		return count(FROM_CHIP_DROPPED, TC_ACT_SHOT);
	skb->mark = tag & FORWARDED ? MARK_FORWARDED : 0;
	return count(FROM_CHIP, bpf_redirect(outlet->ifindex, outlet->flags));
}

SEC("tc")
int netdev_to_cpu(struct __sk_buff *skb)
{
	__u32 key = skb->ingress_ifindex, zero = 0;
	__u32 *inlet = bpf_map_lookup_elem(&inlets, &key);
	__u32 *ifindex = bpf_map_lookup_elem(&cpu, &zero);

	if (!inlet || !ifindex || !*ifindex || (skb->mark == MARK_FORWARDED && !(*inlet & PIPELINE)))
		return count(FROM_KERNEL_DROPPED, TC_ACT_SHOT);
	if (bpf_skb_vlan_push(skb, bpf_htons(CPU_TPID), VERSION | *inlet))
		return count(FROM_KERNEL_DROPPED, TC_ACT_SHOT);
	return count(FROM_KERNEL, bpf_redirect(*ifindex, 0));
}
