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
#define FIB_ENTRIES LY_LINE_WORDS /* word of the first entry, of either family: line 0 is the header, its word 0 the default route */
#define FIB6_LINES (1 + 65536 / LY_LINE_WORDS) /* line of the first node or skip */
#define FIB6_DEPTH 29 /* nodes of four bits below the first sixteen, and the step that finds the leaf */

static __always_inline __u32 fib_word(void *table, __u32 at)
{
	__u32 line = at / LY_LINE_WORDS;
	struct ly_line *l = bpf_map_lookup_elem(table, &line);

	return l ? *(volatile __u32 *)&l->word[at % LY_LINE_WORDS] : 0;
}

/* The leaf for an IPv4 address in host order; 0: no route. */
__noinline __u32 fib4_find(__u32 vrf, __u32 address)
{
	void *table = bpf_map_lookup_elem(&fib4, &vrf);

	if (!table)
		return 0;
	__u32 word = fib_word(table, FIB_ENTRIES + (address >> 8));
	if (word & FIB_NODE)
		word = fib_word(table, (word & ~FIB_NODE) + (address & 0xff));
	return word ? word : fib_word(table, 0);
}

struct fib_skip {
	__u64 match[2], mask[2];
	__u32 child, otherwise, bits;
	__u32 pad[5];
};
_Static_assert(sizeof(struct fib_skip) == sizeof(struct ly_line), "fib_skip");

/* The leaf for an IPv6 address, two halves in host order. */
__noinline __u32 fib6_find(__u32 vrf, __u64 high, __u64 low)
{
	void *table = bpf_map_lookup_elem(&fib6, &vrf);

	if (!table)
		return 0;
	__u32 word = fib_word(table, FIB_ENTRIES + (high >> 48));
	high = high << 16 | low >> 48;
	low <<= 16;
	for (int depth = 0; depth < FIB6_DEPTH; depth++) {
		if (!(word & FIB_NODE))
			break;
		__u32 at = FIB6_LINES + (word & FIB_LINE_MASK);
		struct ly_line *line = bpf_map_lookup_elem(table, &at);
		if (!line)
			return 0;
		if (word < FIB_SKIP) {
			word = *(volatile __u32 *)&line->word[high >> 60];
			high = high << 4 | low >> 60;
			low <<= 4;
			continue;
		}
		struct fib_skip *skip = (void *)line;
		if (((high ^ skip->match[0]) & skip->mask[0]) | ((low ^ skip->match[1]) & skip->mask[1])) {
			word = *(volatile __u32 *)&skip->otherwise;
			break;
		}
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
	return word ? word : fib_word(table, 0);
}

#endif
