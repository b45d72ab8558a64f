/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Access to a frame at the XDP hook: bytes only, tags in line.
 *
 * A frame that reaches a veth as an skb may carry its tag out of band, where XDP cannot see it, so it would look
 * untagged. `lanyard_xdp_bound` asks the driver (a kfunc, so that program is loaded for one device); a frame with
 * such a tag is left to TC. */
#ifndef LY_FRAME_XDP_H
#define LY_FRAME_XDP_H

extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_proto, __u16 *vlan_tci) __ksym __weak;

/* True for a frame with an out-of-band tag, if the program is loaded for its device. */
static __always_inline bool xdp_hides_tag(struct xdp_md *ctx, bool bound)
{
	__be16 proto = 0;
	__u16 tci = 0;

	return bound && bpf_xdp_metadata_rx_vlan_tag(ctx, &proto, &tci) == 0;
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
