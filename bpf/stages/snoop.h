/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* snoop: multicast snooping (RFC 4541). Messages about memberships go to the control plane; a frame of a group goes to the
 * ports of its members and of routers. lanyard_wire::group reads packets in the same way.
 *
 * XDP sends a group's frame if one port gets it; TC handles the others and the messages. Ports in no VLAN with snooping
 * pay for one branch, on flags that are read anyway. While the watchdog of snooping has expired, nothing is snooped: frames
 * of groups, and messages, go to all ports (watchdog.h). */
#define MAC_IPV4_GROUP 0x5e0001ULL /* the first three octets */
#define MAC_IPV6_GROUP 0x3333ULL   /* the first two */
#define IP_IGMP_MESSAGE 2
#define IP_PIM 103
#define IP_ICMPV6_NEXT 58
#define PIM_HELLO 0x20 /* version 2, type 0 */
#define SNOOP_BYTES 49 /* read of a packet: an IPv6 header, a hop-by-hop header, and the type of ICMPv6 */

/* The ports to which snooping limits a frame. 0: no limit; below SNOOPED_NOBODY: one port; SNOOPED_NOBODY: no port; with
 * SNOOPED_SET: the ports of an entry of the MDB (SNOOPED_ENTRY) and those of routers. Negative: minus the reason for which the
 * frame is trapped. */
#define SNOOPED_NOBODY LY_PORTS
#define SNOOPED_SET 0x200000
#define SNOOPED_IPV6 0x100000
#define SNOOPED_ENTRY(members) ((members) & 0xfffff)
_Static_assert(LY_MDB_SEGMENTS << LY_MDB_ROW_BITS <= SNOOPED_IPV6, "an entry's number overlaps the flags");

TABLE(snoop_vlans, struct ly_snoop_vlan, LY_VLANS, BPF_F_MMAPABLE);
ROWS(mdb_state, __u64, 1);

struct mdb_segment {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct ly_mdb_segment));
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, LY_MDB_SEGMENTS);
	__type(key, __u32);
	__array(values, struct mdb_segment);
} mdb SEC(".maps");

struct snoop_key {
	__u64 group[2], source[2];
	__u32 place;
};

static __always_inline __u64 mdb_mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * LY_HASH_A;
	return hash ^ hash >> 32;
}

static __always_inline struct ly_mdb_segment *mdb_segment(__u32 number)
{
	void *segment = LOOKUP(mdb, number & (LY_MDB_SEGMENTS - 1));
	__u32 only = 0;

	return segment ? bpf_map_lookup_elem(segment, &only) : 0;
}

/* An entry by its number, as mdb_find returns it; 0: the entry without ports. */
static __always_inline struct ly_mdb_row *mdb_entry(__u32 number)
{
	struct ly_mdb_segment *segment = mdb_segment(number >> LY_MDB_ROW_BITS);

	return segment ? &segment->row[number & (LY_MDB_ROWS - 1)] : 0;
}

/* The number of an entry, or 0. A global function, so that the kernel verifies it once. */
__noinline __u32 mdb_find(struct snoop_key *k)
{
	if (!k)
		return 0;
	__u64 hash = mdb_mix(mdb_mix(fdb_salt, k->place), k->group[0]);

	hash = mdb_mix(mdb_mix(mdb_mix(hash, k->group[1]), k->source[0]), k->source[1]);
	__u32 number = hash >> 48 & *(volatile __u64 *)ROW(mdb_state, 0) & (LY_MDB_SEGMENTS - 1);
	struct ly_mdb_segment *segment = mdb_segment(number);
	__u32 tag = hash >> 32 & 0xffff;

	if (!segment)
		return 0;
	struct ly_mdb_bucket *bucket = &segment->index[hash >> (64 - LY_MDB_BUCKET_BITS)];
	for (int way = 0; way < LY_MDB_WAYS; way++) {
		__u32 word = *(volatile __u32 *)&bucket->way[way];
		if (word >> 16 != tag || !word)
			continue;
		struct ly_mdb_row *row = &segment->row[word & (LY_MDB_ROWS - 1)];
		if (row->place == k->place && row->group[0] == k->group[0] && row->group[1] == k->group[1] &&
		    row->source[0] == k->source[0] && row->source[1] == k->source[1])
			return number << LY_MDB_ROW_BITS | (word & (LY_MDB_ROWS - 1));
	}
	return 0;
}

/* Reads an IPv4 packet. Returns 1 and fills in the key for a packet to a group, 0 for a packet that goes to all ports, or minus
 * the reason for which the packet is trapped. */
