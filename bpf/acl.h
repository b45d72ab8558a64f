/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Access lists: the key of a frame, and the search in a compiled list.
 *
 * crates/acl documents both: src/key.rs the key, src/classifier.rs the layout of a list and the search (bit vectors for each
 * field with aggregates: Lakshman and Stiliadis, SIGCOMM 1998; Baboescu and Varghese, SIGCOMM 2001).
 *
 * A list is one element of an array of its own, at most 4 MB. A program looks its array up once for each frame, so the
 * control plane replaces a list with one store, and no frame is judged by a mixture of two lists. */
#ifndef LY_ACL_H
#define LY_ACL_H

#define LY_ACLS 1024 /* slot 0 is "no list" */
#define LY_ACL_SMALL_WORDS 32768
#define LY_ACL_LARGE_WORDS 524288
#define LY_ACL_HALVES 24
#define LY_ACL_FAMILIES 3

/* The fields of a list's head, in 32-bit units. */
enum ly_acl_head {
	LY_ACL_RULES = 0,
	LY_ACL_FIELDS = 1,
	LY_ACL_STRIDE = 2,
	LY_ACL_VERDICTS = 3,
	LY_ACL_COUNTERS = 4,
	LY_ACL_OTHERWISE = 5,
	LY_ACL_ALL_LOW = 6,
	LY_ACL_ALL_HIGH = 7,
};
#define LY_ACL_HEAD_WORDS 8

/* The entries of a field's description, in 32-bit units. */
enum ly_acl_field {
	LY_ACL_HALF = 0,
	LY_ACL_INDEX = 1,
	LY_ACL_RECORDS = 2,
	LY_ACL_BLOCKS = 3,
	LY_ACL_ABSENT = 4,
	LY_ACL_UNKNOWN = 5,
};
#define LY_ACL_FIELD_WORDS 4
#define LY_ACL_RECORD_HEAD 4
#define LY_ACL_BLOCK_WORDS 4

/* A rule's verdict. */
#define LY_ACL_PERMIT 1
#define LY_ACL_LOG 2
#define LY_ACL_SKIP 4
#define LY_ACL_SKIP_SHIFT 16
#define LY_ACL_CLASS_SHIFT 8 /* of a policy's list: the class, in eight bits */

/* The halves of the key. */
#define LY_ACL_SRC 0
#define LY_ACL_DST 8
#define LY_ACL_L4_SRC 16
#define LY_ACL_L4_DST 17
#define LY_ACL_PROTOCOL 18
#define LY_ACL_TOS 19
#define LY_ACL_ETHERTYPE 20
#define LY_ACL_VLAN 21
#define LY_ACL_TCP_FLAGS 22
#define LY_ACL_LATER_FRAGMENT 0x100
#define LY_ACL_TRANSPORT (1 << LY_ACL_L4_SRC | 1 << LY_ACL_L4_DST | 1 << LY_ACL_TCP_FLAGS)
#define LY_ACL_MAX_EXTENSIONS 6

/* acl_ports[port], acl_vlans[vlan]: the lists that judge frames there, by family; 0: none. Of a VLAN only `inbound` is used. */
struct ly_acl_bindings {
	__u16 inbound[4];
	__u16 outbound[4];
};
_Static_assert(sizeof(struct ly_acl_bindings) == 16, "ly_acl_bindings");
ROWS(acl_ports, struct ly_acl_bindings, LY_PORTS);
ROWS(acl_vlans, struct ly_acl_bindings, LY_VLANS);

/* acl_small[list], acl_large[list]: a list is in one of them, by its size. While a larger one replaces a smaller one, or the
 * reverse, it is in both, and programs read the smaller one. */
