/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The conventions that generator and receiver share: host addresses, the position of a frame's sequence number, and
 * the structs that user space reads and writes (src/bpf.rs mirrors them). Sizes are asserted on both sides. */
#ifndef LANYARD_TESTER_TRAFFIC_H
#define LANYARD_TESTER_TRAFFIC_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Host number N is 02:4c:00:NN:NN:NN with address 10.NN.NN.NN; the first two bytes mark the tester's frames. */
#define HOST_MARK 0x4c02 /* the bytes 02 4c, loaded little-endian */

struct __attribute__((packed)) eth {
	__u16 dst_mark, dst_zero_hi;
	__u16 dst_lo;
	__u16 src_mark, src_zero_hi;
	__u16 src_lo;
	__be16 type;
};

struct __attribute__((packed)) ipv4 {
	__u8 version_ihl, tos;
	__be16 length, id, fragment;
	__u8 ttl, protocol;
	__u16 checksum;
	__u16 src[2], dst[2];
};

struct __attribute__((packed)) ipv6 {
	__be32 version_flow;
	__be16 length;
	__u8 next, hops;
	__be32 src[4], dst[4];
};

struct __attribute__((packed)) udp {
	__be16 sport, dport, length, checksum;
};

/* 14 bytes: the stamp fits after Ethernet, one tag, IPv4 and UDP in a frame of 60. */
struct __attribute__((packed)) stamp {
	__u16 magic;
	__u16 stream;
	__u32 seq;
	__u32 time_lo; /* bpf_ktime_get_ns(), 48 bits; 0 when not requested */
	__u16 time_hi;
};
_Static_assert(sizeof(struct stamp) == 14, "stamp");
#define STAMP_MAGIC 0x594c

#define TEMPLATES 8

/* The description of a stream: read-only, so the verifier removes the branches that are not taken. */
struct stream {
	__u32 ifindex;
	__u32 src_first, src_count;
	__u32 dst_first, dst_count;
	__u32 random;       /* 1: independent random source and destination, 0: both in sequence */
	__u32 interval_256; /* time between frames in 1/256 ns, 0: the greatest possible rate */
	__u32 stamp;        /* 1: write the time into each frame */
	__u16 tci;          /* VLAN tag, 0: untagged */
	__u16 stream;
	__u16 ip_length;    /* bytes from the IP header on */
	__u16 group;        /* not 0: to the IPv4 multicast groups numbered by the destinations, 239.NN.NN.NN */
	__u32 prefixes;     /* not 0: the IP destinations are random ones in this many prefixes (see
                      * crates/bench/src/rows/forward/routed.rs) */
	__u32 six;          /* with prefixes: IPv6 */
	__u32 templates;    /* not 0: the frames are the first `templates` of `words` in turn (a power of two), and of the
                      * fields above only `ifindex` and `interval_256` are used */
	__u32 sources;      /* with templates, 1: the last three bytes of each frame's source address are random */
	__u32 words[TEMPLATES][16]; /* 60 bytes each */
};
_Static_assert(sizeof(struct stream) == 56 + TEMPLATES * 64, "stream");

/* The progress of a stream. It has one writer, because a generator runs on one CPU at a time. */
struct progress {
	__u64 sent;
	__u64 due_256;              /* when the next frame is due, in 1/256 ns */
	__u64 runs;                 /* runs of the program, including those that sent nothing */
	__u64 started_ns, latest_ns; /* the clock, read every CLOCK_EVERY runs */
	__u32 next_src, next_dst;
};
_Static_assert(sizeof(struct progress) == 48, "progress");

/* A reading of the clock takes a tenth of the time of a frame, so it is not read for each one. Must be a power of
 * two. */
#define CLOCK_EVERY 256

/* The frames that arrived at one device. */
struct arrivals {
	__u64 frames, bytes;
	__u64 first_ns;      /* bpf_ktime_get_ns() of the first frame */
	__u64 expected;      /* next sequence number */
	__u64 missing, late; /* gaps seen; frames that filled a gap */
};
_Static_assert(sizeof(struct arrivals) == 48, "arrivals");

#define DEVICE_SLOTS 64 /* power of two; a device's slot is its ifindex modulo this */

#endif
