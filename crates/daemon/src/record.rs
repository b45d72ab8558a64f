//! The record of the switch's changes to netdevs, on disk, for a restart, for `detach` and after a crash.
//!
//! Invariant: before a netdev is changed, its original state is in the file (write-ahead). The file is
//! replaced as a whole.

use crate::files::{self, FileError};
use lanyard_switch::Record;
use std::io;
use std::path::Path;

/// The record as it was last written.
pub(crate) struct RecordFile {
    saved: Record,
    /// The reason why the last write failed, so that the log contains each reason once.
    reason: Option<String>,
}

impl RecordFile {
    /// Creates the record for a file that contains `found`.
    pub(crate) fn new(found: &Record) -> Self {
        Self { saved: found.clone(), reason: None }
    }
    /// Writes `record` to the file at `path`, if it differs from what was last written.
    ///
    /// # Errors
    /// The system's; the old file then still exists.
    pub(crate) fn write(&mut self, path: &Path, record: Record) -> Result<(), FileError> {
        if record != self.saved {
            let text = serde_json::to_vec(&record).map_err(io::Error::from);
            text.and_then(|text| files::replace(path, &text)).map_err(FileError::at(path))?;
            self.saved = record;
        }
        self.reason = None;
        Ok(())
    }
    /// True if the log does not contain this reason yet.
    pub(crate) fn is_news(&mut self, error: &FileError) -> bool {
        let reason = Some(error.to_string());
        std::mem::replace(&mut self.reason, reason.clone()) != reason
    }
}

/// The record `own` together with that of a coming change.
pub(crate) fn with_coming(own: &Record, coming: &Record) -> Record {
    let mut both = own.clone();
    for (name, original) in &coming.originals {
        both.originals.insert(name.clone(), original.clone());
    }
    for (name, nets) in &coming.addresses {
        both.addresses.entry(name.clone()).or_default().extend(nets);
    }
    both.ipv6_forwarding = both.ipv6_forwarding.or(coming.ipv6_forwarding);
    for (vrf, knobs) in &coming.knobs {
        both.knobs.entry(vrf.clone()).or_insert_with(|| knobs.clone());
    }
    both.namespaces.extend(coming.namespaces.iter().cloned());
    both.homes.extend(coming.homes.clone());
    both
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, messages};

    #[test]
    fn the_record_is_written_ahead_and_corrected_after_the_change() {
        let mut world = World::new();
        let read = |world: &World| -> Option<Record> {
            let text = std::fs::read(world.ctx.paths.record()).ok()?;
            Some(serde_json::from_slice(&text).expect("a record"))
        };
        world.ctx.save_record();
        assert_eq!(read(&world), None, "nothing has changed");
        let coming = Record { ipv6_forwarding: Some(false), ..Record::default() };
        world.ctx.write_ahead(&coming).expect("written");
        assert_eq!(read(&world), Some(coming));
        world.ctx.save_record();
        assert_eq!(read(&world), Some(Record::default()), "the change was not made");
        let run = std::mem::replace(&mut world.ctx.paths.run, "/nonexistent".into());
        let coming = Record { ipv6_forwarding: Some(true), ..Record::default() };
        let error = world.ctx.write_ahead(&coming).expect_err("no directory");
        assert!(error.to_string().starts_with("/nonexistent/record.json: No such file"), "{error}");
        world.ctx.switch.set_record(coming.clone());
        assert!(!world.ctx.save_record() && !world.ctx.save_record());
        assert_eq!(messages(&world.ctx).len(), 1, "logged once: {:?}", messages(&world.ctx));
        world.ctx.paths.run = run;
        assert!(world.ctx.save_record());
        assert_eq!(read(&world), Some(coming), "written once it can be");
    }
}
