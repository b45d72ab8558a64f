//! `show ntp`: asks the program that sets the machine's clock, chrony or systemd-timesyncd.
//!
//! Read chronyc(1), option `-c`, and org.freedesktop.timesync1(5). Invariants: a thread asks, and waits at most [`PATIENCE`]; at
//! most [`MAX_ASKING`] of them exist. What a program prints is bounded, and parsed once; a value that it does not report is left
//! out.

use crate::os;
use crate::programs::{ProgramError, output};
use crate::time_servers::Program;
use jiff::Timestamp;
use lanyard_cli::view::{Ntp, NtpAssociation, NtpStatus};
use serde_json::Value;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The maximum number of threads that wait for a program.
const MAX_ASKING: usize = 4;
/// The maximum length of a program's output, in bytes; longer output is an error.
const MAX_PRINTED: usize = 64 * 1024;
/// The maximum number of servers that are listed.
const MAX_SERVERS: usize = 256;
/// The number that chronyc prints for the seconds since an answer if there has been none.
const NEVER: u64 = u32::MAX as u64;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("neither chrony nor systemd-timesyncd is installed")]
    NoProgram,
    #[error("{MAX_ASKING} sessions wait for the program already: try again")]
    Busy,
    #[error("{program}: {command}: {cause}")]
    Program {
        program: &'static str,
        command: &'static str,
        #[source]
        cause: ProgramError,
    },
    #[error("{program}: {cause}")]
    Report {
        program: &'static str,
        #[source]
        cause: NoReport,
    },
    #[error("thread: {0}")]
    Thread(io::Error),
}

/// The first line that a program printed instead of its report, or a replacement if it printed nothing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoReport(String);

/// The answer, or why there is none.
pub(crate) type Answer = Result<Ntp, Failure>;

/// The permit of one of [`MAX_ASKING`] threads; dropping it frees the permit.
struct Place;

static ASKING: AtomicUsize = AtomicUsize::new(0);

