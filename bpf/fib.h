/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The longest-prefix match. crates/fib writes these tables and documents their layout; this file reads them. A test
 * compares the constants and structures with lanyard_fib::layout.
 *
 * Invariant: a word that refers to a line was written after that line, and the line is not written again until all
 * programs that may have read the word have ended. So a look-up needs no lock. */
#ifndef LY_FIB_H
#define LY_FIB_H

#define FIB_NODE 0x80000000U
#define FIB_SKIP 0xc0000000U
#define FIB_LINE_MASK 0x3fffffffU
#define FIB_DEPTH 17 /* four-bit nodes below 64 bits, where a trie is deepest, and the step that finds the leaf */
#define FIB_CHAIN 8 /* the most lines of a bucket */
#define FIB_SLOTS_24 7 /* the keys in a line of a bucket, by their number of bits */
#define FIB_SLOTS_48 6
#define FIB_SLOTS_64 5
#define FIB_NEXT (LY_LINE_WORDS - 1) /* the word of a bucket's line that refers to the next line */
#define FIB_BUCKETS 24 /* shift in a header's word: the bucket count above it, the first line below it */
#define FIB_TRIES 4
#define FIB_CHANGED (1ULL << 32)

#define FIB4_DIVIDED 0x80000000U /* in place of a leaf: there are longer routes inside the /24 */
#define FIB4_WIDE 0x80000001U    /* returned only, never stored: the entries are wide, and the quick look-up does not
                                  * read them */
#define FIB4_DEPTH 3 /* as FIB_DEPTH, for the 8 bits of an IPv4 address after a /24 */
#define FIB4_LAYOUT 28 /* shift in a block's word: the layout above it, a line below it */
#define FIB4_BLOCKS 1 /* the line of the first block; line 0 is the header */
#define FIB4_HASH 1   /* the header's word that locates the hash table of the divided /24s */
#define FIB6_ENTRIES LY_LINE_WORDS /* word of the first entry */

enum fib_kind { FIB_SMALL, FIB_MEDIUM, FIB_LARGE };
enum fib4_layout { FIB4_WHOLE, FIB4_SINGLE, FIB4_PAIRS, FIB4_NIBBLES, FIB4_BYTES, FIB4_WORDS };
enum { FIB4_TO_BYTES = 64 };

struct fib_header {
	__u32 otherwise;
	__u32 hash[2]; /* IPv4: hash of the divided /24s; IPv6: hashes for 64 and 48 bits */
	__u32 pad[2];
	__u32 changes;
	__u32 pads[10];
};
_Static_assert(sizeof(struct fib_header) == sizeof(struct ly_line), "fib_header");

struct fib_skip {
	__u64 match[2], mask[2];
	__u32 child, otherwise, bits;
	__u32 pad[5];
};
_Static_assert(sizeof(struct fib_skip) == sizeof(struct ly_line), "fib_skip");

/* `kind` is a constant argument, so that the compiler does not merge the code for tables of two
 * kinds: the verifier inlines a look-up only where it has seen maps of one size. */
static __always_inline struct ly_line *fib_line(void *table, enum fib_kind kind, __u32 line)
{
	asm volatile("" : "+r"(table) : "i"(kind));
	struct ly_line *found = bpf_map_lookup_elem(table, &line);
	asm volatile("" : "+r"(found) : "i"(kind));
	return found;
}

static __always_inline __u32 fib_word(void *table, enum fib_kind kind, __u32 at)
{
	struct ly_line *l = fib_line(table, kind, at / LY_LINE_WORDS);

	return l ? *(volatile __u32 *)&l->word[at % LY_LINE_WORDS] : 0;
}

