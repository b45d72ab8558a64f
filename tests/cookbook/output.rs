//! Decides whether printed output is what a page shows: line by line, without regard to the width of gaps, and with these
//! exceptions. A line `...` stands for any number of lines, `…` inside a line for any text. A MAC address stands for any address,
//! but for the same one in the complete output, because veth pairs have random addresses. A number with a unit of time or rate
//! (`0.062 ms`, `0.1/0.2/0.3 ms`) stands for any number.

use std::collections::HashMap;

/// Compares a screen with the page. The error is the first line that differs.
pub fn compare(expected: &[String], printed: &str) -> Result<(), String> {
    let wanted: Vec<&str> =
        expected.iter().map(String::as_str).filter(|line| !line.trim().is_empty()).collect();
    let found: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
    // A page that shows no output makes no claim about it, except that nothing was refused.
    if wanted.is_empty() {
        let refused = found.iter().find(|line| line.starts_with('%') || line.starts_with("lanyard: error"));
        return refused.map_or(Ok(()), |line| Err(format!("it was refused: {line}")));
    }
    lines(&wanted, &found, &mut HashMap::new())
}

fn lines(wanted: &[&str], found: &[&str], macs: &mut HashMap<String, String>) -> Result<(), String> {
    let Some((first, rest)) = wanted.split_first() else {
        return found.first().map_or(Ok(()), |line| Err(format!("the page does not show `{line}`")));
    };
    if first.trim() == "..." {
        let fits = (0..=found.len()).any(|skip| lines(rest, &found[skip..], &mut macs.clone()).is_ok());
        let next = rest.first().unwrap_or(&"");
        return if fits { Ok(()) } else { Err(format!("nothing fits `{next}` and what follows it")) };
    }
    let Some((line, others)) = found.split_first() else {
        return Err(format!("the page shows `{first}`, and the output ends before it"));
    };
    if !line_fits(first, line, macs) {
        return Err(format!("the page shows `{first}`, the output is `{line}`"));
    }
    lines(rest, others, macs)
}

fn line_fits(wanted: &str, found: &str, macs: &mut HashMap<String, String>) -> bool {
    let wanted: Vec<&str> = wanted.split_whitespace().collect();
    let found: Vec<&str> = found.split_whitespace().collect();
    words_fit(&wanted, &found, macs)
}

fn words_fit(wanted: &[&str], found: &[&str], macs: &mut HashMap<String, String>) -> bool {
    let Some((first, rest)) = wanted.split_first() else { return found.is_empty() };
    if *first == "…" {
        return (0..=found.len()).any(|skip| words_fit(rest, &found[skip..], &mut macs.clone()));
    }
    let Some((word, others)) = found.split_first() else { return false };
    let timed =
        rest.first().is_some_and(|unit| is_unit(unit)) && others.first().is_some_and(|unit| is_unit(unit));
    (timed && is_number(first) && is_number(word) || word_fits(first, word, macs))
        && words_fit(rest, others, macs)
}

fn word_fits(wanted: &str, found: &str, macs: &mut HashMap<String, String>) -> bool {
    if is_mac(wanted) && is_mac(found) {
        return macs.entry(wanted.to_owned()).or_insert_with(|| found.to_owned()) == found;
    }
    match wanted.split_once('…') {
        Some((before, after)) => {
            found.len() >= before.len() + after.len() && found.starts_with(before) && found.ends_with(after)
        }
        None => wanted == found || timed_pair(wanted, found),
    }
}

/// True if both words are times as ping prints them, such as `time=0.062`.
fn timed_pair(wanted: &str, found: &str) -> bool {
    match (wanted.strip_prefix("time="), found.strip_prefix("time=")) {
        (Some(a), Some(b)) => is_number(a) && is_number(b),
        _ => false,
    }
}

fn is_unit(word: &str) -> bool {
    ["ms", "ms,", "us", "s", "seconds", "Mbits/sec", "Gbits/sec", "frames/s"].contains(&word)
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_digit() || "./".contains(c))
}

/// True for a MAC address in the notation of IOS or of the kernel.
fn is_mac(word: &str) -> bool {
    let hex = |part: &str, len: usize| part.len() == len && part.chars().all(|c| c.is_ascii_hexdigit());
    let dotted: Vec<&str> = word.split('.').collect();
    let colons: Vec<&str> = word.split(':').collect();
    dotted.len() == 3 && dotted.iter().all(|part| hex(part, 4))
        || colons.len() == 6 && colons.iter().all(|part| hex(part, 2))
}

#[test]
fn output_matches_up_to_times_and_addresses() {
    let fits = |wanted: &[&str], found: &str| {
        compare(&wanted.iter().map(|&line| line.to_owned()).collect::<Vec<_>>(), found).is_ok()
    };
    assert!(fits(&["Vlan  Port", "10    eth1"], "Vlan Port\n10 eth1\n"));
    assert!(!fits(&["Vlan  Port"], "Vlan Port\n10 eth1\n"), "an additional line");
    assert!(!fits(&["Vlan  Port", "10 eth1"], "Vlan Port\n"), "a missing line");
    assert!(!fits(&["1 packets, 1 received"], "1 packets, 0 received"), "another number");
    assert!(fits(&["...", "last"], "first\nsecond\nlast"));
    assert!(!fits(&["...", "last"], "first\nsecond"));
    assert!(fits(&["64 bytes: time=0.1 ms"], "64 bytes: time=12 ms"));
    assert!(fits(&["0200.0000.0001 a", "0200.0000.0001 b"], "0200.0000.0002 a\n0200.0000.0002 b"));
    assert!(!fits(&["0200.0000.0001 a", "0200.0000.0001 b"], "0200.0000.0002 a\n0200.0000.0003 b"));
    assert!(fits(&["up for … on eth1", "v…4"], "up for 3 s on eth1\nv1.4"));
    assert!(!fits(&[], "% Invalid input") && fits(&[], "text"));
}