impl Place {
    fn take() -> Option<Self> {
        let more = |count| (count < MAX_ASKING).then_some(count + 1);
        ASKING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok().then(|| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        ASKING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Starts to ask; the answer comes by the channel.
pub(crate) fn ask() -> oneshot::Receiver<Answer> {
    let (sender, receiver) = oneshot::channel();
    let Some(place) = Place::take() else {
        let _ = sender.send(Err(Failure::Busy));
        return receiver;
    };
    let run = move || {
        let answer = ask_in_init();
        drop(place);
        // The session may have ended.
        let _ = sender.send(answer);
    };
    // Where no thread can be started the channel is closed, which the session reports.
    let _ = os::ordinary(|| std::thread::Builder::new().name("lanyard-ntp".into()).spawn(run));
    receiver
}

/// The failure of a channel that was closed without an answer.
pub(crate) fn closed() -> Failure {
    Failure::Thread(io::ErrorKind::WouldBlock.into())
}

/// Asks in PID 1's mount namespace, where the program's socket is, or in the daemon's own where PID 1's cannot be entered.
fn ask_in_init() -> Answer {
    let mut answer = None;
    let _ = lanyard_netdev::in_init_mounts(|| {
        answer = Some(ask_below(Path::new("/")));
        Ok(())
    });
    answer.unwrap_or_else(|| ask_below(Path::new("/")))
}

fn ask_below(root: &Path) -> Answer {
    let program = Program::find(root).ok_or(Failure::NoProgram)?;
    let printed = |words: &[&'static str]| {
        output(words, PATIENCE, MAX_PRINTED).map_err(|cause| Failure::Program {
            program: program.name(),
            command: words[0],
            cause,
        })
    };
    let report = match program {
        Program::Chrony => {
            // chronyd answers `ntpdata` only over its own Unix socket, the other two commands over UDP as well.
            let words = ["chronyc", "-n", "-c", "-m", "tracking", "sources", "ntpdata"];
            chrony(&printed(&words)?)
        }
        Program::Timesyncd => {
            let words = [
                "busctl",
                "--json=short",
                "--timeout=3",
                "get-property",
                "org.freedesktop.timesync1",
                "/org/freedesktop/timesync1",
                "org.freedesktop.timesync1.Manager",
                "ServerName",
                "ServerAddress",
                "PollIntervalUSec",
                "NTPMessage",
                "Frequency",
            ];
            let is_synchronized = root.join("run/systemd/timesync/synchronized").exists();
            timesyncd(&printed(&words)?, is_synchronized)
        }
    };
    report.map_err(|cause| Failure::Report { program: program.name(), cause })
}

/// A finite number of seconds, or of parts per million.
fn decimal(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

/// A time in seconds since 1970 as RFC 3339; `None` for zero.
fn time(text: &str) -> Option<String> {
    let seconds = text.split('.').next()?.parse::<i64>().ok().filter(|seconds| *seconds > 0)?;
    Timestamp::from_second(seconds).ok().map(|time| time.to_string())
}

/// A name or address without what could disturb a terminal.
fn plain(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic()).take(64).collect()
}

/// Parses the output of `chronyc -c`. The number of fields of a line shows which command it belongs to.
fn chrony(printed: &str) -> Result<Ntp, NoReport> {
    let mut status = None;
    let mut associations: Vec<NtpAssociation> = Vec::new();
    for line in printed.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        match fields.len() {
            14 => status = Some(tracking(&fields)),
            10 if associations.len() < MAX_SERVERS => associations.extend(source(&fields)),
            21.. => measurement(&fields, &mut associations),
            _ => {}
        }
    }
    let first = || NoReport(plain_line(printed).unwrap_or_else(|| "no answer".into()));
    Ok(Ntp { status: status.ok_or_else(first)?, associations })
}

/// The first line of a program's output, at most 200 characters of it; `None` if it is empty.
fn plain_line(text: &str) -> Option<String> {
    let line: String = text.lines().next()?.chars().filter(|c| !c.is_control()).take(200).collect();
    Some(line).filter(|line| !line.is_empty())
}

/// A line of `chronyc -c tracking`, which has 14 fields.
fn tracking(fields: &[&str]) -> NtpStatus {
    let synchronized = fields[13] != "Not synchronised";
    let known = |text: &str| decimal(text).filter(|_| synchronized);
    NtpStatus {
        client: Program::Chrony.name(),
        synchronized,
        stratum: fields[2].parse().ok().filter(|stratum| (1..=15).contains(stratum)),
        reference: Some(plain(fields[1])).filter(|name| !name.is_empty() && synchronized),
        reference_time: time(fields[3]),
        // chronyc prints the correction that is still to be made, which is the opposite of the offset.
        offset_s: known(fields[4]).map(|correction| 0.0 - correction),
        root_delay_s: known(fields[10]),
        root_dispersion_s: known(fields[11]),
        // chronyc prints the clock's error: positive for a fast clock.
        frequency_ppm: known(fields[7]),
        skew_ppm: known(fields[9]),
        update_interval_s: known(fields[12]),
    }
}

/// Parses a line of `chronyc -c sources`, which has 10 fields; `None` if a field is not valid.
fn source(fields: &[&str]) -> Option<NtpAssociation> {
    let state = match fields[1] {
        "*" => "selected",
        "+" => "combined",
        "-" => "candidate",
        "x" => "falseticker",
        "~" => "unstable",
        "?" => "unusable",
        _ => return None,
    };
    let reach = u8::from_str_radix(fields[5], 8).ok()?;
    // A power of two; a fraction of a second is shown as one second.
    let poll: i32 = fields[4].parse().ok().filter(|poll| (-10..=24).contains(poll))?;
    let last = fields[6].parse::<u64>().ok().filter(|seconds| *seconds < NEVER);
    let known = |text: &str| decimal(text).filter(|_| last.is_some());
    Some(NtpAssociation {
        address: plain(fields[2]),
        state,
        reference: None,
        stratum: fields[3].parse().ok().filter(|stratum| (1..=15).contains(stratum)),
        last_answer_s: last,
        poll_s: 1 << poll.max(0),
        reach,
        delay_s: None,
        // chronyc prints by how much this clock is ahead; the view has by how much the server's clock is.
        offset_s: known(fields[7]).map(|offset| 0.0 - offset),
        dispersion_s: known(fields[9]),
    })
}

/// Parses a line of `chronyc -c ntpdata`, which has more than 20 fields, and adds the delay and the reference to the server's
/// entry, which `sources` does not report.
fn measurement(fields: &[&str], associations: &mut [NtpAssociation]) {
    let Some(server) = associations.iter_mut().find(|server| server.address == fields[0]) else { return };
    if server.last_answer_s.is_none() {
        return;
    }
    server.delay_s = decimal(fields[19]);
    let number = u32::from_str_radix(fields[15], 16).ok();
    server.reference = number.zip(server.stratum).map(|(id, stratum)| reference(id.to_be_bytes(), stratum));
}

/// A reference identifier (RFC 5905, 7.3): the name of a clock at stratum 1, otherwise an address or the hash of one.
fn reference(id: [u8; 4], stratum: u8) -> String {
    if stratum > 1 {
        return Ipv4Addr::from(id).to_string();
    }
    let name: String = id.iter().map(|byte| char::from(*byte)).filter(char::is_ascii_graphic).collect();
    format!(".{name}.")
}

/// Parses the output of `busctl --json=short get-property`: one property per line, in the order of the arguments.
fn timesyncd(printed: &str, is_synchronized: bool) -> Result<Ntp, NoReport> {
    let values: Vec<Value> = printed
        .lines()
        .take(8)
        .map_while(|line| serde_json::from_str::<Value>(line).ok())
        .map(|property| property["data"].clone())
        .collect();
    let [name, address, poll_us, message, frequency] = values.as_slice() else {
        return Err(NoReport(plain_line(printed).unwrap_or_else(|| "it does not run".into())));
    };
    let seconds = |value: &Value| value.as_u64().map(|us| us as f64 / 1e6);
    let server = address_of(address);
    // Fields of NTPMessage: leap, version, mode, stratum, precision, root delay, root dispersion, reference, four times,
    // ignored, count of packets, jitter.
    let count = message[13].as_u64().unwrap_or(0);
    let stratum = message[3].as_u64().and_then(|stratum| u8::try_from(stratum).ok());
    let stratum = stratum.filter(|stratum| count > 0 && (1..=15).contains(stratum));
    let id: Option<Vec<u8>> =
        message[7].as_array().map(|bytes| bytes.iter().filter_map(Value::as_u64).map(|b| b as u8).collect());
    let own = id.and_then(|id| <[u8; 4]>::try_from(id).ok()).zip(stratum).map(|(id, of)| reference(id, of));
    let time_us = |at: usize| message[at].as_u64().filter(|_| count > 0).map(|us| us as f64 / 1e6);
    // RFC 5905, 8: the mean of the differences on the way there and back.
    let times = [8, 9, 10, 11].map(time_us);
    let (offset, delay) = match times {
        [Some(sent), Some(received), Some(answered), Some(arrived)] => (
            Some(((received - sent) + (answered - arrived)) / 2.0),
            Some((arrived - sent) - (answered - received)),
        ),
        _ => (None, None),
    };
    let association = server.map(|server| NtpAssociation {
        address: server,
        state: if is_synchronized && count > 0 { "selected" } else { "unusable" },
        reference: own.clone(),
        stratum,
        last_answer_s: None,
        poll_s: poll_us.as_u64().unwrap_or(0) / 1_000_000,
        // systemd-timesyncd keeps no reachability register: set one bit if it has received an answer.
        reach: u8::from(count > 0),
        delay_s: delay,
        offset_s: offset,
        dispersion_s: seconds(&message[14]).filter(|_| count > 0),
    });
    let reference = association.as_ref().map(|server| server.address.clone());
    let named = name.as_str().map(plain).filter(|name| !name.is_empty());
    let status = NtpStatus {
        client: Program::Timesyncd.name(),
        synchronized: is_synchronized,
        // Its own stratum is one more than the server's.
        stratum: stratum.filter(|_| is_synchronized).map(|stratum| stratum + 1),
        reference: reference.or(named).filter(|_| is_synchronized),
        reference_time: None,
        offset_s: offset.map(|offset| 0.0 - offset),
        root_delay_s: seconds(&message[5]).filter(|_| count > 0),
        root_dispersion_s: seconds(&message[6]).filter(|_| count > 0),
        // It reports the kernel's correction (adjtimex(2), `freq`: parts per million with 16 bits behind the point), which is
        // positive for a slow clock and thus the opposite of the clock's error.
        frequency_ppm: frequency.as_i64().map(|correction| 0.0 - correction as f64 / 65_536.0),
        skew_ppm: None,
        update_interval_s: seconds(poll_us),
    };
    Ok(Ntp { status, associations: association.into_iter().collect() })
}

/// `(iay)`: the family and the bytes of an address.
fn address_of(value: &Value) -> Option<String> {
    let bytes: Vec<u8> =
        value[1].as_array()?.iter().filter_map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
    let address = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some(address.to_string())
}

#[cfg(test)]
#[path = "ntp_tests.rs"]
mod tests;
