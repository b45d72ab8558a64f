/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Access to a frame at the XDP hook: bytes only, tags in line.
 *
 * A frame that reaches a veth as an skb may carry its tag out of band, where XDP cannot see it, so it would look
 * untagged. A frame with such a tag is left to TC. There is a program for each way to find the tag:
 * `lanyard_xdp_veth` reads it from the skb, which veth keeps behind the XDP context, and is for veths alone;
 * `lanyard_xdp_bound` asks the driver by a kfunc, for which the kernel loads it for one device. The call takes three
 * times as long as the reads, but the kfunc is a stable interface and the driver's structures are not: the kernel
 * refuses `lanyard_xdp_veth` where the structures are others. */
#ifndef LY_FRAME_XDP_H
#define LY_FRAME_XDP_H

/* Where a program finds out-of-band tags. */
enum tag_source {
	TAGS_IN_LINE, /* the device has none */
	TAGS_OF_VETH,
	TAGS_OF_DRIVER,
};

/* Structures of the kernel: only the fields that are read, at the offsets that the kernel's BTF gives. */
struct sk_buff {
	__u32 vlan_all; /* 0 if there is no tag out of band */
} __attribute__((preserve_access_index));

struct sk_buff_head {
	struct sk_buff *next;
} __attribute__((preserve_access_index));

struct veth_xdp_buff {
	struct sk_buff *skb; /* NULL if the frame came from another device's XDP */
} __attribute__((preserve_access_index));

extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_proto, __u16 *vlan_tci) __ksym __weak;
extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym __weak;
extern void *bpf_rdonly_cast(const void *at, __u32 type) __ksym __weak;

/* True for a frame that came to a veth as an skb with an out-of-band tag. The verifier knows the types of the kernel but not
 * those of its modules, such as veth's, so the pointer is read as that of a list of skbs, which begins with a pointer to an skb.
 * Neither call remains in the program: the verifier replaces both by moves. */
static __always_inline bool veth_hides_tag(struct xdp_md *ctx)
{
	void *at = bpf_cast_to_kern_ctx(ctx) + bpf_core_field_offset(struct veth_xdp_buff, skb);
	struct sk_buff_head *list = bpf_rdonly_cast(at, bpf_core_type_id_kernel(struct sk_buff_head));
	struct sk_buff *skb = list->next;

	return skb && skb->vlan_all;
}

/* True for a frame with an out-of-band tag. */
static __always_inline bool xdp_hides_tag(struct xdp_md *ctx, enum tag_source tags)
{
	__be16 proto = 0;
	__u16 tci = 0;

	if (tags == TAGS_OF_VETH)
		return veth_hides_tag(ctx);
	return tags == TAGS_OF_DRIVER && bpf_xdp_metadata_rx_vlan_tag(ctx, &proto, &tci) == 0;
}

/* False when XDP must not handle the frame: it is too short, or does not come from a port. A frame of several buffers has its
 * headers in the first one, which is all that XDP reads and writes here. */
static __always_inline bool xdp_open(struct xdp_md *ctx, struct frame *f)
{
	struct eth_words *eth = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	if ((void *)eth + 18 > end)
		return false;
	frame_ingress(f, ctx->ingress_ifindex);
	if (!f->port)
		return false;
	f->len = ctx->data_end - ctx->data;
	if (!(f->port->flags & LY_PORT_WHOLE)) { /* the helper costs as much as five look-ups */
		__u32 first = f->len;

		f->len = bpf_xdp_get_buff_len(ctx);
		f->several = f->len != first;
	}
	frame_addresses(f, eth);
	f->outer = bpf_ntohs(eth->type);
	f->tci = bpf_ntohs(eth->tci);
	f->len += dry_extra();
	return true;
}

/* Rewrites the tag to the form `want`. False when there is no room; the frame is then unchanged. */
static __always_inline bool xdp_retag(struct xdp_md *ctx, __u8 have, __u8 want, __u16 tci)
{
	struct mac_words addresses;
	struct eth_words *eth = (void *)(long)ctx->data;
	int grow = (want != LY_UNTAGGED ? 4 : 0) - (have != LY_UNTAGGED ? 4 : 0);

	if ((void *)eth + 18 > (void *)(long)ctx->data_end)
		return false;
	addresses = *(struct mac_words *)eth;
	if (grow) {
		if (bpf_xdp_adjust_head(ctx, -grow))
			return false;
		eth = (void *)(long)ctx->data;
		if ((void *)eth + 18 > (void *)(long)ctx->data_end) {
			bpf_xdp_adjust_head(ctx, grow);
			return false;
		}
		*(struct mac_words *)eth = addresses;
	}
	if (want != LY_UNTAGGED) {
		eth->type = bpf_htons(form_tpid(want));
		eth->tci = bpf_htons(tci);
	}
	return true;
}

#endif
