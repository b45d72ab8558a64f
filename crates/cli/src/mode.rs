//! Modes: the prompt of each, and the lines that lead to it.
//!
//! `commands::root` has the trees that parse a line in each mode.

use crate::line::Word;
use lanyard_acl::Kind;
use lanyard_config::InterfaceName;
use lanyard_config::access::{LEVEL_USER, LineRange};
use lanyard_types::VlanSet;

/// A configuration mode. There is one for each session, so its size does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigMode {
    /// `configure terminal`.
    Global,
    /// `interface I`, or `interface range ...`.
    Interface {
        /// The interfaces that are being configured; never empty.
        names: Vec<InterfaceName>,
        /// True after `interface range`.
        range: bool,
    },
    /// `vlan LIST`.
    Vlan(VlanSet),
    /// `spanning-tree mst configuration`.
    Mst,
    /// `vrf definition V`.
    Vrf {
        /// Its name.
        name: String,
        /// The address family inside `address-family`.
        family: Option<&'static str>,
    },
    /// `track N`.
    Track(u16),
    /// `ip access-list`, `ipv6 access-list`, `mac access-list`, by name.
    AccessList(Kind, String),
    /// `object-group network`.
    NetworkGroup(String),
    /// `object-group service`.
    ServiceGroup(String),
    /// `time-range`.
    TimeRange(String),
    /// `vlan access-map`: name and sequence number.
    AccessMap(String, u32),
    /// `class-map`, by name.
    ClassMap(String),
    /// `policy-map`, by name.
    PolicyMap(String),
    /// `class` in a policy map: the names of both.
    PolicyClass(String, String),
    /// `police` in a class of a policy map: the names of both.
    Policer(String, String),
    /// `location civic-location`, by number.
    CivicLocation(u16),
    /// `line console 0`, `line vty`.
    Line(LineRange),
    /// `ip ssh pubkey-chain`, and the user inside `username`.
    SshKeys(Option<String>),
    /// `radius server`, by name.
    RadiusServer(String),
    /// `tacacs server`, by name.
    TacacsServer(String),
    /// `monitor session N type erspan-source`, by number.
    ErspanSource(u16),
    /// `destination` in an ERSPAN source session.
    ErspanSourceDestination(u16),
    /// `monitor session N type erspan-destination`, by number.
    ErspanDestination(u16),
    /// `source` in an ERSPAN destination session.
    ErspanDestinationSource(u16),
}

/// A session's mode.
#[allow(clippy::large_enum_variant)] // as for `ConfigMode`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Exec at privilege level 0 or 1: `>`.
    User,
    /// Exec at a higher privilege level: `#`.
    Privileged,
    /// Configuration.
    Config {
        /// The configuration mode.
        at: ConfigMode,
        /// The configuration session; `None` when the running configuration is edited.
        session: Option<String>,
    },
}

