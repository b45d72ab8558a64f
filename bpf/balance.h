/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Port-channels: the hash by which a frame's member is chosen, as in crates/pipeline/src/balance.rs, and the choice
 * (IEEE 802.1AX-2014, 6.2.4). The members of a port-channel are rows of `channels`, which the protocols write. */
#ifndef LY_BALANCE_H
#define LY_BALANCE_H

/* The hash input of one side of a conversation. */
struct balance_side {
	__u64 high, low;
	__u32 port;
};

static __always_inline __u64 balance_mix(struct balance_side *s)
{
	return flow_mix(flow_mix(fdb_salt ^ s->port, s->high), s->low);
}

/* Reads bytes of the frame; not 0 if the frame is too short. */
typedef long balance_load(void *ctx, __u32 at, void *to, __u32 len);

/* Reads addresses and ports of the packet whose EtherType is at `at`; `len` is the length of the frame from there on. False
 * for a frame without an IP header. */
static __always_inline bool balance_packet(void *ctx, balance_load *load, __u32 at, __u32 len, struct balance_side *src,
					   struct balance_side *dst)
{
	__u32 l4 = at + 2, protocol;
	__u16 type = 0, ports[2] = {};

	if (load(ctx, at, &type, sizeof(type)))
		return false;
	if (type == bpf_htons(ETH_IPV4)) {
		struct ipv4 ip;
		if (len < 22 || load(ctx, at + 2, &ip, sizeof(ip)) || ip.version_ihl >> 4 != 4 || (ip.version_ihl & 15) < 5)
			return false;
		src->low = bpf_ntohl(ip.src);
		dst->low = bpf_ntohl(ip.dst);
		protocol = is_fragment(&ip) ? 0 : ip.protocol;
		l4 += (ip.version_ihl & 15) * 4;
	} else if (type == bpf_htons(ETH_IPV6)) {
		struct ipv6 ip;
		if (len < 42 || load(ctx, at + 2, &ip, sizeof(ip)) || bpf_ntohl(ip.version_flow) >> 28 != 6)
			return false;
		src->high = (__u64)bpf_ntohl(ip.src[0]) << 32 | bpf_ntohl(ip.src[1]);
		src->low = (__u64)bpf_ntohl(ip.src[2]) << 32 | bpf_ntohl(ip.src[3]);
		dst->high = (__u64)bpf_ntohl(ip.dst[0]) << 32 | bpf_ntohl(ip.dst[1]);
		dst->low = (__u64)bpf_ntohl(ip.dst[2]) << 32 | bpf_ntohl(ip.dst[3]);
		protocol = ip.next;
		l4 += 40;
	} else {
		return false;
	}
	if (has_ports(protocol) && l4 - at + 4 <= len && !load(ctx, l4, ports, sizeof(ports))) {
		src->port = bpf_ntohs(ports[0]);
		dst->port = bpf_ntohs(ports[1]);
	}
	return true;
}

/* The bucket of a frame to `dst_mac`. `at` is the offset of the EtherType that follows the addresses, or the port's own tag; 0 if
 * the frame carries no packet that is examined. */
static __always_inline __u32 balance_bucket(void *ctx, balance_load *load, __u64 dst_mac, __u32 at, __u32 len)
{
	__u32 by = ROW(global, 0)->balance, fields = by & LY_BALANCE_FIELDS;
	struct balance_side src = {}, dst = {};

	if (fields == LY_BALANCE_MAC || !at || !balance_packet(ctx, load, at, len, &src, &dst)) {
		src.low = 0;
		load(ctx, 6, &src.low, 6);
		dst.low = dst_mac;
	} else if (fields == LY_BALANCE_IP) {
		src.port = dst.port = 0;
	} else if (fields == LY_BALANCE_PORT && (src.port | dst.port)) {
		src.high = src.low = dst.high = dst.low = 0;
	}
	__u64 from = balance_mix(&src), to = balance_mix(&dst), hash;
	if (!(by & LY_BALANCE_DST))
		hash = from;
	else if (!(by & LY_BALANCE_SRC))
		hash = to;
	else if (by & LY_BALANCE_SYMMETRIC)
		hash = from + to;
	else
		hash = flow_mix(from * LY_HASH_B, to);
	return hash * LY_HASH_B >> 56;
}

static __always_inline long tc_balance_load(void *skb, __u32 at, void *to, __u32 len)
{
	return bpf_skb_load_bytes(skb, at, to, len);
}

/* The bucket of a frame at TC in its present form. A tag that the port does not recognise is payload, also while the kernel keeps
 * it out of band: such a frame is hashed by its MAC addresses. A global function, so that frames for ports in no port-channel pay
 * nothing for it. */
__noinline int tc_balance(struct __sk_buff *skb, __u64 dst, __u32 form, __u32 bare_len)
{
	__u32 at = skb->vlan_present ? (form != LY_UNTAGGED ? 12 : 0) : form != LY_UNTAGGED ? 16 : 12;

	return balance_bucket(skb, tc_balance_load, dst, at, bare_len - 12);
}

static __always_inline long xdp_balance_load(void *ctx, __u32 at, void *to, __u32 len)
{
	return bpf_xdp_load_bytes(ctx, at, to, len);
}

__noinline int xdp_balance(struct xdp_md *ctx, __u64 dst, __u32 form, __u32 bare_len)
{
	return balance_bucket(ctx, xdp_balance_load, dst, form != LY_UNTAGGED ? 16 : 12, bare_len - 12);
}

/* The member by which port-channel `number` sends frames of a bucket; 0 while it has none. A global function: the verifier
 * checks it once. */
__noinline __u32 channel_member(__u32 number, __u32 bucket)
{
	return ROW(channels, number)->member[bucket & (LY_CHANNEL_BUCKETS - 1)] & (LY_PORTS - 1);
}

/* Records in the journal of a dry run that a frame is sent by the member of this bucket. */
static __always_inline void balance_note(__u32 bucket)
{
	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j)
			j->balanced = 1 + (bucket & (LY_CHANNEL_BUCKETS - 1));
	}
}

#endif
