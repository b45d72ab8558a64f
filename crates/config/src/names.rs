//! Names of interfaces that contain a number: port-channels and subinterfaces.

use crate::InterfaceName;
use lanyard_types::ChannelId;
use std::borrow::Cow;

impl InterfaceName {
    /// The interface of a port-channel: `port-channelN`.
    #[must_use]
    pub fn of_channel(channel: ChannelId) -> Self {
        Self::Netdev(format!("port-channel{channel}"))
    }
    /// A subinterface of a port-channel. The name is short, because the name of a netdev has at most 15 bytes.
    #[must_use]
    pub fn of_channel_subinterface(channel: ChannelId, number: u32) -> Self {
        Self::Netdev(format!("po{channel}.{number}"))
    }
    /// The number of a port-channel's interface; `None` for other interfaces.
    #[must_use]
    pub fn channel(&self) -> Option<ChannelId> {
        match self {
            Self::Netdev(name) => channel_of(name),
            Self::Vlan(_) => None,
        }
    }
}

/// The number of the port-channel whose interface has this name; `None` for other names.
#[must_use]
pub fn channel_of(name: &str) -> Option<ChannelId> {
    let number = name.strip_prefix("port-channel")?;
    number.parse().ok().and_then(ChannelId::new).filter(|channel| channel.to_string() == number)
}

/// Divides a subinterface's name into parent and number: `eth1.100` is 100 of `eth1`, and `po1.100` is 100 of
/// `port-channel1` ([`InterfaceName::of_channel_subinterface`]).
#[must_use]
pub fn split_subinterface(name: &str) -> Option<(Cow<'_, str>, u32)> {
    let (parent, number) = name.rsplit_once('.')?;
    let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let number = number.parse().ok().filter(|_| plain && !parent.is_empty())?;
    let channel = parent.strip_prefix("po").and_then(|channel| channel_of(&format!("port-channel{channel}")));
    let parent = channel
        .map_or(Cow::Borrowed(parent), |channel| Cow::Owned(InterfaceName::of_channel(channel).to_string()));
    Some((parent, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_port_channels() {
        let of = |name: &str| channel_of(name).map(ChannelId::get);
        for (name, number) in [
            ("port-channel1", Some(1)),
            ("port-channel255", Some(255)),
            ("port-channel256", None),
            ("port-channel0", None),
            ("port-channel01", None),
            ("port-channel", None),
            ("po1", None),
        ] {
            assert_eq!(of(name), number, "{name}");
        }
    }

    #[test]
    fn subinterfaces_have_a_parent_and_a_number() {
        for (name, parts) in [
            ("eth1.100", Some(("eth1", 100))),
            ("po1.4094", Some(("port-channel1", 4094))),
            ("po256.1", Some(("po256", 1))),
            ("eth1.", None),
            (".1", None),
            ("eth1.x", None),
            ("eth1", None),
        ] {
            let split = split_subinterface(name);
            assert_eq!(split.as_ref().map(|(parent, number)| (&**parent, *number)), parts, "{name}");
        }
        let one = ChannelId::new(1).expect("a number");
        assert_eq!(InterfaceName::of_channel_subinterface(one, 4094).to_string(), "po1.4094");
    }
}
