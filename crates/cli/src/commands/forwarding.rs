//! `ip forwarding plane`: globally, under a VRF and under an interface.
//!
//! Invariant: the most specific setting applies: the interface's, the VRF's, the global one; `no` and
//! `default` remove it.

use crate::field;
use crate::setting::{Choice, Line, Setting};
use lanyard_config::layer3::{ForwardingPlane, Vrf};
use lanyard_config::{Config, Interface};

const WORDS: &str = "ip forwarding plane";
const HELP: &str = "What routes IP packets: the forwarding plane, or the kernel";
const ALWAYS: &str = "The plane; the kernel's packet filter, NAT and IPsec do not see routed packets";
const AUTO: &str = "The plane, but the kernel while its packet filter, NAT or IPsec handles such packets";
const NEVER: &str = "The kernel";

/// The choices for a VRF or an interface, where the setting may also be absent.
const OWN: &[(&str, Option<ForwardingPlane>, &str)] = &[
    ("always", Some(ForwardingPlane::Always), ALWAYS),
    ("auto", Some(ForwardingPlane::Auto), AUTO),
    ("never", Some(ForwardingPlane::Never), NEVER),
];

/// In global configuration.
pub const GLOBAL: Line<Config> = Setting::of(
    WORDS,
    HELP,
    &Choice {
        field: field!(Config, forwarding_plane),
        of: &[
            ("always", ForwardingPlane::Always, ALWAYS),
            ("auto", ForwardingPlane::Auto, AUTO),
            ("never", ForwardingPlane::Never, NEVER),
        ],
    },
)
.line();

/// Under a VRF.
pub const VRF: Line<Vrf> =
    Setting::of(WORDS, HELP, &Choice { field: field!(Vrf, forwarding_plane), of: OWN }).line();

/// Under an interface: a setting of layer-3 interfaces.
pub const INTERFACE: Setting<Interface> =
    Setting::of(WORDS, HELP, &Choice { field: field!(Interface, layer3.forwarding_plane), of: OWN });
