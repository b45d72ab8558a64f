/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The control plane's access to the FDB: syscall programs, so that a single implementation of the table's rules
 * serves frames and commands. */
#ifndef LY_FDB_CONTROL_H
#define LY_FDB_CONTROL_H

#define ENOENT 2
#define EAGAIN 11
#define EBUSY 16
#define ENOSPC 28

/* Removes an entry; false when it has changed meanwhile. */
static __always_inline bool fdb_take_out(struct fdb_hit hit, __u64 key)
{
	if (!fdb_swap(hit, 0))
		return false;
	usage_release_word(key, hit.word);
	return true;
}

/* Global functions, because the verifier accepts the context's fields by name only, not by computed
 * pointers. */
__noinline int fdb_write(__u64 key, __u64 raw)
{
	union ly_fdb_value value = { .raw = raw };
	struct fdb_hit hit = fdb_find(fdb_masks(), key);

	if (!hit.word) {
		int done = fdb_insert_growing(key, raw);
		return done == FDB_INSERTED ? 0 : done == FDB_NO_ROOM ? -ENOSPC : -EAGAIN;
	}
	if (!fdb_swap(hit, fdb_word(hit.word, value)))
		return -EAGAIN;
	usage_release_word(key, hit.word);
	return 0;
}

__noinline int fdb_remove(__u64 key)
{
	struct fdb_hit hit = fdb_find(fdb_masks(), key);

	return !hit.word ? -ENOENT : fdb_take_out(hit, key) ? 0 : -EAGAIN;
}

/* Writes a control-plane entry, and replaces an existing entry of the same address. */
SEC("syscall")
int fdb_set(struct ly_fdb_call *call)
{
	call->result = fdb_write(call->key, call->value);
	return 0;
}

SEC("syscall")
int fdb_delete(struct ly_fdb_call *call)
{
	call->result = fdb_remove(call->key);
	return 0;
}

struct fdb_scan_state {
	__u64 key, removed;
	__u32 scan, ageing_s, now_s, oldest_s;
	__u16 port;
};

static __always_inline bool fdb_scan_hit(struct fdb_scan_state *s, __u64 key, union ly_fdb_value value, __u32 age_s)
{
	if (s->scan == LY_SCAN_SWEEP)
		return age_s >= s->ageing_s;
	__u64 mac = s->key & KEY_MAC_MASK, vlan = s->key >> KEY_VLAN_SHIFT;

	return (!mac || mac == (key & KEY_MAC_MASK)) && (!vlan || vlan == key >> KEY_VLAN_SHIFT) &&
	       (!s->port || s->port == value.port);
}

/* Marks entries older than half a cycle of `seen`, so that they cannot look recent after the
 * counter has wrapped around (abi.h). */
static __always_inline void fdb_mark_old(struct fdb_hit hit, __u32 age_s)
{
	if (age_s > LY_FDB_CYCLE / 2 && fdb_seen(hit.word) != LY_FDB_LONG_AGO)
		fdb_swap(hit, (hit.word & ~(__u64)LY_FDB_SEEN_MASK) | LY_FDB_LONG_AGO << LY_FDB_SEEN_SHIFT);
}

/* A global function, so that the verifier checks it once. */
__noinline int fdb_scan_way(struct fdb_scan_state *s, __u64 word, __u32 bucket, __u32 way)
{
	struct fdb_hit hit = { word, bucket, way };
	__u64 key = fdb_key_of(bucket, word);
	union ly_fdb_value value = fdb_value(hit);

	if (!s)
		return 0;
	__u32 age_s = s->now_s - value.updated_s;
	if ((__s32)age_s < 0)
		age_s = 0;
	if (fdb_scan_hit(s, key, value, age_s) && fdb_take_out(hit, key)) {
		s->removed++;
		fdb_event(s->scan == LY_SCAN_SWEEP ? LY_EVENT_AGED : LY_EVENT_FLUSHED, key, value.raw, 0);
		return 0;
	}
	fdb_mark_old(hit, age_s);
	if (s->oldest_s == ~0U || age_s > s->oldest_s)
		s->oldest_s = age_s;
	return 0;
}

static long fdb_scan_bucket(__u32 index, struct fdb_scan_state *s)
{
	struct ly_fdb_bucket *b = fdb_bucket(index);

	if (!b)
		return 1;
	for (int i = 0; i < LY_FDB_WAYS; i++) {
		__u64 word = *(volatile __u64 *)&b->way[i];

		if (word != 0 && fdb_kind(word) == LY_FDB_DYNAMIC)
			fdb_scan_way(s, word, index, i);
	}
	return 0;
}

/* Removes entries by filter, or removes aged ones. A sweep with ageing_s 0xffffffff removes nothing
 * and only reports. */
SEC("syscall")
int fdb_scan(struct ly_fdb_call *call)
{
	struct fdb_scan_state s = {
		.key = call->key,
		.scan = call->scan,
		.ageing_s = call->ageing_s,
		.port = call->port,
		.now_s = now_s(),
		.oldest_s = ~0U,
	};

	struct fdb_masks masks = fdb_masks();
	bpf_loop((masks.now > masks.was ? masks.now : masks.was) + 1, fdb_scan_bucket, &s, 0);
	call->removed = s.removed;
	call->oldest_s = s.oldest_s;
	call->now_s = s.now_s;
	call->result = 0;
	return 0;
}

