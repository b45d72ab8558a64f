/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The control plane's hand on the FDB: syscall programs, so that one implementation of the table's rules
 * serves frames and commands alike. */
#ifndef LY_FDB_CONTROL_H
#define LY_FDB_CONTROL_H

#define ENOENT 2
#define EAGAIN 11
#define ENOSPC 28

/* Takes one entry out; false when it changed meanwhile. */
static __always_inline bool fdb_take_out(struct ly_fdb_bucket *b, __u32 way, __u64 key, union ly_fdb_value old)
{
	way &= LY_FDB_WAYS - 1;
	if (!swap(&b->way[way].value, old.raw, 0))
		return false;
	b->way[way].key = 0;
	if (old.kind == LY_FDB_DYNAMIC)
		usage_release_all(old.port & (LY_PORTS - 1), (key >> KEY_VLAN_SHIFT) & (LY_VLANS - 1));
	return true;
}

/* Writes a control-plane entry over whatever stands there. */
SEC("syscall")
int fdb_set(struct ly_fdb_call *call)
{
	__u64 key = call->key;
	__u64 *place = fdb_find(fdb_masks(), key);

	call->result = -EAGAIN;
	if (!place) {
		call->result = fdb_insert_growing(key, call->value) ? 0 : -ENOSPC;
		return 0;
	}
	union ly_fdb_value old = { .raw = *place };
	if (old.raw == 0 || !swap(place, old.raw, call->value))
		return 0;
	if (old.kind == LY_FDB_DYNAMIC)
		usage_release_all(old.port & (LY_PORTS - 1), (key >> KEY_VLAN_SHIFT) & (LY_VLANS - 1));
	call->result = 0;
	return 0;
}

static __always_inline int fdb_delete_in(__u32 bucket, __u64 key)
{
	struct ly_fdb_bucket *b = LOOKUP(fdb, bucket);

	if (!b)
		return -ENOENT;
	for (int i = 0; i < LY_FDB_WAYS; i++) {
		if (b->way[i].key != key)
			continue;
		union ly_fdb_value old = { .raw = b->way[i].value };
		if (old.raw == 0)
			return -EAGAIN;
		return fdb_take_out(b, i, key, old) ? 0 : -EAGAIN;
	}
	return -ENOENT;
}

static __always_inline int fdb_delete_under(__u32 mask, __u64 key)
{
	struct fdb_choice choice = fdb_buckets(fdb_hash(key), mask);
	int result = fdb_delete_in(choice.first, key);

	return result == -ENOENT ? fdb_delete_in(choice.second, key) : result;
}

SEC("syscall")
int fdb_delete(struct ly_fdb_call *call)
{
	struct fdb_masks masks = fdb_masks();
	int result = fdb_delete_under(masks.now, call->key);

	if (result == -ENOENT && masks.was != masks.now)
		result = fdb_delete_under(masks.was, call->key);
	call->result = result;
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

static long fdb_scan_bucket(__u32 index, struct fdb_scan_state *s)
{
	struct ly_fdb_bucket *b = LOOKUP(fdb, index);

	if (!b)
		return 1;
	for (int i = 0; i < LY_FDB_WAYS; i++) {
		__u64 key = b->way[i].key;
		union ly_fdb_value value = { .raw = b->way[i].value };

		if (key == 0 || value.kind != LY_FDB_DYNAMIC)
			continue;
		__u32 age_s = s->now_s - value.updated_s;
		if ((__s32)age_s < 0)
			age_s = 0;
		if (fdb_scan_hit(s, key, value, age_s) && fdb_take_out(b, i, key, value)) {
			s->removed++;
			fdb_event(s->scan == LY_SCAN_SWEEP ? LY_EVENT_AGED : LY_EVENT_FLUSHED, key, value.raw, 0);
		} else if (s->oldest_s == ~0U || age_s > s->oldest_s) {
			s->oldest_s = age_s;
		}
	}
	return 0;
}

/* Flushes by filter, or sweeps out the aged. A sweep with ageing_s 0xffffffff removes nothing and reports. */
SEC("syscall")
int fdb_scan(struct ly_fdb_call *call)
{
	struct fdb_scan_state s = {
		.key = call->key,
		.scan = call->scan,
		.ageing_s = call->ageing_s,
		.port = call->port,
		.now_s = seconds(bpf_ktime_get_ns()), /* the coarse clock, a tick ahead at most */
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

/* Moving the entries of the part that was in use to where they belong now. An entry stands in both places
 * for a moment, and look-ups try the new one first; whatever happened to the old one meanwhile is carried over. */

struct fdb_migrate_state {
	struct fdb_masks masks;
	__u64 waiting;
};

/* A global function: the verifier looks at it once. True when the way is free or rightly placed. */
__noinline int fdb_migrate_way(__u32 bucket, __u32 way, __u32 now)
{
	struct ly_fdb_bucket *b = LOOKUP(fdb, bucket);

	way &= LY_FDB_WAYS - 1;
	if (!b)
		return 1;
	__u64 key = b->way[way].key, value = b->way[way].value, hash = fdb_hash(key);
	struct fdb_choice choice = fdb_buckets(hash, now);
	if (key == 0 || value == 0 || bucket == choice.first || bucket == choice.second)
		return 1;
	__u64 *place = fdb_find_under(hash, now, key);
	if (!place && fdb_insert(key, value))
		place = fdb_find_under(hash, now, key);
	if (!place)
		return 0;
	for (int tries = 0; tries < 4; tries++) {
		__u64 copied = value;
		if (swap(&b->way[way].value, value, 0)) {
			b->way[way].key = 0;
			return 1;
		}
		value = b->way[way].value;
		swap(place, copied, value);
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

/* Run until `removed` is 0: only then has the old part been given up. */
SEC("syscall")
int fdb_migrate(struct ly_fdb_call *call)
{
	struct ly_fdb_state *state = LOOKUP(fdb_state, 0);
	struct fdb_migrate_state s = { .masks = fdb_masks() };

	call->removed = 0;
	call->result = 0;
	if (!state || s.masks.now == s.masks.was)
		return 0;
	bpf_loop(s.masks.was + 1, fdb_migrate_bucket, &s, 0);
	if (s.waiting == 0)
		*(volatile __u64 *)&state->masks = LY_FDB_MASKS(s.masks.now, s.masks.now);
	call->removed = s.waiting;
	return 0;
}

#endif
