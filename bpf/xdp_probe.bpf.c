// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/* Tests whether a netdev takes frames that XDP redirects to it (crates/ebpf/src/xdp_probe.rs): a test run of `probe_sends` sends
 * a frame to it, and `probe_hears` records whether the driver has taken the frame. */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct net_device { /* of the kernel: only the field that is read, at the offset that the kernel's BTF gives */
	int ifindex;
} __attribute__((preserve_access_index));

struct probe {
	__u32 ifindex; /* the netdev that is tested */
	__u32 heard;   /* 1: a frame was handed to the driver */
	__u32 taken;   /* 1: the driver has taken a frame */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct probe);
} probes SEC(".maps");

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline struct probe *probe(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&probes, &zero);
}

SEC("xdp")
int probe_sends(struct xdp_md *ctx)
{
	struct probe *p = probe();

	return p ? bpf_redirect(p->ifindex, 0) : XDP_DROP;
}

/* Runs when the kernel has handed frames to the driver of `to`. Any frames count, not only that of `probe_sends`, because the
 * driver treats all alike. */
SEC("tp_btf/xdp_devmap_xmit")
int BPF_PROG(probe_hears, const struct net_device *from, const struct net_device *to, int sent, int drops, int err)
{
	struct probe *p = probe();

	if (p && to->ifindex == p->ifindex) {
		p->heard = 1;
		if (sent > 0)
			p->taken = 1;
	}
	return 0;
}
