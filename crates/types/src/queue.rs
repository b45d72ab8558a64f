//! The queues of a port: the parameters of a queueing discipline of the kernel, and its counters.

/// The queues of a port, as classes of the kernel's hierarchical token bucket (tc-htb(8)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueTree {
    /// The highest rate at which the port sends, in bits per second.
    pub rate_bps: u64,
    /// The classes; one of them has the number [`QueueTree::DEFAULT`].
    pub classes: Vec<QueueClass>,
}

impl QueueTree {
    /// The number of the class for frames to which no program of the switch has given a class: those that the
    /// kernel's own stack sends.
    pub const DEFAULT: u16 = 2;
}

/// A queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueClass {
    /// The minor number of its class, 2..=63.
    pub minor: u16,
    /// The guaranteed rate in bits per second.
    pub rate_bps: u64,
    /// The highest rate in bits per second.
    pub ceil_bps: u64,
    /// The priority for unused bandwidth, 0..=7: it goes to the classes with the lowest number first.
    pub priority: u8,
    /// The bytes that the class may send in its turn when classes of the same priority share unused bandwidth.
    pub quantum: u32,
    /// The highest length of the queue.
    pub limit: QueueLength,
}

/// The length of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLength {
    /// In frames.
    Packets(u32),
    /// In bytes.
    Bytes(u32),
}

/// The counters of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// The minor number of the queue's class.
    pub minor: u16,
    /// Frames sent.
    pub sent_frames: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Frames dropped because the queue was full.
    pub dropped: u64,
    /// Frames that wait in the queue.
    pub waiting_frames: u64,
    /// Bytes that wait in the queue.
    pub waiting_bytes: u64,
}

/// The queueing discipline at the root of a netdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootQueue {
    /// The discipline that the kernel has chosen.
    Default,
    /// A discipline that the switch has set.
    Own,
    /// A discipline of this kind, which an administrator or another program has set.
    Foreign(String),
}
