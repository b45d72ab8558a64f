/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The watchdogs: kernel timers that the control plane restarts again and again. They expire when the control plane
 * has ended or hangs, and then remove the state that is wrong without it.
 *
 * Spanning tree: the control plane restarts the timer each time its BPDUs have been sent. It expires before the
 * neighbours discard the information in these BPDUs (IEEE 802.1Q-2018, 13.29.31: three hello times), and blocks the
 * ports behind which there may be another bridge.
 *
 * Leases: a veth accepts frames from XDP only while its far end runs NAPI, and the owner of the far end may change
 * that. The kernel then drops such frames, after they were counted as sent. The control plane restarts the timer each
 * time it has checked the netdevs. When it expires, TC handles frames for veth ports, which it delivers with and without
 * NAPI. Likewise XDP of a NIC sees VLAN tags only while the NIC's tag parsing is off, which others may change: then TC
 * handles the frames that the NIC receives, because it sees the tags in both cases.
 *
 * Snooping: the control plane restarts the timer every few seconds. Without it no host can join a group, so
 * when the timer expires the stage `snoop` limits nothing any more: it reads the phase.
 *
 * Routing: packets that the plane routes pass no packet filter of the kernel, so the control plane follows the hooks of
 * the kernel's filters, and restarts the timer each time it has done so. Without the control plane a new filter would
 * not be noticed. So when the timer expires, the interfaces that depend on this stop routing, and the kernel gets their
 * packets.
 *
 * Invariants: nothing here runs per frame; blocking changes bits that the stages read anyway. The timer lives as long
 * as its map is pinned, so it outlives every process. A pair is blocked in port_vlans before the flood sets lose the
 * port, and the phase becomes LY_WATCHDOG_EXPIRED only when all pairs are blocked. */
#ifndef LY_WATCHDOG_H
#define LY_WATCHDOG_H

#define WATCHDOG_CLOCK 7 /* CLOCK_BOOTTIME: the time of a suspended machine counts, because it sent no BPDUs */
#define WATCHED_BYTES (LY_PV_WATCHED * 0x0101010101010101ULL)
#define WATCHDOG_TAKES (LY_PV_LEARN | LY_PV_FORWARD | LY_PV_STP_LEARNING)

struct watchdog_walk {
	__u64 affected;
	__u32 port;
};

/* Removes the port from the flood sets of a VLAN. */
static __always_inline void watchdog_close(__u32 port, __u32 vlan)
{
	struct ly_vlan_ports *sets = LOOKUP(vlan_ports, vlan & (LY_VLANS - 1));

	if (!sets)
		return;
	for (int form = 0; form < LY_FORMS; form++)
		__sync_fetch_and_and(&sets->form[form][port / 64 & (LY_PORT_WORDS - 1)], ~(1ULL << (port & 63)));
}

/* Blocks the watched pairs among eight VLANs of a port. */
static long watchdog_vlans(__u32 at, struct watchdog_walk *walk)
{
	__u32 first = (at & (LY_VLANS / 8 - 1)) * 8;
	__u64 *bytes = (__u64 *)&ROW(port_vlans, walk->port)->bits[first];
	__u64 watched = *(volatile __u64 *)bytes & WATCHED_BYTES;

	if (!watched)
		return 0;
	__sync_fetch_and_and(bytes, ~((watched >> 7) * WATCHDOG_TAKES));
	for (__u32 byte = 0; byte < 8; byte++) {
		if (!(watched >> (8 * byte + 7) & 1))
			continue;
		watchdog_close(walk->port, first + byte);
		walk->affected++;
	}
	return 0;
}

static long watchdog_port(__u32 port, struct watchdog_walk *walk)
{
	if (!ROW(ports, port)->ifindex)
		return 0;
	walk->port = port;
	bpf_loop(LY_VLANS / 8, watchdog_vlans, walk, 0);
	return 0;
}

/* Ends the lease of a port. The control plane writes a port's row before it reads the phase, so either this function sees the
 * row, or the control plane sees that leases have ended. */
static long watchdog_lease(__u32 port, struct watchdog_walk *walk)
{
	struct ly_port *row = ROW(ports, port);

	__u32 flags = *(volatile __u32 *)&row->flags;
	if (!(flags & (LY_PORT_LEASED | LY_PORT_LEASED_TAGS)))
		return 0;
	walk->affected++;
	if (flags & LY_PORT_LEASED_TAGS)
		__sync_fetch_and_or(&row->flags, LY_PORT_XDP_ENDED);
	if (!(flags & LY_PORT_LEASED))
		return 0;
	__sync_fetch_and_and(&row->flags, ~(LY_PORT_XDP_TX | LY_PORT_XDP_SG));
	if (port < LY_XDP_FLOOD)
		__sync_fetch_and_and(&ROW(global, 0)->xdp_flood, ~(1ULL << (port & 63)));
	return 0;
}

/* Begins to expire. This function sets the phase before it reads the time, and the control plane sets
 * the time before it reads the phase. So either this function sees the new time and returns false, or
 * the control plane sees the phase. */
