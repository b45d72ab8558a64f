// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/* bpf/fdb.h, bpf/stages/learn.h and bpf/fdb_control.h compiled for user space: threads learn, move, refresh, flush,
 * age, set, delete and migrate the same few entries at the same time. After each round every usage count must equal
 * the contents of the table, no key may be in the table twice, and the small part of the table must still be the only
 * one in use unless the round has grown it.
 *
 * Arguments: operations of all threads together, threads that learn. ../fdb_race.rs compiles and runs it. */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/types.h>

#include "abi.h"

/* Replacements for bpf_helpers.h and maps.h: arrays serve as maps. */
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define SEC(name)
#define bpf_htons(x) __builtin_bswap16(x)
#define bpf_ntohs(x) __builtin_bswap16(x)
#define bpf_map_lookup_elem(map, key) \
	(*(key) < sizeof(*(map)) / sizeof((*(map))[0]) ? &(*(map))[*(key)] : NULL)

/* The processor's atomic operations, as in the kernel. Before each of them a thread sometimes waits, or yields to
 * another thread, so that races occur often, also on a busy machine. */
static void disturb(void);

#define __sync_val_compare_and_swap(place, from, to)                                                           \
	({                                                                                                     \
		__typeof__(*(place)) from__ = (from);                                                          \
		disturb();                                                                                     \
		__atomic_compare_exchange_n(place, &from__, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
		from__;                                                                                        \
	})
#define __sync_fetch_and_add(place, n) (disturb(), __atomic_fetch_add(place, n, __ATOMIC_SEQ_CST))
#define __sync_fetch_and_sub(place, n) __atomic_fetch_sub(place, n, __ATOMIC_SEQ_CST)

#define TABLE(name_, value_, entries_, flags_) static value_ name_[entries_]

#define BUCKETS (4 * LY_FDB_NEAR)

static const __u32 fdb_mask = BUCKETS - 1, dry = 0;
static const __u64 fdb_salt = 0x1234567890abcdefULL, tick_ns = 1000000;
static __u64 jiffies;

static struct ly_if_slot if_slots[LY_IFMAP];
static __u32 if_ports[1];
static struct ly_port ports[LY_PORTS]; /* no port has port security */
static struct ly_port_vlans port_vlans[1];
static __u64 shared_vlans[LY_VLANS]; /* no VLAN shares the addresses of another */
static struct ly_journal journal[1];
static struct ly_lost lost[1];
static struct ly_usage fdb_usage[LY_USAGES];
static struct ly_fdb_state fdb_state[1];
static struct ly_fdb_bucket fdb_near[LY_FDB_NEAR];
static struct ly_fdb_bucket fdb[BUCKETS - LY_FDB_NEAR];
static struct ly_fdb_times fdb_times[BUCKETS];

static __u64 bpf_jiffies64(void)
{
	return *(volatile __u64 *)&jiffies;
}

static __u64 bpf_ktime_get_ns(void)
{
	return bpf_jiffies64() * tick_ns;
}

static _Thread_local struct ly_fdb_event event;
static int fdb_events;

static void *bpf_ringbuf_reserve(void *ring, __u64 size, __u64 flags)
{
	(void)ring, (void)size, (void)flags;
	return &event;
}

static void bpf_ringbuf_submit(void *record, __u64 flags)
{
	(void)record, (void)flags;
}

#define bpf_loop(count, step, state, flags) \
	for (__u32 at__ = 0; at__ < (count); at__++) \
		if (step(at__, state))              \
			break

#include "frame.h"
#include "fdb.h"

/* The policer of reports about violations, which do not occur here. */
static int trap_take(__u64 *clock, __u64 interval_ns, __u64 tolerance_ns, __u64 now)
{
	(void)clock, (void)interval_ns, (void)tolerance_ns, (void)now;
	return 0;
}

#include "stages/learn.h"
#include "fdb_control.h"

#define VLANS 2
#define HOSTS 4 /* per VLAN: few, so that threads often use the same ones */
#define MANY 100000 /* hosts of a round that grows the table */

static __u64 each;   /* operations of one thread in this round */
static bool growing; /* this round uses many hosts */
static int learners, working;

static __u64 random_next(__u64 *seed)
{
	*seed ^= *seed >> 12;
	*seed ^= *seed << 25;
	*seed ^= *seed >> 27;
	return *seed * 0x2545f4914f6cdd1dULL;
}

static void disturb(void)
{
	static _Thread_local __u64 seed;

	if (!seed)
		seed = (__u64)&seed;
	__u32 chance = random_next(&seed) >> 48;
	if (chance < 4096)
		for (volatile __u32 n = 0; n < chance / 16; n++)
			;
	else if (chance > 65536 - 512)
		sched_yield();
}

static __u64 host(__u64 n)
{
	return RAW_MAC(2, 0, 0, 0, 0, 0) | (n / VLANS + 1) << 16;
}

static __u64 random_key(__u64 *seed)
{
	__u64 n = random_next(seed) >> 20;

	n %= growing ? MANY : HOSTS * VLANS;
	return fdb_key(host(n), 1 + n % VLANS);
}

/* The treatment of a source address by lanyard_tc. */
static void learn_source(__u64 key, __u16 port)
{
	__u16 vlan = key >> KEY_VLAN_SHIFT;
	struct frame f = { .src = key & KEY_MAC_MASK, .vlan = vlan, .shared = vlan, .port_id = port,
			   .port = &ports[port], .pv = LY_PV_LEARN | LY_PV_FORWARD };

	stage_learn(&f);
}

static void *learner(void *number)
{
	__u64 id = (__u64)number, seed = 0x9e3779b97f4a7c15ULL * (id + 1);

	for (__u64 n = 0; n < each; n++) {
		if (n % 8 == 7)
			fdb_remove(random_key(&seed));
		/* Mostly at the thread's own port, so that entries move between threads. */
		learn_source(random_key(&seed), random_next(&seed) >> 60 ? 1 + id : 1 + (random_next(&seed) >> 40) % 4);
		if (id == 0 && n % 64 == 0)
			(*(volatile __u64 *)&jiffies)++;
	}
	__sync_fetch_and_sub(&working, 1);
	return NULL;
}

/* The operations of the daemon, in one thread as in the daemon. */
static void *controller(void *unused)
{
	__u64 seed = 77;

	(void)unused;
	while (*(volatile int *)&working) {
		struct ly_fdb_call call = { .key = random_key(&seed) };
		union ly_fdb_value value = { .port = 3, .kind = LY_FDB_STATIC };
		switch (random_next(&seed) >> 61) {
		case 0:
			call.value = value.raw;
			fdb_set(&call);
			break;
		case 1:
		case 2:
			fdb_delete(&call);
			break;
		case 3:
			call = (struct ly_fdb_call){ .scan = LY_SCAN_FLUSH, .port = 1 + (random_next(&seed) >> 62) };
			fdb_scan(&call);
			break;
		case 4:
			call = (struct ly_fdb_call){ .scan = LY_SCAN_SWEEP, .ageing_s = 2 };
			fdb_scan(&call);
			break;
		case 5:
			if (growing)
				fdb_grow(true);
			break;
		default:
			fdb_migrate(&call);
		}
		for (int n = 0; n < 200; n++)
			fdb_delete(&(struct ly_fdb_call){ .key = random_key(&seed) });
	}
	return NULL;
}

static int failed;

static void must_equal(const char *what, __u32 of, long counted, long stands)
{
	if (counted == stands)
		return;
	fprintf(stderr, "%s %u: counted %ld, %ld in the table\n", what, of, counted, stands);
	failed = 1;
}

static int compare(const void *a, const void *b)
{
	__u64 x = *(const __u64 *)a, y = *(const __u64 *)b;

	return x < y ? -1 : x > y;
}

/* Compares counts with contents, and checks that each key occurs once. */
static void check(void)
{
	static long usage[LY_USAGES];
	static __u64 keys[BUCKETS * LY_FDB_WAYS];
	size_t count = 0, twice = 0;

	memset(usage, 0, sizeof(usage));
	for (__u32 bucket = 0; bucket < BUCKETS; bucket++)
		for (__u32 way = 0; way < LY_FDB_WAYS; way++) {
			__u64 word = fdb_bucket(bucket)->way[way];
			if (!word)
				continue;
			__u64 key = fdb_key_of(bucket, word);
			keys[count++] = key;
			if (fdb_kind(word) != LY_FDB_DYNAMIC)
				continue;
			usage[LY_USAGE_TABLE]++;
			usage[LY_USAGE_PORT(fdb_port(word))]++;
			usage[LY_USAGE_VLAN(key >> KEY_VLAN_SHIFT)]++;
		}
	for (__u32 slot = 0; slot < LY_USAGES; slot++)
		must_equal("usage slot", slot, fdb_usage[slot].count, usage[slot]);
	qsort(keys, count, sizeof(keys[0]), compare);
	for (size_t n = 1; n < count; n++)
		twice += keys[n] == keys[n - 1];
	must_equal("entries that stand twice,", 0, twice, 0);
	if (!growing)
		must_equal("the whole table is in use, buckets", 0, fdb_masks().now, LY_FDB_NEAR - 1);
}

static void migrate_all(void)
{
	for (int n = 0; n < 1000; n++) {
		struct ly_fdb_call call = {};
		fdb_migrate(&call);
		if (!call.removed)
			return;
	}
	fprintf(stderr, "a migration that nothing disturbs does not end\n");
	failed = 1;
}

static void round_of(__u64 operations)
{
	pthread_t thread[16], control;

	each = operations / learners;
	working = learners;
	for (long n = 0; n < learners; n++)
		pthread_create(&thread[n], NULL, learner, (void *)n);
	pthread_create(&control, NULL, controller, NULL);
	for (long n = 0; n < learners; n++)
		pthread_join(thread[n], NULL);
	pthread_join(control, NULL);
	migrate_all();
	check();
	/* Empty the table, like a new one. */
	for (__u32 slot = 0; slot < LY_USAGES; slot++)
		fdb_usage[slot].count = 0;
	memset(fdb_near, 0, sizeof(fdb_near));
	memset(fdb, 0, sizeof(fdb));
	fdb_state[0].masks = LY_FDB_MASKS(LY_FDB_NEAR - 1, LY_FDB_NEAR - 1);
}

int main(int argc, char **argv)
{
	__u64 operations = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;

	learners = argc > 2 ? atoi(argv[2]) : 2;
	if (learners < 1 || learners > 16 || !operations) {
		fprintf(stderr, "usage: fdb OPERATIONS THREADS (1 to 16)\n");
		return 2;
	}
	for (__u32 slot = 0; slot < LY_USAGES; slot++)
		fdb_usage[slot].limit = ~0U;
	/* A limit that is reached often. */
	fdb_usage[LY_USAGE_PORT(2)].limit = HOSTS;
	fdb_state[0].masks = LY_FDB_MASKS(LY_FDB_NEAR - 1, LY_FDB_NEAR - 1);
	const int rounds = 8;
	for (int n = 0; n < rounds && !failed; n++) {
		growing = n % 2;
		round_of(operations / rounds);
	}
	if (!failed)
		printf("%llu operations of %d threads: counts equal contents\n", (unsigned long long)operations, learners);
	return failed;
}