impl ConfigMode {
    /// The suffix of the prompt.
    fn tag(&self) -> &'static str {
        match self {
            Self::Global => "",
            Self::Interface { range: false, .. } => "-if",
            Self::Interface { range: true, .. } => "-if-range",
            Self::Vlan(_) => "-vlan",
            Self::Mst => "-mst",
            Self::Vrf { family: None, .. } => "-vrf",
            Self::Vrf { family: Some(_), .. } => "-vrf-af",
            Self::Track(_) => "-track",
            Self::AccessList(Kind::Standard, _) => "-std-nacl",
            Self::AccessList(Kind::Extended, _) => "-ext-nacl",
            Self::AccessList(Kind::Ipv6, _) => "-ipv6-acl",
            Self::AccessList(Kind::Mac, _) => "-ext-macl",
            Self::NetworkGroup(_) => "-network-group",
            Self::ServiceGroup(_) => "-service-group",
            Self::TimeRange(_) => "-time-range",
            Self::AccessMap(..) => "-access-map",
            Self::ClassMap(_) => "-cmap",
            Self::PolicyMap(_) => "-pmap",
            Self::PolicyClass(..) => "-pmap-c",
            Self::Policer(..) => "-pmap-c-police",
            Self::CivicLocation(_) => "-civic",
            Self::Line(_) => "-line",
            Self::SshKeys(None) => "-ssh-pubkey",
            Self::SshKeys(Some(_)) => "-ssh-pubkey-user",
            Self::RadiusServer(_) => "-radius-server",
            Self::TacacsServer(_) => "-server-tacacs",
            Self::ErspanSource(_) => "-mon-erspan-src",
            Self::ErspanSourceDestination(_) => "-mon-erspan-src-dst",
            Self::ErspanDestination(_) => "-mon-erspan-dst",
            Self::ErspanDestinationSource(_) => "-mon-erspan-dst-src",
        }
    }
    /// The mode to which `exit` leads.
    #[must_use]
    pub fn outer(self) -> Self {
        match self {
            Self::Vrf { name, family: Some(_) } => Self::Vrf { name, family: None },
            Self::SshKeys(Some(_)) => Self::SshKeys(None),
            Self::PolicyClass(policy, _) => Self::PolicyMap(policy),
            Self::Policer(policy, class) => Self::PolicyClass(policy, class),
            Self::ErspanSourceDestination(number) => Self::ErspanSource(number),
            Self::ErspanDestinationSource(number) => Self::ErspanDestination(number),
            _ => Self::Global,
        }
    }
    /// The mode in which a session or configuration text continues after a refused line that leads to a mode and was entered in
    /// this mode: global configuration mode, but the mode of the policy map after a refused `class`, because its next class may
    /// follow.
    pub(crate) fn behind_refused(self, words: &[Word<'_>]) -> Self {
        let is_class = words.first().is_some_and(|word| word.text.eq_ignore_ascii_case("class"));
        match self {
            Self::PolicyMap(policy) | Self::PolicyClass(policy, _) | Self::Policer(policy, _) if is_class => {
                Self::PolicyMap(policy)
            }
            _ => Self::Global,
        }
    }
    /// The line that leads to this mode from global configuration mode; `None` for global configuration mode. For a submode
    /// (`class`, `police`, `destination` of a session...) it is the line of the mode around it that is entered from global
    /// configuration mode.
    #[must_use]
    pub fn entry(&self) -> Option<String> {
        match self {
            Self::Global => None,
            Self::Interface { names, .. } => match names.as_slice() {
                [one] => Some(format!("interface {}", lanyard_config::text::reference(one))),
                many => {
                    let names: Vec<String> = many.iter().map(ToString::to_string).collect();
                    Some(format!("interface range {}", names.join(" , ")))
                }
            },
            Self::Vlan(set) => Some(format!("vlan {set}")),
            Self::Mst => Some("spanning-tree mst configuration".into()),
            Self::Vrf { name, .. } => Some(format!("vrf definition {name}")),
            Self::Track(number) => Some(format!("track {number}")),
            Self::AccessList(kind, name) => Some(format!("{} {name}", kind.command())),
            Self::NetworkGroup(name) => Some(format!("object-group network {name}")),
            Self::ServiceGroup(name) => Some(format!("object-group service {name}")),
            Self::TimeRange(name) => Some(format!("time-range {name}")),
            Self::AccessMap(name, seq) => Some(format!("vlan access-map {name} {seq}")),
            Self::ClassMap(name) => Some(format!("class-map {name}")),
            Self::PolicyMap(name) | Self::PolicyClass(name, _) | Self::Policer(name, _) => {
                Some(format!("policy-map {name}"))
            }
            Self::CivicLocation(number) => Some(format!("location civic-location identifier {number}")),
            Self::Line(range) => Some(range.words()),
            Self::SshKeys(_) => Some("ip ssh pubkey-chain".into()),
            Self::RadiusServer(name) => Some(format!("radius server {name}")),
            Self::TacacsServer(name) => Some(format!("tacacs server {name}")),
            Self::ErspanSource(number) | Self::ErspanSourceDestination(number) => {
                Some(format!("monitor session {number} type erspan-source"))
            }
            Self::ErspanDestination(number) | Self::ErspanDestinationSource(number) => {
                Some(format!("monitor session {number} type erspan-destination"))
            }
        }
    }
}

impl Mode {
    /// Exec mode at a privilege level.
    #[must_use]
    pub const fn exec(level: u8) -> Self {
        if level > LEVEL_USER { Self::Privileged } else { Self::User }
    }
    /// The kind of the access list in the mode of an access list; `None` in other modes.
    #[must_use]
    pub fn list_kind(&self) -> Option<Kind> {
        match self {
            Self::Config { at: ConfigMode::AccessList(kind, _), .. } => Some(*kind),
            _ => None,
        }
    }
    /// The prompt.
    #[must_use]
    pub fn prompt(&self, hostname: &str) -> String {
        match self {
            Self::User => format!("{hostname}>"),
            Self::Privileged => format!("{hostname}#"),
            Self::Config { at, session: None } => format!("{hostname}(config{})#", at.tag()),
            Self::Config { at, session: Some(name) } => format!("{hostname}(config-s-{name}{})#", at.tag()),
        }
    }
}