#define ACL_LISTS(name, words)                                                                                   \
	struct name##_list {                                                                                     \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                \
		__uint(map_flags, BPF_F_MMAPABLE);                                                               \
		__uint(max_entries, 1);                                                                          \
		__uint(key_size, sizeof(__u32));                                                                 \
		__uint(value_size, (words) * 8);                                                                 \
	};                                                                                                       \
	struct {                                                                                                 \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                                                        \
		__uint(max_entries, LY_ACLS);                                                                    \
		__type(key, __u32);                                                                              \
		__array(values, struct name##_list);                                                             \
	} name SEC(".maps")
ACL_LISTS(acl_small, LY_ACL_SMALL_WORDS);
ACL_LISTS(acl_large, LY_ACL_LARGE_WORDS);

/* A note about a frame that a rule with `log` has decided about. It takes the place of the frame's bytes in a record of the ring
 * `traps` with TRAP_ACL_LOG. crates/acl/src/note.rs reads it. */
struct ly_acl_note {
	__u16 list, rule;
	__u16 half[LY_ACL_HALVES]; /* the key */
	__u32 absent, unknown;
	__u8 src[6]; /* the frame's source; 0: an outbound list has decided */
	__u8 pad[2];
};
_Static_assert(sizeof(struct ly_acl_note) == 68, "ly_acl_note");

struct acl_key {
	__u16 half[32]; /* LY_ACL_HALVES; a power of two, so that the verifier knows the range of a masked index */
	__u32 absent, unknown;
};

/* A judgement: a frame, the lists that judge it one after the other, and their verdicts. */
#define ACL_ASKED 3
struct acl_judgement {
	__u16 at;       /* the offset of the packet */
	__u16 type;     /* its EtherType */
	__u16 vlan;     /* with the class of service in the upper three bits */
	__u16 any;      /* not 0: there is a list */
	__u8 tunnelled; /* not 0: the destination counts as TUNNEL, also while `replicate` has restored the frame's own */
	__u16 list[ACL_ASKED]; /* 0: none */
	__u8 reason[ACL_ASKED]; /* the drop reason if the list denies */
};

/* Memory for judging a frame, for each processor: it does not fit on the stack. A program that judges is not interrupted by
 * another one on its processor. */
struct acl_work {
	struct acl_judgement judgement;
	struct acl_key key;
	__u32 record[LY_ACL_HALVES]; /* of a search: where the block numbers of each field's record begin, in 16-bit units */
	__u64 all;                   /* of a search: a bit for each word that is left and in which a rule may match */
	__u32 fields, verdicts;      /* of a search: the number of fields, and where the verdicts begin, in 32-bit units */
	__u32 from;                  /* of a search: the first rule that is not skipped */
	__u32 found;                 /* of a search: the result (ACL_FOUND_*) */
	__u32 end;                   /* in a dry run: the length of the frame */
	__u32 hit[ACL_ASKED];        /* at XDP: the rules that have decided, not counted yet */
	__u8 src[6] __attribute__((aligned(8))); /* for ly_acl_note.src */
	__u8 header[40] __attribute__((aligned(8)));
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct acl_work);
} acl_works SEC(".maps");

#define TUNNEL_HALF(n) ((__u16)((TUNNEL >> (16 * (n)) & 0xff) << 8 | (TUNNEL >> (16 * (n) + 8) & 0xff)))

static __always_inline __u32 acl_family(__u16 type)
{
	return type == ETH_IPV4 ? 0 : type == ETH_IPV6 ? 1 : 2;
}

/* The memory for judging a frame, without lists yet. */
static __always_inline struct acl_work *acl_begin(void)
{
	struct acl_work *w = LOOKUP(acl_works, 0);

	if (w)
		w->judgement = (struct acl_judgement){};
	return w;
}

/* Makes `list` the list number `at` of those that judge the frame. */
static __always_inline void acl_add(struct acl_judgement *a, const __u32 at, __u16 list, __u8 reason)
{
	a->list[at] = list;
	a->reason[at] = reason;
	a->any |= list;
}

/* The highest offset that the programs read without a helper. */
#define ACL_NEAR 0xff

/* Copies `len` bytes, a constant that is even. The accesses are wide, because a copy byte by byte takes longer than the helper. */
static __always_inline void acl_copy(void *to, void *from, const __u32 len)
{
	__u32 n = 0;

#pragma unroll
	for (; n + 8 <= len; n += 8)
		*(__u64 *)(to + n) = *(__u64 *)(from + n);
	if (len & 4) {
		*(__u32 *)(to + n) = *(__u32 *)(from + n);
		n += 4;
	}
	if (len & 2)
		*(__u16 *)(to + n) = *(__u16 *)(from + n);
}

