//! Results as CSV (RFC 4180): one line per figure and round, for spreadsheets and scripts.

use super::Results;
use ::csv::{Terminator, WriterBuilder};

const HEADER: [&str; 11] =
    ["bench", "test", "case", "device", "axis", "at", "round", "unit", "value", "resolution", "clause"];

/// # Errors
/// Those of the writer; writing to memory does not fail.
pub(super) fn csv(results: &Results) -> Result<String, ::csv::Error> {
    let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(Vec::new());
    writer.write_record(HEADER)?;
    for series in &results.series {
        let (axis, at) =
            series.key.at.map_or_else(Default::default, |(axis, at)| (axis.name(), at.to_string()));
        for (round, value) in series.rounds.iter().enumerate() {
            writer.serialize((
                (&results.bench, &series.key.test, &series.key.case, &series.key.device, axis, &at),
                (round + 1, series.unit, value.to_string(), series.resolution.to_string(), &series.clause),
            ))?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
