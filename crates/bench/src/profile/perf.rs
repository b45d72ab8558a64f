//! Samples of the instructions that processors execute, and hardware counters: perf_event_open(2).
//!
//! Read first: perf_event_open(2), "MMAP layout". Invariant: a dropped sampler has stopped; samples for which the ring
//! had no room are counted.

#![allow(unsafe_code)]

use anyhow::{Context, Result, bail};
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

const TYPE_HARDWARE: u32 = 0;
const TYPE_SOFTWARE: u32 = 1;
const SW_CPU_CLOCK: u64 = 0;
const SAMPLE_IP: u64 = 1 << 0;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_CALLCHAIN: u64 = 1 << 5;
const DISABLED: u64 = 1 << 0;
const EXCLUDE_IDLE: u64 = 1 << 7;
const FREQUENCY: u64 = 1 << 10;
const EXCLUDE_CALLCHAIN_USER: u64 = 1 << 22;
const USE_CLOCKID: u64 = 1 << 25;
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const IOC_ENABLE: libc::c_ulong = 0x2400;
const IOC_DISABLE: libc::c_ulong = 0x2401;
/// PERF_CONTEXT_MAX: an entry of a callchain above it names the context (kernel, user) of the entries that
/// follow.
const CONTEXT_MAX: u64 = -4095i64 as u64;

/// Pages of a ring without its first page; must be a power of two.
const PAGES: usize = 1024;
const PAGE: usize = 4096;
/// Samples per second. A prime number, so that samples do not coincide with periodic work such as the timer
/// tick.
pub const SAMPLES_PER_SECOND: u64 = 4999;

/// `struct perf_event_attr`, version 3 (96 bytes).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    registers: u64,
    stack: u32,
    clock: i32,
}
const _: () = assert!(size_of::<Attributes>() == 96);

fn open(attributes: &Attributes, cpu: usize) -> std::io::Result<OwnedFd> {
    const CLOEXEC: libc::c_ulong = 1 << 3;
    // SAFETY: the attributes live through the call, and contain their own size.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const *attributes, -1, cpu as i32, -1, CLOEXEC)
    };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: a descriptor that the call just returned, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn control(fd: &OwnedFd, what: libc::c_ulong) {
    // SAFETY: no pointers. It cannot fail on a descriptor of an event.
    unsafe { libc::ioctl(fd.as_raw_fd(), what as _, 0) };
}

/// One sample of a processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The processor.
    pub cpu: usize,
    /// The process.
    pub pid: u32,
    /// The time of the sample, in ns of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The address of the instruction.
    pub ip: u64,
    /// The return addresses in the kernel, innermost first; empty for a sample outside the kernel.
    pub callers: Vec<u64>,
}

/// Samples one processor.
pub struct Sampler {
    cpu: usize,
    fd: OwnedFd,
    ring: *mut u8,
}

