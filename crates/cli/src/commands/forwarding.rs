//! `ip forwarding plane`: globally and under a VRF. The setting of an interface is an entry of its table, in `layer3.rs`.
//!
//! Invariant: the most specific of the three that is set counts; `no` and `default` unset it.

use super::need;
use crate::args::Args;
use crate::backend::Refusal;
use crate::edit::Edit;
use crate::mode::ConfigMode;
use crate::parse::Form;
use crate::tree::{Node, kw};
use lanyard_config::layer3::ForwardingPlane;

/// `forwarding plane`, below `ip`.
pub const PLANE: Node = kw("forwarding", "Configure IP forwarding").then(&[kw(
    "plane",
    "What routes IP packets: the forwarding plane, or the kernel",
)
.no(plane)
.then(&[
    kw("always", "The plane; the kernel's packet filter, NAT and IPsec do not see routed packets").run(plane),
    kw("auto", "The plane, but the kernel while its packet filter, NAT or IPsec handles such packets")
        .run(plane),
    kw("never", "The kernel").run(plane),
])]);

/// `ip` under a VRF.
pub const VRF: Node = kw("ip", "VRF specific IP configuration").then(&[PLANE]);

fn plane(edit: &mut Edit<'_>, args: &Args) -> Result<(), Refusal> {
    let choice = match args.form {
        Form::Set => Some(need(
            ForwardingPlane::ALL.into_iter().find(|choice| args.words.last() == Some(&choice.word())),
        )?),
        Form::No | Form::Default => None,
    };
    match edit.mode.clone() {
        ConfigMode::Vrf { name, .. } => {
            edit.config.vrfs.entry(name).or_default().forwarding_plane = choice;
            Ok(())
        }
        _ => {
            edit.config.forwarding_plane = choice.unwrap_or_default();
            Ok(())
        }
    }
}
