/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Records of the ring `traps`. */
#ifndef LY_TRAPS_H
#define LY_TRAPS_H

/* Room for a BPDU of one tree. A record's size must be a constant, and the hellos of many trees arrive together, so
 * short records save room. */
#define TRAP_SHORT 128

struct trap_record {
	struct ly_trap header;
	__u8 byte[LY_TRAP_BYTES];
};
struct trap_short_record {
	struct ly_trap header;
	__u8 byte[TRAP_SHORT];
};

static __always_inline void trap_lost(__u32 group)
{
	struct ly_trap_group *g = LOOKUP(trap_groups, group);
	if (g)
		__sync_fetch_and_add(&g->lost, 1);
}

#endif
