/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The FDB: a salted hash with buckets of 8 ways and two possible buckets per address, without locks. abi.h describes
 * an entry.
 *
 * A bucket is one cache line and an entry one word, so a hit costs at most one cache miss, and 65,536 hosts fit into
 * a megabyte. No entry ever displaces another: when both buckets are full or a limit is reached, the address is not
 * learned, the refusal is counted, and frames to it are flooded. An attacker without the salt cannot choose
 * addresses that fall into one bucket.
 *
 * Invariants: an entry changes only by compare-and-swap from a word that was read. A refresh, a move and a removal
 * that race therefore leave the result of one of them, never a mixture. An entry's time is written before the entry,
 * so no look-up finds a new entry with an old time.
 *
 * Each dynamic word in the table has one unit of usage: of the table, of the port in the word, and of its VLAN. The
 * unit is taken before the word is written. The compare-and-swap that removes the word, or gives it another port,
 * releases the unit afterwards, for the port of the word that it replaced. So a count is never less than the
 * contents, and equals them when no program runs. */
#ifndef LY_FDB_H
#define LY_FDB_H

#define KEY_VLAN_SHIFT 48
#define KEY_MAC_MASK 0xffffffffffffULL

static __always_inline __u64 fdb_key(__u64 mac, __u16 vlan)
{
	return (__u64)vlan << KEY_VLAN_SHIFT | mac;
}

/* A permutation of 59-bit words: a key without its group bit. */
#define HASH_BITS 59
#define HASH_MASK ((1ULL << HASH_BITS) - 1)
#define HASH_A_INVERSE 0xf1de83e19937733dULL /* of LY_HASH_A modulo 2^64, and so modulo 2^59 */
#define HASH_B_INVERSE 0xcfee444d8b59a89bULL

static __always_inline __u64 fdb_hash(__u64 key)
{
	__u64 hash = (key >> KEY_VLAN_SHIFT) << 47 | (key & KEY_MAC_MASK) >> 1;

	hash = (hash ^ fdb_salt) * LY_HASH_A & HASH_MASK;
	hash = (hash ^ hash >> 30) * LY_HASH_B & HASH_MASK;
	return hash ^ hash >> 30;
}

static __always_inline __u64 fdb_unhash(__u64 hash)
{
	hash = (hash ^ hash >> 30) * HASH_B_INVERSE & HASH_MASK;
	hash = (hash ^ hash >> 30) * HASH_A_INVERSE & HASH_MASK;
	hash ^= fdb_salt & HASH_MASK;
	return (hash >> 47) << KEY_VLAN_SHIFT | (hash << 1 & KEY_MAC_MASK);
}

/* The distance from the first bucket to the second. It is never 0 under any mask. */
static __always_inline __u32 fdb_stride(__u64 hash)
{
	return (__u32)((hash >> LY_FDB_NEAR_BITS) * LY_HASH_A >> 40) | 1;
}

struct fdb_choice {
	__u32 first, second; /* buckets */
};

static __always_inline struct fdb_choice fdb_buckets(__u64 hash, __u32 mask)
{
	__u32 first = hash & mask;

	return (struct fdb_choice){ first, (first ^ fdb_stride(hash)) & mask };
}

/* The tag part of an entry's word. */

static __always_inline __u64 fdb_tag(__u64 hash, bool second)
{
	return hash >> LY_FDB_NEAR_BITS << LY_FDB_TAG_SHIFT | (second ? LY_FDB_SECOND : 0);
}

static __always_inline bool fdb_is(__u64 word, __u64 tag)
{
	return word >> 18 == tag >> 18;
}

static __always_inline __u16 fdb_port(__u64 word)
{
	return word & LY_FDB_PORT_MASK;
}

static __always_inline __u32 fdb_seen(__u64 word)
{
	return (word & LY_FDB_SEEN_MASK) >> LY_FDB_SEEN_SHIFT;
}

static __always_inline __u8 fdb_kind(__u64 word)
{
	__u32 seen = fdb_seen(word);

	return seen <= LY_FDB_LONG_AGO ? LY_FDB_DYNAMIC : seen - LY_FDB_KINDS;
}