/* Reads bytes of the frame at the hook that the constant `xdp` names. XDP reads what is near the start of the frame without a
 * helper, whose calls cost more than the rest of reading the key. */
static __always_inline bool acl_bytes(void *ctx, const bool xdp, __u32 at, void *to, const __u32 len)
{
	if (!xdp)
		return !bpf_skb_load_bytes(ctx, at, to, len);
	if (at <= ACL_NEAR) {
		void *from = (void *)(long)((struct xdp_md *)ctx)->data + (at & ACL_NEAR);

		if (from + len <= (void *)(long)((struct xdp_md *)ctx)->data_end) {
			acl_copy(to, from, len);
			return true;
		}
	}
	return !bpf_xdp_load_bytes(ctx, at, to, len);
}

/* Reads bytes of the frame. False if the frame is shorter, also in a dry run, in which padding may follow the frame. */
static __always_inline bool acl_load(struct acl_work *w, void *ctx, const bool xdp, __u32 at, void *to, const __u32 len)
{
	if (dry && at + len > w->end)
		return false;
	return acl_bytes(ctx, xdp, at, to, len);
}

static __always_inline __u16 acl_half(__u8 *bytes, __u32 at)
{
	return (__u16)bytes[at] << 8 | bytes[at + 1];
}

static __always_inline void acl_transport(struct acl_work *w, void *ctx, const bool xdp, __u32 at)
{
	struct acl_key *k = &w->key;
	__u32 protocol = k->half[LY_ACL_PROTOCOL];
	__u8 *header = w->header;

	if (protocol == IP_TCP) {
		if (!acl_load(w, ctx, xdp, at, header, 14)) {
			k->unknown = LY_ACL_TRANSPORT;
			return;
		}
		k->half[LY_ACL_TCP_FLAGS] = header[13];
	} else if (protocol == IP_UDP || protocol == IP_ICMP || protocol == IP_ICMPV6 || protocol == IP_IGMP ||
		   protocol == IP_DCCP || protocol == IP_SCTP || protocol == IP_UDPLITE) {
		if (!acl_load(w, ctx, xdp, at, header, 4)) {
			k->unknown = LY_ACL_TRANSPORT;
			return;
		}
	} else {
		return;
	}
	k->half[LY_ACL_L4_SRC] = acl_half(header, 0);
	if (protocol != IP_ICMP && protocol != IP_ICMPV6 && protocol != IP_IGMP)
		k->half[LY_ACL_L4_DST] = acl_half(header, 2);
}

static __always_inline void acl_later_fragment(struct acl_key *k, __u16 offset)
{
	k->half[LY_ACL_TOS] |= LY_ACL_LATER_FRAGMENT;
	if (offset == 1 && k->half[LY_ACL_PROTOCOL] == IP_TCP)
		k->unknown = LY_ACL_TRANSPORT;
	else
		k->absent = LY_ACL_TRANSPORT;
}

/* Copies an address, of `halves` times 16 bits, from the frame into the key, beginning with half `to`. */
static __always_inline void acl_addresses(struct acl_key *k, __u32 to, __u8 *from, const __u32 halves)
{
#pragma unroll
	for (__u32 n = 0; n < halves; n++)
		k->half[to + n] = acl_half(from, 2 * n);
}

static __always_inline bool acl_ipv4(struct acl_work *w, void *ctx, const bool xdp, __u32 at)
{
	struct acl_key *k = &w->key;
	__u8 *header = w->header;

	if (!acl_load(w, ctx, xdp, at, header, 20))
		return false;
	__u32 len = (header[0] & 15) * 4;
	if (header[0] >> 4 != 4 || len < 20)
		return false;
	acl_addresses(k, LY_ACL_SRC, header + 12, 2);
	acl_addresses(k, LY_ACL_DST, header + 16, 2);
	k->half[LY_ACL_TOS] = header[1];
	k->half[LY_ACL_PROTOCOL] = header[9];
	__u16 offset = acl_half(header, 6) & 0x1fff;
	if (offset)
		acl_later_fragment(k, offset);
	else
		acl_transport(w, ctx, xdp, at + len);
	return true;
}

