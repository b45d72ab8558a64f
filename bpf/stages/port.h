/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* port: checks that the ingress netdev is a port, and that the port is up. Maps a member of a port-channel to the
 * port-channel: for the later stages the port-channel is the ingress port. */
enum {
	DROP_PORT_DOWN = 7,
	DROP_NOT_COLLECTING = 42,
};

/* A global function, so that ports in no port-channel pay only for the branch on their flags. */
__noinline int member_collects(__u32 channel, __u32 member)
{
	__u64 word = ROW(channels, channel)->collecting[member / 64 & (LY_PORT_WORDS - 1)];

	return word >> (member & 63) & 1;
}

static __always_inline int stage_port(struct frame *f)
{
	if (!f->port || !(f->port->flags & LY_PORT_ENABLED))
		return DROP(DROP_PORT_DOWN);
	if (f->port->flags & LY_PORT_MEMBER) {
		if (!member_collects(f->port->channel, f->port_id))
			return DROP(DROP_NOT_COLLECTING);
		__u32 channel = f->port->parent & (LY_PORTS - 1);
		if (!(ROW(ports, channel)->flags & LY_PORT_ENABLED))
			return DROP(DROP_PORT_DOWN);
		f->member = f->port_id;
		f->port_id = channel;
		f->port = ROW(ports, channel);
	}
	return 0;
}
