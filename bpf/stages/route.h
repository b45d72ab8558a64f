/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* route: frames to the router's own addresses: header checks, longest match, next hop, rewrite (RFC 1812, 5.2 and
 * 5.3; RFC 8200; RFC 3704). crates/pipeline/src/stages/route.rs gives the order of the checks and the reasons.
 *
 * The hook reads the header into a `packet`, route_next_hop() finds the next hop, and the hook rewrites the frame. All
 * code for a usual packet is inlined, because a function's return is expensive, and its arguments by pointer are kept
 * in memory. */
enum {
	DROP_IP_HEADER_INVALID = 25,
	DROP_URPF_FAILED = 26,
	DROP_ROUTE_BLACKHOLE = 27,
	DROP_MARTIAN = 28,
	DROP_MARTIAN_SOURCE = 30,
};

#define NOT_FOR_ROUTER 0x10000 /* not a drop reason: continue with bridging */

/* The fields of an IP header that are used. Addresses are in host order. An IPv4 address is in the low half, and the
 * high half is 0. */
struct packet {
	__u64 src[2], dst[2];
	__u32 l4;    /* the offset of its ports in the frame; 0: no ports, a fragment, or too short */
	__u32 len;   /* of the packet, or of its segments (GSO): the length that must fit the egress MTU */
	__u32 rif;
	__u8 six, ttl, protocol, options;
};

/* The next hop of a packet, and its egress. */
struct next_hop {
	__u64 next; /* the adjacency's word */
	__u64 src;  /* the router's MAC address at the egress interface */
	struct nh_word named;
	__u16 port, vlan; /* of the egress interface */
};

/* Properties of a header's addresses. `six` is a constant in both callers, so the compiler
 * generates code for each family. */
struct addresses {
	bool group;   /* the destination: multicast, or broadcast on the link */
	bool martian; /* an address that no valid packet has */
	bool from_link, to_link; /* link-local */
};

static __always_inline bool group4(__u32 address)
{
	return address >> 28 == 14 || address == 0xffffffff;
}

static __always_inline bool martian4(__u32 address)
{
	__u32 first = address >> 24;

	return first == 0 || first == 127 || first >= 240;
}

/* True for IPv4 addresses that begin with 1 to 223 except 127, which are neither multicast nor
 * martian. */
static __always_inline bool usual4(__u32 address)
{
	__u32 first = address >> 24;

	return first - 1 < 223 && first != 127;
}

static __always_inline bool martian6(__u64 *address)
{
	return address[0] == 0 && (address[1] < 2 || address[1] >> 32 == 0xffff);
}

static __always_inline struct addresses look_at(struct packet *p, bool six)
{
	struct addresses a = {};

	if (six) {
		a.group = p->dst[0] >> 56 == 0xff;
		a.martian = martian6(p->src) || p->src[0] >> 56 == 0xff || martian6(p->dst);
		a.from_link = p->src[0] >> 54 == 0xfe80 >> 6;
		a.to_link = p->dst[0] >> 54 == 0xfe80 >> 6;
		return a;
	}
	__u32 src = p->src[1], dst = p->dst[1];
	if (!usual4(src) || !usual4(dst)) {
		a.group = group4(dst);
		a.martian = martian4(src) || group4(src) || martian4(dst);
	}
	a.from_link = src >> 16 == (169 << 8 | 254);
	a.to_link = dst >> 16 == (169 << 8 | 254);
	return a;
}

/* The leaf for an address; never LY_NO_TARGET. */
static __always_inline __u32 fib_find(struct packet *p, __u32 vrf, __u64 *address)
{
	return p->six ? fib6_find(vrf, address[0], address[1]) : fib4_find(vrf, address[1]);
}

static __always_inline __u64 nh_group(__u32 group)
{
	return *(volatile __u64 *)ROW(nh_groups, group);
}

static __always_inline __u32 *nh_bucket(__u32 at)
{
	struct ly_line *l = LOOKUP(nh_buckets, at / LY_LINE_WORDS);

	return l ? &l->word[at % LY_LINE_WORDS] : NULL;
}

/* The adjacency word for a bucket of the group `id`, whose row is `group`. */
static __always_inline struct nh_word nh_word(__u32 id, __u64 group, __u32 bucket)
{
	if (group >> LY_NH_COUNT_SHIFT == 1)
		return (struct nh_word){ group, id };
	__u32 at = (__u32)group + bucket, *word = nh_bucket(at);

	return (struct nh_word){ word ? *(volatile __u32 *)word : 0, at };
}