#define IP_FRAGMENT 44
#define IP_AUTHENTICATION 51

static __always_inline bool acl_is_extension(__u8 next)
{
	return next == IP_HOP_BY_HOP || next == 43 || next == IP_FRAGMENT || next == IP_AUTHENTICATION || next == 60 || next == 135 ||
	       next == 139 || next == 140;
}

static __always_inline bool acl_ipv6(struct acl_work *w, void *ctx, const bool xdp, __u32 at)
{
	struct acl_key *k = &w->key;
	__u8 *header = w->header, *ext = w->header;

	if (!acl_load(w, ctx, xdp, at, header, 40) || header[0] >> 4 != 6)
		return false;
	acl_addresses(k, LY_ACL_SRC, header + 8, 8);
	acl_addresses(k, LY_ACL_DST, header + 24, 8);
	k->half[LY_ACL_TOS] = (__u8)(header[0] << 4 | header[1] >> 4);
	__u8 next = header[6];
	at += 40;
	for (int n = 0; n <= LY_ACL_MAX_EXTENSIONS; n++) {
		if (!acl_is_extension(next)) {
			k->half[LY_ACL_PROTOCOL] = next;
			acl_transport(w, ctx, xdp, at);
			return true;
		}
		if (n == LY_ACL_MAX_EXTENSIONS || !acl_load(w, ctx, xdp, at, ext, 8))
			break;
		__u16 offset = next == IP_FRAGMENT ? acl_half(ext, 2) >> 3 : 0;
		at += next == IP_FRAGMENT ? 8 : next == IP_AUTHENTICATION ? (ext[1] + 2) * 4 : (ext[1] + 1) * 8;
		next = ext[0];
		if (offset) {
			k->half[LY_ACL_PROTOCOL] = next;
			acl_later_fragment(k, offset);
			if (acl_is_extension(next))
				k->unknown |= 1 << LY_ACL_PROTOCOL;
			return true;
		}
	}
	k->unknown = LY_ACL_TRANSPORT | 1 << LY_ACL_PROTOCOL;
	return true;
}

/* Reads the key. False if the frame lacks the header that its EtherType announces. */
static __always_inline bool acl_read(struct acl_work *w, void *ctx, const bool xdp)
{
	struct acl_judgement *a = &w->judgement;
	struct acl_key *k = &w->key;
	__u8 *mac = w->header;

	k->half[LY_ACL_ETHERTYPE] = a->type;
	k->half[LY_ACL_VLAN] = a->vlan;
	if (a->type == ETH_IPV4)
		return acl_ipv4(w, ctx, xdp, a->at);
	if (a->type == ETH_IPV6)
		return acl_ipv6(w, ctx, xdp, a->at);
	if (!acl_load(w, ctx, xdp, 0, mac, 12))
		return false;
	acl_addresses(k, LY_ACL_DST, mac, 3);
	acl_addresses(k, LY_ACL_SRC, mac + 6, 3);
	if (a->tunnelled) {
		k->half[LY_ACL_DST] = TUNNEL_HALF(0);
		k->half[LY_ACL_DST + 1] = TUNNEL_HALF(1);
		k->half[LY_ACL_DST + 2] = TUNNEL_HALF(2);
	}
	return true;
}

/* The result of a search: the number of the rule that decides, or the number of rules if none does, together with ACL_FOUND_*. */
#define ACL_FOUND_PERMIT 0x10000
#define ACL_FOUND_CLASS 0x20000 /* a rule that permits has decided; above ACL_FOUND_CLASS_SHIFT is the class that it names */
#define ACL_FOUND_CLASS_SHIFT 18
#define ACL_FOUND_LOG 0x4000000 /* above the class: the rule has `log` */

/* The context of a search's steps, which has to be on the stack. The rest of a search's state is in acl_work. */
struct acl_search {
	__u64 *words;
	struct acl_work *w;
};

/* Access to a list by an index that is always in range. The compiler may not combine the index with others: it would lose
 * the limit that the verifier has to see, or calculate with the pointer. */
#define ACL_INDEX(at, mask)                      \
	({                                       \
		__u32 index__ = (at) & (mask);   \
		asm volatile("" : "+r"(index__)); \
		index__;                         \
	})
