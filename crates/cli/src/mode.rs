//! Modes: what the prompt shows and which trees read a line.

use crate::commands;
use crate::tree::Root;
use lanyard_config::InterfaceName;
use lanyard_types::VlanSet;

/// A configuration mode. There is one for each session, so its size does not matter.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigMode {
    /// `configure terminal`.
    Global,
    /// `interface I`, or `interface range ...`.
    Interface {
        /// Those being configured; never empty.
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
        /// Inside `address-family`: which.
        family: Option<&'static str>,
    },
    /// `track N`.
    Track(u16),
}

/// A session's mode.
#[allow(clippy::large_enum_variant)] // as for `ConfigMode`
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// User exec: `>`.
    User,
    /// Privileged exec: `#`.
    Privileged,
    /// Configuration.
    Config {
        /// Where in the configuration.
        at: ConfigMode,
        /// The configuration session, if it is not the running configuration that is edited.
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
        }
    }
    /// The trees that read a line here: the mode's own, then its parent's.
    #[must_use]
    pub fn root(&self) -> Root {
        match self {
            Self::Global => &[commands::GLOBAL],
            Self::Interface { .. } => &[commands::INTERFACE, commands::GLOBAL],
            Self::Vlan(_) => &[commands::VLAN, commands::GLOBAL],
            Self::Mst => &[commands::MST, commands::GLOBAL],
            Self::Vrf { .. } => &[commands::VRF, commands::GLOBAL],
            Self::Track(_) => &[commands::TRACK, commands::GLOBAL],
        }
    }
    /// The lines that lead here from global configuration mode.
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
        }
    }
}

impl Mode {
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
    /// The trees that read a line here.
    #[must_use]
    pub fn root(&self) -> Root {
        match self {
            Self::User | Self::Privileged => &[commands::EXEC],
            Self::Config { at, session: Some(_) } => match at {
                ConfigMode::Global => &[commands::SESSION],
                ConfigMode::Interface { .. } => &[commands::INTERFACE, commands::SESSION],
                ConfigMode::Vlan(_) => &[commands::VLAN, commands::SESSION],
                ConfigMode::Mst => &[commands::MST, commands::SESSION],
                ConfigMode::Vrf { .. } => &[commands::VRF, commands::SESSION],
                ConfigMode::Track(_) => &[commands::TRACK, commands::SESSION],
            },
            Self::Config { at, session: None } => at.root(),
        }
    }
}
