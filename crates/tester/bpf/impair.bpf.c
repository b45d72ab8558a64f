/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A wire with known impairments, to test the tester. Of the frames with the tester's stamp it drops one in N, sends
 * one in N twice, corrupts one in N, or holds each until a known time after its stamp. */
#include "traffic.h"
#include <linux/pkt_cls.h>

enum { DROP, DUPLICATE, CORRUPT, DELAY };

const volatile struct {
	__u32 far_end; /* ifindex of the egress device */
	__u32 what;
	__u32 every;    /* one frame in this many is affected, but not the first */
	__u32 delay_ns; /* after the stamp */
} impair = {};

/* Frames seen. One writer: a port whose frames come in on one core. */
__u64 seen = 0;

#define STAMP_AT 42 /* Ethernet, IPv4, UDP: the frames of a self-test have no tag */
/* The most readings of the clock, at about 20 ns each: enough for a millisecond. */
#define LOOKS 65536

struct until {
	__u64 release_ns;
};

static long look(__u64 n, struct until *until)
{
	return bpf_ktime_get_ns() >= until->release_ns;
}

SEC("tc")
int impair_tc(struct __sk_buff *skb)
{
	struct until until;
	struct stamp stamp;
	__u8 last;

	if (bpf_skb_load_bytes(skb, STAMP_AT, &stamp, sizeof(stamp)) || stamp.magic != STAMP_MAGIC)
		return bpf_redirect(impair.far_end, 0);
	if (impair.what == DELAY) {
		until.release_ns = (stamp.time_lo | (__u64)stamp.time_hi << 32) + impair.delay_ns;
		bpf_loop(LOOKS, look, &until, 0);
		return bpf_redirect(impair.far_end, 0);
	}
	if (++seen % impair.every)
		return bpf_redirect(impair.far_end, 0);
	switch (impair.what) {
	case DROP:
		return TC_ACT_SHOT;
	case DUPLICATE:
		bpf_clone_redirect(skb, impair.far_end, 0);
		break;
	case CORRUPT:
		if (!bpf_skb_load_bytes(skb, skb->len - 1, &last, 1)) {
			last ^= 0x10;
			bpf_skb_store_bytes(skb, skb->len - 1, &last, 1, 0);
		}
		break;
	}
	return bpf_redirect(impair.far_end, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
