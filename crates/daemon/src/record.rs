//! The record of what the switch has done to netdevs, on disk, for a restart, for `detach` and
//! after a crash.
//!
//! Invariant: before a netdev is changed, its original state is in the file (write-ahead). The file
//! is replaced as a whole.

use crate::files;
use lanyard_switch::Record;
use std::io;
use std::path::Path;

/// The record as it was last written.
pub(crate) struct RecordFile {
    saved: Record,
}

impl RecordFile {
    /// The file holds `found`.
    pub(crate) fn new(found: &Record) -> Self {
        Self { saved: found.clone() }
    }
    /// Writes `record` to the file at `path`, if it differs from what was last written.
    ///
    /// # Errors
    /// The system's; the old file then still exists.
    pub(crate) fn write(&mut self, path: &Path, record: Record) -> io::Result<()> {
        if record != self.saved {
            files::replace(path, &serde_json::to_vec(&record).map_err(io::Error::from)?)?;
            self.saved = record;
        }
        Ok(())
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
    fn what_is_coming_is_written_before_it_is_done() {
        let mut world = World::new();
        let read = |world: &World| -> Option<Record> {
            let text = std::fs::read(world.ctx.paths.record()).ok()?;
            Some(serde_json::from_slice(&text).expect("a record"))
        };
        world.ctx.save_record();
        assert_eq!(read(&world), None, "nothing has changed");
        let coming = Record { ipv6_forwarding: Some(false), ..Record::default() };
        world.ctx.write_ahead(&coming);
        assert_eq!(read(&world), Some(coming));
        world.ctx.save_record();
        assert_eq!(read(&world), Some(Record::default()), "the change was not made");
        world.ctx.paths.run = "/nonexistent".into();
        world.ctx.write_ahead(&Record { ipv6_forwarding: Some(true), ..Record::default() });
        assert_eq!(messages(&world.ctx).len(), 1, "{:?}", messages(&world.ctx));
    }
}
