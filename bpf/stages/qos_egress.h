/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* qos_egress: applies the output policy of each port by which a frame leaves: here for unicast; `replicate` applies it for each
 * port of a flood. XDP passes frames for ports with a policy to TC. */
enum { DROP_POLICED_OUT = 59 };

static __always_inline int stage_qos_egress(struct frame *f, struct __sk_buff *skb)
{
	if (!(f->out->qos & LY_QOS_HAS_OUTPUT))
		return 0;
	if (f->out->flags & LY_PORT_CHANNEL && !ROW(channels, f->out->channel)->member[0])
		return DROP(DROP_EGRESS_DOWN); /* as in tc_unicast, but before the policy counts the frame */
	__u32 result = tc_qos(skb, ACL_WHERE(f->outer, f->form, f->form), ACL_WHAT(f->out_id, f->vlan, f->tci), f->bare_len,
			      QOS_AT(LY_QOS_OUTPUT, f->out_id, f->gso));
	if (result & QOS_DROPPED)
		return DROP(DROP_POLICED_OUT);
	if (!dry)
		qos_queue(skb, result);
	return qos_marks(skb, f, result);
}
