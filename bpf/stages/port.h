/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* port: is the port a port, and up? */
static __always_inline int stage_port(struct frame *f)
{
	return f->port && f->port->flags & LY_PORT_ENABLED ? 0 : DROP(DROP_PORT_DOWN);
}
