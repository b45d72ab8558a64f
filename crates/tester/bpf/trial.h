/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The structs that a trial's senders and checkers share with user space (src/abi.rs mirrors them): streams as
 * templates to be filled in, and the counts of each stream where it arrives. Sizes are asserted on both sides. */
#ifndef LANYARD_TESTER_TRIAL_H
#define LANYARD_TESTER_TRIAL_H

#include "traffic.h"

/* The stream number of a stamp is a slot of this trial, with the trial's epoch in the upper bits. By the epoch, a
 * late frame of an earlier trial is recognised. */
#define SLOT_BITS 10
#define SLOTS_MAX (1 << SLOT_BITS)

/* Ethernet, a tag, IPv6, UDP, stamp. */
#define HEAD_MAX 80
#define FILL 0xa5a5a5a5 /* payload behind the stamp */

enum layout {
	LAYOUT_RAW, /* EtherType 0x88b5 and the stamp: for frames too short for more */
	LAYOUT_V4,
	LAYOUT_V6,
};

#define SEND_RANDOM (1 << 0)
#define SEND_STAMP (1 << 1)
#define SEND_VERIFY (1 << 2)   /* write the payload into each frame anew: that of a recycled frame may be corrupted */
#define SEND_CHECKSUM (1 << 3) /* write the UDP checksum */
#define SEND_DST_MAC (1 << 4)  /* write the host's number into the destination MAC address */
#define SEND_DST_IP (1 << 5)   /* write the host's number into the destination IP address */
#define SEND_DST_GROUP (1 << 6) /* IPv6: a multicast address, whose high byte is at another place */

/* A stream as it is sent. It has one writer: the core that sends it. */
struct sender {
	__u8 head[HEAD_MAX];
	__u64 sent, limit;           /* frames; limit ~0: none */
	__u64 due_256;               /* when the next one is due, in 1/256 ns */
	__u64 debt_256;              /* time lost in pauses, to be caught up slowly */
	__u64 interval_256;          /* 0: the greatest possible rate */
	__u64 later_256;             /* the interval after the change of rate */
	__u64 first_ns, last_ns;     /* when the first and the last were sent */
	__u32 src_first, src_count, next_src;
	__u32 dst_first, dst_count, next_dst;
	__u32 ip_sum, udp_sum;       /* sums over the constant fields */
	__u32 port;                  /* in the map of devices */
	__u16 length;                /* bytes without FCS */
	__u16 flags;
	__u8 tagged, layout;
	__u8 pad[6];
};
_Static_assert(sizeof(struct sender) == 192, "sender");

/* The settings of all streams of a core. */
struct sending {
	__u64 start_ns;  /* from user space: the earliest time to send, */
	__u64 end_ns;    /* and the latest */
	__u64 change_ns; /* from then on later_256 is the interval; 0: never */
	__u64 now_ns;    /* the last reading of the clock */
	__u64 runs;
	__u32 streams, unfinished; /* unfinished: streams that have not reached their limit */
	__u32 position;  /* the stream whose turn it is */
	__u32 done;      /* nothing more will be sent */
	__u32 every_run; /* read the clock in each run, because a stream is paced */
	__u32 pad;
};
_Static_assert(sizeof(struct sending) == 64, "sending");

/* The greatest distance at which a late frame can be distinguished from a duplicate: WINDOW_WORDS - 1 words of 64. */
#define WINDOW_WORDS 512
#define BUCKETS 1024

/* A stream as it arrives at one port. Any core may write it, under its lock. */
struct flow {
	struct bpf_spin_lock lock;
	__u32 verify;
	__u64 received, duplicated, reordered, corrupted;
	__u64 next; /* largest number seen, plus one */
	__u64 first_ns, last_ns;
	__u64 gap_at_ns, gap_ns;
	__u64 loss_ns; /* when the last number was found missing */
	__u64 latency_sum, latency_min, latency_max;
	__u64 window[WINDOW_WORDS];
	__u32 buckets[BUCKETS];
};
_Static_assert(sizeof(struct flow) == 112 + 8 * WINDOW_WORDS + 4 * BUCKETS, "flow");

/* The settings of all flows of a port. */
struct judging {
	__u32 epoch, streams;
	__u64 unidentified;
};
_Static_assert(sizeof(struct judging) == 16, "judging");

/* The bucket of a latency in ns, as in src/histogram.rs: 32 buckets per octave. */
static __always_inline __u32 bucket_of(__u64 value)
{
	__u32 shift = 0, high;

	if (value >= 1ull << 36)
		return BUCKETS - 1;
	/* The shift to the right that leaves six bits. */
	high = value >> 6;
	if (value >> 22) {
		shift = 16;
		high = value >> 22;
	}
	if (high >> 8) {
		shift += 8;
		high >>= 8;
	}
	if (high >> 4) {
		shift += 4;
		high >>= 4;
	}
	if (high >> 2) {
		shift += 2;
		high >>= 2;
	}
	if (high >> 1) {
		shift += 1;
		high >>= 1;
	}
	shift += high;
	return ((shift << 5) + (value >> shift)) & (BUCKETS - 1);
}

#endif
