//! FPM frames as a routing suite writes them, for measuring and for tests.

/// FPM's header (version, message type, length of the frame) and netlink's, in bytes.
const HEADERS: usize = 4 + 16;
/// NLM_F_REQUEST, NLM_F_REPLACE and NLM_F_CREATE.
const CREATE_OR_REPLACE: u16 = 0x1 | 0x100 | 0x400;

/// An FPM frame of version 1 with one netlink message: its type (`RTM_NEWROUTE` is 24, `RTM_NEWNEXTHOP` 104), the header of that
/// type (`struct rtmsg`, `struct nhmsg`), and attributes by number. The message creates or replaces its object.
///
/// `None` if the frame is longer than the 65,535 bytes that FPM's header can state.
#[must_use]
pub fn frame(kind: u16, header: &[u8], attributes: &[(u16, &[u8])]) -> Option<Vec<u8>> {
    let mut body = header.to_vec();
    for (number, value) in attributes {
        body.extend(u16::try_from(4 + value.len()).ok()?.to_ne_bytes());
        body.extend(number.to_ne_bytes());
        body.extend_from_slice(value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let length = u16::try_from(HEADERS + body.len()).ok()?;
    let mut frame = vec![1, 1];
    frame.extend(length.to_be_bytes());
    frame.extend((u32::from(length) - 4).to_ne_bytes());
    frame.extend(kind.to_ne_bytes());
    frame.extend(CREATE_OR_REPLACE.to_ne_bytes());
    // The sequence number and the port.
    frame.extend([0; 8]);
    frame.extend(body);
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::frame;

    #[test]
    fn lengths_and_padding() {
        let bytes = frame(24, &[2, 24, 0, 0], &[(1, &[10, 0, 0]), (6, &[1, 0, 0, 0])]).expect("short");
        assert_eq!(bytes.len(), 20 + 4 + 8 + 8);
        assert_eq!(bytes[..4], [1, 1, 0, 40]);
        assert_eq!(bytes[4..8], 36_u32.to_ne_bytes());
        assert_eq!(bytes[8..12], [24_u16.to_ne_bytes(), 0x501_u16.to_ne_bytes()].concat());
        assert_eq!(bytes[24..32], [&7_u16.to_ne_bytes()[..], &1_u16.to_ne_bytes(), &[10, 0, 0, 0]].concat());
        let longest = [0; 65_535 - 24 - 3];
        assert!(frame(24, &[], &[(1, &longest)]).is_some());
        assert!(frame(24, &[], &[(1, &[0; 65_535 - 23])]).is_none(), "longer than FPM's header can state");
    }
}
