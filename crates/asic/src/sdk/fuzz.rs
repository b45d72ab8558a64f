//! The entry point of the SDK's fuzz target: any bytes, as a message of a driver and of a chip.
//!
//! Invariants: no input panics; a message that is read, written and read again stays the same.

use super::faults::FaultPlan;
use super::message::{Incoming, Request, announced};

/// Reads `data` as a message of either side.
///
/// # Panics
/// When an invariant does not hold, which is a bug for the fuzzer to find.
pub fn fuzz(data: &[u8]) {
    let _ = announced(data);
    if let Ok((number, request)) = Request::decode(data) {
        assert_eq!(Request::decode(&request.encode(number)).as_ref(), Ok(&(number, request.clone())));
        if let Request::Faults(text) = request {
            let _ = FaultPlan::parse(&text);
        }
    }
    match Incoming::decode(data) {
        Ok(Incoming::Answer(number, answer)) => {
            let again = Incoming::decode(&answer.encode(number));
            assert_eq!(again, Ok(Incoming::Answer(number, answer)));
        }
        Ok(Incoming::Notice(notice)) => {
            let again = Incoming::decode(&notice.encode());
            assert_eq!(again, Ok(Incoming::Notice(notice)));
        }
        Err(_) => {}
    }
}