static __always_inline int snoop_ipv4(struct snoop_key *k, struct ipv4 *ip, void *end)
{
	__u8 *next = (void *)(ip + 1);

	if ((void *)(ip + 1) > end || ip->version_ihl >> 4 != 4 || (ip->dst & 0xf0) != 0xe0)
		return 0;
	if (ip->protocol == IP_IGMP_MESSAGE)
		return -TRAP_IGMP;
	if (ip->protocol == IP_PIM && (ip->version_ihl & 15) == 5 && (void *)(next + 1) <= end && *next == PIM_HELLO)
		return -TRAP_PIM_HELLO;
	if ((ip->dst & 0xffffff) == 0xe0) /* 224.0.0.0/24 */
		return 0;
	k->group[0] = ip->dst;
	k->source[0] = ip->src;
	return 1;
}

static __always_inline bool is_mld(__u8 type)
{
	return (type >= 130 && type <= 132) || type == 143 || type == 151 || type == 153;
}

static __always_inline int snoop_ipv6(struct snoop_key *k, struct ipv6 *ip, void *end)
{
	__u8 *next = (void *)(ip + 1);

	if ((void *)(ip + 1) > end || (ip->version_flow & 0xf0) != 0x60 || (ip->dst[0] & 0xff) != 0xff)
		return 0;
	if (ip->next == 0 && (void *)(next + 9) <= end && next[0] == IP_ICMPV6_NEXT && next[1] == 0 && is_mld(next[8]))
		return -TRAP_MLD;
	if (ip->next == IP_PIM && (void *)(next + 1) <= end && *next == PIM_HELLO)
		return -TRAP_PIM_HELLO;
	if ((ip->dst[0] >> 8 & 0x0f) <= 2) /* interface or link scope */
		return 0;
	k->group[0] = (__u64)ip->dst[1] << 32 | ip->dst[0];
	k->group[1] = (__u64)ip->dst[3] << 32 | ip->dst[2];
	k->source[0] = (__u64)ip->src[1] << 32 | ip->src[0];
	k->source[1] = (__u64)ip->src[3] << 32 | ip->src[2];
	return 1;
}

/* The limit (SNOOPED_*) of a frame whose group has this entry of the MDB; 0: the entry without ports. It is a single port only
 * where all ports of the switch are in one word of a port set and the frame fits that port. `len`: the frame's length without its
 * tag. */
static __always_inline int snoop_ports(__u32 entry, __u32 family, __u32 port, __u32 vlan, __u32 len)
{
	struct ly_global *g = ROW(global, 0);
	struct ly_vlan_ports *sets = LOOKUP(vlan_ports, vlan);
	struct ly_snoop_vlan *snoop = LOOKUP(snoop_vlans, vlan);
	struct ly_mdb_row *members = mdb_entry(entry);
	int all = SNOOPED_SET | (family == LY_IPV6 ? SNOOPED_IPV6 : 0) | entry;

	/* At a port of private VLANs `vlan` is the primary one, whose flood set is not that of the frame. */
	if (g->end_word > 1 || !sets || !snoop || !members || ROW(ports, port)->flags & LY_PORT_PRIVATE)
		return all;
	__u64 to = sets->form[LY_UNTAGGED][0] | sets->form[LY_DOT1Q][0] | sets->form[LY_DOT1AD][0];
	to &= members->ports[0] | snoop->routers[family & 1][0];
	to &= ~(1ULL << (port & 63)) & ~g->no_multicast[0];
	if (ROW(ports, port)->flags & LY_PORT_ISOLATED)
		to &= ~g->isolated[0];
	if (!to)
		return SNOOPED_NOBODY;
	if (to & (to - 1))
		return all;
	__u32 only = bit_number(to);
	/* A port-channel remains a set: a copy for which it has no member is not sent, and not counted. */
	return only && !(ROW(ports, only)->flags & LY_PORT_CHANNEL) && len <= ROW(ports, only)->max_len ? only : all;
}