static __always_inline struct ly_adjacency *nh_adjacency(__u64 word)
{
	return ROW(adjacencies, word & LY_NH_ADJACENCY_MASK);
}

static __always_inline __u32 next_rif(__u64 next)
{
	return next >> LY_ADJ_RIF_SHIFT & (LY_RIFS - 1);
}

struct reach {
	__u64 group;
	__u32 rif, found;
};

static long reach_step(__u32 index, struct reach *r)
{
	struct ly_adjacency *a = nh_adjacency(nh_word(0, r->group, index).word);

	r->found = next_rif(*(volatile __u64 *)&a->next) == r->rif;
	return r->found;
}

/* Reverse path check: true if the route to the source leads to a reachable next hop, by the
 * receiving interface if `strict`. */
__noinline int reverse_path(struct packet *p, __u32 vrf, __u32 strict)
{
	if (!p)
		return false;
	__u32 target = fib_find(p, vrf, p->src), value = target & 0xffffff;

	switch (target >> 24) {
	case LY_TARGET_UP:
		return value == TRAP_ROUTE_POLICY || value == TRAP_GLEAN;
	case LY_TARGET_CONNECTED:
		return !strict || value == p->rif;
	case LY_TARGET_GROUP: {
		if (!strict)
			return true;
		__u64 group = nh_group(value);
		struct reach r = { .group = group, .rif = p->rif };
		/* The flags are an unpredictable 0, so that the verifier does not inline the loop and the program
		 * does not grow (stay_in_place). */
		bpf_loop(group >> LY_NH_COUNT_SHIFT, reach_step, &r, unknown_zero(value));
		return r.found;
	}
	}
	return false;
}

/* A quick test: may the source be one of the switch's own addresses? False positives are rare. */
static __always_inline bool own_source_possible(struct packet *p)
{
	__u32 bit = (p->src[0] ^ p->src[1]) * LY_HASH_A >> LY_OWN_SHIFT;

	return *(volatile __u64 *)ROW(own_addresses, bit / 64) >> bit % 64 & 1;
}

/* The exact test for own_source_possible. */
__noinline int own_source(struct packet *p, __u32 vrf)
{
	return p && fib_find(p, vrf, p->src) == LY_TARGET(LY_TARGET_UP, TRAP_LOCAL_ADDRESS);
}

static __always_inline bool has_ports(__u8 protocol)
{
	return protocol == IP_TCP || protocol == IP_UDP || protocol == IP_DCCP || protocol == IP_SCTP ||
	       protocol == IP_UDPLITE;
}

/* Reads the ports at p->l4, with the source port in the upper half. */
typedef __u32 flow_ports(void *ctx, struct packet *p);

/* Hashes addresses, protocol and ports, as pipeline::route::flow_bucket does. */
static __always_inline __u64 flow_mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * LY_HASH_A;
	return hash ^ hash >> 32;
}

static __always_inline __u32 flow_bucket(struct packet *p, __u32 count, void *ctx, flow_ports *ports_of)
{
	__u64 hash = fdb_salt;
	__u32 ports = 0;

	if (p->l4 && has_ports(p->protocol))
		ports = ports_of(ctx, p);

	if (p->six) {
		hash = flow_mix(hash, p->src[0]);
		hash = flow_mix(hash, p->src[1]);
		hash = flow_mix(hash, p->dst[0]);
		hash = flow_mix(hash, p->dst[1]);
	} else {
		hash = flow_mix(hash, p->src[1] << 32 | p->dst[1]);
	}
	hash = flow_mix(hash, (__u64)p->protocol << 32 | ports);
	return (__u32)(hash * LY_HASH_B >> 40) & (count - 1);
}

static __always_inline void way_journal(__u32 target, __u32 bucket, __u32 count, __u32 adjacency, __u64 next)
{
	if (!dry)
		return;
	struct ly_journal *j = dry_journal();
	if (j) {
		j->target = target;
		j->bucket = bucket;
		j->bucket_count = count;
		j->adjacency = adjacency;
		j->next = next;
	}
}

/* Finds the next hop for a packet with a valid header. Returns 0, a drop reason, or minus the
 * reason for which the packet goes to the kernel. */