static __always_inline __u64 fdb_word(__u64 tag, union ly_fdb_value value)
{
	__u64 seen = value.kind == LY_FDB_DYNAMIC ? value.updated_s % LY_FDB_CYCLE : LY_FDB_KINDS + value.kind;

	return (tag & ~(LY_FDB_SECOND - 1ULL)) | (seen << LY_FDB_SEEN_SHIFT & LY_FDB_SEEN_MASK) |
	       (value.port & LY_FDB_PORT_MASK);
}

/* The key of the entry with this word in this bucket. */
static __always_inline __u64 fdb_key_of(__u32 bucket, __u64 word)
{
	__u64 hash = word >> LY_FDB_TAG_SHIFT << LY_FDB_NEAR_BITS;
	__u32 first = word & LY_FDB_SECOND ? bucket ^ fdb_stride(hash) : bucket;

	return fdb_unhash(hash | (first & (LY_FDB_NEAR - 1)));
}

/* The part of the table in use (abi.h). */
struct fdb_masks {
	__u32 now, was;
};

static __always_inline struct fdb_masks fdb_masks(void)
{
	__u64 word = *(volatile __u64 *)&ROW(fdb_state, 0)->masks;

	if (word == 0)
		return (struct fdb_masks){ fdb_mask, fdb_mask };
	return (struct fdb_masks){ (__u32)word, word >> 32 };
}

/* An entry that was found: its word and its position. */
struct fdb_hit {
	__u64 word; /* 0: not found */
	__u32 bucket, way;
};

/* The bucket with this number; NULL if there is none. */
static __always_inline struct ly_fdb_bucket *fdb_bucket(__u32 bucket)
{
	__u32 near = bucket;

	/* Without this the compiler omits the row's mask after the comparison, and the verifier does not
	 * remember the comparison. */
	asm volatile("" : "+r"(near));
	return bucket < LY_FDB_NEAR ? ROW(fdb_near, near) : LOOKUP(fdb, bucket - LY_FDB_NEAR);
}

static __always_inline struct fdb_hit fdb_find_in(__u32 bucket, __u64 tag)
{
	struct ly_fdb_bucket *b = fdb_bucket(bucket);

	if (b) {
#pragma unroll
		for (int i = 0; i < LY_FDB_WAYS; i++) {
			__u64 word = *(volatile __u64 *)&b->way[i];
			if (fdb_is(word, tag))
				return (struct fdb_hit){ word, bucket, i };
		}
	}
	return (struct fdb_hit){};
}

/* Prefetches the bucket in which `key` most likely is, so that the cache misses of successive
 * look-ups overlap. */
static __always_inline void fdb_touch(struct fdb_masks masks, __u64 key)
{
	struct ly_fdb_bucket *b = fdb_bucket(fdb_buckets(fdb_hash(key), masks.now).first);

	if (b)
		*(volatile __u64 *)&b->way[0];
}

#define FDB_FOUND (1ULL << 63)

/* The place of the entry with this hash: FDB_FOUND, its bucket and its way; 0 if there is none. A
 * global function, so that the verifier checks it once and not for each way and both places of a
 * bucket at every look-up. */
__noinline __u64 fdb_locate(__u64 hash, __u32 mask)
{
	struct fdb_choice choice = fdb_buckets(hash, mask);
	struct fdb_hit hit = fdb_find_in(choice.first, fdb_tag(hash, false));

	if (!hit.word)
		hit = fdb_find_in(choice.second, fdb_tag(hash, true));
	return hit.word ? FDB_FOUND | (__u64)hit.bucket * LY_FDB_WAYS | hit.way : 0;
}

static __always_inline struct fdb_hit fdb_find_under(__u64 hash, __u32 mask)
{
	__u64 at = fdb_locate(hash, mask);
	struct fdb_hit hit = { .bucket = at / LY_FDB_WAYS, .way = at & (LY_FDB_WAYS - 1) };
	struct ly_fdb_bucket *b = at ? fdb_bucket(hit.bucket) : NULL;

	if (!b)
		return (struct fdb_hit){};
	hit.word = *(volatile __u64 *)&b->way[hit.way];
	/* Another processor may have removed it since. */
	if (hit.word >> LY_FDB_TAG_SHIFT != hash >> LY_FDB_NEAR_BITS)
		return (struct fdb_hit){};
	return hit;
}

