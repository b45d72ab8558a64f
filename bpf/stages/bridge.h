/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* bridge: chooses the egress (IEEE 802.1Q-2018, 8.8): a port, or out_id 0 for the flood set. */
enum {
	DROP_DESTINATION_BLACKHOLE = 16,
	DROP_SAME_PORT = 17,
};


/* The port of a routed frame's next hop according to the guess, if the guess is still right;
 * otherwise 0. The port is taken from the guess and not from the FDB entry, so that the processor
 * can continue while the entry is being loaded for the test. */
static __always_inline __u16 guessed(struct frame *f, __u64 key)
{
	__u32 port = f->named.word >> LY_NH_GUESS_SHIFT & LY_FDB_PORT_MASK;
	__u32 way = f->named.word >> LY_NH_GUESS_WAY_SHIFT & (LY_FDB_WAYS - 1);
	bool second = f->named.word & LY_NH_GUESS_SECOND;
	__u64 hash = fdb_hash(key);
	struct fdb_choice choice = fdb_buckets(hash, fdb_masks().now);
	struct ly_fdb_bucket *b = fdb_bucket(second ? choice.second : choice.first);
	__u64 word = b ? *(volatile __u64 *)&b->way[way] : 0;

	if (!fdb_is(word, fdb_tag(hash, second)) || fdb_port(word) != port)
		return 0;
	asm volatile("" : "+r"(port)); /* the port comes from the guess; the compiler must not replace it by the entry's port */
	return port;
}

/* The port of the next hop `key`, or -1. Its location in the FDB becomes the guess of `word`, which
 * is at `at`. A row of nh_groups is replaced by one 64-bit compare-and-swap, because one half
 * of it may stay the same when the group changes. A global function, because it is seldom called. */
__noinline int next_hop_find(__u64 key, __u64 word, __u32 at)
{
	struct fdb_hit hit = fdb_find(fdb_masks(), key);
	int port = hit.word ? fdb_port(hit.word) : -1;
	__u64 with = (word & ~(__u64)LY_NH_GUESS_MASK) | LY_NH_GUESS(fdb_port(hit.word), hit.way, hit.word & LY_FDB_SECOND);

	if (with == word || !leaves_marks(LY_DRY_LEARN))
		return port;
	if (word >> LY_NH_COUNT_SHIFT == 1) {
		swap(ROW(nh_groups, at), word, with);
		return port;
	}
	__u32 *bucket = nh_bucket(at);
	if (bucket)
		__sync_val_compare_and_swap(bucket, (__u32)word, (__u32)with);
	return port;
}

static __always_inline int stage_bridge(struct frame *f)
{
	if (f->dst & GROUP_BIT)
		return 0;
	__u64 key = fdb_key(f->dst, f->shared);
	__u16 to = f->routed ? guessed(f, key) : 0;
	bool known = to;

	if (!to && f->routed) {
		int found = next_hop_find(key, f->named.word, f->named.at);
		known = found >= 0;
		to = found & LY_FDB_PORT_MASK;
	} else if (!to) {
		__u64 word = fdb_word_of(fdb_masks(), key);
		known = word != 0;
		to = fdb_port(word);
	}
	if (dry) {
		struct ly_journal *j = dry_journal();
		if (j) {
			/* In a dry run without learning: the port at which the source would have been learned by now. */
			if (f->dst == f->src && (j->source == LY_SRC_NEW || j->source == LY_SRC_MOVED))
				known = true, to = f->port_id;
			j->target_port = known ? to : LY_NOT_FOUND;
		}
	}
	if (!known)
		return 0;
	if (to == 0)
		return DROP(DROP_DESTINATION_BLACKHOLE);
	if (to == f->port_id && !f->routed)
		return DROP(DROP_SAME_PORT);
	f->out_id = to;
	return 0;
}
