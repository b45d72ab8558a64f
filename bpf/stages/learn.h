/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* learn: records the source address in the FDB (IEEE 802.1Q-2018, 8.7): insert, refresh, move.
 *
 * When the table, or the limit of the port or the VLAN, is full, the address is not learned, the refusal is counted,
 * and the frame continues. Control-plane entries never move, nor do addresses that were learned at a port with port
 * security. Such a port drops frames whose source has no entry at the port and for which none can be made; it reports some of
 * them. */
enum {
	DROP_STP_LEARNING = 14,
	DROP_SOURCE_BLACKHOLE = 15,
	DROP_PORT_SECURITY = 43,
};
#define LY_PORT_SECURE 0x400000 /* ly_port.flags: port security */
#define LY_VIOLATION_INTERVAL_NS 250000000 /* between two reports of violations at one port */

struct ly_learn {
	__u64 reported_ns; /* when the next violation may be reported */
};
TABLE(learn, struct ly_learn, LY_PORTS, BPF_F_MMAPABLE);

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
	int done = fdb_insert_growing(key, value.raw);
	if (done == FDB_WITHDRAWN)
		return LY_SRC_KNOWN; /* another processor is learning it at this moment */
	if (done == FDB_NO_ROOM) {
		usage_release_all(port, vlan);
		struct ly_usage *u = LOOKUP(fdb_usage, LY_USAGE_TABLE);
		if (u)
			__sync_fetch_and_add(&u->refused, 1);
		return LY_SRC_REFUSED;
	}
	fdb_event(LY_EVENT_ADDED, key, value.raw, 0);
	return LY_SRC_NEW;
}

static __always_inline __u8 learn_move(__u64 key, struct fdb_hit hit, union ly_fdb_value value)
{
	__u16 port = value.port & (LY_PORTS - 1), from = fdb_port(hit.word);

	if (!leaves_marks(LY_DRY_LEARN))
		return usage_full(LY_USAGE_PORT(port)) ? LY_SRC_REFUSED : LY_SRC_MOVED;
	if (!usage_take(LY_USAGE_PORT(port)))
		return LY_SRC_REFUSED;
	fdb_set_updated_s(hit.bucket, hit.way, value.updated_s);
	if (!fdb_swap(hit, fdb_word(hit.word, value))) {
		usage_release(LY_USAGE_PORT(port));
		return LY_SRC_KNOWN; /* another processor moved or removed it in between */
	}
	usage_release(LY_USAGE_PORT(from));
	fdb_event(LY_EVENT_MOVED, key, value.raw, from);
	return LY_SRC_MOVED;
}

/* Reports a violation of port security, unless another one was reported shortly before. */
__noinline int learn_violation(__u64 key, __u32 port)
{
	struct ly_learn *l = LOOKUP(learn, port);
	union ly_fdb_value value = { .port = port };

	if (l && leaves_marks(LY_DRY_POLICE) && trap_take(&l->reported_ns, LY_VIOLATION_INTERVAL_NS, 0, now_ns()))
		fdb_event(LY_EVENT_VIOLATION, key, value.raw, 0);
	return 0;
}

/* Handles every source that is neither known (learn_is_known) nor refused (learn_is_refused). `value` is the entry to be stored;
 * `learn` is 0 if no entry may be stored. Returns true if the address has an entry at the port now. A global function, so that
 * the verifier checks it once. */
__noinline int learn_slow(__u64 key, __u64 value, __u32 learn)
{
	struct fdb_hit hit = fdb_find(fdb_masks(), key);
	union ly_fdb_value want = { .raw = value };
	__u8 did = LY_SRC_NONE;

	if (hit.word && fdb_kind(hit.word) != LY_FDB_DYNAMIC)
		did = LY_SRC_FIXED;
	else if (!learn)
		did = LY_SRC_NONE;
	else if (!hit.word)
		did = learn_new(key, want);
	else if (fdb_port(hit.word) != want.port)
		did = ROW(ports, fdb_port(hit.word))->flags & LY_PORT_SECURE ? LY_SRC_FIXED : learn_move(key, hit, want);
	learn_journal(did, fdb_port(hit.word));
	return (hit.word && fdb_port(hit.word) == want.port) || (did >= LY_SRC_NEW && did <= LY_SRC_MOVED);
}

