/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* sample: draws received frames at random, each independently with the chance of its port, for the control plane (sFlow).
 *
 * Each frame is drawn once: TC draws those that it handles, and XDP those that it handles completely. XDP changes frames before it
 * knows that, so it draws first and keeps the head of the frame, and sends the record at the end.
 *
 * A record has the number of frames that were considered since the processor's last record of the port, so that the control plane
 * knows exactly of how many frames a sample was drawn. Samples over the rate, or for which the ring has no room, are counted and
 * reported with the next record. A port that is not sampled pays for a branch on its flags. */
#define LY_PORT_SAMPLE 0x800000 /* ly_port.flags: its frames are sampled */

#define LY_SAMPLE_BYTES 128 /* the longest head of a frame in a record */
#define LY_SAMPLE_INTERVAL_NS 250000 /* a processor sends 4000 samples a second */
#define LY_SAMPLE_BURST 1000 /* after a quiet time a processor sends this many samples at once */

/* sample[port] */
struct ly_sample {
	__u64 chance; /* a frame is drawn with a probability of chance / 2^32 */
};
_Static_assert(sizeof(struct ly_sample) == 8, "ly_sample");
TABLE(sample, struct ly_sample, LY_PORTS, BPF_F_MMAPABLE);

/* Records of the ring `samples` */
struct ly_sampled {
	__u32 len;   /* the frame's length, tags included */
	__u32 pool;  /* frames considered since the last record, this one included */
	__u32 drops; /* samples that were lost since then */
	__u16 port;
	__u16 size; /* bytes of the head that are valid */
	__u16 tag_proto; /* out-of-band tag, which the head does not contain; 0: none */
	__u16 tag_tci;
	__u8 byte[LY_SAMPLE_BYTES];
};
_Static_assert(sizeof(struct ly_sampled) == 20 + LY_SAMPLE_BYTES, "ly_sampled");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} samples SEC(".maps");

/* A processor's counts at a port since its last record. */
struct sample_count {
	__u32 pool, drops;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LY_PORTS);
	__type(key, __u32);
	__type(value, struct sample_count);
} sample_counts SEC(".maps");

/* A processor's clock (see ly_trap_group) and the record that it is making. */
struct sample_work {
	__u64 arrival_ns;
	struct ly_sampled record; /* size 0: none */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sample_work);
} sample_works SEC(".maps");

static __always_inline bool sample_drawn(__u32 port)
{
	struct ly_sample *s = LOOKUP(sample, port);

	return s && bpf_get_prandom_u32() < s->chance;
}

/* True if the processor may send a sample now. */
static __always_inline bool sample_admits(struct sample_work *w)
{
	__u64 now = now_ns(), at = w->arrival_ns > now ? w->arrival_ns : now;

	if (at - now > (LY_SAMPLE_BURST - 1) * (__u64)LY_SAMPLE_INTERVAL_NS)
		return false;
	w->arrival_ns = at + LY_SAMPLE_INTERVAL_NS;
	return true;
}

static __always_inline void sample_journal(struct ly_sampled *r)
{
	struct ly_journal *j = dry_journal();
	struct ly_journal_frame *bytes = LOOKUP(journal_bytes, LY_SAMPLED);

	if (!j || !bytes || !leaves_marks(LY_DRY_POLICE))
		return;
	j->sampled_len = r->len;
	j->sampled_port = r->port;
	j->form[LY_SAMPLED].len = r->size;
	j->form[LY_SAMPLED].tag_proto = r->tag_proto;
	j->form[LY_SAMPLED].tag_tci = r->tag_tci;
	__builtin_memcpy(bytes->byte, r->byte, LY_SAMPLE_BYTES);
}

/* Counts a frame of `port`, and sends the record if it was drawn. */
static __always_inline void sample_ends(struct sample_work *w, __u32 port, bool drawn)
{
	struct sample_count *count = LOOKUP(sample_counts, port);

	if (!count)
		return;
	if (dry) {
		if (drawn)
			sample_journal(&w->record);
		return;
	}
	count->pool++;
	if (!drawn)
		return;
	w->record.pool = count->pool;
	w->record.drops = count->drops;
	if (!sample_admits(w) || bpf_ringbuf_output(&samples, &w->record, sizeof(w->record), 0)) {
		count->drops++;
		return;
	}
	count->pool = count->drops = 0;
}

/* The length of the head of a frame of `len` bytes: see tc_head about the verifier of Linux 6.1. */
#define SAMPLE_HEAD(bytes, len)                                                     \
	__u64 bytes = (len) < LY_SAMPLE_BYTES ? (len) : LY_SAMPLE_BYTES;            \
	asm volatile("" : "+r"(bytes));                                             \
	if (bytes < 14)                                                             \
		return 0;                                                           \
	asm volatile("" : "+r"(bytes));                                             \
	if (bytes > LY_SAMPLE_BYTES)                                                \
		return 0;

/* Counts a frame at TC, and samples it if it is drawn. A global function, as the others here: it is called only for ports that
 * are sampled. */
__noinline int tc_sample(struct __sk_buff *skb, __u32 port)
{
	struct sample_work *w = LOOKUP(sample_works, 0);
	bool drawn = sample_drawn(port);

	if (!w)
		return 0;
	if (drawn) {
		__u32 len = skb->len;
		SAMPLE_HEAD(bytes, len)
		if (bpf_skb_load_bytes(skb, 0, w->record.byte, bytes))
			return 0;
		w->record.size = bytes;
		w->record.len = len + (skb->vlan_present ? 4 : 0) + dry_extra();
		w->record.port = port;
		w->record.tag_proto = skb->vlan_present ? bpf_ntohs(skb->vlan_proto) : 0;
		w->record.tag_tci = skb->vlan_tci;
	}
	sample_ends(w, port, drawn);
	return 0;
}

static __always_inline void stage_sample(struct frame *f, struct __sk_buff *skb)
{
	if (f->port && f->port->flags & LY_PORT_SAMPLE && f->port->flags & LY_PORT_ENABLED)
		tc_sample(skb, f->port_id);
}

/* Keeps the head of a frame at XDP if it is drawn. */
__noinline int xdp_sample_take(struct xdp_md *ctx, __u32 port, __u32 len)
{
	struct sample_work *w = LOOKUP(sample_works, 0);

	if (!w)
		return 0;
	w->record.size = 0;
	if (!sample_drawn(port))
		return 0;
	__u32 held = bpf_xdp_get_buff_len(ctx);
	SAMPLE_HEAD(bytes, held)
	if (bpf_xdp_load_bytes(ctx, 0, w->record.byte, bytes))
		return 0;
	w->record.size = bytes;
	w->record.len = len;
	w->record.port = port;
	w->record.tag_proto = w->record.tag_tci = 0;
	return 0;
}

/* Counts a frame that XDP has handled, and sends its sample if xdp_sample_take has kept its head. */
__noinline int xdp_sample_send(__u32 port)
{
	struct sample_work *w = LOOKUP(sample_works, 0);

	if (w)
		sample_ends(w, port, w->record.size);
	return 0;
}

static __always_inline void xdp_sample_begins(struct xdp_md *ctx, struct frame *f)
{
	if (f->port->flags & LY_PORT_SAMPLE)
		xdp_sample_take(ctx, f->port_id, f->len);
}

/* `in` is the port that received the frame. */
static __always_inline void xdp_sample_ends(struct ly_port *in, struct frame *f)
{
	if (in->flags & LY_PORT_SAMPLE)
		xdp_sample_send(f->member ?: f->port_id);
}