impl Sampler {
    /// Begins to sample a processor.
    ///
    /// # Errors
    /// Without CAP_PERFMON.
    pub fn start(cpu: usize) -> Result<Self> {
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: SW_CPU_CLOCK,
            frequency: SAMPLES_PER_SECOND,
            sample_type: SAMPLE_IP | SAMPLE_TID | SAMPLE_TIME | SAMPLE_CALLCHAIN,
            flags: DISABLED | EXCLUDE_IDLE | FREQUENCY | EXCLUDE_CALLCHAIN_USER | USE_CLOCKID,
            clock: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        let fd = open(&attributes, cpu).context("sampling (CAP_PERFMON?)")?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let length = (PAGES + 1) * PAGE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let ring = unsafe { libc::mmap(null_mut(), length, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if ring == libc::MAP_FAILED {
            bail!("the ring of samples: {}", Error::last_os_error());
        }
        control(&fd, IOC_ENABLE);
        Ok(Self { cpu, fd, ring: ring.cast() })
    }

    /// Stops the sampler and returns the samples, and the number of those that were lost.
    #[must_use]
    pub fn stop(self) -> (Vec<Sample>, u64) {
        control(&self.fd, IOC_DISABLE);
        let length = PAGES * PAGE;
        // SAFETY: `data_head` is at offset 1024 of the first page, aligned, and the mapping lives as long as `self`.
        let head = unsafe { AtomicU64::from_ptr(self.ring.add(1024).cast()) }.load(Ordering::Acquire);
        let mut bytes = vec![0u8; length];
        // SAFETY: the data pages follow the first one; the kernel no longer writes.
        unsafe { std::ptr::copy_nonoverlapping(self.ring.add(PAGE), bytes.as_mut_ptr(), length) };
        // The ring was not read meanwhile. The kernel stops writing when it is full, and never overwrites.
        parse(&bytes[..(head as usize).min(length)], self.cpu)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // SAFETY: mapped in `start`, and no references to it are left.
        unsafe { libc::munmap(self.ring.cast(), (PAGES + 1) * PAGE) };
    }
}

/// Parses the records of a ring from its start: the samples, and the number of those that were lost.
fn parse(bytes: &[u8], cpu: usize) -> (Vec<Sample>, u64) {
    let word =
        |at: usize| bytes.get(at..at + 8).map_or(0, |b| u64::from_ne_bytes(b.try_into().unwrap_or_default()));
    let (mut at, mut samples, mut lost) = (0, Vec::new(), 0);
    while at + 8 <= bytes.len() {
        let header = word(at);
        let (kind, size) = (header as u32, (header >> 48) as usize);
        if size < 8 || at + size > bytes.len() {
            break;
        }
        match kind {
            RECORD_LOST => lost += word(at + 16),
            RECORD_SAMPLE => {
                let depth = (word(at + 32) as usize).min(size / 8);
                let callers = (0..depth).map(|n| word(at + 40 + n * 8)).filter(|ip| *ip < CONTEXT_MAX);
                // The first entry is the instruction itself.
                let callers = callers.skip(1).collect();
                let (pid, time_ns, ip) = (word(at + 16) as u32, word(at + 24), word(at + 8));
                samples.push(Sample { cpu, pid, time_ns, ip, callers });
            }
            _ => {}
        }
        at += size;
    }
    (samples, lost)
}

/// Hardware counters of one processor.
pub struct Counters(Vec<(&'static str, OwnedFd)>);

impl Counters {
    /// Begins to count.
    ///
    /// # Errors
    /// Where the processor offers no counters, as in most virtual machines; the error gives the reason.
    pub fn start(cpu: usize) -> Result<Self> {
        let mut counters = Vec::new();
        for (config, name) in [(0, "cycles"), (1, "instructions"), (3, "cache misses"), (5, "branch misses")]
        {
            let attributes = Attributes {
                kind: TYPE_HARDWARE,
                size: size_of::<Attributes>() as u32,
                config,
                ..Default::default()
            };
            match open(&attributes, cpu) {
                Ok(fd) => counters.push((name, fd)),
                Err(why) if config == 0 => return Err(why).context("no hardware counters here"),
                // Some processors lack some of the counters.
                Err(_) => {}
            }
        }
        Ok(Self(counters))
    }

    /// The counts since [`Self::start`].
    #[must_use]
    pub fn read(&self) -> Vec<(String, u64)> {
        let mut counted = Vec::new();
        for (name, fd) in &self.0 {
            let mut bytes = [0u8; 8];
            if nix::unistd::read(fd, &mut bytes).is_ok_and(|length| length == 8) {
                counted.push(((*name).to_owned(), u64::from_ne_bytes(bytes)));
            }
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records() {
        let mut bytes = Vec::new();
        let mut record = |kind: u64, words: &[u64]| {
            bytes.extend_from_slice(&(kind | ((words.len() as u64 + 1) * 8) << 48).to_ne_bytes());
            words.iter().for_each(|w| bytes.extend_from_slice(&w.to_ne_bytes()));
        };
        record(9, &[0xffff_0001, 7 | 8 << 32, 99, 3, -128i64 as u64, 0xffff_0001, 0xffff_0002]);
        record(2, &[1, 55]);
        record(1, &[0]);
        record(9, &[5, 9, 100, 0]);
        bytes.extend_from_slice(&(9u64 | 800 << 48).to_ne_bytes());
        let (samples, lost) = parse(&bytes, 1);
        let first = Sample { cpu: 1, pid: 7, time_ns: 99, ip: 0xffff_0001, callers: vec![0xffff_0002] };
        assert_eq!(
            (samples, lost),
            (vec![first, Sample { cpu: 1, pid: 9, time_ns: 100, ip: 5, callers: vec![] }], 55)
        );
        assert_eq!(parse(&[0; 64], 0), (vec![], 0));
    }
}
