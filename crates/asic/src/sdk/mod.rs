//! The SDK: the protocol between a switch chip and its driver, over a Unix stream socket.
//!
//! docs/sdk.md is the specification, from which a device or a driver can be written in another language. [`message`] contains the
//! messages, [`operation`] the steps of a transaction ([`list`] the largest of them), [`cpu`] the header of frames of the CPU
//! port, [`faults`] the plans for failures of a chip, [`client`] the driver's side.
//!
//! Invariants: a message has at most [`MAX_MESSAGE`] bytes, and reading it allocates at most a small multiple of that.
//! Bytes that are not a valid message end the connection and never panic.

pub mod bytes;
pub mod client;
pub mod cpu;
pub mod faults;
mod fuzz;
pub mod list;
pub mod message;
pub mod operation;

pub use bytes::Malformed;
pub use client::{Client, SdkError};
pub use fuzz::fuzz;
pub use message::{Answer, Code, Event, Incoming, Notice, PortInfo, Refused, Request, Welcome};
pub use operation::{Operation, OperationKind};

/// The protocol's version. A chip refuses a client with another one.
pub const VERSION: u16 = 2;
/// The first bytes of a client's hello.
pub const MAGIC: u32 = 0x4c59_5344;
/// Bytes of a message's header.
pub const HEADER: usize = 12;
/// The longest message, header included: 1 MiB.
pub const MAX_MESSAGE: usize = 1 << 20;
/// The most operations of one transaction.
pub const MAX_OPERATIONS: usize = 1 << 16;
/// The longest frame through the CPU port, in bytes.
pub const MAX_FRAME: usize = 9_234;