static __always_inline int route_next_hop(struct packet *p, struct next_hop *w, void *ctx, flow_ports *ports_of)
{
	struct ly_rif *in = ROW(rifs, p->rif);
	__u32 vrf = in->vrf, urpf = in->flags >> LY_RIF_URPF_SHIFT >> (p->six ? 2 : 0) & 3;

	struct addresses a = p->six ? look_at(p, true) : look_at(p, false);
	if (a.group)
		return TRAPPED(TRAP_MARTIAN);
	if (a.martian)
		return DROP(DROP_MARTIAN);
	if (own_source_possible(p) && own_source(p, vrf))
		return DROP(DROP_MARTIAN_SOURCE);
	bool local_source = a.from_link, local = a.to_link;
	bool stays = !p->six && (local_source || local); /* the packet stays in the switch: the kernel would forward it */
	if (p->options)
		return stays ? DROP(DROP_MARTIAN) : TRAPPED(TRAP_IP_OPTIONS);
	if (urpf && !local_source && !reverse_path(p, vrf, urpf == 2))
		return DROP(DROP_URPF_FAILED);
	if (local && p->six)
		return TRAPPED(TRAP_LOCAL_ADDRESS);
	__u32 target = fib_find(p, vrf, p->dst), value = target & 0xffffff;
	way_journal(target, 0, 0, 0, 0);
	if (stays && target != (LY_TARGET_UP << 24 | TRAP_LOCAL_ADDRESS))
		return DROP(DROP_MARTIAN);
	switch (target >> 24) {
	case LY_TARGET_GROUP:
		break;
	case LY_TARGET_UP:
		return TRAPPED((int)value);
	case LY_TARGET_BLACKHOLE:
		return DROP(DROP_ROUTE_BLACKHOLE);
	case LY_TARGET_CONNECTED:
		return TRAPPED(TRAP_GLEAN);
	default:
		return TRAPPED(TRAP_NO_ROUTE);
	}
	if (local_source)
		return TRAPPED(TRAP_MARTIAN);
	if (p->ttl <= 1)
		return TRAPPED(TRAP_TTL_EXPIRED);
	__u64 group = nh_group(value);
	__u32 count = group >> LY_NH_COUNT_SHIFT, bucket = count > 1 ? flow_bucket(p, count, ctx, ports_of) : 0;
	if (!count)
		return TRAPPED(TRAP_GLEAN);
	w->named = nh_word(value, group, bucket);
	w->next = *(volatile __u64 *)&nh_adjacency(w->named.word)->next;
	way_journal(target, bucket, count, w->named.word & LY_NH_ADJACENCY_MASK, w->next);
	struct ly_rif *out = ROW(rifs, next_rif(w->next));
	if (!(w->next & LY_ADJ_RESOLVED) || !(out->flags & LY_RIF_LIVE))
		return TRAPPED(TRAP_GLEAN);
	if (p->len > out->mtu)
		return TRAPPED(TRAP_ROUTE_MTU);
	w->src = out->mac;
	w->port = out->port;
	w->vlan = out->vlan;
	return 0;
}

/* True when a frame to `dst` is addressed to the interface. */
__noinline int rif_answers(__u32 rif, __u64 dst)
{
	struct ly_rif *r = ROW(rifs, rif);

	if (!(r->flags & LY_RIF_LIVE))
		return false;
	if (r->mac == dst)
		return true;
#pragma unroll
	for (int i = 0; i < LY_VIRTUAL_MACS; i++)
		if (i < r->virtuals && r->virtual_mac[i] == dst)
			return true;
	return false;
}

/* The router interface of the frame's VLAN, if the frame is addressed to it; otherwise 0. */
static __always_inline __u16 vlan_rif(struct frame *f)
{
	__u64 word = *(volatile __u64 *)ROW(vlan_rifs, f->vlan);
	__u16 rif = word >> LY_VLAN_RIF_SHIFT & (LY_RIFS - 1);

	if ((word & KEY_MAC_MASK) == f->dst)
		return rif;
	return word & LY_VLAN_RIF_VIRTUAL && rif_answers(rif, f->dst) ? rif : 0;
}

/* At a routed port: the interface selected by the tag, and the port for its exceptions (f->out_id;
 * 0 is the stack of this netdev). */
static __always_inline void port_rif(struct frame *f)
{
	__u32 vlan = f->tci & VID_MASK;

	if (f->form == LY_UNTAGGED || vlan == 0) {
		f->rif = f->port->rif;
	} else {
		__u32 key = (__u32)f->port_id << 16 | vlan;
		__u32 *sub = bpf_map_lookup_elem(&sub_rifs, &key);
		f->out_id = sub ? *sub & (LY_PORTS - 1) : 0;
		f->rif = sub ? *sub >> 16 & (LY_RIFS - 1) : 0;
	}
	if (f->rif && !rif_answers(f->rif, f->dst))
		f->rif = 0;
}

