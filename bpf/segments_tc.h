/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Segmentation buffers at the TC hook: one skb that the kernel divides into frames where it leaves. The kernel does not check the
 * MTU then, so the pipeline compares the length of the segments with it.
 */
#ifndef LY_SEGMENTS_TC_H
#define LY_SEGMENTS_TC_H

/* True when a segment, from its network header on, is longer than the netdev's MTU. The kernel knows the length of the headers
 * that each segment repeats, also with tunnels. It counts tags of the payload. */
__noinline int tc_segments_too_long(struct __sk_buff *skb, __u32 ifindex)
{
	__u32 len = 0;

	return bpf_check_mtu(skb, ifindex, &len, 0, BPF_MTU_CHK_SEGS) != 0;
}

/* Length of the longest segment of a GSO buffer: its headers and gso_size bytes. */
__noinline __u32 tc_segment(struct __sk_buff *skb, __u32 l4, __u32 protocol)
{
	__u8 words = 5 << 4;

	if (protocol == IP_UDP)
		return 8 + skb->gso_size;
	bpf_skb_load_bytes(skb, l4 + 12, &words, 1); /* TCP's data offset */
	return (words >> 4) * 4 + skb->gso_size;
}

/* True when a segment of a bridged buffer is longer than a frame that may leave by `port`. Like any frame, a segment
 * may have the MTU plus a tag of the payload besides its own (max_len). The kernel's check allows no such tag, so a
 * TCP segment that fails it is measured here. `form` is the form of the frame's own tag. */
__noinline int tc_bridged_too_long(struct __sk_buff *skb, __u32 port, __u32 form)
{
	struct ly_port *out = ROW(ports, port & (LY_PORTS - 1));
	__u32 at = 12, tags = skb->vlan_present ? 1 : 0, header = 40;
	__u8 ip[20];
	__u16 type = 0;

	if (!tc_segments_too_long(skb, out->ifindex))
		return 0;
	for (__u32 n = 0; n < 4; n++) {
		if (bpf_skb_load_bytes(skb, at, &type, sizeof(type)))
			return 1;
		type = bpf_ntohs(type);
		at += 2;
		if (type != 0x8100 && type != 0x88a8 && type != 0x9100)
			break;
		at += 2;
		tags++;
	}
	if (form != LY_UNTAGGED)
		tags--;
	if (bpf_skb_load_bytes(skb, at, ip, sizeof(ip)))
		return 1;
	if (type == ETH_IPV4)
		header = (ip[0] & 0xf) * 4;
	if ((type != ETH_IPV4 || ip[9] != IP_TCP) && (type != ETH_IPV6 || ip[6] != IP_TCP))
		return 1;
	return 14 + 4 * tags + header + tc_segment(skb, at + header, IP_TCP) > out->max_len;
}

#endif
