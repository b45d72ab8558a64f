//! The types of arguments: how they look, how they are parsed, and the values that handlers get.
//!
//! Invariant: [`take`] never consumes more words than the line has, and every value is in range.

mod parse;

pub(crate) use parse::{is_quad, not_ipv4};
pub use parse::{netdev, short, take};

use ipnet::IpNet;
use lanyard_config::InterfaceName;
use lanyard_types::{MacAddr, VlanId, VlanSet};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The maximum length of a range of interfaces, which is the maximum number of ports.
pub const MAX_RANGE: usize = 1023;
/// The maximum length of a file name or host name, in bytes.
pub const MAX_WORD: usize = 255;

/// The form of a configuration command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The plain form.
    Set,
    /// `no ...`.
    No,
    /// `default ...`.
    Default,
}

/// The types of argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A VLAN, 1-4094.
    Vlan,
    /// VLANs and ranges of them: `1,10,20-30`.
    VlanList,
    /// MST instances and ranges of them, each 0-4094: `0,2-4`.
    Instances,
    /// A MAC address in any notation.
    Mac,
    /// An IPv4 address, in help `A.B.C.D`.
    Ipv4,
    /// An IPv4 prefix, in help `A.B.C.D/LEN`.
    Ipv4Prefix,
    /// An IPv6 address, in help `X:X:X:X::X`.
    Ipv6,
    /// An IPv6 prefix, in help `X:X:X:X::X/LEN`.
    Ipv6Prefix,
    /// A decimal number in a range, both ends included.
    Number(u64, u64),
    /// Seconds, or `infinite`, which is the highest number.
    Lifetime,
    /// One word of at most this many bytes.
    Word(&'static str, usize),
    /// The rest of the line, at most this many bytes.
    Line(usize),
    /// The rest of a rule of an access list: the rest of the line, at most this many bytes.
    Rule(usize),
    /// The keywords of a command: the rest of the line, at most this many bytes.
    Command(usize),
    /// An interface: the name of a netdev, `vlan N` or `vlanN`, or `netdev NAME`.
    Interface,
    /// A range of interfaces, `swp1 - 4 , eth7`: the rest of the line.
    InterfaceRange,
    /// Interfaces and ranges of them, `swp1 - 4 , eth7`, which more words may follow.
    InterfaceList,
    /// Hexadecimal bytes: the rest of the line.
    Hex,
    /// A remote host: a name or an address that cannot be mistaken for an option of a program.
    Host,
}

/// The value of an argument. A line has only a few, so the size of this type does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `Kind::Vlan`.
    Vlan(VlanId),
    /// `Kind::VlanList`.
    Vlans(VlanSet),
    /// `Kind::Instances`.
    Instances(BTreeSet<u16>),
    /// `Kind::Mac`.
    Mac(MacAddr),
    /// `Kind::Ipv4`, `Kind::Ipv6`.
    Address(IpAddr),
    /// `Kind::Ipv4Prefix`, `Kind::Ipv6Prefix`, with the host bits as typed.
    Prefix(IpNet),
    /// `Kind::Number`, `Kind::Lifetime`.
    Number(u64),
    /// `Kind::Word`, `Kind::Line`, `Kind::Host`.
    Text(String),
    /// `Kind::Interface`, `Kind::InterfaceRange`, `Kind::InterfaceList`.
    Interfaces(Vec<InterfaceName>),
    /// `Kind::Hex`.
    Bytes(Vec<u8>),
    /// A keyword that stands for a value: its index in the table of choices.
    Choice(usize),
}

/// The input of a handler: the form of the line, its keywords and its values, in order.
#[derive(Debug, Clone)]
pub struct Args {
    /// Plain, `no` or `default`.
    pub form: Form,
    /// The keywords, in full.
    pub words: Vec<&'static str>,
    /// The values.
    pub values: Vec<Value>,
}

