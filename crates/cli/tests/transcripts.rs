//! Transcripts: the lines that are typed, and the expected output.
//!
//! A file of `tests/transcripts/` is a session with a switch whose netdevs are `eth0`..`eth3`, `swp1`..`swp8`, `range`,
//! `status` and `veth-a1`. A line that starts with a prompt (`sw1(config)#show vlan`) is typed, and the prompt must be
//! the session's; every other line is output. `UPDATE_TRANSCRIPTS=1` rewrites the files with the actual output: read
//! the difference before committing it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Fake, session};
use lanyard_cli::Outcome;
use std::path::Path;

fn switch() -> Fake {
    let mut fake = Fake::new(&[
        "eth0", "eth1", "eth2", "eth3", "swp1", "swp2", "swp3", "swp4", "swp5", "swp6", "swp7", "swp8",
        "range", "status", "veth-a1",
    ]);
    fake.config.hostname = "sw1".into();
    fake.files.insert("good.cfg".into(), "vlan 30\n name thirty\n".into());
    fake.files.insert("bad.cfg".into(), "vlan 30\n name thirty\nvlan 4095\nfoo\n".into());
    fake
}

fn outcome_text(outcome: Outcome, fake: &mut Fake) -> String {
    match outcome {
        Outcome::Text(text) => text,
        Outcome::Listing(listing) => listing.text(fake),
        Outcome::Refused(text) => {
            assert!(text.lines().any(|line| line.starts_with('%')), "{text}");
            text
        }
        Outcome::Ntp(query) => query.print(&common::machine::ntp()).unwrap(),
        Outcome::Stream(kinds) => format!("<stream {kinds:?}>\n"),
        Outcome::Capture(capture) => format!("<capture {capture:?}>\n"),
        Outcome::Run(program) => format!("<run {:?}>\n", program.argv),
        Outcome::Password(level) => format!("<password of level {level}>\n"),
        Outcome::Close => "<close>\n".into(),
    }
}

/// Runs the typed lines of a transcript; returns the transcript with the actual output.
fn play(transcript: &str) -> String {
    let (mut fake, mut session) = (switch(), session());
    let mut out = String::new();
    for line in transcript.lines() {
        if line.starts_with("## ") {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let typed = ["sw1", "sw2", "Lanyard", "br0"].iter().any(|name| line.starts_with(name));
        let typed = line.find(['#', '>']).filter(|_| typed && !line.contains(" uptime is "));
        // There is no prompt before the lines of a banner.
        let in_banner = session.prompt(&fake).is_empty();
        let input = match typed {
            Some(at) => &line[at + 1..],
            None if in_banner => line,
            None => continue,
        };
        out.push_str(&format!("{}{input}\n", session.prompt(&fake)));
        if let Some(prefix) = input.strip_suffix("<TAB>") {
            let completion = session.complete(prefix, &fake);
            out.push_str(&format!("@{} {}\n", completion.start, completion.candidates.join(" ")));
        } else {
            let outcome = session.execute(input, &mut fake);
            out.push_str(&outcome_text(outcome, &mut fake));
        }
    }
    out
}

#[test]
fn transcripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5, "transcripts are missing");
    for file in files {
        let wanted = std::fs::read_to_string(&file).unwrap();
        let got = play(&wanted);
        if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
            std::fs::write(&file, &got).unwrap();
        } else if got != wanted {
            let at = got.lines().zip(wanted.lines()).position(|(a, b)| a != b);
            let at = at.unwrap_or_else(|| got.lines().count().min(wanted.lines().count()));
            let around =
                |text: &str| text.lines().skip(at.saturating_sub(3)).take(8).collect::<Vec<_>>().join("\n");
            panic!(
                "{} line {}:\n--- got\n{}\n--- wanted\n{}",
                file.display(),
                at + 1,
                around(&got),
                around(&wanted)
            );
        }
    }
}
