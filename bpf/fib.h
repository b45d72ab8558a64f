/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The longest match: crates/fib writes these tables and says how they lie in memory; this reads them.
 *
 * Invariant: a word that leads on was written after what it leads to, and what it leads to is not written again before all
 * programs that may have read it have ended. So a look-up needs no lock.
 */
#ifndef LY_FIB_H
#define LY_FIB_H

#define FIB_NODE 0x80000000U
#define FIB_SKIP 0xc0000000U
#define FIB_LINE_MASK 0x3fffffffU
#define FIB_DEPTH 29 /* nodes of four bits below the first sixteen, and the step that finds the leaf */
#define FIB_CHAIN 8 /* lines of a bucket */
#define FIB_BUCKET 5
#define FIB_TRIES 4
#define FIB_CHANGED (1ULL << 32)
#define FIB4_DIVIDED(bits) ((1U << (bits)) - 1) /* the entry, and the word that names the slot of fib_lines */
#define FIB6_ENTRIES LY_LINE_WORDS /* word of the first entry; line 0 is the header */

static __always_inline struct ly_line *fib_line(void *table, __u32 line)
{
	return bpf_map_lookup_elem(table, &line);
}

static __always_inline __u32 fib_word(void *table, __u32 at)
{
	struct ly_line *l = fib_line(table, at / LY_LINE_WORDS);

	return l ? *(volatile __u32 *)&l->word[at % LY_LINE_WORDS] : 0;
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
	__u64 key[FIB_BUCKET]; /* inverted */
	__u32 entry[FIB_BUCKET];
	__u32 next;
};
_Static_assert(sizeof(struct fib_bucket) == sizeof(struct ly_line), "fib_bucket");

