//! What has become of messages.

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Of a client, sent to every server of its interface.
    ToServer,
    /// Of a server, sent to its client.
    ToClient,
    /// Sent without the relay's information, which would have made it too long.
    OptionTooLong,
    /// Dropped: shorter than its fixed part.
    DroppedTooShort,
    /// Dropped: not what a client or a server sends, or damaged.
    DroppedMalformed,
    /// Dropped: it has been through too many relays.
    DroppedHops,
    /// Dropped: it claims to have been relayed by this relay already.
    DroppedSpoofed,
    /// Dropped: a client that is not trusted sent relay information of its own.
    DroppedUntrusted,
    /// Dropped: it has relay information, and the policy is to drop.
    DroppedPolicy,
    /// Dropped: the interface it came in at has no address.
    DroppedNoAddress,
    /// Dropped: no interface of this relay is meant.
    DroppedUnknown,
    /// Dropped: a reply whose sender is no configured server of the interface that it is for.
    DroppedNotServer,
}

impl Counter {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::ToServer,
        Self::ToClient,
        Self::OptionTooLong,
        Self::DroppedTooShort,
        Self::DroppedMalformed,
        Self::DroppedHops,
        Self::DroppedSpoofed,
        Self::DroppedUntrusted,
        Self::DroppedPolicy,
        Self::DroppedNoAddress,
        Self::DroppedUnknown,
        Self::DroppedNotServer,
    ];
    /// Its name, for people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToServer => "to_server",
            Self::ToClient => "to_client",
            Self::OptionTooLong => "option_too_long",
            Self::DroppedTooShort => "dropped_too_short",
            Self::DroppedMalformed => "dropped_malformed",
            Self::DroppedHops => "dropped_hops",
            Self::DroppedSpoofed => "dropped_spoofed",
            Self::DroppedUntrusted => "dropped_untrusted",
            Self::DroppedPolicy => "dropped_policy",
            Self::DroppedNoAddress => "dropped_no_address",
            Self::DroppedUnknown => "dropped_unknown",
            Self::DroppedNotServer => "dropped_not_server",
        }
    }
}

/// How many messages of each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Counters {
    /// So many.
    #[must_use]
    pub const fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }
    /// One more.
    pub(crate) const fn count(&mut self, counter: Counter) {
        self.0[counter as usize] += 1;
    }
    /// All that are not zero.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.into_iter().map(|counter| (counter, self.get(counter))).filter(|(_, n)| *n > 0)
    }
}