/* Returns the time of the clock by which entries are dated. */
SEC("syscall")
int clock_read(struct ly_clock_call *call)
{
	call->now_ns = ticks_ns();
	return 0;
}

/* Moves entries from the part that was in use to their places in the part in use now. During the
 * move an entry is in both places, each counted in usage, and look-ups try the new place first.
 * Changes of the old copy meanwhile are carried over to the new one. */

struct fdb_migrate_state {
	struct fdb_masks masks;
	__u64 waiting;
};

static __always_inline void usage_add_word(__u64 key, __u64 word)
{
	if (fdb_kind(word) == LY_FDB_DYNAMIC)
		usage_add_all(fdb_port(word), (key >> KEY_VLAN_SHIFT) & (LY_VLANS - 1));
}

/* Inserts a copy of `old` into the part in use now. */
static __always_inline bool fdb_copy(__u64 key, struct fdb_hit old)
{
	usage_add_word(key, old.word);
	int done = fdb_insert(key, fdb_value(old).raw);
	if (done == FDB_NO_ROOM)
		usage_release_word(key, old.word);
	return done == FDB_INSERTED;
}

/* Updates the copy at `place` from `old`. */
static __always_inline bool fdb_carry(__u64 key, struct fdb_hit place, struct fdb_hit old)
{
	__u64 word = fdb_word(place.word, fdb_value(old));

	usage_add_word(key, word);
	fdb_set_updated_s(place.bucket, place.way, fdb_updated_s(old.bucket, old.way));
	bool done = fdb_swap(place, word);
	usage_release_word(key, done ? place.word : word);
	return done;
}

/* The steps of fdb_migrate_way that may be repeated: global functions, so that the verifier checks each of them once
 * and not once for every try. */
__noinline int fdb_take_out_way(__u64 key, __u64 word, __u32 bucket, __u32 way)
{
	return fdb_take_out((struct fdb_hit){ word, bucket, way & (LY_FDB_WAYS - 1) }, key);
}

enum { CARRY_NO_COPY, CARRY_DONE, CARRY_AGAIN };
__noinline int fdb_carry_way(__u64 key, __u64 word, __u32 bucket, __u32 way, __u32 now)
{
	struct fdb_hit place = fdb_find_under(fdb_hash(key), now);

	if (!place.word)
		return CARRY_NO_COPY;
	if (fdb_kind(place.word) != LY_FDB_DYNAMIC || fdb_carry(key, place, (struct fdb_hit){ word, bucket, way & (LY_FDB_WAYS - 1) }))
		return CARRY_DONE;
	return CARRY_AGAIN;
}

/* Moves the entry of one way. Returns true when the way is empty. A global function, so that the
 * verifier checks it once. */
__noinline int fdb_migrate_way(__u32 bucket, __u32 way, __u32 now)
{
	struct ly_fdb_bucket *b = fdb_bucket(bucket);

	way &= LY_FDB_WAYS - 1;
	if (!b)
		return 1;
	struct fdb_hit old = { *(volatile __u64 *)&b->way[way], bucket, way };
	if (old.word == 0)
		return 1;
	__u64 key = fdb_key_of(bucket, old.word), hash = fdb_hash(key), tag = old.word;
	struct fdb_choice choice = fdb_buckets(hash, now);
	if (bucket == (old.word & LY_FDB_SECOND ? choice.second : choice.first))
		return 1;
	struct fdb_hit place = fdb_find_under(hash, now);
	/* True if the copy equals the old entry, is newer, or belongs to the control plane. */
	bool current = !place.word || fdb_kind(place.word) != LY_FDB_DYNAMIC || fdb_kind(old.word) == LY_FDB_DYNAMIC;
	if (!place.word && !fdb_copy(key, old))
		return 0;
	for (int tries = 0; tries < 8; tries++) {
		if (!current) {
			int carried = fdb_carry_way(key, old.word, bucket, way, now);
			if (carried == CARRY_NO_COPY)
				return 0;
			current = carried == CARRY_DONE;
			continue;
		}
		if (fdb_take_out_way(key, old.word, bucket, way))
			return 1;
		old.word = *(volatile __u64 *)&b->way[way];
		if (old.word == 0)
			return 1;
		if (!fdb_is(old.word, tag))
			return 0;
		current = false;
	}
	return 0;
}

static long fdb_migrate_bucket(__u32 index, struct fdb_migrate_state *s)
{
	for (__u32 way = 0; way < LY_FDB_WAYS; way++)
		if (!fdb_migrate_way(index, way, s->masks.now))
			s->waiting = 1;
	return 0;
}

/* To be called until `removed` is 0: then the old part is no longer used. */
SEC("syscall")
int fdb_migrate(struct ly_fdb_call *call)
{
	struct ly_fdb_state *state = ROW(fdb_state, 0);
	struct fdb_migrate_state s = { .masks = fdb_masks() };

	call->removed = 0;
	call->result = 0;
	if (s.masks.now == s.masks.was)
		return 0;
	bpf_loop(s.masks.was + 1, fdb_migrate_bucket, &s, 0);
	if (s.waiting == 0)
		*(volatile __u64 *)&state->masks = LY_FDB_MASKS(s.masks.now, s.masks.now);
	call->removed = s.waiting;
	return 0;
}

#endif
