//! Results as CSV (RFC 4180): one line a figure and round, for spreadsheets and scripts.

use super::Results;
use std::fmt::Write as _;

pub(super) fn csv(results: &Results) -> String {
    let mut text = String::from("bench,test,case,device,axis,at,round,unit,value,resolution,clause\r\n");
    for series in &results.series {
        let (axis, at) =
            series.key.at.map_or_else(Default::default, |(axis, at)| (axis.name(), at.to_string()));
        let unit = serde_json::to_value(series.unit).ok();
        let unit = unit.as_ref().and_then(|u| u.as_str()).unwrap_or_default();
        for (round, value) in series.rounds.iter().enumerate() {
            let number = [(round + 1).to_string(), value.to_string(), series.resolution.to_string()];
            let fields = [
                &results.bench,
                &series.key.test,
                &series.key.case,
                &series.key.device,
                axis,
                &at,
                &number[0],
                unit,
                &number[1],
                &number[2],
                &series.clause,
            ];
            let fields: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
            let _ = write!(text, "{}\r\n", fields.join(","));
        }
    }
    text
}

/// As RFC 4180, section 2 wants it.
fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(quoted("RFC 2544, 26.1"), "\"RFC 2544, 26.1\"");
        assert_eq!(quoted("a \"b\""), "\"a \"\"b\"\"\"");
        assert_eq!(quoted("plain"), "plain");
    }
}
