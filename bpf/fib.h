/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The longest match: crates/fib writes these tables and says how they lie in memory; this reads them.
 *
 * Invariant: a word that leads on was written after what it leads to, and what it leads to is not written again before all
 * programs that may have read it have ended. So a look-up needs no lock.
 */
#ifndef LY_FIB_H
#define LY_FIB_H

#define FIB_NODE 0x80000000U /* v4: a group */
#define FIB_SKIP 0xc0000000U
#define FIB_LINE_MASK 0x3fffffffU
#define FIB4_NEAR 65536 /* word of the first entry of a byte; in front of them the leads, the default route first */
#define FIB4_FAR_LEAD 255
#define FIB4_FAR_PLACE 65535 /* word that names the slot of fib4_far */
#define FIB4_FAR LY_FIB4_WORDS /* the word that is the far table's first */
#define FIB6_ENTRIES LY_LINE_WORDS /* word of the first entry; line 0 is the header */
#define FIB6_LINES (1 + 65536 / LY_LINE_WORDS) /* line of the first node or skip */
#define FIB6_DEPTH 29 /* nodes of four bits below the first sixteen, and the step that finds the leaf */
#define FIB6_CHAIN 8 /* lines of a bucket */
#define FIB6_SLOTS 5
#define FIB6_TRIES 4

static __always_inline struct ly_line *fib_line(void *table, __u32 line)
{
	return bpf_map_lookup_elem(table, &line);
}

static __always_inline __u32 fib_word(void *table, __u32 at)
{
	struct ly_line *l = fib_line(table, at / LY_LINE_WORDS);

	return l ? *(volatile __u32 *)&l->word[at % LY_LINE_WORDS] : 0;
}

static __always_inline __u32 fib4_near_lead(void *near, __u32 address)
{
	return fib_word(near, FIB4_NEAR + (address >> 10)) >> (address >> 5 & 24) & 0xff;
}

/* fib4_find where the far table is asked. It begins anew: the table it finds and the slot that one names belong together. */
__noinline __u32 fib4_far_find(__u32 vrf, __u32 address)
{
	void *near = bpf_map_lookup_elem(&fib4, &vrf);

	if (!near)
		return 0;
	__u32 lead = fib4_near_lead(near, address);
	if (lead != FIB4_FAR_LEAD)
		return fib_word(near, lead);
	__u32 slot = fib_word(near, FIB4_FAR_PLACE);
	void *far = bpf_map_lookup_elem(&fib4_far, &slot);
	if (!far)
		return 0;
	lead = fib_word(far, address >> 9) >> (address >> 4 & 16) & 0xffff;
	__u32 word = fib_word(near, lead);
	if (word & FIB_NODE) {
		word = fib_word(far, (word & ~FIB_NODE) - FIB4_FAR + (address & 0xff));
		if (!word)
			word = fib_word(near, 0);
	}
	return word;
}

/* The leaf for an IPv4 address in host order; 0: no route. A lead with a number of a byte is never a group's. */
static __always_inline __u32 fib4_find(__u32 vrf, __u32 address)
{
	void *near = bpf_map_lookup_elem(&fib4, &vrf);

	if (!near)
		return 0;
	__u32 lead = fib4_near_lead(near, address);
	return lead == FIB4_FAR_LEAD ? fib4_far_find(vrf, address) : fib_word(near, lead);
}

struct fib_skip {
	__u64 match[2], mask[2];
	__u32 child, otherwise, bits;
	__u32 pad[5];
};
_Static_assert(sizeof(struct fib_skip) == sizeof(struct ly_line), "fib_skip");

struct fib_header {
	__u32 otherwise;
	__u32 begin64, buckets64;
	__u32 begin48, buckets48;
	__u32 changes;
	__u32 pad[10];
};
_Static_assert(sizeof(struct fib_header) == sizeof(struct ly_line), "fib_header");

struct fib_bucket {
	__u64 key[FIB6_SLOTS]; /* inverted */
	__u32 entry[FIB6_SLOTS];
	__u32 next;
};
_Static_assert(sizeof(struct fib_bucket) == sizeof(struct ly_line), "fib_bucket");

