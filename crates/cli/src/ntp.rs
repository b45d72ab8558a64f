//! `show ntp status`, `show ntp associations`: what the program that sets the machine's clock reports.
//!
//! The handler returns `Outcome::Ntp` instead of the output, because the program's answer takes time. The carrier of the session
//! queries the program, and passes the answer to [`NtpQuery::print`].

use crate::pipe::Pipe;
use crate::render;
use crate::view::{Ntp, NtpAssociation};
use serde::Serialize;

/// The part of the answer that is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// `show ntp status`.
    Status,
    /// `show ntp associations`.
    Associations,
}

/// A command that waits for the program's answer.
#[derive(Debug, Clone)]
pub struct NtpQuery {
    wanted: Wanted,
    pipe: Pipe,
}

/// A query is equal to itself only.
impl PartialEq for NtpQuery {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for NtpQuery {}

impl NtpQuery {
    pub(crate) fn new(wanted: Wanted, pipe: &Pipe) -> Self {
        Self { wanted, pipe: pipe.clone() }
    }
    /// The output of the command for the program's answer.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn print(&self, view: &Ntp) -> Result<String, serde_json::Error> {
        #[derive(Serialize)]
        struct Associations<'a> {
            associations: &'a [NtpAssociation],
        }
        let associations = Associations { associations: &view.associations };
        let text = match (self.wanted, self.pipe.json) {
            (Wanted::Status, false) => Ok(render::ntp_status(&view.status)),
            (Wanted::Status, true) => serde_json::to_string_pretty(&view.status).map(|json| json + "\n"),
            (Wanted::Associations, false) => Ok(render::ntp_associations(&view.associations)),
            (Wanted::Associations, true) => {
                serde_json::to_string_pretty(&associations).map(|json| json + "\n")
            }
        };
        text.map(|text| self.pipe.filter(text))
    }
}
