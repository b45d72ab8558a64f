/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* storm: limits the rate of broadcast, multicast and unknown unicast frames that each port receives (storm control).
 *
 * A frame over the rate is dropped before `learn`: in a loop its source address is not a station behind this port. XDP drops
 * frames over the rate, too, and passes other floods from ports with a rate to TC. A frame for a router interface (f->rif) has a
 * known destination, whatever the FDB holds.
 */
enum { DROP_STORM = 31 };
#define LY_PORT_STORM 0x400 /* ly_port.flags: has a rate */

/* lanyard_types::StormKind */
enum ly_storm_kind { LY_STORM_BROADCAST = 1, LY_STORM_MULTICAST = 2, LY_STORM_UNICAST = 3 };

#define LY_STORM_COST_SHIFT 16
#define LY_STORM_TIME_SHIFT 6

/* storm[LY_STORM(kind, port)]: the rate, as a clock (see ly_trap_group). A nanosecond is too coarse for the bits of a short
 * frame at 100 Gbit/s. */
#define LY_STORM_KINDS 4
#define LY_STORM(kind, port) ((kind) * LY_PORTS + (port))

struct ly_storm {
	__u64 interval_ns; /* 1e9 / rate; 0: nothing passes, 1: everything */
	__u64 tolerance_ns;
	__u64 arrival_ns;
	__u64 byte_cost; /* not 0: a rate in bits, of which a byte takes this many 2^-16 ns; the times above are then in 2^-6 ns */
};
TABLE(storm, struct ly_storm, LY_STORM_KINDS * LY_PORTS, BPF_F_MMAPABLE);

/* The clock of a frame's bucket. */
struct rate_clock {
	struct ly_storm *row; /* NULL: there is no rate for the frame */
	__u64 now, interval;
};

static __always_inline struct rate_clock storm_clock(__u64 dst, __u32 port, __u32 len)
{
	__u32 kind = dst == BROADCAST ? LY_STORM_BROADCAST : dst & GROUP_BIT ? LY_STORM_MULTICAST : LY_STORM_UNICAST;
	struct rate_clock s = { .row = LOOKUP(storm, LY_STORM(kind, port)), .now = now_ns() };

	if (!s.row)
		return s;
	s.interval = s.row->interval_ns;
	if (s.row->byte_cost) {
		s.now <<= LY_STORM_TIME_SHIFT;
		s.interval = len * s.row->byte_cost >> (LY_STORM_COST_SHIFT - LY_STORM_TIME_SHIFT);
	}
	return s;
}

/* True for unicast that is not flooded, which has no rate. */
static __always_inline bool storm_exempts(__u64 dst, __u32 vlan)
{
	return !(dst & GROUP_BIT) && fdb_find(fdb_masks(), fdb_key(dst, vlan)).word;
}

/* A global function, so that ports without a rate pay only for the branch on their flags. */
__noinline int storm_admits(__u64 dst, __u32 vlan, __u32 port, __u32 len)
{
	if (storm_exempts(dst, vlan) || !leaves_marks(LY_DRY_POLICE))
		return true;
	struct rate_clock s = storm_clock(dst, port, len);

	return !s.row || trap_take(&s.row->arrival_ns, s.interval, s.row->tolerance_ns, s.now);
}

/* For XDP: true if the bucket is empty, so that the stage below would drop the frame. It takes nothing from the bucket: a frame
 * that it does not refuse is passed to TC. */
__noinline int storm_refuses(__u64 dst, __u32 vlan, __u32 port, __u32 len)
{
	if (dry)
		return false;
	struct rate_clock s = storm_clock(dst, port, len);

	return s.row && trap_empty(&s.row->arrival_ns, s.interval, s.row->tolerance_ns, s.now) && !storm_exempts(dst, vlan);
}

static __always_inline int stage_storm(struct frame *f)
{
	if (!(f->port->flags & LY_PORT_STORM) || f->rif)
		return 0;
	return storm_admits(f->dst, f->shared, f->port_id, f->len) ? 0 : DROP(DROP_STORM);
}
