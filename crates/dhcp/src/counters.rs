//! Counters of what the relays did with messages.

/// The fate of a message at a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Forwarded a client's message to every server of its interface.
    ToServer,
    /// Forwarded a server's message to its client.
    ToClient,
    /// Forwarded to a server without relay information, which would have made the message too long. Such a message also
    /// counts as `ToServer`.
    OptionTooLong,
    /// Dropped: shorter than the fixed part.
    DroppedTooShort,
    /// Dropped: malformed, too long, or of a type that clients and servers do not send to a relay.
    DroppedMalformed,
    /// Dropped: forwarded by too many relays before.
    DroppedHops,
    /// Dropped: it claims to have been relayed by this relay already.
    DroppedSpoofed,
    /// Dropped: it has relay information, and the client is not trusted.
    DroppedUntrusted,
    /// Dropped: it has relay information, and the policy is to drop such messages.
    DroppedPolicy,
    /// Dropped: the receiving interface has no address.
    DroppedNoAddress,
    /// Dropped: received on an interface that the relay does not serve, or a reply that is for no interface of this relay.
    DroppedUnknown,
    /// Dropped: a reply whose sender is not a configured server of the interface that it is for.
    DroppedNotServer,
}

impl Counter {
    /// All values.
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
    /// The name of the counter in text and JSON.
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

/// The number of messages for each [`Counter`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Counters {
    /// The value of a counter.
    #[must_use]
    pub const fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }
    /// Counts one message.
    pub(crate) const fn count(&mut self, counter: Counter) {
        self.0[counter as usize] += 1;
    }
    /// All counters that are not zero.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        Counter::ALL.into_iter().map(|counter| (counter, self.get(counter))).filter(|(_, n)| *n > 0)
    }
}