struct ipv4 {
	__u8 version_ihl, tos;
	__u16 len;
	__u32 id_fragment;
	__u8 ttl, protocol;
	__u16 check;
	__u32 src, dst;
};

struct ipv6 {
	__u32 version_flow;
	__u16 payload;
	__u8 next, ttl;
	__u32 src[4], dst[4];
};

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __always_inline __u64 sum_ipv4(struct ipv4 *ip)
{
	__u32 *word = (__u32 *)ip;

	return (__u64)word[0] + word[1] + word[2] + word[3] + word[4];
}

/* Reads a header. `room`: bytes from here to the end of the frame. False when the header is not
 * valid; the checksum of a header with options is not checked here. */
static __always_inline bool read_ipv4(struct packet *p, struct ipv4 *ip, __u32 room, bool gso)
{
	__u32 ihl = (ip->version_ihl & 15) * 4, len = bpf_ntohs(ip->len);

	if (len == 0 && gso)
		len = room;
	if (ip->version_ihl >> 4 != 4 || ihl < 20 || len < ihl || len > room)
		return false;
	p->six = 0;
	p->len = len;
	p->options = ihl > 20;
	if (!p->options && fold(sum_ipv4(ip)) != 0xffff)
		return false;
	p->ttl = ip->ttl;
	p->protocol = ip->protocol;
	p->src[1] = bpf_ntohl(ip->src);
	p->dst[1] = bpf_ntohl(ip->dst);
	return true;
}

/* More fragments follow, or an offset is set. Only the first fragment has ports, so they are used
 * for none. */
static __always_inline bool is_fragment(struct ipv4 *ip)
{
	return bpf_ntohl(ip->id_fragment) & 0x3fff;
}

static __always_inline __u64 half(__u32 *word)
{
	return (__u64)bpf_ntohl(word[0]) << 32 | bpf_ntohl(word[1]);
}

static __always_inline bool read_ipv6(struct packet *p, struct ipv6 *ip, __u32 room, bool gso)
{
	__u32 len = 40 + bpf_ntohs(ip->payload);

	if (len == 40 && gso)
		len = room;
	if (bpf_ntohl(ip->version_flow) >> 28 != 6 || len > room)
		return false;
	p->six = 1;
	p->len = len;
	p->options = ip->next == IP_HOP_BY_HOP;
	p->ttl = ip->ttl;
	p->protocol = ip->next;
	p->src[0] = half(ip->src);
	p->src[1] = half(ip->src + 2);
	p->dst[0] = half(ip->dst);
	p->dst[1] = half(ip->dst + 2);
	return true;
}

/* Decrements the TTL and updates the checksum (RFC 1624, equation 3). */
static __always_inline __u16 hop_check(__u16 check, __u8 ttl, __u8 protocol)
{
	__u32 old = ttl << 8 | protocol, new = (ttl - 1) << 8 | protocol;

	return bpf_htons((__u16)~fold((__u16)~bpf_ntohs(check) + (__u16)~old + new));
}

static __always_inline bool rif_routes(__u32 rif, __u16 type)
{
	return ROW(rifs, rif)->flags & (type == ETH_IPV4 ? LY_RIF_IPV4 : type == ETH_IPV6 ? LY_RIF_IPV6 : 0);
}

static __always_inline void write_macs(struct mac_words *mac, struct next_hop *w)
{
	mac->word[0] = w->next;
	mac->word[1] = (w->next >> 32 & 0xffff) | (__u32)w->src << 16;
	mac->word[2] = w->src >> 16;
}

/* Prepares a routed frame for the remaining stages. */
static __always_inline void route_on(struct frame *f, struct next_hop *w)
{
	f->dst = w->next & KEY_MAC_MASK;
	f->routed = 1;
	f->straight = w->port != 0;
	f->out_id = w->port;
	f->out_vlan = w->vlan;
	f->named = w->named;
}

/* Notes that a frame was sent to the neighbour. */
static __always_inline void adjacency_used(struct frame *f)
{
	struct ly_adjacency *a = nh_adjacency(f->named.word);

	if (a->used_s != f->now_s && leaves_marks(LY_DRY_COUNT))
		a->used_s = f->now_s;
}

