/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The FDB: a salted hash of 8-way buckets, two possible buckets an address, no locks.
 *
 * A bucket is two cache lines fetched as a pair, so a hit costs one miss of the cache at most. Nothing is
 * ever pushed out: when both buckets or a limit is full, the address is not learned, the refusal is counted,
 * and its frames are flooded. An attacker who does not know the salt cannot aim at a bucket.
 *
 * Invariant: an entry's value changes only by compare-and-swap from a value that was read, and a value of 0
 * stays 0 until whoever claimed the key writes it. So a refresh, a move and a removal that race leave one of
 * their outcomes, never a mixture.
 */
#ifndef LY_FDB_H
#define LY_FDB_H

#define KEY_VLAN_SHIFT 48
#define KEY_MAC_MASK 0xffffffffffffULL

static __always_inline __u64 fdb_key(__u64 mac, __u16 vlan)
{
	return (__u64)vlan << KEY_VLAN_SHIFT | mac;
}

struct fdb_choice {
	__u32 first, second; /* buckets */
};

static __always_inline __u64 fdb_hash(__u64 key)
{
	__u64 hash = (key ^ fdb_salt) * 0x9e3779b97f4a7c15ULL;

	hash ^= hash >> 32;
	return hash * 0xd6e8feb86659fd93ULL;
}

static __always_inline struct fdb_choice fdb_buckets(__u64 hash, __u32 mask)
{
	struct fdb_choice choice = { (hash >> 40) & mask, (hash >> 16) & mask };

	if (choice.second == choice.first)
		choice.second ^= 1;
	return choice;
}

/* The part of the table in use (abi.h). */
struct fdb_masks {
	__u32 now, was;
};

static __always_inline struct fdb_masks fdb_masks(void)
{
	struct ly_fdb_state *state = LOOKUP(fdb_state, 0);
	__u64 word = state ? *(volatile __u64 *)&state->masks : 0;

	if (word == 0)
		return (struct fdb_masks){ fdb_mask, fdb_mask };
	return (struct fdb_masks){ (__u32)word, word >> 32 };
}

static __always_inline __u64 *fdb_find_in(__u32 bucket, __u64 key)
{
	struct ly_fdb_bucket *b = LOOKUP(fdb, bucket);

	if (!b)
		return NULL;
#pragma unroll
	for (int i = 0; i < LY_FDB_WAYS; i++)
		if (b->way[i].key == key)
			return &b->way[i].value;
	return NULL;
}

/* Asks for the bucket where `key` most likely is, without waiting for it: look-ups that follow each other
 * then miss the cache together instead of in turn. */
static __always_inline void fdb_touch(struct fdb_masks masks, __u64 key)
{
	struct ly_fdb_bucket *b = LOOKUP(fdb, fdb_buckets(fdb_hash(key), masks.now).first);

	if (b)
		*(volatile __u64 *)&b->way[0].key;
}

static __always_inline __u64 *fdb_find_under(__u64 hash, __u32 mask, __u64 key)
{
	struct fdb_choice choice = fdb_buckets(hash, mask);
	__u64 *value = fdb_find_in(choice.first, key);

	return value ? value : fdb_find_in(choice.second, key);
}

/* The value's place; NULL when the key is not in the table. */
static __always_inline __u64 *fdb_find(struct fdb_masks masks, __u64 key)
{
	__u64 hash = fdb_hash(key);
	__u64 *value = fdb_find_under(hash, masks.now, key);

	if (!value && masks.was != masks.now)
		value = fdb_find_under(hash, masks.was, key);
	return value;
}

static __always_inline bool swap(__u64 *place, __u64 from, __u64 to)
{
	return __sync_val_compare_and_swap(place, from, to) == from;
}

/* Usage: how many dynamic entries the table, a port, a VLAN hold, against their limits. */

