//! The state machines of a port, one file each.

pub(crate) mod churn;
pub(crate) mod mux;
pub(crate) mod periodic;
pub(crate) mod receive;

#[cfg(test)]
mod tests;
