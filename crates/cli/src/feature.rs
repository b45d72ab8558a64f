//! A feature of switch ports whose commands are one file: [`Feature`].

use crate::setting::Line;
use crate::tree::Node;
use lanyard_config::Interface;

/// Everything that the command line has of one feature. From it come the feature's lines in the interface mode and in the running
/// configuration, its `show` command, and its page of docs/cli.
pub struct Feature {
    /// The keyword with which its lines begin, and which follows `show`; its page of docs/cli is `NAME.md`.
    pub name: &'static str,
    /// The title of its page.
    pub title: &'static str,
    /// Its function, in Markdown.
    pub about: &'static str,
    /// The fields in the JSON of its `show` command, in Markdown.
    pub json: &'static str,
    /// True if its lines protect the network: an interface for which one of them is refused is left shut down.
    pub safety: bool,
    /// Help for its keywords that end no line.
    pub groups: &'static [(&'static str, &'static str)],
    /// Its lines under an interface.
    pub lines: &'static [Line<Interface>],
    /// Its `show` command: the node after `show`.
    pub show: Node,
}