#define ACL_U64(words, at, mask) (((volatile __u64 *)(words))[ACL_INDEX(at, mask)])
#define ACL_U32(words, at, mask) (((volatile __u32 *)(words))[ACL_INDEX(at, (mask) * 2 + 1)])
#define ACL_U16(words, at, mask) (((volatile __u16 *)(words))[ACL_INDEX(at, (mask) * 4 + 3)])

/* Finds the record of the class that the key has in a field. Stores in `record` where its block numbers begin; returns its
 * aggregate. */
static __always_inline __u64 acl_record(__u64 *words, const __u32 mask, struct acl_key *k, __u32 field, __u32 stride, __u32 *record)
{
	__u32 d = (LY_ACL_HEAD_WORDS + field * LY_ACL_FIELD_WORDS) * 2;
	__u32 half = ACL_U32(words, d + LY_ACL_HALF, mask) & 31, class;

	if (k->unknown >> half & 1) {
		class = ACL_U32(words, d + LY_ACL_UNKNOWN, mask);
	} else if (k->absent >> half & 1) {
		class = ACL_U32(words, d + LY_ACL_ABSENT, mask);
	} else {
		__u32 index = ACL_U32(words, d + LY_ACL_INDEX, mask), value = k->half[half];
		__u32 block = ACL_U16(words, index + (value >> 8), mask);
		class = ACL_U16(words, index + 256 + block * 256 + (value & 255), mask);
	}
	__u32 at = ACL_U32(words, d + LY_ACL_RECORDS, mask) + class * stride;
	*record = at + LY_ACL_RECORD_HEAD;
	return ACL_U64(words, at / 4, mask);
}

/* One step of a search: the next word of the vectors. True ends the search. */
static __always_inline bool acl_word(struct acl_search *search, const __u32 mask)
{
	struct acl_work *s = search->w;
	__u64 *words = search->words;

	if (!s->all)
		return true;
	__u32 w = bit_number(s->all) & 63;
	__u64 bits = ~0ULL;
	s->all &= s->all - 1;
	for (__u32 n = 0; n < LY_ACL_HALVES; n++) {
		if (n >= s->fields)
			break;
		__u32 block = ACL_U16(words, s->record[n] + w / LY_ACL_BLOCK_WORDS, mask);
		__u32 blocks = ACL_U32(words, (LY_ACL_HEAD_WORDS + n * LY_ACL_FIELD_WORDS) * 2 + LY_ACL_BLOCKS, mask);
		bits &= ACL_U64(words, blocks + block * LY_ACL_BLOCK_WORDS + w % LY_ACL_BLOCK_WORDS, mask);
	}
	if (w == s->from / 64)
		bits &= ~0ULL << (s->from & 63);
	if (!bits)
		return false;
	__u32 rule = w * 64 + bit_number(bits);
	__u32 verdict = ACL_U32(words, s->verdicts + rule, mask);
	if (!(verdict & LY_ACL_SKIP)) {
		s->found = rule | (verdict & LY_ACL_LOG ? ACL_FOUND_LOG : 0) |
			   (verdict & LY_ACL_PERMIT ? ACL_FOUND_PERMIT | ACL_FOUND_CLASS |
							      (verdict >> LY_ACL_CLASS_SHIFT & 0xff) << ACL_FOUND_CLASS_SHIFT :
						      0);
		return true;
	}
	/* Continue with the rule that the verdict names, which may be in this word. */
	s->from = verdict >> LY_ACL_SKIP_SHIFT;
	__u32 next = s->from / 64;
	if (next == w)
		s->all |= 1ULL << w;
	else
		s->all &= next < 64 ? ~0ULL << (next & 63) : 0;
	return false;
}

static long acl_step_small(__u32 index, struct acl_search *s)
{
	return acl_word(s, LY_ACL_SMALL_WORDS - 1);
}

static long acl_step_large(__u32 index, struct acl_search *s)
{
	return acl_word(s, LY_ACL_LARGE_WORDS - 1);
}