/* Follows an entry to its leaf, in at most `depth` steps. */
static __always_inline __u32 fib_follow(void *table, enum fib_kind kind, int depth, __u32 word, __u64 high, __u64 low)
{
	for (int step = 0; step < depth; step++) {
		if (!(word & FIB_NODE))
			return word;
		struct ly_line *line = fib_line(table, kind, word & FIB_LINE_MASK);
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

/* Runs `statement` with `table` set to the table in the slot and `kind` set to its kind. Execution
 * continues after this macro if the slot has no table. */
#define FIB_IN(map, kind_, slot, statement)                             \
	do {                                                            \
		void *table = bpf_map_lookup_elem(&map, &slot);         \
		const enum fib_kind kind = kind_;                       \
		if (table)                                              \
			statement;                                      \
	} while (0)

#define FIB_IN_ANY(slot, statement)                             \
	FIB_IN(fib_small, FIB_SMALL, slot, statement);          \
	FIB_IN(fib_medium, FIB_MEDIUM, slot, statement);        \
	FIB_IN(fib_large, FIB_LARGE, slot, statement)

/* Compares a key of 24, 48 or 64 bits with the slots of one line of a bucket. Returns its entry or
 * 0, and in `next` the bucket's next line or 0. */
static __always_inline __u32 fib_in_line(struct ly_line *line, __u64 key, const int bits, __u32 *next)
{
	const int slots = bits <= 32 ? FIB_SLOTS_24 : bits == 48 ? FIB_SLOTS_48 : FIB_SLOTS_64;
	volatile __u32 *lower = line->word, *upper = lower + slots, *entry = lower + FIB_NEXT - slots;
	__u32 found = 0;

	key = ~key;
	/* No branches: the slot of the key cannot be predicted, and the line is often still being loaded. */
#pragma unroll
	for (int slot = 0; slot < slots; slot++) {
		__u64 other = lower[slot] ^ (__u32)key;
		if (bits == 48)
			other |= (upper[slot / 2] >> slot % 2 * 16 ^ (__u32)(key >> 32)) & 0xffff;
		else if (bits == 64)
			other |= upper[slot] ^ (__u32)(key >> 32);
		__u64 differs = -other; /* in the highest bit */
		asm volatile("" : "+r"(differs));
		found |= entry[slot] & (__u32)((differs >> 63) - 1);
	}
	*next = lower[FIB_NEXT];
	return found;
}

static __always_inline __u32 fib_rest_of(void *table, enum fib_kind kind, __u32 at, __u64 key, const int bits)
{
	for (int i = 1; i < FIB_CHAIN && at; i++) {
		struct ly_line *line = fib_line(table, kind, at);
		__u32 found = line ? fib_in_line(line, key, bits, &at) : 0;
		if (found || !line)
			return found;
	}
	return 0;
}

/* The further lines of a bucket. A function of its own, because few buckets have more than one
 * line. */
__noinline __u32 fib_rest24(__u32 slot, __u32 at, __u64 key)
{
	FIB_IN_ANY(slot, return fib_rest_of(table, kind, at, key, 24));
	return 0;
}

__noinline __u32 fib_rest48(__u32 slot, __u32 at, __u64 key)
{
	FIB_IN_ANY(slot, return fib_rest_of(table, kind, at, key, 48));
	return 0;
}

__noinline __u32 fib_rest64(__u32 slot, __u32 at, __u64 key)
{
	FIB_IN_ANY(slot, return fib_rest_of(table, kind, at, key, 64));
	return 0;
}

/* The entry of the routes that share the first bits of the key; 0: there is none. */
static __always_inline __u32 fib_slot(void *table, enum fib_kind kind, __u32 slot, __u32 place, __u64 key, const int bits)
{
	__u32 half = place >> FIB_BUCKETS, buckets = (2 + (half & 1)) << (half >> 1 & 31), next;
	__u64 hash = key * LY_HASH_A;

	hash = (hash ^ hash >> 32) * LY_HASH_B >> 32;
	struct ly_line *line = fib_line(table, kind, (place & ((1 << FIB_BUCKETS) - 1)) + (hash * buckets >> 32));
	__u32 found = line ? fib_in_line(line, key, bits, &next) : 0;
	if (found || !line || !next)
		return found;
	return bits == 24 ? fib_rest24(slot, next, key) : bits == 48 ? fib_rest48(slot, next, key) : fib_rest64(slot, next, key);
}

/* The entry of a /24: a leaf, 0 or FIB4_DIVIDED. With `quick`, FIB4_WIDE if the block's entries are
 * wide. */
static __always_inline __u32 fib4_near(void *table, enum fib_kind kind, __u32 address, bool quick)
{
	struct ly_line *block = fib_line(table, kind, FIB4_BLOCKS + (address >> 20));

	if (!block)
		return 0;
	__u32 word = *(volatile __u32 *)&block->word[0], layout = word >> FIB4_LAYOUT;
	__u32 at = (word & ((1 << FIB4_LAYOUT) - 1)) * LY_LINE_WORDS, entry = address >> 8 & 4095;
	if (layout <= FIB4_NIBBLES) {
		/* The layout of a block without entries has zero bits per entry and puts the leaf where their
		 * first line would be, so that no branch is needed for it. */
		__u32 bits = 1 << layout >> 1, bit = entry * bits;
		__u32 number = fib_word(table, kind, at + bit / 32) >> (bit & 31) & ((1 << bits) - 1);
		return *(volatile __u32 *)&block->word[(1 + number) & (LY_LINE_WORDS - 1)];
	}
	if (quick)
		return FIB4_WIDE;
	if (layout == FIB4_BYTES) {
		__u32 bytes = fib_word(table, kind, at + FIB4_TO_BYTES * LY_LINE_WORDS + entry / 4);
		return fib_word(table, kind, at + (bytes >> entry % 4 * 8 & 255));
	}
	return fib_word(table, kind, at + entry);
}

static __always_inline __u32 fib4_or_default(void *table, enum fib_kind kind, __u32 word)
{
	return word ? word : fib_word(table, kind, 0);
}

/* The leaf inside a divided /24, or FIB_CHANGED if its trie was replaced meanwhile. */
static __always_inline __u64 fib4_inside(void *table, enum fib_kind kind, __u32 slot, __u32 address)
{
	__u32 word = fib_slot(table, kind, slot, fib_word(table, kind, FIB4_HASH), address >> 8, 24);

	if (!word)
		return FIB_CHANGED;
	word = fib_follow(table, kind, FIB4_DEPTH, word, (__u64)address << 56, 0);
	return fib4_or_default(table, kind, word);
}

__noinline __u64 fib4_long(__u32 vrf, __u32 address)
{
	FIB_IN_ANY(vrf, return fib4_inside(table, kind, vrf, address));
	return 0;
}

/* fib4_near without `quick`. */
__noinline __u32 fib4_wide(__u32 vrf, __u32 address)
{
	FIB_IN_ANY(vrf, return fib4_or_default(table, kind, fib4_near(table, kind, address, false)));
	return 0;
}

/* Retries up to FIB_TRIES times while the table changes. A function of its own, because it is
 * seldom called. FIB_CHANGED is above the 32 bits of a leaf and 0 within them; it then means a
 * destination without a route, which is left to the kernel. */
__noinline __u32 fib4_again(__u32 vrf, __u32 address)
{
	__u64 found = FIB_CHANGED;

	for (int tries = 1; tries < FIB_TRIES && found == FIB_CHANGED; tries++) {
		found = fib4_wide(vrf, address);
		if (found == FIB4_DIVIDED)
			found = fib4_long(vrf, address);
	}
	return found;
}

/* The leaf for an IPv4 address in host order; 0: no route. */
static __always_inline __u32 fib4_find(__u32 vrf, __u32 address)
{
	__u32 word = FIB4_WIDE;
	void *table = bpf_map_lookup_elem(&fib_small, &vrf);

	if (table)
		word = fib4_or_default(table, FIB_SMALL, fib4_near(table, FIB_SMALL, address, true));
	else if ((table = bpf_map_lookup_elem(&fib_medium, &vrf)))
		word = fib4_or_default(table, FIB_MEDIUM, fib4_near(table, FIB_MEDIUM, address, true));
	if (word == FIB4_WIDE)
		word = fib4_wide(vrf, address);
	if (word != FIB4_DIVIDED)
		return word;
	__u64 found = fib4_long(vrf, address);
	return found == FIB_CHANGED ? fib4_again(vrf, address) : found;
}

__noinline __u32 fib6_walk(__u32 slot, __u32 word, __u64 high, __u64 low)
{
	FIB_IN_ANY(slot, return fib_follow(table, kind, FIB_DEPTH, word, high, low));
	return 0;
}

/* The leaf, or FIB_CHANGED if a route changed between the look-ups. */
static __always_inline __u64 fib6_once(void *table, enum fib_kind kind, __u32 slot, __u64 high, __u64 low)
{
	struct fib_header *header = (void *)fib_line(table, kind, 0);
	__u32 word;

	if (!header)
		return 0;
	__u32 changes = *(volatile __u32 *)&header->changes, hash = *(volatile __u32 *)&header->hash[0];
	if (hash) {
		word = fib_slot(table, kind, slot, hash, high, 64);
		if (word & FIB_NODE)
			word = fib6_walk(slot, word, low, 0);
		if (word)
			return word;
	}
	hash = *(volatile __u32 *)&header->hash[1];
	if (hash) {
		word = fib_slot(table, kind, slot, hash, high >> 16, 48);
		if (word & FIB_NODE)
			word = fib6_walk(slot, word, high << 48 | low >> 16, low << 48);
		if (word)
			return word;
	}
	word = fib_word(table, kind, FIB6_ENTRIES + (high >> 48));
	if (word & FIB_NODE)
		word = fib6_walk(slot, word, high << 16 | low >> 48, low << 16);
	if (!word)
		word = *(volatile __u32 *)&header->otherwise;
	return *(volatile __u32 *)&header->changes == changes ? word : FIB_CHANGED;
}

__noinline __u64 fib6_try(__u32 vrf, __u64 high, __u64 low)
{
	__u32 slot = LY_VRFS + vrf;

	FIB_IN_ANY(slot, return fib6_once(table, kind, slot, high, low));
	return 0;
}

/* As fib4_again. */
__noinline __u32 fib6_again(__u32 vrf, __u64 high, __u64 low)
{
	__u64 found = FIB_CHANGED;

	for (int tries = 1; tries < FIB_TRIES && found == FIB_CHANGED; tries++)
		found = fib6_try(vrf, high, low);
	return found;
}

/* The leaf for an IPv6 address, given as two halves in host order. */
static __always_inline __u32 fib6_find(__u32 vrf, __u64 high, __u64 low)
{
	__u64 found = fib6_try(vrf, high, low);

	return found == FIB_CHANGED ? fib6_again(vrf, high, low) : found;
}

#endif