/* From an entry that is no leaf to the leaf. */
__noinline __u32 fib_walk(__u32 slot, __u32 word, __u64 high, __u64 low)
{
	void *table = bpf_map_lookup_elem(&fib_lines, &slot);

	if (!table)
		return 0;
	for (int depth = 0; depth < FIB_DEPTH; depth++) {
		if (!(word & FIB_NODE))
			return word;
		struct ly_line *line = fib_line(table, word & FIB_LINE_MASK);
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

/* The entry of the routes that share their first bits; 0: none. */
static __always_inline __u32 fib_slot(void *table, __u32 begin, __u32 buckets, __u64 key)
{
	__u64 hash = key * 0x9e3779b97f4a7c15ULL;

	hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93ULL >> 32;
	__u32 at = begin + (hash * buckets >> 32);
	for (int i = 0; i < FIB_CHAIN; i++) {
		struct fib_bucket *b = (void *)fib_line(table, at);
		if (!b)
			break;
		/* Without a branch for each: where the key is can't be foreseen, and the line is often waited for. */
		__u32 word = 0;
#pragma unroll
		for (int slot = 0; slot < FIB_BUCKET; slot++) {
			__u64 other = *(volatile __u64 *)&b->key[slot] ^ ~key;
			__u64 differs = other | -other; /* in the highest bit */
			asm volatile("" : "+r"(differs));
			word |= *(volatile __u32 *)&b->entry[slot] & (__u32)((differs >> 63) - 1);
		}
		if (word)
			return word;
		__u32 next = *(volatile __u32 *)&b->next;
		if (!next)
			break;
		at = next;
	}
	return 0;
}

struct fib4_near {
	__u64 entry; /* the number of a lead, or FIB_CHANGED: the /24 is divided */
	__u32 leaf;  /* the lead's; of a divided /24 the default route's */
	__u32 slot;
};

#define FIB4_ENTRY(near, bits, address)                                                                                   \
	(fib_word(near, (1 << (bits)) + ((address) >> 8) / (32 / (bits))) >> ((address) >> 8) % (32 / (bits)) * (bits) & \
	 FIB4_DIVIDED(bits))

/* The entry of an address in a VRF's table of this width; goes on behind this where there is none. */
#define FIB4_NEAR(out, map, bits, vrf, address)                                   \
	do {                                                                      \
		void *near = bpf_map_lookup_elem(&map, &vrf);                     \
		if (near) {                                                       \
			__u32 entry = FIB4_ENTRY(near, bits, address);            \
			bool divided = entry == FIB4_DIVIDED(bits);               \
			(out)->entry = divided ? FIB_CHANGED : entry;             \
			(out)->leaf = fib_word(near, divided ? 0 : entry);        \
			(out)->slot = fib_word(near, FIB4_DIVIDED(bits));         \
			return true;                                              \
		}                                                                 \
	} while (0)

static __always_inline bool fib4_near(struct fib4_near *out, __u32 vrf, __u32 address)
{
	FIB4_NEAR(out, fib4_4bit, 4, vrf, address);
	FIB4_NEAR(out, fib4_8bit, 8, vrf, address);
	FIB4_NEAR(out, fib4_16bit, 16, vrf, address);
	return false;
}

/* The leaf, or FIB_CHANGED when the /24 is no more divided as it was. */
__noinline __u64 fib4_once(__u32 vrf, __u32 address)
{
	struct fib4_near near = {};

	if (!fib4_near(&near, vrf, address) || near.entry != FIB_CHANGED)
		return near.leaf;
	void *table = bpf_map_lookup_elem(&fib_lines, &near.slot);
	struct fib_header *header = table ? (void *)fib_line(table, 0) : NULL;
	if (!header)
		return FIB_CHANGED;
	__u32 word = fib_slot(table, header->begin64, header->buckets64, address >> 8);
	if (word & FIB_NODE)
		word = fib_walk(near.slot, word, (__u64)address << 56, 0);
	if (word)
		return word;
	if (!fib4_near(&near, vrf, address))
		return 0;
	return near.entry == FIB_CHANGED ? near.leaf : FIB_CHANGED;
}

/* fib4_find where the /24 is divided, or the table has entries of 16 bits. */
__noinline __u32 fib4_rest(__u32 vrf, __u32 address)
{
	__u64 found = FIB_CHANGED;

	for (int tries = 0; tries < FIB_TRIES && found == FIB_CHANGED; tries++)
		found = fib4_once(vrf, address);
	/* As in fib6_find. */
	return found;
}

/* The leaf for an IPv4 address in host order; 0: no route. */
static __always_inline __u32 fib4_find(__u32 vrf, __u32 address)
{
	void *near = bpf_map_lookup_elem(&fib4_4bit, &vrf);
	__u32 entry;

	if (near) {
		entry = FIB4_ENTRY(near, 4, address);
		if (entry != FIB4_DIVIDED(4))
			return fib_word(near, entry);
	} else if ((near = bpf_map_lookup_elem(&fib4_8bit, &vrf))) {
		entry = FIB4_ENTRY(near, 8, address);
		if (entry != FIB4_DIVIDED(8))
			return fib_word(near, entry);
	}
	return fib4_rest(vrf, address);
}

/* The leaf, or FIB_CHANGED when a route has changed between one question and the next. */
__noinline __u64 fib6_once(__u32 vrf, __u64 high, __u64 low)
{
	void *table = bpf_map_lookup_elem(&fib_lines, &vrf);
	struct fib_header *header = table ? (void *)fib_line(table, 0) : NULL;
	__u32 word;

	if (!header)
		return 0;
	__u32 changes = *(volatile __u32 *)&header->changes;
	if (header->buckets64) {
		word = fib_slot(table, header->begin64, header->buckets64, high);
		if (word & FIB_NODE)
			word = fib_walk(vrf, word, low, 0);
		if (word)
			return word;
	}
	if (header->buckets48) {
		word = fib_slot(table, header->begin48, header->buckets48, high & ~0xffffULL);
		if (word & FIB_NODE)
			word = fib_walk(vrf, word, high << 48 | low >> 16, low << 48);
		if (word)
			return word;
	}
	word = fib_word(table, FIB6_ENTRIES + (high >> 48));
	if (word & FIB_NODE)
		word = fib_walk(vrf, word, high << 16 | low >> 48, low << 16);
	if (!word)
		word = *(volatile __u32 *)&header->otherwise;
	return *(volatile __u32 *)&header->changes == changes ? word : FIB_CHANGED;
}

/* The leaf for an IPv6 address, two halves in host order. */
__noinline __u32 fib6_find(__u32 vrf, __u64 high, __u64 low)
{
	__u64 found = FIB_CHANGED;

	for (int tries = 0; tries < FIB_TRIES && found == FIB_CHANGED; tries++)
		found = fib6_once(vrf, high, low);
	/* FIB_CHANGED is above the 32 bits of a leaf: a destination without a route, for which the kernel is asked. */
	return found;
}

#endif
