//! Link aggregation: LACP and the marker responder (IEEE 802.1AX-2014, clause 6).
//!
//! Nothing here does I/O or reads a clock: [`Lacp`] takes frames, link changes, configuration and the time in
//! milliseconds, and answers with [`Action`]s: the members of each channel, frames, events. Which member a frame leaves
//! by is the plane's choice.
//!
//! Reading order: `config`, `lacp` (the public interface), `port` (the variables), `machines/` one by one with the
//! standard beside it, `selection`, then the format `pdu`.

mod config;
mod fuzz;
mod lacp;
mod machines;
pub mod pdu;
mod port;
mod selection;
mod snapshot;

pub use config::{ChannelConfig, Config, Mode, PortConfig};
pub use fuzz::fuzz;
pub use lacp::{Action, Event, Lacp, MemberState, Members, PortView};
pub use pdu::PduError;
pub use port::{ChurnState, Counters, MuxState, PeriodicState, RxState, Selected, intervals};
pub use snapshot::Snapshot;