static __always_inline bool usage_take(__u32 slot)
{
	struct ly_usage *u = LOOKUP(fdb_usage, slot);

	if (!u)
		return false;
	__u32 before = __sync_fetch_and_add((__u32 *)&u->count, 1);
	if (before >= u->limit) {
		__sync_fetch_and_add((__u32 *)&u->count, -1);
		__sync_fetch_and_add(&u->refused, 1);
		return false;
	}
	if (before + 1 > u->high_water)
		u->high_water = before + 1;
	return true;
}

static __always_inline void usage_release(__u32 slot)
{
	struct ly_usage *u = LOOKUP(fdb_usage, slot);

	if (u)
		__sync_fetch_and_add((__u32 *)&u->count, -1);
}

/* What usage_take would say, for a dry run that takes nothing. */
static __always_inline bool usage_full(__u32 slot)
{
	struct ly_usage *u = LOOKUP(fdb_usage, slot);

	return !u || (__u32)u->count >= u->limit;
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

static __always_inline __u32 fdb_free_ways(struct ly_fdb_bucket *b)
{
	__u32 n = 0;

#pragma unroll
	for (int i = 0; i < LY_FDB_WAYS; i++)
		n += b->way[i].key == 0;
	return n;
}

/* True when `key` stands in `b` at another way than `way`. */
static __always_inline bool fdb_stands_elsewhere(struct ly_fdb_bucket *b, __u64 key, int way)
{
	for (int i = 0; i < LY_FDB_WAYS; i++)
		if (i != way && *(volatile __u64 *)&b->way[i].key == key)
			return true;
	return false;
}

/* Claims a free way of `b`. Two processors may claim the same key in different ways at the same moment:
 * whoever then sees the other's claim gives up its own (both may: the next frame tries again). So a key
 * never stands twice. */
static __always_inline bool fdb_claim(struct ly_fdb_bucket *b, struct ly_fdb_bucket *other, __u64 key, __u64 value)
{
	for (int i = 0; i < LY_FDB_WAYS; i++) {
		if (b->way[i].key != 0 || !swap(&b->way[i].key, 0, key))
			continue;
		if (fdb_stands_elsewhere(b, key, i) || fdb_stands_elsewhere(other, key, -1)) {
			b->way[i].key = 0;
			return false;
		}
		b->way[i].value = value;
		return true;
	}
	return false;
}

/* Puts a new entry into its first bucket while that is at most half full, then into the emptier one. With a table five
 * eighths full one entry in seven is in its second bucket, and one table in some hundred has no room for one entry: see
 * fdb_insert_growing. A global function: the verifier looks at it once. */
__noinline int fdb_insert(__u64 key, __u64 value)
{
	struct fdb_choice choice = fdb_buckets(fdb_hash(key), fdb_masks().now);
	struct ly_fdb_bucket *a = LOOKUP(fdb, choice.first), *b = LOOKUP(fdb, choice.second);

	if (!a || !b)
		return false;
	__u32 free_a = fdb_free_ways(a);
	if (free_a < LY_FDB_WAYS / 2 && fdb_free_ways(b) > free_a) {
		struct ly_fdb_bucket *c = a;
		a = b;
		b = c;
	}
	return fdb_claim(a, b, key, value);
}

/* Brings the whole table into use: when the near part is five eighths full, or `must`. True when it just did. */
static __always_inline bool fdb_grow(bool must)
{
	struct ly_fdb_state *state = LOOKUP(fdb_state, 0);
	struct ly_usage *u = LOOKUP(fdb_usage, LY_USAGE_TABLE);
	struct fdb_masks masks = fdb_masks();

	if (!state || !u || masks.now >= fdb_mask || masks.was != masks.now)
		return false;
	if (!must && u->count <= masks.now * (LY_FDB_WAYS * 5 / 8))
		return false;
	*(volatile __u64 *)&state->masks = LY_FDB_MASKS(fdb_mask, masks.now);
	return true;
}

/* Inserts; where there is no room in the near part, in the whole table. */
static __always_inline bool fdb_insert_growing(__u64 key, __u64 value)
{
	if (fdb_insert(key, value)) {
		fdb_grow(false);
		return true;
	}
	return fdb_grow(true) && fdb_insert(key, value);
}

#endif