/* Decides about the packet at `at`, whose EtherType is `type`. */
static __always_inline int snoop_packet(void *at, void *end, __u32 type, __u64 dst, __u32 port, __u32 vlan, __u32 len)
{
	struct ly_snoop_vlan *snoop = LOOKUP(snoop_vlans, vlan);
	__u32 family = type == ETH_IPV6 ? LY_IPV6 : LY_IPV4;
	struct snoop_key k = {};
	int what = 0;

	if (!snoop || *(volatile __u64 *)&ROW(watchdog, LY_WATCHDOG_SNOOPING)->phase != LY_WATCHDOG_WAITS)
		return 0;
	__u8 config = snoop->config[family], flooded = snoop->flooded[family];
	if (!(config & LY_SNOOP_ON))
		return 0;
	if (type == ETH_IPV4 && (dst & 0xffffff) == MAC_IPV4_GROUP)
		what = snoop_ipv4(&k, at, end);
	else if (type == ETH_IPV6 && (dst & 0xffff) == MAC_IPV6_GROUP)
		what = snoop_ipv6(&k, at, end);
	if (what <= 0)
		return what;
	if (flooded == LY_SNOOP_FLOOD_ALL)
		return 0;
	__u64 source[2] = { k.source[0], k.source[1] };
	k.place = vlan | (family == LY_IPV6 ? LY_MDB_FAMILY : 0);
	k.source[0] = k.source[1] = 0;
	__u32 entry = mdb_find(&k);
	if (!entry)
		return config & LY_SNOOP_ROUTERS && !flooded ? snoop_ports(0, family, port, vlan, len) : 0;
	struct ly_mdb_row *any = mdb_entry(entry);
	if (any && any->sources) {
		k.place |= LY_MDB_SOURCE;
		k.source[0] = source[0];
		k.source[1] = source[1];
		__u32 one = mdb_find(&k);
		entry = one ? one : entry;
	}
	return snoop_ports(entry, family, port, vlan, len);
}

#define SNOOP_FROM(port, vlan) ((__u32)(port) | (__u32)(vlan) << 16)

/* Global functions, so that frames that are not snooped pay only for a branch, and the verifier checks them once. `from`:
 * SNOOP_FROM; `l3`: the offset of the packet, and its EtherType in the high half; `len`: see snoop_ports. */
__noinline int tc_snoop(struct __sk_buff *skb, __u64 dst, __u32 from, __u32 l3, __u32 len)
{
	__u32 at = l3 & 31, whole = skb->len, need = at + SNOOP_BYTES;
	void *data = (void *)(long)skb->data;

	if (data + need > (void *)(long)skb->data_end) {
		bpf_skb_pull_data(skb, whole < need ? whole : need);
		data = (void *)(long)skb->data;
	}
	return snoop_packet(data + at, (void *)(long)skb->data_end, l3 >> 16, dst, from & (LY_PORTS - 1), from >> 16 & (LY_VLANS - 1),
			    len);
}

__noinline int xdp_snoop(struct xdp_md *ctx, __u64 dst, __u32 from, __u32 l3, __u32 len)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 at = l3 & 31;

	return snoop_packet(data + at, end, l3 >> 16, dst, from & (LY_PORTS - 1), from >> 16 & (LY_VLANS - 1), len);
}

static __always_inline int stage_snoop(struct frame *f, struct __sk_buff *skb)
{
	if (!(f->port->flags & LY_PORT_SNOOP) || !(f->dst & GROUP_BIT))
		return 0;
	__u32 at = tc_l3(skb, f), type = tc_l3_type(skb, f, at);
	/* A segmentation buffer is left to the flood, which checks the length of its segments: ~0U fits no single port. */
	int to = tc_snoop(skb, f->dst, SNOOP_FROM(f->port_id, f->shared), at | type << 16, f->gso ? ~0U : f->bare_len);

	if (to < 0)
		return trap_frame(f, skb, -to, GROUP_MULTICAST);
	if (to == SNOOPED_NOBODY)
		return DROP(DROP_NO_EGRESS);
	if (to & SNOOPED_SET)
		f->members = to;
	else
		f->out_id = to & (LY_PORTS - 1);
	return 0;
}

/* The stage at XDP, for a frame to a group address. False when TC has to handle it. */
static __always_inline bool stage_snoop_fast(struct frame *f, struct xdp_md *ctx)
{
	__u32 at = f->form != LY_UNTAGGED ? 18 : 14;
	void *data = (void *)(long)ctx->data;
	__u16 *type = data + at - 2;

	if (!(f->port->flags & LY_PORT_SNOOP))
		return true;
	if ((void *)(type + 1) > (void *)(long)ctx->data_end)
		return false;
	int to = xdp_snoop(ctx, f->dst, SNOOP_FROM(f->port_id, f->shared), at | (__u32)bpf_ntohs(*type) << 16, f->bare_len);
	f->out_id = to & (LY_PORTS - 1);
	return to >= 0 && to < SNOOPED_NOBODY;
}
