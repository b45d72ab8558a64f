//! What was counted, and the names of what is wrong or left aside.

use crate::Malformed;
use std::fmt;

/// Why a session can't go on: where the next frame begins is not known any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Framing {
    /// Not version 1.
    Version = 0,
    /// Not type 1, netlink.
    Type = 1,
    /// A length that has no room for its own header.
    Length = 2,
}

impl Framing {
    /// Every one, in order of its number.
    pub const ALL: [Self; 3] = [Self::Version, Self::Type, Self::Length];
    /// Its name in counters.
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
            Self::Length => "an FPM frame that lies about its length",
        })
    }
}

impl std::error::Error for Framing {}

/// Why a message that is well formed was left to the kernel alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Ignored {
    /// Neither a route nor a next-hop object.
    Message = 0,
    /// A route of another table than the main one: a VRF is a namespace, with an FPM session of its own.
    Table = 1,
    /// A route for some sources or one type of service only.
    Selective = 2,
}

impl Ignored {
    /// Every one, in order of its number.
    pub const ALL: [Self; 3] = [Self::Message, Self::Table, Self::Selective];
    /// Its name in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Message => "ignored_message",
            Self::Table => "ignored_table",
            Self::Selective => "ignored_selective",
        }
    }
}

/// Counters since the server was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Sessions that came up.
    pub sessions: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Whole frames.
    pub frames: u64,
    /// Netlink messages in them.
    pub messages: u64,
    /// Routes set, those that were there already included.
    pub routes_set: u64,
    /// Routes deleted by the client.
    pub routes_deleted: u64,
    /// Next-hop objects set.
    pub nexthops_set: u64,
    /// Next-hop objects deleted by the client.
    pub nexthops_deleted: u64,
    /// Routes refused: the table was full, or that of next hops.
    pub routes_refused: u64,
    /// Next-hop objects refused.
    pub nexthops_refused: u64,
    /// Routes removed because a later session did not have them, or none came back.
    pub swept: u64,
    /// Frames sent that said "offloaded".
    pub offloaded: u64,
    /// Frames sent that said "trapped".
    pub trapped: u64,
    /// Frames sent that said "failed".
    pub failed: u64,
    /// Answers that had to wait for a client that reads slowly.
    pub held_back: u64,
    /// Answers that were never sent, because too many waited.
    pub unanswered: u64,
    /// Malformed messages, by [`Malformed`].
    pub malformed: [u64; Malformed::ALL.len()],
    /// Sessions ended for a frame, by [`Framing`].
    pub framing: [u64; Framing::ALL.len()],
    /// Messages left aside, by [`Ignored`].
    pub ignored: [u64; Ignored::ALL.len()],
}

impl Counters {
    /// Each with its name.
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
