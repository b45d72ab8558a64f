//! The queues of a port: the parameters of a queueing discipline of the kernel, and its counters.

/// The queues of a port, as classes of the kernel's hierarchical token bucket (tc-htb(8)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueTree {
    /// The most that leaves by the port, in bits per second.
    pub rate_bps: u64,
    /// The classes; one of them has the number [`QueueTree::DEFAULT`].
    pub classes: Vec<QueueClass>,
}

impl QueueTree {
    /// The class of frames that no program of the switch has given a class: those that the kernel's own stack sends.
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
    /// Bandwidth that no class needs goes to the classes with the lowest number first, 0..=7.
    pub priority: u8,
    /// The bytes by which classes of one priority share what is left, in turn.
    pub quantum: u32,
    /// The most that may wait.
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
    /// The minor number of its class.
    pub minor: u16,
    /// Frames that have left.
    pub sent_frames: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames dropped because the queue was full.
    pub dropped: u64,
    /// Frames that wait.
    pub waiting_frames: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
}

/// The queueing discipline at the root of a netdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootQueue {
    /// The one that the kernel has chosen.
    Default,
    /// The switch's own.
    Own,
    /// One that an administrator or another program has set, of this kind.
    Foreign(String),
}
