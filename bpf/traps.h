/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Records of the ring `traps`. */
#ifndef LY_TRAPS_H
#define LY_TRAPS_H

struct trap_record {
	struct ly_trap header;
	__u8 byte[LY_TRAP_BYTES];
};

static __always_inline struct trap_record *trap_reserve(__u32 group)
{
	struct trap_record *r = bpf_ringbuf_reserve(&traps, sizeof(*r), 0);

	if (!r) {
		struct ly_trap_group *g = LOOKUP(trap_groups, group);
		if (g)
			__sync_fetch_and_add(&g->lost, 1);
	}
	return r;
}

#endif