/* Prepares a search and runs it. `step` is a constant in both callers. */
#define ACL_FIND(list, mask, step, work)                                                                                      \
	({                                                                                                                    \
		struct acl_search s = { .words = (list), .w = (work) };                                                       \
		__u32 stride = ACL_U32(list, LY_ACL_STRIDE, mask);                                                            \
		__u64 all = (__u64)ACL_U32(list, LY_ACL_ALL_HIGH, mask) << 32 | ACL_U32(list, LY_ACL_ALL_LOW, mask);          \
		__u32 fields = ACL_U32(list, LY_ACL_FIELDS, mask);                                                            \
		(work)->fields = fields;                                                                                      \
		(work)->verdicts = ACL_U32(list, LY_ACL_VERDICTS, mask);                                                      \
		(work)->from = 0;                                                                                             \
		(work)->found = ACL_U32(list, LY_ACL_RULES, mask) | (ACL_U32(list, LY_ACL_OTHERWISE, mask) ? ACL_FOUND_PERMIT : 0); \
		for (int n = 0; n < LY_ACL_HALVES; n++) {                                                                     \
			if (n >= fields)                                                                                      \
				break;                                                                                        \
			all &= acl_record(list, mask, &(work)->key, n, stride, &(work)->record[n]);                           \
		}                                                                                                             \
		(work)->all = all;                                                                                            \
		/* A search that the first word decides makes no call. */                                                     \
		if (all && !acl_word(&s, mask))                                                                               \
			bpf_loop(LY_ACL_STEPS, step, &s, 0);                                                                  \
		(work)->found;                                                                                                \
	})

/* Steps of a search: the words of a vector, and as many rules that skip others. */
#define LY_ACL_STEPS (64 + LY_ACL_MAX_SKIPS)
#define LY_ACL_MAX_SKIPS 4096

#define ACL_NO_LIST 0xffffffffU

/* Searches a list for the rule that decides about the frame in `w`. Returns ACL_NO_LIST, or the result as ACL_FOUND_* describes
 * it. From here on the functions are global, so that the verifier checks each once. */
__noinline __u32 acl_find(struct acl_work *w, __u32 list)
{
	__u32 key = 0;
	void *inner;
	__u64 *words;

	if (!w)
		return ACL_NO_LIST;
	inner = LOOKUP(acl_small, list);
	if (inner) {
		words = bpf_map_lookup_elem(inner, &key);
		return words ? ACL_FIND(words, LY_ACL_SMALL_WORDS - 1, acl_step_small, w) : ACL_NO_LIST;
	}
	inner = LOOKUP(acl_large, list);
	if (!inner)
		return ACL_NO_LIST;
	words = bpf_map_lookup_elem(inner, &key);
	return words ? ACL_FIND(words, LY_ACL_LARGE_WORDS - 1, acl_step_large, w) : ACL_NO_LIST;
}

/* The number of rules of a list. */
__noinline __u32 acl_rules(__u32 list)
{
	__u32 key = 0;
	void *inner = LOOKUP(acl_small, list);
	__u64 *words;

	if (!inner)
		inner = LOOKUP(acl_large, list);
	if (!inner)
		return 0;
	words = bpf_map_lookup_elem(inner, &key);
	return words ? ACL_U32(words, LY_ACL_RULES, 15) : 0;
}

/* Counts that `rule` of a list has decided about a frame; `rule` is the number of rules if none has. */
static __always_inline void acl_add_one(__u32 list, __u32 rule)
{
	__u32 key = 0;
	void *inner = LOOKUP(acl_small, list);
	__u64 *words;

	if (!leaves_marks(LY_DRY_COUNT))
		return;
	if (inner) {
		words = bpf_map_lookup_elem(inner, &key);
		if (words)
			__sync_fetch_and_add(
				&words[(ACL_U32(words, LY_ACL_COUNTERS, LY_ACL_SMALL_WORDS - 1) + rule) & (LY_ACL_SMALL_WORDS - 1)], 1);
		return;
	}
	inner = LOOKUP(acl_large, list);
	if (!inner)
		return;
	words = bpf_map_lookup_elem(inner, &key);
	if (words)
		__sync_fetch_and_add(&words[(ACL_U32(words, LY_ACL_COUNTERS, LY_ACL_LARGE_WORDS - 1) + rule) & (LY_ACL_LARGE_WORDS - 1)],
				     1);
}