static __always_inline struct fdb_hit fdb_find(struct fdb_masks masks, __u64 key)
{
	__u64 hash = fdb_hash(key);
	struct fdb_hit hit = fdb_find_under(hash, masks.now);

	if (!hit.word && masks.was != masks.now)
		hit = fdb_find_under(hash, masks.was);
	return hit;
}

/* The word of `key` when the whole table is in use; 0 if it is not in the table. A global function,
 * because few switches know so many hosts, and the look-ups of the others then keep the frame's data
 * in registers. */
__noinline __u64 fdb_far_word(__u64 key)
{
	struct fdb_masks masks = fdb_masks();

	if (masks.was != masks.now)
		return fdb_find(masks, key).word;
	/* As fdb_locate, but without a further call. */
	__u64 hash = fdb_hash(key);
	struct fdb_choice choice = fdb_buckets(hash, masks.now);
	__u64 word = fdb_find_in(choice.first, fdb_tag(hash, false)).word;

	return word ? word : fdb_find_in(choice.second, fdb_tag(hash, true)).word;
}

static __always_inline __u64 fdb_near_word(__u32 bucket, __u64 tag)
{
	struct ly_fdb_bucket *b = ROW(fdb_near, bucket);

#pragma unroll
	for (int i = 0; i < LY_FDB_WAYS; i++) {
		__u64 word = *(volatile __u64 *)&b->way[i];
		if (fdb_is(word, tag))
			return word;
	}
	return 0;
}

/* The word of `key`; 0 if it is not in the table. */
static __always_inline __u64 fdb_word_of(struct fdb_masks masks, __u64 key)
{
	if (masks.now != LY_FDB_NEAR - 1 || masks.was != masks.now)
		return fdb_far_word(key);
	__u64 hash = fdb_hash(key);
	struct fdb_choice choice = fdb_buckets(hash, LY_FDB_NEAR - 1);
	__u64 word = fdb_near_word(choice.first, fdb_tag(hash, false));

	return word ? word : fdb_near_word(choice.second, fdb_tag(hash, true));
}

static __always_inline bool swap(__u64 *place, __u64 from, __u64 to)
{
	return __sync_val_compare_and_swap(place, from, to) == from;
}

static __always_inline __u32 fdb_updated_s(__u32 bucket, __u32 way)
{
	struct ly_fdb_times *t = LOOKUP(fdb_times, bucket);

	return t ? t->updated_s[way & (LY_FDB_WAYS - 1)] : 0;
}

static __always_inline void fdb_set_updated_s(__u32 bucket, __u32 way, __u32 updated_s)
{
	struct ly_fdb_times *t = LOOKUP(fdb_times, bucket);

	if (t)
		t->updated_s[way & (LY_FDB_WAYS - 1)] = updated_s;
}

/* Replaces the word that was found by another; 0 removes the entry. */
static __always_inline bool fdb_swap(struct fdb_hit hit, __u64 to)
{
	struct ly_fdb_bucket *b = fdb_bucket(hit.bucket);

	return b && swap(&b->way[hit.way & (LY_FDB_WAYS - 1)], hit.word, to);
}

/* The entry in the form that the control plane reads. */
static __always_inline union ly_fdb_value fdb_value(struct fdb_hit hit)
{
	return (union ly_fdb_value){
		.updated_s = fdb_updated_s(hit.bucket, hit.way),
		.port = fdb_port(hit.word),
		.kind = fdb_kind(hit.word),
	};
}

/* Usage: the numbers of dynamic entries of the table, of a port and of a VLAN, compared with their
 * limits. */

static __always_inline bool usage_take(__u32 slot)
{
	struct ly_usage *u = LOOKUP(fdb_usage, slot);

	if (!u)
		return false;
	__s32 before = __sync_fetch_and_add((__u32 *)&u->count, 1);
	if (before >= 0 && (__u32)before >= u->limit) {
		__sync_fetch_and_add((__u32 *)&u->count, -1);
		__sync_fetch_and_add(&u->refused, 1);
		return false;
	}
	if (before + 1 > (__s32)u->high_water)
		u->high_water = before + 1;
	return true;
}

