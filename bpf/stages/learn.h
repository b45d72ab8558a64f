/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* learn: the source address into the FDB (IEEE 802.1Q-2018, 8.7): insert, refresh, move.
 *
 * A full table, port or VLAN refuses, counts, and the frame goes on. Control-plane entries never move.
 */
static __always_inline void learn_journal(__u8 source, __u16 port)
{
	if (!dry)
		return;
	struct ly_journal *j = dry_journal();
	if (j) {
		j->source = source;
		j->source_port = port;
	}
}

static __always_inline __u8 learn_new(__u64 key, union ly_fdb_value value)
{
	__u16 port = value.port & (LY_PORTS - 1), vlan = (key >> KEY_VLAN_SHIFT) & (LY_VLANS - 1);

	if (!leaves_marks(LY_DRY_LEARN))
		return usage_full(LY_USAGE_TABLE) || usage_full(LY_USAGE_PORT(port)) || usage_full(LY_USAGE_VLAN(vlan)) ?
			       LY_SRC_REFUSED :
			       LY_SRC_NEW;
	if (!usage_take_all(port, vlan))
		return LY_SRC_REFUSED;
	if (!fdb_insert_growing(key, value.raw)) {
		usage_release_all(port, vlan);
		struct ly_usage *u = LOOKUP(fdb_usage, LY_USAGE_TABLE);
		if (u)
			__sync_fetch_and_add(&u->refused, 1);
		return LY_SRC_REFUSED;
	}
	fdb_event(LY_EVENT_ADDED, key, value.raw, 0);
	return LY_SRC_NEW;
}

static __always_inline __u8 learn_move(__u64 key, __u64 *place, union ly_fdb_value old, union ly_fdb_value value)
{
	__u16 port = value.port & (LY_PORTS - 1);

	if (!leaves_marks(LY_DRY_LEARN))
		return usage_full(LY_USAGE_PORT(port)) ? LY_SRC_REFUSED : LY_SRC_MOVED;
	if (!usage_take(LY_USAGE_PORT(port)))
		return LY_SRC_REFUSED;
	if (!swap(place, old.raw, value.raw)) {
		usage_release(LY_USAGE_PORT(port));
		return LY_SRC_KNOWN; /* someone else moved or removed it in between */
	}
	usage_release(LY_USAGE_PORT(old.port & (LY_PORTS - 1)));
	fdb_event(LY_EVENT_MOVED, key, value.raw, old.port);
	return LY_SRC_MOVED;
}

/* Whatever is not simply known: `value` is what the FDB would hold, `learn` whether it may. A global function: the
 * verifier looks at it once. */
__noinline int learn_slow(__u64 key, __u64 value, __u32 learn)
{
	__u64 *place = fdb_find(fdb_masks(), key);
	union ly_fdb_value old = { .raw = place ? *place : 0 }, want = { .raw = value };
	__u8 did = LY_SRC_NONE;

	if (old.raw != 0 && old.kind != LY_FDB_DYNAMIC)
		did = LY_SRC_FIXED;
	else if (!learn)
		did = LY_SRC_NONE;
	else if (!place)
		did = learn_new(key, want);
	else if (old.raw != 0 && old.port != want.port)
		did = learn_move(key, place, old, want);
	learn_journal(did, old.port);
	return 0;
}

/* Writes the time once a second at most: the line stays shared between processors. */
static __always_inline void learn_refresh(struct frame *f, __u64 *place, union ly_fdb_value old)
{
	if (old.updated_s == f->now_s || !leaves_marks(LY_DRY_LEARN))
		return;
	union ly_fdb_value value = old;
	value.updated_s = f->now_s;
	swap(place, old.raw, value.raw);
}

static __always_inline bool learn_is_known(struct frame *f, union ly_fdb_value old)
{
	return old.port == f->port_id && old.kind == LY_FDB_DYNAMIC && f->pv & LY_PV_LEARN;
}

static __always_inline int stage_learn(struct frame *f)
{
	struct fdb_masks masks = fdb_masks();
	__u64 key = fdb_key(f->src, f->vlan);
	fdb_touch(masks, key);
	fdb_touch(masks, fdb_key(f->dst, f->vlan)); /* `bridge` will want it */
	f->now_s = seconds(now_ns(true)); /* the clock is read while memory answers */
	__u64 *place = fdb_find(masks, key);
	union ly_fdb_value old = { .raw = place ? *place : 0 };

	if (old.raw != 0 && old.port == 0)
		return DROP(DROP_SOURCE_BLACKHOLE);
	if (place && learn_is_known(f, old)) {
		learn_refresh(f, place, old);
		learn_journal(LY_SRC_KNOWN, old.port);
	} else {
		union ly_fdb_value want = { .updated_s = f->now_s, .port = f->port_id, .kind = LY_FDB_DYNAMIC };
		learn_slow(key, want.raw, f->pv & LY_PV_LEARN);
	}
	return f->pv & LY_PV_FORWARD ? 0 : DROP(DROP_STP_LEARNING);
}

/* XDP's part: true when the source needs nothing that XDP does not do. */
static __always_inline bool stage_learn_fast(struct frame *f)
{
	struct fdb_masks masks = fdb_masks();
	__u64 key = fdb_key(f->src, f->vlan);
	fdb_touch(masks, key);
	fdb_touch(masks, fdb_key(f->dst, f->vlan));
	f->now_s = seconds(now_ns(true));
	__u64 *place = fdb_find(masks, key);
	union ly_fdb_value old = { .raw = place ? *place : 0 };

	if (!place || !learn_is_known(f, old) || !(f->pv & LY_PV_FORWARD))
		return false;
	learn_refresh(f, place, old);
	learn_journal(LY_SRC_KNOWN, old.port);
	return true;
}
