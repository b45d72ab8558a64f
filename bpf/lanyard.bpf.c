// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
/* Lanyard's forwarding pipeline in the kernel. Read this file, then stages/ in the order of the calls below.
 * crates/pipeline is the same pipeline in Rust; tests compare the two frame by frame.
 *
 * Look-ups for a known unicast frame: the port by ifindex, the port, its VLAN byte, source and destination in the FDB
 * (and for each of them which part of the table is in use), the egress port, its VLAN byte, three statistics. All of
 * them are arrays: no function is called, and most have an address that the program knows (ROWS in maps.h). */
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_core_read.h>

#include "abi.h"
#include "maps.h"
#include "frame.h"
#include "fdb.h"
#include "fib.h"
#include "traps.h"
#include "frame_tc.h"
#include "frame_xdp.h"
#include "tunnel.h"
#include "acl.h"

#include "stages/count.h" /* replicate counts the frames that it sends */
#include "stages/parse.h"
#include "stages/mirror.h"
#include "stages/sample.h"
#include "stages/trap.h"
#include "stages/port.h"
#include "stages/vlan_ingress.h"
#include "stages/acl_ingress.h"
#include "qos.h"
#include "stages/storm.h"
#include "stages/guard.h"
#include "stages/learn.h"
#include "stages/qos_ingress.h"
#include "stages/route.h"
#include "balance.h" /* used by replicate */
#include "stages/snoop.h"
#include "stages/bridge.h"
#include "stages/vlan_egress.h"
#include "stages/acl_egress.h"
#include "stages/qos_egress.h"
#include "segments_tc.h" /* used by replicate and route_tc.h */
#include "stages/replicate.h"

/* The stages after `route`, for a frame in a VLAN. */
static __always_inline int tc_bridged(struct __sk_buff *skb, struct frame *f)
{
	int end;

	if ((end = stage_bridge(f)))
		return end;
	if (f->out_id == 0)
		return flood_enter(skb, f);
	if ((end = stage_vlan_egress(f)))
		return end;
	if ((end = stage_acl_egress(f, skb)))
		return end;
	if ((end = stage_qos_egress(f, skb)))
		return end;
	return tc_unicast(skb, f);
}

/* Ends processing at TC: counts the frame, and returns the program's return code. */
static __always_inline int tc_end(struct frame *f, int end)
{
	stage_count(f, end);
	return end > 0 ? TC_ACT_SHOT : f->action;
}

/* Floods a frame; other programs jump here. */
SEC("tc")
int lanyard_flood(struct __sk_buff *skb)
{
	struct frame f = { .action = TC_ACT_SHOT };
	int end = flood_begin(skb, &f) ? tc_flood(skb, &f) : DROP(DROP_TRUNCATED);

	if (!end && f.routed)
		adjacency_used(&f);
	return tc_end(&f, end);
}

#include "route_tc.h" /* `route` and the stages after it, for a frame to the router */
#include "route_xdp.h"

#include "checksum_xdp.h"
#include "memo_xdp.h"

#include "fdb_control.h"
#include "watchdog.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline int tc_stages(struct __sk_buff *skb, struct frame *f)
{
	int end;

	if ((end = stage_parse(f)))
		return end;
	if ((end = stage_mirror(f, skb)))
		return end;
	stage_sample(f, skb);
	if ((end = stage_trap(f, skb)))
		return end;
	if ((end = stage_port(f)))
		return end;
	if (f->port->flags & LY_PORT_LAYER3) {
		if ((end = stage_acl_ingress(f, skb)))
			return end;
		return tc_layer3(skb, f);
	}
	if ((end = stage_vlan_ingress(f)))
		return end;
	if (f->pv & LY_PV_ROUTES)
		f->rif = vlan_rif(f);
	if ((end = stage_acl_ingress(f, skb)))
		return end;
	if ((end = stage_storm(f)))
		return end;
	if ((end = stage_guard(f, skb)))
		return end;
	if ((end = stage_learn(f)))
		return end;
	if ((end = stage_qos_ingress(f, skb)))
		return end;
	if (f->rif)
		return router_enter(skb, f);
	if ((end = stage_snoop(f, skb)))
		return end;
	return tc_bridged(skb, f);
}

/* Handles every frame of every port that XDP has not handled. */
SEC("tc")
int lanyard_tc(struct __sk_buff *skb)
{
	struct frame f = { .action = TC_ACT_SHOT };
	int end = tc_open(skb, &f) ? tc_stages(skb, &f) : DROP(DROP_TRUNCATED);

	return tc_end(&f, end);
}

/* The remaining stages for frames that may be addressed to the router. */
SEC("tc")
int lanyard_router(struct __sk_buff *skb)
{
	struct frame f = { .action = TC_ACT_SHOT };
	int end = router_begin(skb, &f) ? router_stages(skb, &f) : DROP(DROP_TRUNCATED);

	return tc_end(&f, end);
}

/* True for group addresses that the stage `trap` examines: XDP leaves these frames to TC. */
static __always_inline bool xdp_leaves(struct frame *f)
{
	if (!(f->dst & GROUP_BIT))
		return false;
	return (f->dst & ~SSTP_OR_DISCOVERY) == CISCO_DISCOVERY || (f->dst & 0xf0ffffffffffULL) == RESERVED_BLOCK || f->dst == TUNNEL;
}

/* Ends a frame that an access list, storm control or the policer of a trap group drops at XDP. `in` is the port that received
 * it. */