/* Counts an entry regardless of the limit, because it is being copied. */
static __always_inline void usage_add(__u32 slot)
{
	struct ly_usage *u = LOOKUP(fdb_usage, slot);

	if (u)
		__sync_fetch_and_add((__u32 *)&u->count, 1);
}

static __always_inline void usage_release(__u32 slot)
{
	struct ly_usage *u = LOOKUP(fdb_usage, slot);

	if (u)
		__sync_fetch_and_add((__u32 *)&u->count, -1);
}

/* The value that usage_take would return, for a dry run that counts nothing. */
static __always_inline bool usage_full(__u32 slot)
{
	struct ly_usage *u = LOOKUP(fdb_usage, slot);

	return !u || (u->count >= 0 && (__u32)u->count >= u->limit);
}

static __always_inline bool usage_take_all(__u16 port, __u16 vlan)
{
	if (!usage_take(LY_USAGE_TABLE))
		return false;
	if (!usage_take(LY_USAGE_PORT(port)))
		goto table;
	if (!usage_take(LY_USAGE_VLAN(vlan)))
		goto port;
	return true;
port:
	usage_release(LY_USAGE_PORT(port));
table:
	usage_release(LY_USAGE_TABLE);
	return false;
}

static __always_inline void usage_add_all(__u16 port, __u16 vlan)
{
	usage_add(LY_USAGE_TABLE);
	usage_add(LY_USAGE_PORT(port));
	usage_add(LY_USAGE_VLAN(vlan));
}

static __always_inline void usage_release_all(__u16 port, __u16 vlan)
{
	usage_release(LY_USAGE_VLAN(vlan));
	usage_release(LY_USAGE_PORT(port));
	usage_release(LY_USAGE_TABLE);
}

static __always_inline void fdb_event(__u8 event, __u64 key, __u64 value, __u16 from)
{
	struct ly_fdb_event *e = bpf_ringbuf_reserve(&fdb_events, sizeof(*e), 0);

	if (!e) {
		struct ly_lost *l = LOOKUP(lost, 0);
		if (l)
			__sync_fetch_and_add(&l->fdb_events, 1);
		return;
	}
	*e = (struct ly_fdb_event){ .key = key, .value = value, .from = from, .event = event };
	bpf_ringbuf_submit(e, 0);
}

/* The number of free ways of a bucket. This function and the next are global for the same reason as
 * fdb_locate. */
__noinline int fdb_free_ways(__u32 bucket)
{
	struct ly_fdb_bucket *b = fdb_bucket(bucket);
	int n = 0;

	if (!b)
		return 0;

#pragma unroll
	for (int i = 0; i < LY_FDB_WAYS; i++)
		n += b->way[i] == 0;
	return n;
}

/* True when the bucket has an entry with this tag in a way other than `way`. */
__noinline int fdb_stands_elsewhere(__u32 bucket, __u64 tag, int way)
{
	struct ly_fdb_bucket *b = fdb_bucket(bucket);

	for (int i = 0; b && i < LY_FDB_WAYS; i++)
		if (i != way && fdb_is(*(volatile __u64 *)&b->way[i], tag))
			return true;
	return false;
}

/* Releases the usage of the entry `word` of `key`, after its removal from the table. */
static __always_inline void usage_release_word(__u64 key, __u64 word)
{
	if (fdb_kind(word) == LY_FDB_DYNAMIC)
		usage_release_all(fdb_port(word), (key >> KEY_VLAN_SHIFT) & (LY_VLANS - 1));
}

/* The result of an insertion. The caller has counted usage for a dynamic entry. It releases that
 * unless the entry was inserted or withdrawn; in the latter case the remover of the entry has
 * released it. */
enum fdb_inserted {
	FDB_INSERTED,
	FDB_NO_ROOM,   /* no way is free in either bucket */
	FDB_WITHDRAWN, /* another processor inserted the key at the same moment */
};

/* How often a withdrawal is tried. Each failure means that another processor refreshed or moved the
 * same entry. */
#define FDB_WITHDRAW_TRIES 16

