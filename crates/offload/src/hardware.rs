//! The interface between the manager and a chip: pending requests and their answers.

use lanyard_asic::sdk::message::{Answer, Event, Refused, Request, Welcome};
use lanyard_asic::sdk::operation::Operation;

/// Identifies a pending request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The chip refused it; nothing has changed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The connection has ended; it is not known whether the request was carried out.
    #[error("the chip's connection has ended: {0}")]
    Gone(String),
}

/// A chip. Requests are carried out in the order in which they are sent.
pub trait Hardware {
    /// Sends a request, without waiting for anything.
    fn send(&mut self, request: Request) -> Ticket;
    /// As [`Hardware::send`], for a request whose answer the caller awaits next: an implementation may use a faster way for it.
    fn ask(&mut self, request: Request) -> Ticket {
        self.send(request)
    }
    /// The next answer, in the order of the requests; `None` if none has arrived. With `wait`, waits for one if a request is
    /// pending.
    fn poll(&mut self, wait: bool) -> Option<(Ticket, Result<Answer, Failure>)>;
    /// Events since the last call.
    fn events(&mut self) -> Vec<Event>;
    /// The chip's description of itself.
    fn welcome(&self) -> &Welcome;
    /// Connects again after [`Failure::Gone`].
    ///
    /// # Errors
    /// When no chip answers.
    fn reconnect(&mut self) -> Result<(), String>;
}

/// Reads the whole configuration of the chip. No other request may be pending.
///
/// # Errors
/// When the connection ends.
pub fn entries(hardware: &mut dyn Hardware) -> Result<Vec<Operation>, Failure> {
    let mut all = Vec::new();
    let mut anew = true;
    loop {
        let ticket = hardware.send(Request::Entries(anew));
        anew = false;
        match await_answer(hardware, ticket)? {
            Answer::Operations(more, list) => {
                all.extend(list);
                if !more {
                    return Ok(all);
                }
            }
            other => return Err(Failure::Gone(format!("answered {other:?}"))),
        }
    }
}

/// Waits for one answer and drops any others. No other request should be pending.
///
/// # Errors
/// The error of the request.
pub fn await_answer(hardware: &mut dyn Hardware, ticket: Ticket) -> Result<Answer, Failure> {
    while let Some((other, outcome)) = hardware.poll(true) {
        if other == ticket {
            return outcome;
        }
    }
    Err(Failure::Gone("no answer".into()))
}