static __always_inline int xdp_dropped(struct ly_port *in, struct frame *f, int end)
{
	xdp_sample_ends(in, f);
	xdp_acl_counts(f);
	stage_count(f, end);
	return XDP_DROP;
}

/* Handles ordinary frames: known unicast, packets to route, and floods. Everything else is passed
 * to TC, not counted and not changed: also frames for the outbound access lists and for those of VLAN interfaces. */
static __always_inline int xdp_stages(struct xdp_md *ctx, enum tag_source tags)
{
	struct frame f = {};
	int end;

	if (OFTEN((end = memo_sends(ctx, tags)) >= 0))
		return end;
	if (xdp_hides_tag(ctx, tags) || !xdp_open(ctx, &f))
		return XDP_PASS;
	struct ly_port *in = f.port;
	xdp_sample_begins(ctx, &f);
	memo_note(ctx, &f);
	if (xdp_leaves(&f)) {
		__u32 tag = (__u32)f.outer << 16 | f.tci;
		if (in->flags & (LY_PORT_XDP_ENDED | LY_PORT_MIRROR_RX | LY_PORT_MIRROR_TO) || !trap_refused(f.dst, f.src, f.port_id, tag, f.len))
			return XDP_PASS;
		return xdp_dropped(in, &f, DROP(DROP_TRAP_POLICED));
	}
	if (stage_parse(&f) || f.port->flags & (LY_PORT_XDP_ENDED | LY_PORT_MIRROR_RX | LY_PORT_MIRROR_TO))
		return XDP_PASS;
	if (f.port->flags & LY_PORT_PARTIAL && checksum_missing((void *)(long)ctx->data, (void *)(long)ctx->data_end, f.form)) /* a property of the netdev, not of a port-channel */
		return XDP_PASS;
	if (stage_port(&f) || f.port->flags & LY_PORT_GUARD || f.port->qos & LY_QOS_HAS_INPUT)
		return XDP_PASS;
	if (f.port->flags & LY_PORT_LAYER3) {
		if (f.port->flags & LY_PORT_SUB)
			return XDP_PASS;
		if ((end = xdp_acl_ingress(&f, ctx)))
			return xdp_dropped(in, &f, end);
		f.now_s = now_s();
		port_rif(&f);
	} else {
		if (stage_vlan_ingress(&f))
			return XDP_PASS;
		if (f.pv & LY_PV_ROUTES)
			f.rif = vlan_rif(&f);
		if (f.rif && f.port->flags & LY_PORT_ACL_IN) /* only TC judges by the lists of its new VLAN, so TC judges by all */
			return XDP_PASS;
		if ((end = xdp_acl_ingress(&f, ctx)))
			return xdp_dropped(in, &f, end);
		if (f.port->flags & LY_PORT_STORM && !f.rif && storm_refuses(f.dst, f.shared, f.port_id, f.len))
			return xdp_dropped(in, &f, DROP(DROP_STORM));
		if (!stage_learn_fast(&f))
			return XDP_PASS;
		if (f.dst & GROUP_BIT && (f.port->flags & LY_PORT_STORM || !stage_snoop_fast(&f, ctx)))
			return XDP_PASS;
	}
	if (f.rif || f.port->flags & LY_PORT_LAYER3) {
		if (!xdp_route(ctx, &f))
			return XDP_PASS;
	} else if (stage_bridge(&f)) {
		return XDP_PASS;
	} else if (f.out_id == 0) {
		if (f.port->flags & LY_PORT_STORM || !xdp_flood_out(ctx, &f))
			return XDP_PASS;
	} else {
		if (stage_vlan_egress(&f) || acl_leaves(&f) || f.out->qos & LY_QOS_HAS_OUTPUT)
			return XDP_PASS;
		if (!xdp_unicast(ctx, &f))
			return XDP_PASS;
	}
	xdp_sample_ends(in, &f);
	xdp_acl_counts(&f);
	stage_count(&f, 0);
	return f.action;
}

SEC("xdp.frags")
int lanyard_xdp(struct xdp_md *ctx)
{
	return xdp_stages(ctx, TAGS_IN_LINE);
}

/* The same program for veths. */
SEC("?xdp.frags")
int lanyard_xdp_veth(struct xdp_md *ctx)
{
	return xdp_stages(ctx, TAGS_OF_VETH);
}

/* The kernel remembers a device's program by the address it had when it was attached, and uses that address when the
 * device is removed. If verification makes a program outgrow its pages, the kernel moves it, and then accesses freed
 * memory when the device is removed (seen with 6.12 and 6.18). This program is therefore loaded with spare room:
 * unreachable instructions, which the verifier removes before it adds its own. crates/ebpf/src/bound.rs checks that
 * there was enough room. */
static __always_inline void stay_in_place(void)
{
	if (never)
		asm volatile(".rept 6144\n\tr0 = 0\n\t.endr" ::: "r0");
}

/* The same program, loaded for one device whose driver reports out-of-band tags. */
SEC("?xdp.frags")
int lanyard_xdp_bound(struct xdp_md *ctx)
{
	stay_in_place();
	return xdp_stages(ctx, TAGS_OF_DRIVER);
}

/* Finishes a copy of a flooded frame before it leaves (see xdp_flood_out). */
SEC("xdp.frags/devmap") /* with .frags like the programs that redirect: the map accepts programs of one kind only */
int lanyard_xdp_copy(struct xdp_md *ctx)
{
	return xdp_copy(ctx) ? XDP_PASS : XDP_DROP;
}