/* Removes the entry that this processor has just written, even if other processors have changed it
 * since, and releases its usage. If it changes during each attempt, it stays as an ordinary entry
 * and ages. A global function, because it is seldom called. Returns enum fdb_inserted. */
__noinline int fdb_withdraw(__u64 key, __u64 word, __u32 bucket, __u32 way)
{
	struct ly_fdb_bucket *b = fdb_bucket(bucket);
	__u64 tag = word;

	way &= LY_FDB_WAYS - 1;
	for (int tries = 0; b && tries < FDB_WITHDRAW_TRIES; tries++) {
		if (swap(&b->way[way], word, 0)) {
			usage_release_word(key, word);
			return FDB_WITHDRAWN;
		}
		word = *(volatile __u64 *)&b->way[way];
		if (!fdb_is(word, tag))
			return FDB_WITHDRAWN; /* taken out, and released, by another processor */
	}
	return FDB_INSERTED;
}

/* Claims a free way. Two processors may insert the same key into different ways at the same time;
 * each one that sees the other's entry withdraws its own. Both may withdraw: then the next frame
 * inserts it. */
static __always_inline int fdb_claim(__u32 bucket, __u32 other, __u64 key, bool second, __u64 value)
{
	struct ly_fdb_bucket *b = fdb_bucket(bucket);
	union ly_fdb_value entry = { .raw = value };
	__u64 hash = fdb_hash(key), word = fdb_word(fdb_tag(hash, second), entry);

	if (!b)
		return FDB_NO_ROOM;
	for (int i = 0; i < LY_FDB_WAYS; i++) {
		if (*(volatile __u64 *)&b->way[i] != 0)
			continue;
		fdb_set_updated_s(bucket, i, entry.updated_s);
		if (!swap(&b->way[i], 0, word))
			continue;
		if (!fdb_stands_elsewhere(bucket, word, i) && !fdb_stands_elsewhere(other, fdb_tag(hash, !second), -1))
			return FDB_INSERTED;
		return fdb_withdraw(key, word, bucket, i);
	}
	return FDB_NO_ROOM;
}

/* Inserts a new entry into its first bucket while that has three free ways, then into the emptier
 * one, and into the other one if that has been filled meanwhile. In a table that is five eighths
 * full, one entry in twelve is in its second bucket, and few tables have no room for an entry: see
 * fdb_insert_growing. A global function, so that the verifier checks it once. Returns enum
 * fdb_inserted. */
__noinline int fdb_insert(__u64 key, __u64 value)
{
	struct fdb_choice choice = fdb_buckets(fdb_hash(key), fdb_masks().now);
	int free_first = fdb_free_ways(choice.first);
	__u32 second = free_first < 3 && fdb_free_ways(choice.second) > free_first;
	int done = FDB_NO_ROOM;
	for (__u32 tries = 0; tries < 2 && done == FDB_NO_ROOM; tries++, second ^= 1)
		done = second ? fdb_claim(choice.second, choice.first, key, true, value) :
				fdb_claim(choice.first, choice.second, key, false, value);
	return done;
}

/* Extends the part in use to the whole table, when the near part is five eighths full or `must` is
 * set. Returns true if this call did it. */
static __always_inline bool fdb_grow(bool must)
{
	struct ly_fdb_state *state = ROW(fdb_state, 0);
	struct ly_usage *u = LOOKUP(fdb_usage, LY_USAGE_TABLE);
	struct fdb_masks masks = fdb_masks();

	if (!u || masks.now >= fdb_mask || masks.was != masks.now)
		return false;
	if (!must && u->count <= (__s32)(masks.now * (LY_FDB_WAYS * 5 / 8)))
		return false;
	*(volatile __u64 *)&state->masks = LY_FDB_MASKS(fdb_mask, masks.now);
	return true;
}

/* Inserts into the near part, and into the whole table if the near part has no room. Returns enum
 * fdb_inserted. */
static __always_inline int fdb_insert_growing(__u64 key, __u64 value)
{
	int done = fdb_insert(key, value);

	if (done == FDB_INSERTED)
		fdb_grow(false);
	else if (done == FDB_NO_ROOM && fdb_grow(true))
		done = fdb_insert(key, value);
	return done;
}

#endif