/* Writes the time at most once a second, so that the cache line stays shared between processors. A
 * global function, because it is seldom called. */
__noinline int learn_refresh(__u64 key, __u32 port, __u32 now_s)
{
	struct fdb_hit hit = fdb_find(fdb_masks(), key);
	union ly_fdb_value value = { .updated_s = now_s, .port = port, .kind = LY_FDB_DYNAMIC };

	/* Another processor may have changed the entry since it was looked up. */
	if (!hit.word || fdb_port(hit.word) != port || fdb_kind(hit.word) != LY_FDB_DYNAMIC || !leaves_marks(LY_DRY_LEARN))
		return 0;
	fdb_set_updated_s(hit.bucket, hit.way, now_s);
	fdb_swap(hit, fdb_word(hit.word, value));
	return 0;
}

/* True for a dynamic entry with the frame's port. */
static __always_inline bool learn_is_known(struct frame *f, __u64 word)
{
	return word && fdb_port(word) == f->port_id && fdb_seen(word) <= LY_FDB_LONG_AGO && f->pv & LY_PV_LEARN;
}

static __always_inline void learn_known(struct frame *f, __u64 key, __u64 word)
{
	if (fdb_seen(word) != f->now_s % LY_FDB_CYCLE)
		learn_refresh(key, f->port_id, f->now_s);
	learn_journal(LY_SRC_KNOWN, fdb_port(word));
}

/* Counts a refusal, and returns true, if the table, or the limit of the port or of the VLAN, is full. So a flood of new sources
 * costs little more than known ones as soon as it has filled the table. A global function, because it is seldom called. */
__noinline int learn_refused(__u32 port, __u32 vlan)
{
	const __u32 slots[] = { LY_USAGE_TABLE, LY_USAGE_PORT(port & (LY_PORTS - 1)), LY_USAGE_VLAN(vlan & (LY_VLANS - 1)) };

	if (dry)
		return false;
	for (int at = 0; at < 3; at++) {
		struct ly_usage *u = LOOKUP(fdb_usage, slots[at]);
		if (u && usage_full(slots[at])) {
			__sync_fetch_and_add(&u->refused, 1);
			return true;
		}
	}
	return false;
}

/* True if the frame's source, whose entry's word this is, is new and refused. */
static __always_inline bool learn_is_refused(struct frame *f, __u64 word)
{
	return !word && f->pv & LY_PV_LEARN && !(f->port->flags & LY_PORT_SECURE) && learn_refused(f->port_id, f->shared);
}

static __always_inline int stage_learn(struct frame *f)
{
	struct fdb_masks masks = fdb_masks();
	__u64 key = fdb_key(f->src, f->shared);
	fdb_touch(masks, key);
	if (!f->rif)
		fdb_touch(masks, fdb_key(f->dst, f->shared)); /* `bridge` will need it */
	f->now_s = now_s(); /* the clock is read while the memory is being loaded */
	__u64 word = fdb_word_of(masks, key);

	if (word && fdb_port(word) == 0)
		return DROP(DROP_SOURCE_BLACKHOLE);
	if (learn_is_known(f, word)) {
		learn_known(f, key, word);
	} else if (!learn_is_refused(f, word)) {
		union ly_fdb_value want = { .updated_s = f->now_s, .port = f->port_id, .kind = LY_FDB_DYNAMIC };
		if (!learn_slow(key, want.raw, f->pv & LY_PV_LEARN) && f->port->flags & LY_PORT_SECURE) {
			learn_violation(key, f->port_id);
			return DROP(DROP_PORT_SECURITY);
		}
	}
	return f->pv & LY_PV_FORWARD ? 0 : DROP(DROP_STP_LEARNING);
}

/* The part of learning that XDP can do. Returns true when the source needs nothing else. */
static __always_inline bool stage_learn_fast(struct frame *f)
{
	struct fdb_masks masks = fdb_masks();
	__u64 key = fdb_key(f->src, f->shared);
	fdb_touch(masks, key);
	if (!f->rif)
		fdb_touch(masks, fdb_key(f->dst, f->shared));
	f->now_s = now_s();
	__u64 word = fdb_word_of(masks, key);

	if (!(f->pv & LY_PV_FORWARD))
		return false;
	if (!learn_is_known(f, word))
		return learn_is_refused(f, word);
	learn_known(f, key, word);
	return true;
}