__noinline int acl_count(__u32 list, __u32 rule)
{
	acl_add_one(list, rule);
	return 0;
}

__noinline int trap_admit(__u32 group, __u32 port, __u32 reason); /* stages/trap.h */

struct acl_note_record {
	struct ly_trap header;
	struct ly_acl_note note;
};

/* Sends a note about the frame in `w`, which `port` has received, to the control plane. */
__noinline int acl_log(struct acl_work *w, __u32 list, __u32 rule, __u32 port)
{
	if (!w || !leaves_marks(LY_DRY_POLICE) || !trap_admit(GROUP_ACL_LOG, port, TRAP_ACL_LOG))
		return 0;
	struct acl_note_record *r = bpf_ringbuf_reserve(&traps, sizeof(*r), 0);
	if (!r) {
		trap_lost(GROUP_ACL_LOG);
		return 0;
	}
	r->header = (struct ly_trap){ .len = sizeof(r->note), .port = port, .reason = TRAP_ACL_LOG };
	r->note.list = list;
	r->note.rule = rule;
	__builtin_memcpy(r->note.half, w->key.half, sizeof(r->note.half));
	r->note.absent = w->key.absent;
	r->note.unknown = w->key.unknown;
	__builtin_memcpy(r->note.src, w->src, sizeof(w->src));
	r->note.pad[0] = r->note.pad[1] = 0;
	bpf_ringbuf_submit(r, 0);
	return 0;
}

/* Judges the frame by one list after the other. Returns 0, or the drop reason of the first list that denies it. XDP may still
 * pass the frame to TC, which judges it again, so it stores the rules that have decided, and acl_count_hits counts them and sends
 * their notes. `port` has received the frame; `inbound` is a constant. */
#define ACL_HIT 0x80000000U
static __always_inline int acl_judge(void *ctx, const bool xdp, struct acl_work *w, __u32 port, const bool inbound)
{
	struct acl_judgement *a = &w->judgement;

	if (!a->any)
		return 0;
	w->key = (struct acl_key){};
	if (dry)
		w->end = (xdp ? (__u32)bpf_xdp_get_buff_len(ctx) : ((struct __sk_buff *)ctx)->len) + dry_extra();
	bool valid = acl_read(w, ctx, xdp);
#pragma unroll
	for (__u32 n = 0; n < ACL_ASKED; n++) {
		__u32 list = a->list[n], reason = a->reason[n];
		asm volatile("" : "+r"(reason)); /* so that it is read here, where `n` is a constant */
		__u32 found = list ? acl_find(w, list) : ACL_NO_LIST;
		if (found == ACL_NO_LIST)
			continue;
		if (!valid) {
			/* Without a valid key no rule decides: the frame is counted as such, and denied. */
			found = acl_rules(list);
		}
		if (found & ACL_FOUND_LOG && (!inbound || !acl_bytes(ctx, xdp, 6, w->src, 6)))
			__builtin_memset(w->src, 0, 6);
		if (xdp) {
			w->hit[n] = ACL_HIT | (found & (ACL_FOUND_LOG | 0xffff));
		} else {
			acl_count(list, found & 0xffff);
			if (found & ACL_FOUND_LOG)
				acl_log(w, list, found & 0xffff, port);
		}
		if (!(found & ACL_FOUND_PERMIT))
			return reason;
	}
	return 0;
}

/* Counts the rules that have decided about a frame that XDP has handled, and sends their notes. `port` has received the frame. */
__noinline int acl_count_hits(__u32 port)
{
	struct acl_work *w = LOOKUP(acl_works, 0);

	if (!w)
		return 0;
	for (__u32 n = 0; n < ACL_ASKED; n++) {
		__u32 hit = w->hit[n];
		w->hit[n] = 0;
		if (!hit)
			continue;
		acl_add_one(w->judgement.list[n], hit & 0xffff);
		if (hit & ACL_FOUND_LOG)
			acl_log(w, w->judgement.list[n], hit & 0xffff, port);
	}
	return 0;
}

#endif
