//! Instructions of the soft plane, counted by callgrind. The counts are exact even on a busy machine, unlike samples.
//!
//! Read first: the manual of callgrind, "--instr-atstart". Lanyard runs under valgrind, slowly; counting is on only
//! while frames move.

use crate::dut::{Device, Kind, Lanyard, PortMode};
use crate::testbed::{Setup, TestBed};
use anyhow::{Context, Result, ensure};
use lanyard_tester::traffic::{Ip, Order, Stream};
use lanyard_tester::trial::{Offer, Tester};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Frames that are sent and counted. They are few, because valgrind makes the program about fifty times
/// slower.
const FRAMES: u64 = 2_000;
const PPS: u32 = 500;

/// The result of callgrind.
pub struct Found {
    /// Instructions per frame.
    pub per_frame: f64,
    /// Functions and the share of the instructions that each spends itself, the largest first.
    pub functions: Vec<(String, f64)>,
}

/// Runs the soft plane under callgrind with `hosts` hosts and frames of `size` bytes.
///
/// # Errors
/// Without valgrind, or when the programs that it runs do not come up.
pub fn functions(setup: &Setup, hosts: u32, size: usize) -> Result<Found> {
    let valgrind = Command::new("valgrind").arg("--version").output();
    ensure!(valgrind.is_ok_and(|out| out.status.success()), "no valgrind (Debian: apt-get install valgrind)");
    let dir = tempfile::Builder::new().prefix("lanyard-callgrind").tempdir()?;
    let file = dir.path().join("out");
    let pid = AtomicU32::new(0);
    let wrapper = [
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        "--instr-atstart=no".to_owned(),
        format!("--callgrind-out-file={}", file.display()),
    ];
    let executable = setup.lanyard.clone().under(&wrapper);
    let mut bed = TestBed::with("lanyard-soft under callgrind", setup, false, |bed| {
        let Kind::Lanyard(hook) = Kind::named("lanyard-soft")? else { anyhow::bail!("no soft plane") };
        let lanyard = Lanyard::up(bed, &executable, hook, PortMode::Access)?;
        pid.store(lanyard.pid()?, Ordering::Relaxed);
        Ok(Box::new(lanyard) as Box<dyn Device>)
    })?;
    let pid = pid.load(Ordering::Relaxed).to_string();
    let order = if hosts > 2 { Order::Random } else { Order::Sequential };
    let hosts = (hosts / 2).min(64);
    bed.learn(hosts, Ip::V4)?;
    let stream = Stream { order, rate_pps: Some(PPS), ..bed.stream(0, 1, hosts) }.size(size);
    instrument(&["-i", "on", &pid])?;
    let mut offer = Offer::burst(vec![(0, stream)], FRAMES);
    offer.settle = Duration::from_secs(5);
    let outcome = bed.trial(&offer)?;
    instrument(&["-i", "off", &pid])?;
    instrument(&["-d", &pid])?;
    let frames = outcome.total(|s| s.received);
    ensure!(frames > 0, "nothing arrives");
    // The name of a dump ends with a number.
    let dump = std::fs::read_dir(dir.path())?.flatten().map(|e| e.path()).max().context("no dump")?;
    let out = Command::new("callgrind_annotate").arg("--threshold=95").arg(&dump).output()?;
    ensure!(out.status.success(), "callgrind_annotate: {}", String::from_utf8_lossy(&out.stderr).trim());
    let (total, functions) = parse(&String::from_utf8_lossy(&out.stdout)).context("callgrind's report")?;
    Ok(Found { per_frame: total as f64 / frames as f64, functions })
}

fn instrument(args: &[&str]) -> Result<()> {
    let out = Command::new("callgrind_control").args(args).output().context("callgrind_control")?;
    ensure!(out.status.success(), "callgrind_control: {}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(())
}

/// Parses the output of callgrind_annotate: the instructions of the program, and the share of each function. The lines are
/// `INSTRUCTIONS (PART%)  FILE:FUNCTION [OBJECT]`, after one with `PROGRAM TOTALS`.
fn parse(text: &str) -> Option<(u64, Vec<(String, f64)>)> {
    let number = |line: &str| line.split_whitespace().next()?.replace(',', "").parse::<u64>().ok();
    let total = number(text.lines().find(|line| line.contains("PROGRAM TOTALS"))?)?;
    let function = |line: &str| {
        let own = number(line)?;
        let (_, name) = line.split_once(")  ")?;
        let name = name.split(" [").next()?.rsplit_once(".rs:").map_or(name, |(_, function)| function);
        Some((name.split(" [").next()?.trim().to_owned(), own as f64 / total.max(1) as f64))
    };
    let functions =
        text.lines().filter(|line| !line.contains("PROGRAM TOTALS")).filter_map(function).collect();
    Some((total, functions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report() {
        let text = "--------\nIr\n--------\n1,000,000 (100.0%)  PROGRAM TOTALS\n\n--------\nIr  file:function\n--------\n\
                    500,000 (50.00%)  /rustc/x/library/core/src/hash.rs:lanyard_pipeline::run [/usr/bin/lanyard]\n\
                    250,000 (25.00%)  ???:__memcpy_avx [/usr/lib/libc.so]\n";
        let expected = vec![("lanyard_pipeline::run".to_owned(), 0.5), ("???:__memcpy_avx".to_owned(), 0.25)];
        assert_eq!(parse(text), Some((1_000_000, expected)));
        assert_eq!(parse("nothing"), None);
    }
}