macro_rules! first {
    ($($(#[$doc:meta])* $name:ident($variant:ident) -> $type:ty;)*) => { $(
        $(#[$doc])*
        #[must_use]
        pub fn $name(&self) -> Option<$type> {
            self.values.iter().find_map(|value| match value {
                Value::$variant(value) => Some(value.clone()),
                _ => None,
            })
        }
    )* };
}

impl Args {
    first! {
        /// The first VLAN.
        vlan(Vlan) -> VlanId;
        /// The VLAN list.
        vlans(Vlans) -> VlanSet;
        /// The MST instances.
        instances(Instances) -> BTreeSet<u16>;
        /// The MAC address.
        mac(Mac) -> MacAddr;
        /// The first number.
        number(Number) -> u64;
        /// The first text.
        text(Text) -> String;
        /// The first interface or range.
        interfaces(Interfaces) -> Vec<InterfaceName>;
        /// The bytes.
        bytes(Bytes) -> Vec<u8>;
        /// The prefix.
        prefix(Prefix) -> IpNet;
    }
    /// The first single interface.
    #[must_use]
    pub fn interface(&self) -> Option<InterfaceName> {
        self.interfaces().and_then(|list| list.into_iter().next())
    }
    /// Addresses, in order.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.values.iter().filter_map(|v| if let Value::Address(a) = v { Some(*a) } else { None }).collect()
    }
    /// Texts, in order.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        self.values
            .iter()
            .filter_map(|v| if let Value::Text(t) = v { Some(t.clone()) } else { None })
            .collect()
    }
    /// Numbers, in order.
    #[must_use]
    pub fn numbers(&self) -> Vec<u64> {
        self.values.iter().filter_map(|v| if let Value::Number(n) = v { Some(*n) } else { None }).collect()
    }
    /// The number as `u32`.
    #[must_use]
    pub fn number_u32(&self) -> Option<u32> {
        self.number().and_then(|n| u32::try_from(n).ok())
    }
    /// The value of the one keyword among `choices` that the line has. `None` when it has none of them.
    #[must_use]
    pub fn among<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let of = |word: &&str| choices.iter().find(|(keyword, _)| keyword == word).map(|(_, value)| *value);
        self.words.iter().find_map(of)
    }
    /// True when the line has this keyword, which must be optional. To decide between several keywords use
    /// [`Args::among`].
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        self.words.contains(&word)
    }
}

/// Names that lines may refer to: existing netdevs.
pub trait Names {
    /// True when a netdev of this name exists or is configured.
    fn is_netdev(&self, name: &str) -> bool;
    /// The netdevs for completion.
    fn netdevs(&self) -> Vec<String>;
    /// The netdev to which `platform interface-name` gives the Catalyst's interface name `name`; `None` if there is none.
    fn netdev_of(&self, _name: &str) -> Option<String> {
        None
    }
    /// Why an interface cannot be named `name`, which is not the name of a VLAN interface or port-channel; `None` if it can. Only
    /// an import refuses names here: those for which it has no netdev.
    fn unmapped(&self, _name: &str) -> Option<String> {
        None
    }
    /// Why an existing netdev cannot be an interface of the switch, as the end of a sentence that begins with its name.
    fn netdev_refusal(&self, _name: &str) -> Option<&'static str> {
        None
    }
    /// The priority with which `root primary` would make this switch the root of a tree now; `None` when no priority is low
    /// enough.
    fn root_primary(&self, _tree: crate::view::TreeKey) -> Option<u16> {
        Some(24576)
    }
}

/// [`Names`] without any netdev.
pub struct NoNames;

impl Names for NoNames {
    fn is_netdev(&self, _name: &str) -> bool {
        false
    }
    fn netdevs(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The result of parsing an argument.
#[allow(clippy::large_enum_variant)] // as for `Value`
pub enum Take {
    /// The value, and the number of words that it took.
    Value(Value, usize),
    /// The words are meant as this argument and are wrong: the reason.
    Bad(String),
    /// The line ends inside the argument.
    Short,
    /// The words are not this argument.
    Mismatch,
}

impl Kind {
    /// The argument in the output of `?`.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::Vlan => "<1-4094>".into(),
            Self::VlanList => "LIST".into(),
            Self::Instances => "WORD".into(),
            Self::Mac => "H.H.H".into(),
            Self::Ipv4 => "A.B.C.D".into(),
            Self::Ipv4Prefix => "A.B.C.D/LEN".into(),
            Self::Ipv6 => "X:X:X:X::X".into(),
            Self::Ipv6Prefix => "X:X:X:X::X/LEN".into(),
            Self::Number(min, max) => format!("<{min}-{max}>"),
            Self::Lifetime => "<0-4294967295|infinite>".into(),
            Self::Word(name, _) => name.into(),
            Self::Line(_) | Self::Rule(_) | Self::Command(_) => "LINE".into(),
            Self::Interface => "INTERFACE".into(),
            Self::InterfaceRange | Self::InterfaceList => "RANGE".into(),
            Self::Hex => "BYTES".into(),
            Self::Host => "HOST".into(),
        }
    }

    /// True when a word must be read as this type although it could also be something else: the name of an
    /// existing netdev.
    pub fn names_exactly(self, word: &str, names: &dyn Names) -> bool {
        self == Self::Interface && names.is_netdev(word)
    }
}
