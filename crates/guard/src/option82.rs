//! The relay information (option 82) of a switch that snoops (RFC 3046, 2.0), in the format that IOS uses: the circuit ID
//! consists of the VLAN, a module and a port, the remote ID of the switch's MAC address.

use lanyard_types::{MacAddr, PortId, VlanId};

const CIRCUIT_ID: u8 = 1;
const REMOTE_ID: u8 = 2;
/// The type of a circuit ID that consists of VLAN, module and port, and of a remote ID that is a MAC address.
const NUMBERS: u8 = 0;

/// The sub-options for a client's message. Module and port are the high and the low byte of the port's number.
pub(crate) fn of(vlan: VlanId, port: PortId, mac: MacAddr) -> Vec<u8> {
    let [vlan_high, vlan_low] = vlan.get().to_be_bytes();
    let [module, number] = port.get().to_be_bytes();
    let mut bytes = vec![CIRCUIT_ID, 6, NUMBERS, 4, vlan_high, vlan_low, module, number];
    bytes.extend([REMOTE_ID, 8, NUMBERS, 6]);
    bytes.extend(mac.0);
    bytes
}

/// The port of the client, if this switch has written the option in this VLAN.
pub(crate) fn port(option: &[u8], vlan: VlanId, mac: MacAddr) -> Option<PortId> {
    let circuit: &[u8; 8] = option.first_chunk()?;
    let port = PortId::new(u16::from_be_bytes([circuit[6], circuit[7]]))?;
    (option == of(vlan, port, mac)).then_some(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let (vlan, port_id) = (VlanId::new(300).expect("a VLAN"), PortId::new(513).expect("a port"));
        let mac = MacAddr([2, 0, 0, 0, 0, 7]);
        let option = of(vlan, port_id, mac);
        assert_eq!(option, [1, 6, 0, 4, 1, 44, 2, 1, 2, 8, 0, 6, 2, 0, 0, 0, 0, 7]);
        assert_eq!(port(&option, vlan, mac), Some(port_id));
        assert_eq!(port(&option, VlanId::DEFAULT, mac), None, "another VLAN");
        assert_eq!(port(&option, vlan, MacAddr([2, 0, 0, 0, 0, 8])), None, "another switch");
        assert_eq!(port(&option[..17], vlan, mac), None);
        assert_eq!(port(&[option, vec![9, 0]].concat(), vlan, mac), None);
    }
}