/* From an entry that is no leaf to the leaf. */
__noinline __u32 fib6_walk(__u32 vrf, __u32 word, __u64 high, __u64 low)
{
	void *table = bpf_map_lookup_elem(&fib6, &vrf);

	if (!table)
		return 0;
	for (int depth = 0; depth < FIB6_DEPTH; depth++) {
		if (!(word & FIB_NODE))
			return word;
		struct ly_line *line = fib_line(table, FIB6_LINES + (word & FIB_LINE_MASK));
		if (!line)
			return 0;
		if (word < FIB_SKIP) {
			word = *(volatile __u32 *)&line->word[high >> 60];
			high = high << 4 | low >> 60;
			low <<= 4;
			continue;
		}
		struct fib_skip *skip = (void *)line;
		if (((high ^ skip->match[0]) & skip->mask[0]) | ((low ^ skip->match[1]) & skip->mask[1]))
			return *(volatile __u32 *)&skip->otherwise;
		__u32 bits = skip->bits & 127;
		if (bits < 64) {
			high = high << bits | low >> ((64 - bits) & 63);
			low <<= bits;
		} else {
			high = low << (bits & 63);
			low = 0;
		}
		word = *(volatile __u32 *)&skip->child;
	}
	return 0;
}

/* The entry of the routes that share the first 48 or 64 bits; 0: none. */
static __always_inline __u32 fib6_slot(void *table, __u32 begin, __u32 buckets, __u64 key)
{
	__u64 hash = key * 0x9e3779b97f4a7c15ULL;

	hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93ULL >> 32;
	__u32 at = begin + (hash * buckets >> 32);
	for (int i = 0; i < FIB6_CHAIN; i++) {
		struct fib_bucket *b = (void *)fib_line(table, at);
		if (!b)
			break;
#pragma unroll
		for (int slot = 0; slot < FIB6_SLOTS; slot++) {
			if (*(volatile __u64 *)&b->key[slot] != ~key)
				continue;
			__u32 word = *(volatile __u32 *)&b->entry[slot];
			if (word)
				return word;
		}
		__u32 next = *(volatile __u32 *)&b->next;
		if (!next)
			break;
		at = FIB6_LINES + next - 1;
	}
	return 0;
}

#define FIB6_CHANGED (1ULL << 32)

/* The leaf, or FIB6_CHANGED when a route has changed between one question and the next. */
__noinline __u64 fib6_once(__u32 vrf, __u64 high, __u64 low)
{
	void *table = bpf_map_lookup_elem(&fib6, &vrf);
	struct fib_header *header = table ? (void *)fib_line(table, 0) : NULL;
	__u32 word;

	if (!header)
		return 0;
	__u32 changes = *(volatile __u32 *)&header->changes;
	if (header->buckets64) {
		word = fib6_slot(table, header->begin64, header->buckets64, high);
		if (word & FIB_NODE)
			word = fib6_walk(vrf, word, low, 0);
		if (word)
			return word;
	}
	if (header->buckets48) {
		word = fib6_slot(table, header->begin48, header->buckets48, high & ~0xffffULL);
		if (word & FIB_NODE)
			word = fib6_walk(vrf, word, high << 48 | low >> 16, low << 48);
		if (word)
			return word;
	}
	word = fib_word(table, FIB6_ENTRIES + (high >> 48));
	if (word & FIB_NODE)
		word = fib6_walk(vrf, word, high << 16 | low >> 48, low << 16);
	if (!word)
		word = *(volatile __u32 *)&header->otherwise;
	return *(volatile __u32 *)&header->changes == changes ? word : FIB6_CHANGED;
}

/* The leaf for an IPv6 address, two halves in host order. */
__noinline __u32 fib6_find(__u32 vrf, __u64 high, __u64 low)
{
	__u64 found = FIB6_CHANGED;

	for (int tries = 0; tries < FIB6_TRIES && found == FIB6_CHANGED; tries++)
		found = fib6_once(vrf, high, low);
	/* FIB6_CHANGED is above the 32 bits of a leaf: a destination without a route, for which the kernel is asked. */
	return found;
}

#endif
