//! `binds`: of the files that containerlab mounts into a node, only FRR's configuration and the
//! platform file of a switch chip have a meaning here.
//!
//! Invariant: any other file is refused, because the node would lack it.

use super::{Fields, Reader};
use crate::yaml;

/// Where FRR's images expect their configuration.
const CONFIGURATION: &str = "/etc/frr/frr.conf";
/// Where a switch with `type: asic` has its platform file.
const PLATFORM: &str = "/etc/lanyard/platform.toml";
/// Files that the images also expect and that are not needed here: the daemons to run follow from
/// the configuration.
const NEEDLESS: [&str; 2] = ["/etc/frr/daemons", "/etc/frr/vtysh.conf"];

impl Reader {
    /// Reads a node's `binds`.
    pub(super) fn binds(&mut self, fields: &mut Fields, node: &yaml::Node, field: &str) {
        let Some(items) = self.list(node, field, "`binds`") else { return };
        for (index, item) in items.iter().enumerate() {
            let field = format!("{field}[{index}]");
            let Some(text) = self.text(item, &field) else { continue };
            let mut parts = text.split(':');
            match (parts.next(), parts.next()) {
                (Some(file), Some(CONFIGURATION)) if !file.is_empty() => {
                    fields.frr = Some((file.to_owned(), item.pos));
                }
                (Some(file), Some(PLATFORM)) if !file.is_empty() => {
                    fields.platform = Some((file.to_owned(), item.pos));
                }
                (Some(_), Some(place)) if NEEDLESS.contains(&place) => {
                    let message =
                        format!("`{place}` is ignored: FRR's daemons follow from its configuration");
                    self.note(item.pos, &field, message);
                }
                _ => {
                    let instead = "a node sees the host's files; only `FILE:/etc/frr/frr.conf` and \
                         `FILE:/etc/lanyard/platform.toml` have a meaning here";
                    self.problem(item.pos, &field, format!("`{text}` is not supported: {instead}"));
                }
            }
        }
    }
}
