/* SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause) */
/* Control frames of a customer's network that a dot1q-tunnel port carries through the provider's network (l2protocol-
 * tunnel): `trap` gives them the destination TUNNEL, and `replicate` restores their own destination at the tunnel
 * ports on the other side. The protocol is recognised by the contents: crates/wire/src/layer2.rs does the same in Rust. */
#ifndef LY_TUNNEL_H
#define LY_TUNNEL_H

/* True for a dot1q-tunnel port: all frames it receives belong to a customer, including control frames. */
static __always_inline bool is_tunnel(struct ly_port *port)
{
	return port && port->tpid == 0 && (port->flags & (LY_PORT_ENABLED | LY_PORT_SVI | LY_PORT_LAYER3)) == LY_PORT_ENABLED;
}

/* The destination that the frame's protocol uses, regardless of its current destination; 0 for a frame of no protocol
 * that can be carried. `form` is the form of the recognised tag, which may be followed by two tags of the customer's. */
__noinline __u64 tunnel_address(struct __sk_buff *skb, __u32 form)
{
	__u8 at[5], snap[5]; /* EtherType or length, and LLC; the SNAP identifier */
	__u16 type;
	__u32 offset = 12, tags = 2;

	if (form != LY_UNTAGGED)
		tags++;
	if (skb->vlan_present)
		tags--;
	for (__u32 n = 0; n < 4; n++) {
		if (bpf_skb_load_bytes(skb, offset, at, sizeof(at)))
			return 0;
		type = at[0] << 8 | at[1];
		if (n >= tags || (type != 0x8100 && type != 0x88a8 && type != 0x9100))
			break;
		offset += 4;
	}
	if (type == 0x88cc)
		return LLDP;
	if (type >= 0x600 || at[2] != at[3] || at[4] != 0x03)
		return 0;
	if (at[2] == 0x42)
		return RESERVED_BLOCK;
	if (at[2] != 0xaa || bpf_skb_load_bytes(skb, offset + 5, snap, sizeof(snap)))
		return 0;
	if (snap[0] || snap[1] || snap[2] != 0x0c)
		return 0;
	return snap[3] == 0x01 && snap[4] == 0x0b ? SSTP : snap[3] == 0x20 && !snap[4] ? CISCO_DISCOVERY : 0;
}

/* The flag of the tunnel ports that carry the protocol which uses this destination; 0: no protocol does. */
static __always_inline __u32 tunnel_flag(__u64 address)
{
	return address == RESERVED_BLOCK || address == SSTP ? LY_PORT_TUNNEL_STP :
	       address == CISCO_DISCOVERY		    ? LY_PORT_TUNNEL_CDP :
	       address == LLDP			    ? LY_PORT_TUNNEL_LLDP :
						      0;
}

static __always_inline bool tunnel_readdress(struct __sk_buff *skb, __u64 address)
{
	return !bpf_skb_store_bytes(skb, 0, &address, 6, 0);
}

/* Handles a customer's control frame for `dst` at a tunnel port: readdresses it to TUNNEL if the port carries its
 * protocol. Returns 1 if it did. A global function, so that the verifier checks it once. */
__noinline int tunnel_enter(struct __sk_buff *skb, __u32 port, __u32 form, __u64 dst)
{
	__u64 address = tunnel_address(skb, form);

	return address == dst && ROW(ports, port)->flags & tunnel_flag(address) && tunnel_readdress(skb, TUNNEL);
}

#endif
