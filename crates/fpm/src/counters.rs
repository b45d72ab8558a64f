//! The counters of the FPM server, and the names of malformed and ignored input.

use crate::Malformed;
use std::fmt;

/// The reason why a session cannot continue: the start of the next frame is no longer known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Framing {
    /// Not version 1.
    Version = 0,
    /// Not type 1, netlink.
    Type = 1,
    /// The length is shorter than the header.
    Length = 2,
}

impl Framing {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Version, Self::Type, Self::Length];
    /// The name of this counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Version => "frame_version",
            Self::Type => "frame_type",
            Self::Length => "frame_length",
        }
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "an FPM frame that is not version 1",
            Self::Type => "an FPM frame that is not netlink (type 1)",
            Self::Length => "an FPM frame whose length is less than that of its header",
        })
    }
}

impl std::error::Error for Framing {}

/// The reason why a well-formed message is ignored, so that only the kernel acts on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ignored {
    /// Neither a route nor a next-hop object.
    Message = 0,
    /// A route of a table other than the main one. A VRF is a namespace and has an FPM session of its own.
    Table = 1,
    /// A route for certain sources or one type of service only.
    Selective = 2,
}

impl Ignored {
    /// All values, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Message, Self::Table, Self::Selective];
    /// The name of this counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Message => "ignored_message",
            Self::Table => "ignored_table",
            Self::Selective => "ignored_selective",
        }
    }
}

/// Counters since the server was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sessions that were established.
    pub sessions: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Complete frames received.
    pub frames: u64,
    /// Netlink messages in those frames.
    pub messages: u64,
    /// Routes set, including those that existed already.
    pub routes_set: u64,
    /// Routes deleted by the client.
    pub routes_deleted: u64,
    /// Next-hop objects set.
    pub nexthops_set: u64,
    /// Next-hop objects deleted by the client.
    pub nexthops_deleted: u64,
    /// Routes refused because the table of routes or that of next-hop sets was full.
    pub routes_refused: u64,
    /// Next-hop objects refused.
    pub nexthops_refused: u64,
    /// Routes removed because the client did not send them again in a later session, or did not reconnect in time.
    pub swept: u64,
    /// Answers sent that reported "offloaded".
    pub offloaded: u64,
    /// Answers sent that reported "trapped".
    pub trapped: u64,
    /// Answers sent that reported "failed".
    pub failed: u64,
    /// Answers that were delayed because the client reads slowly.
    pub held_back: u64,
    /// Answers that were never sent because too many were waiting.
    pub unanswered: u64,
    /// Malformed messages, by [`Malformed`].
    pub malformed: [u64; Malformed::ALL.len()],
    /// Sessions ended because of a malformed frame, by [`Framing`].
    pub framing: [u64; Framing::ALL.len()],
    /// Messages ignored, by [`Ignored`].
    pub ignored: [u64; Ignored::ALL.len()],
}

impl Counters {
    /// Every counter with its name.
    #[must_use]
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        let mut list = vec![
            ("sessions", self.sessions),
            ("bytes", self.bytes),
            ("frames", self.frames),
            ("messages", self.messages),
            ("routes_set", self.routes_set),
            ("routes_deleted", self.routes_deleted),
            ("routes_refused", self.routes_refused),
            ("routes_swept", self.swept),
            ("nexthops_set", self.nexthops_set),
            ("nexthops_deleted", self.nexthops_deleted),
            ("nexthops_refused", self.nexthops_refused),
            ("answers_offloaded", self.offloaded),
            ("answers_trapped", self.trapped),
            ("answers_failed", self.failed),
            ("answers_held_back", self.held_back),
            ("answers_never_sent", self.unanswered),
        ];
        list.extend(Ignored::ALL.into_iter().zip(self.ignored).map(|(why, count)| (why.name(), count)));
        list.extend(Framing::ALL.into_iter().zip(self.framing).map(|(why, count)| (why.name(), count)));
        let malformed = Malformed::ALL.into_iter().zip(self.malformed);
        list.extend(malformed.map(|(why, count)| (why.counter(), count)));
        list
    }
}
