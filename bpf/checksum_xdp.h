/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Frames whose transport checksum is missing.
 *
 * A stack that sends through a veth or a TAP leaves the checksums of TCP and UDP to the device (CHECKSUM_PARTIAL):
 * the field holds the sum of the pseudo header (RFC 9293, 3.1; RFC 8200, 8.1), and the buffer carries a note that the
 * checksum is to be completed. An XDP program neither sees that note nor can pass it on, so a frame that it redirects
 * arrives damaged. TC keeps the note.
 *
 * On such ports XDP therefore compares the field with the sum of the pseudo header. Frames with that value, and
 * frames that may contain another packet, are left to TC. A complete checksum has that value by chance once in 65,535
 * frames, which are then only handled more slowly. */
#ifndef LY_CHECKSUM_XDP_H
#define LY_CHECKSUM_XDP_H

#define UDP_VXLAN 4789
#define UDP_VXLAN_LINUX 8472 /* Linux's default, older than the port that IANA assigned */
#define UDP_GENEVE 6081
#define UDP_GTP_U 2152

struct udp_ports {
	__u16 src, dst, len, check;
};

/* EtherTypes whose payload may contain an IP packet that is not examined here: tags, MPLS, PPPoE. */
static __always_inline bool type_encloses(__u16 type)
{
	return type == 0x8100 || type == 0x88a8 || type == 0x9100 || type == 0x8847 || type == 0x8848 || type == 0x8864;
}

/* True for UDP ports whose datagrams may contain an IP packet. `port` is big-endian, as in the header. */
static __always_inline bool port_encloses(__u16 port)
{
	return port == bpf_htons(UDP_VXLAN) || port == bpf_htons(UDP_VXLAN_LINUX) || port == bpf_htons(UDP_GENEVE) || port == bpf_htons(UDP_GTP_U);
}

/* True for multiples of 65,535, which are the zeros of one's complement: one multiplication instead of three folds. The factor is
 * the inverse of 65,535 modulo 2^64, which turns exactly the multiples into their quotients (Warren, "Hacker's Delight",
 * 10-17). */
static __always_inline bool is_zero_sum(__u64 sum)
{
	const __u64 inverse = 0 - (1 + (1ULL << 16) + (1ULL << 32) + (1ULL << 48));

	return sum * inverse <= ~0ULL / 65535;
}

/* True if the transport checksum may be missing. `sum` is the sum of the addresses and of the payload's length, all big-endian as
 * in the header, like `check`: a sum of one's complement does not depend on the order of the bytes. */
static __always_inline bool transport_missing(void *l4, void *end, __u64 sum, __u8 protocol)
{
	__u32 at = protocol == IP_TCP ? 16 : 6;
	__u16 *check = l4 + at;

	if (RARELY(protocol != IP_TCP && protocol != IP_UDP)) /* the kernel completes those of ICMP and IGMP itself */
		return protocol != IP_ICMP && protocol != IP_IGMP && protocol != IP_ICMPV6;
	if (RARELY((void *)(check + 1) > end))
		return true;
	if (protocol == IP_UDP && RARELY(port_encloses(((struct udp_ports *)l4)->dst)))
		return true;
	return RARELY(is_zero_sum(sum + bpf_htons(protocol) + 65535 - *check));
}

/* As checksum_missing, for an IPv4 packet whose header has 20 bytes and is within the frame. */
static __always_inline bool checksum_missing_ipv4(struct ipv4 *ip, void *end)
{
	if (RARELY(is_fragment(ip)))
		return false; /* checksums are complete before a packet is fragmented */
	/* 65,535 is a zero of one's complement; without it the difference of the lengths may be negative. */
	return transport_missing(ip + 1, end, (__u64)ip->src + ip->dst + ip->len + 65535 - bpf_htons(sizeof(*ip)), ip->protocol);
}

/* True if the frame's transport checksum may be missing: XDP leaves it to TC. `form` is the form of its recognised tag. */
static __always_inline bool checksum_missing(void *frame, void *end, __u8 form)
{
	void *l3 = frame + (form == LY_UNTAGGED ? 14 : 18);
	__u16 *type = l3 - 2;

	if (RARELY((void *)(type + 1) > end))
		return true;
	if (OFTEN(*type == bpf_htons(ETH_IPV4))) {
		struct ipv4 *ip = l3;
		return (void *)(ip + 1) > end || ip->version_ihl != 0x45 || checksum_missing_ipv4(ip, end);
	}
	if (*type == bpf_htons(ETH_IPV6)) {
		struct ipv6 *ip = l3;
		if ((void *)(ip + 1) > end)
			return true;
		/* Eight numbers of 32 bits: the sum has at most 35 bits. */
		__u64 sum = (__u64)ip->src[0] + ip->src[1] + ip->src[2] + ip->src[3] + ip->dst[0] + ip->dst[1] +
			    ip->dst[2] + ip->dst[3];
		return transport_missing(ip + 1, end, sum + ip->payload, ip->next);
	}
	return type_encloses(bpf_ntohs(*type));
}

#endif
