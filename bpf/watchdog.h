/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* The watchdog of spanning tree: a timer of the kernel's that the control plane starts anew each time its BPDUs have
 * left. When the control plane is gone or hangs, the timer expires before the neighbours forget what they were told
 * (IEEE 802.1Q-2018, 13.29.31: three hello times), and blocks the ports behind which another bridge may be.
 *
 * Invariants: nothing here runs for a frame; what is blocked are bits that the stages read anyway. The timer lives as
 * long as its map is pinned, so it outlives every process. A pair is blocked in port_vlans before the flood sets lose the
 * port, and the phase says LY_WATCHDOG_EXPIRED only when all pairs are blocked.
 */
#ifndef LY_WATCHDOG_H
#define LY_WATCHDOG_H

#define WATCHDOG_CLOCK 7 /* CLOCK_BOOTTIME: a machine that was suspended has been silent, too */
#define WATCHED_BYTES (LY_PV_WATCHED * 0x0101010101010101ULL)
#define WATCHDOG_TAKES (LY_PV_LEARN | LY_PV_FORWARD | LY_PV_STP_LEARNING)

struct watchdog_walk {
	__u64 blocked;
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
		walk->blocked++;
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

/* Runs when the timer has expired. This function sets the phase before it reads the time, and the
 * control plane sets the time before it reads the phase. So either this function sees the new time,
 * or the control plane sees the phase. */
static int watchdog_expire(void *map, __u32 *key, struct ly_watchdog_timer *row)
{
	struct ly_watchdog *dog = ROW(watchdog, 0);
	struct watchdog_walk walk = {};
	__u64 now = bpf_ktime_get_boot_ns();

	__sync_lock_test_and_set(&dog->phase, LY_WATCHDOG_BLOCKS);
	__u64 due = *(volatile __u64 *)&dog->due_ns;
	if (!due || now < due) {
		__sync_lock_test_and_set(&dog->phase, LY_WATCHDOG_WAITS);
		return 0;
	}
	bpf_loop(LY_PORTS, watchdog_port, &walk, 0);
	dog->blocked = walk.blocked;
	dog->expired_ns = now;
	__sync_lock_test_and_set(&dog->phase, LY_WATCHDOG_EXPIRED);
	return 0;
}

/* Starts the watchdog again, or stops it. */
SEC("syscall")
int watchdog_set(struct ly_fdb_call *call)
{
	struct ly_watchdog *dog = ROW(watchdog, 0);
	struct ly_watchdog_timer *row = LOOKUP(watchdog_timer, 0);

	if (!row)
		return 0;
	call->result = 0;
	if (!call->value) {
		__sync_lock_test_and_set(&dog->due_ns, 0);
		bpf_timer_cancel(&row->timer); /* one that was never made is not running, either */
		return 0;
	}
	long error = bpf_timer_init(&row->timer, &watchdog_timer, WATCHDOG_CLOCK);
	if (error == 0 || error == -EBUSY) /* made already */
		error = bpf_timer_set_callback(&row->timer, watchdog_expire);
	if (error == 0) {
		__sync_lock_test_and_set(&dog->due_ns, bpf_ktime_get_boot_ns() + call->value);
		error = bpf_timer_start(&row->timer, call->value, 0);
	}
	call->result = error;
	return 0;
}

#endif
