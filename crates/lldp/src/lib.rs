//! Neighbour discovery: LLDP (IEEE 802.1AB-2016, with TLVs of 802.1Q, 802.3 and LLDP-MED) and CDP version 2.
//!
//! Nothing here does I/O or reads a clock: [`Discovery`] takes frames, link changes, configuration and the time in
//! milliseconds, and answers with [`Action`]s. Every table and every list taken from a frame is bounded.
//!
//! Reading order: `config`, `discovery` (the public interface), `agent` and `receive` with clause 9.2 of the standard
//! beside them, `neighbours`, then the formats `pdu` and `cdp`.

mod agent;
pub mod cdp;
mod config;
mod discovery;
mod fuzz;
pub mod location;
mod neighbours;
pub mod pdu;
mod receive;
mod text;

pub use agent::TxState;
pub use config::{AdminStatus, Cdp, Config, Lldp, PortConfig, System, Tlv};
pub use discovery::{Action, Discovery, Event};
pub use fuzz::fuzz;
pub use neighbours::{Info, MAX_NEIGHBOURS, MAX_PER_PORT, Neighbour, Protocol};
pub use pdu::{NetworkPolicy, PduError};
pub use receive::{Counters, RxState};
