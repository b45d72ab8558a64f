//! Tests whether a veth takes the frames that XDP redirects to it.
//!
//! A veth takes them only while its other end runs NAPI: with GRO, or with an XDP program. The kernel reports that as
//! [`XdpFeatures::NDO_XMIT`](lanyard_netdev::XdpFeatures), but the report is wrong after GRO was changed while the other end was
//! down, and the frames are lost (`veth_set_features` and `veth_xdp_xmit` in the kernel's drivers/net/veth.c). So this module
//! sends a frame as XDP sends frames, and records whether the driver takes it: a configuration test frame (EtherType
//! 0x9000) from the port's address to itself, which hosts ignore; IOS sends such frames as keepalives.
//!
//! Invariants: a port that takes frames is tested again after each change that may change this; a port that refuses frames is
//! tested each time its facts are read, because no notification reports that it has begun to take them. Without a result of the
//! test, the kernel's report is used.

use crate::embedded::XDP_PROBE;
use crate::error::{Doing, Result, check, system};
use lanyard_netdev::Link;
use lanyard_types::MacAddr;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// EtherType of configuration test frames (Ethernet 2.0, chapter 8).
const TEST_FRAME: [u8; 2] = [0x90, 0x00];
/// Bytes of the shortest frame, without FCS.
const SHORTEST: usize = 60;

/// `struct probe` of `bpf/xdp_probe.bpf.c`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Answer {
    ifindex: u32,
    heard: u32,
    taken: u32,
}

/// What the result of a test depends on: the XDP features that the kernel reports, and the number of changes of the carrier,
/// which follows the other end.
pub(crate) type Circumstances = (u64, u32);

/// The loaded programs.
#[derive(Debug)]
struct Programs {
    sends: OwnedFd,
    hears: OwnedFd,
    answer: MapHandle,
    /// The attachment of `hears` while netdevs are tested. It is `None` otherwise, because the attached program costs time for
    /// every frame that XDP sends.
    attached: Option<OwnedFd>,
}

/// Tests whether netdevs take frames from XDP, and remembers which ones do.
#[derive(Debug, Default)]
pub(crate) struct XdpProbe {
    /// `None` until the first test; `Some(None)` if the kernel refuses the programs.
    programs: Option<Option<Programs>>,
    /// The netdevs that have taken a frame, and the circumstances under which they did.
    taken: BTreeMap<u32, Circumstances>,
}

impl XdpProbe {
    /// True if a test has shown that the netdev refuses frames from XDP, whatever the kernel reports.
    pub(crate) fn refuses(&mut self, link: &Link, now: Circumstances) -> bool {
        if self.taken.get(&link.ifindex) == Some(&now) {
            return false;
        }
        let Some(programs) = self.programs.get_or_insert_with(|| Programs::load().ok()) else { return false };
        let Ok(answer) = programs.ask(link) else { return false };
        if answer.taken != 0 {
            self.taken.insert(link.ifindex, now);
        }
        answer.heard != 0 && answer.taken == 0
    }

    /// Detaches the program at the trace point until the next test.
    pub(crate) fn detach(&mut self) {
        if let Some(Some(programs)) = &mut self.programs {
            programs.attached = None;
        }
    }

    /// Forgets a netdev.
    pub(crate) fn forget(&mut self, ifindex: u32) {
        self.taken.remove(&ifindex);
    }
}

impl Programs {
    fn load() -> Result<Self> {
        let doing = "loading the programs that test whether a port takes frames from XDP";
        let mut object = XDP_PROBE.load(doing)?;
        let (sends, hears, answer) =
            (object.program("probe_sends")?, object.program("probe_hears")?, object.map("probes")?);
        Ok(Self { sends, hears, answer, attached: None })
    }

    /// Sends a test frame to the netdev, and returns what the driver did with it.
    fn ask(&mut self, link: &Link) -> Result<Answer> {
        let doing = || format!("testing whether {} takes frames from XDP", link.name);
        if self.attached.is_none() {
            self.attached = Some(attach_tracing(&self.hears).doing(doing)?);
        }
        let key = 0_u32.to_ne_bytes();
        let asked = Answer { ifindex: link.ifindex, heard: 0, taken: 0 };
        self.answer.update(&key, asked.as_bytes(), MapFlags::ANY).doing(doing)?;
        run_live(&self.sends, &test_frame(link.mac)).doing(doing)?;
        let answer = self.answer.lookup(&key, MapFlags::ANY).doing(doing)?.unwrap_or_default();
        Answer::read_from_bytes(&answer).map_err(|_| system(doing(), "the answer has another size"))
    }
}

/// Attaches a program to the trace point that its section names, until the descriptor is closed.
fn attach_tracing(program: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: without a name the kernel takes the trace point for which it has checked the program.
    let link = check(unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) })?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Runs an XDP program once, and carries out its verdict on the frame.
fn run_live(program: &OwnedFd, frame: &[u8]) -> io::Result<()> {
    /// BPF_F_TEST_XDP_LIVE_FRAMES, linux/bpf.h.
    const LIVE_FRAMES: u32 = 1 << 1;
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: u32::try_from(frame.len()).map_err(io::Error::other)?,
        repeat: 1,
        batch_size: 1,
        flags: LIVE_FRAMES,
        ..Default::default()
    };
    // SAFETY: the frame is alive and of the stated length.
    check(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts) }).map(drop)
}

fn test_frame(address: MacAddr) -> [u8; SHORTEST] {
    let mut frame = [0; SHORTEST];
    frame[..6].copy_from_slice(&address.0);
    frame[6..12].copy_from_slice(&address.0);
    frame[12..14].copy_from_slice(&TEST_FRAME);
    frame
}