static __always_inline bool watchdog_due(struct ly_watchdog *dog, __u64 now)
{
	__sync_lock_test_and_set(&dog->phase, LY_WATCHDOG_EXPIRING);
	__u64 due = *(volatile __u64 *)&dog->due_ns;
	if (due && now >= due)
		return true;
	__sync_lock_test_and_set(&dog->phase, LY_WATCHDOG_WAITS);
	return false;
}

static __always_inline void watchdog_done(struct ly_watchdog *dog, __u64 now, __u64 affected)
{
	dog->affected = affected;
	dog->expired_ns = now;
	__sync_lock_test_and_set(&dog->phase, LY_WATCHDOG_EXPIRED);
}

/* Handles the expiry of a timer, unless it has been restarted meanwhile: calls `end` for each row, to remove the state that is
 * wrong without the control plane. */
static __always_inline int watchdog_expire(__u32 kind, __u32 rows, long (*end)(__u32, struct watchdog_walk *))
{
	struct ly_watchdog *dog = ROW(watchdog, kind);
	struct watchdog_walk walk = {};
	__u64 now = bpf_ktime_get_boot_ns();

	if (watchdog_due(dog, now)) {
		bpf_loop(rows, end, &walk, 0);
		watchdog_done(dog, now, walk.affected);
	}
	return 0;
}

/* Runs when the timer of spanning tree has expired. */
static int watchdog_expire_trees(void *map, __u32 *key, struct ly_watchdog_timer *row)
{
	return watchdog_expire(LY_WATCHDOG_TREES, LY_PORTS, watchdog_port);
}

/* Runs when the timer of leases has expired. */
static int watchdog_expire_leases(void *map, __u32 *key, struct ly_watchdog_timer *row)
{
	return watchdog_expire(LY_WATCHDOG_LEASES, LY_PORTS, watchdog_lease);
}

/* Runs when the timer of snooping has expired. */
static int watchdog_expire_snooping(void *map, __u32 *key, struct ly_watchdog_timer *row)
{
	struct ly_watchdog *dog = ROW(watchdog, LY_WATCHDOG_SNOOPING);
	__u64 now = bpf_ktime_get_boot_ns();

	if (watchdog_due(dog, now))
		watchdog_done(dog, now, 0);
	return 0;
}

/* LY_RIF_IPV4 and LY_RIF_IPV6 in the 32-bit word of a row of `rifs` whose last byte is `flags`. The control plane writes the row
 * before it reads the phase, so either this function sees the row, or the control plane clears the bits itself. */
#define WATCHDOG_FAMILIES ((__u32)(LY_RIF_IPV4 | LY_RIF_IPV6) << 24)
_Static_assert(__builtin_offsetof(struct ly_rif, flags) == __builtin_offsetof(struct ly_rif, up) + 3, "the word with the flags");

/* Stops routing at an interface that depends on the control plane. */
static long watchdog_rif(__u32 rif, struct watchdog_walk *walk)
{
	struct ly_rif *row = ROW(rifs, rif);
	__u8 flags = *(volatile __u8 *)&row->flags;

	if (!(flags & LY_RIF_CONFIRMED) || !(flags & (LY_RIF_IPV4 | LY_RIF_IPV6)))
		return 0;
	__sync_fetch_and_and((__u32 *)&row->up, ~WATCHDOG_FAMILIES);
	walk->affected++;
	return 0;
}

/* Runs when the timer of routing has expired. */
static int watchdog_expire_routing(void *map, __u32 *key, struct ly_watchdog_timer *row)
{
	return watchdog_expire(LY_WATCHDOG_ROUTING, LY_RIFS, watchdog_rif);
}

/* Starts a watchdog again, or stops it. */
SEC("syscall")
int watchdog_set(struct ly_watchdog_call *call)
{
	__u32 kind = call->kind & (LY_WATCHDOGS - 1);
	struct ly_watchdog *dog = ROW(watchdog, kind);
	struct ly_watchdog_timer *row = LOOKUP(watchdog_timer, kind);

	if (!row)
		return 0;
	call->result = 0;
	if (!call->after_ns) {
		__sync_lock_test_and_set(&dog->due_ns, 0);
		bpf_timer_cancel(&row->timer); /* a timer that was never created is not running either */
		return 0;
	}
	long error = bpf_timer_init(&row->timer, &watchdog_timer, WATCHDOG_CLOCK);
	if (error == -EBUSY) /* already created */
		error = 0;
	if (error == 0 && kind == LY_WATCHDOG_LEASES)
		error = bpf_timer_set_callback(&row->timer, watchdog_expire_leases);
	else if (error == 0 && kind == LY_WATCHDOG_SNOOPING)
		error = bpf_timer_set_callback(&row->timer, watchdog_expire_snooping);
	else if (error == 0 && kind == LY_WATCHDOG_ROUTING)
		error = bpf_timer_set_callback(&row->timer, watchdog_expire_routing);
	else if (error == 0)
		error = bpf_timer_set_callback(&row->timer, watchdog_expire_trees);
	if (error == 0) {
		__sync_lock_test_and_set(&dog->due_ns, bpf_ktime_get_boot_ns() + call->after_ns);
		error = bpf_timer_start(&row->timer, call->after_ns, 0);
	}
	call->result = error;
	return 0;
}

#endif
