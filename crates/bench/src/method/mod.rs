//! The procedures of RFC 2544 and RFC 2889.
pub mod search;
