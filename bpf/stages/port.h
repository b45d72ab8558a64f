/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* port: checks that the ingress netdev is a port, and that the port is up. */
enum {
	DROP_PORT_DOWN = 7,
};

static __always_inline int stage_port(struct frame *f)
{
	return f->port && f->port->flags & LY_PORT_ENABLED ? 0 : DROP(DROP_PORT_DOWN);
}
