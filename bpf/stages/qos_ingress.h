/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* qos_ingress: applies the input policy of the port that received a frame. It follows `learn`: a station above its rate is a
 * station at this port all the same. XDP passes frames of ports with a policy to TC. */
enum { DROP_POLICED_IN = 58 };

static __always_inline int stage_qos_ingress(struct frame *f, struct __sk_buff *skb)
{
	if (!(f->port->qos & LY_QOS_HAS_INPUT))
		return 0;
	__u32 result = tc_qos(skb, ACL_WHERE(f->outer, f->form, f->form), ACL_WHAT(f->port_id, f->vlan, f->tci), f->bare_len,
			      QOS_AT(LY_QOS_INPUT, f->port_id, f->gso));
	if (result & QOS_DROPPED)
		return DROP(DROP_POLICED_IN);
	return qos_marks(skb, f, result);
}
