/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* parse: checks length and source, and looks for a tag that this port recognises.
 *
 * The hook (frame_tc.h, frame_xdp.h) has read the addresses and the outer EtherType, in line or out of band. A tag of
 * another TPID is payload. */
enum {
	DROP_SOURCE_GROUP = 2,
	DROP_SOURCE_ZERO = 3,
};

static __always_inline int stage_parse(struct frame *f)
{
	if (f->src & GROUP_BIT)
		return DROP(DROP_SOURCE_GROUP);
	if (f->src == 0)
		return DROP(DROP_SOURCE_ZERO);
	f->bare_len = f->len;
	if (!f->port || f->port->tpid == 0 || f->outer != f->port->tpid) {
		f->form = LY_UNTAGGED;
		f->tci = 0;
		return 0;
	}
	if (f->len < 18)
		return DROP(DROP_TRUNCATED);
	f->form = f->port->form;
	f->bare_len -= 4;
	return 0;
}
