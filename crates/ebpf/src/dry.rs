//! Dry runs: BPF_PROG_TEST_RUN of programs that record what they would do with a frame, over the
//! live tables.
//!
//! Read first: the kernel's Documentation/bpf/bpf_prog_run.rst. The programs are those that
//! forward, loaded a second time with `dry` set; they write what they would send into the journal
//! (`struct ly_journal` in `bpf/abi.h`).

use crate::abi::{self, Journal, JournalForm};
use crate::error::{Doing, Result, check, system};
use crate::object;
use crate::present::OutOfBand;
use crate::tables::Tables;
use lanyard_pipeline::trace::Verdict;
use lanyard_plane::Hook;
use lanyard_types::{DropReason, PortId, SamplingRate, TrapReason, VlanId};
use lanyard_wire::{HEADER_LEN, Tag, push};
use libbpf_rs::MapHandle;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use zerocopy::FromZeros;

/// Return values of XDP programs, linux/bpf.h.
const XDP_PASS: u32 = 2;
/// At TC the kernel's test run accepts frames of up to about 3,700 bytes, and rejects frames with an IP
/// EtherType but no IP header. A longer frame is truncated and a shorter one padded, and the programs get the
/// difference in length. They read nothing after the headers.
const LONGEST_RUN: usize = 2048;
/// At XDP the kernel's test run accepts longer frames, in several buffers as from a driver.
const LONGEST_XDP_RUN: usize = 16_384;

/// The part of `frame` that the test run of a hook accepts.
fn taken(hook: Hook, frame: &[u8]) -> &[u8] {
    let longest = if hook == Hook::Xdp { LONGEST_XDP_RUN } else { LONGEST_RUN };
    frame.get(..longest).unwrap_or(frame)
}

/// The changes that a dry run makes to the tables, and the form in which the programs receive the frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DryMode {
    /// True to learn, refresh and move addresses.
    pub learn: bool,
    /// True to count frames.
    pub count: bool,
    /// True to spend the tokens of trap groups, and to pass trapped frames to the control plane.
    pub police: bool,
    /// If not 0, the frame is a GSO buffer whose segments have this many bytes of payload; TC only.
    pub gso_size: u32,
    /// True if the outermost tag is out of band, as the kernel presents received frames to TC; TC
    /// only.
    pub out_of_band: bool,
}

/// The number of words in `struct __sk_buff`, and the indices of two of them.
const SKB_WORDS: usize = 48;
const SKB_GSO_SEGS: usize = 41;
const SKB_GSO_SIZE: usize = 44;

/// The result of a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRun {
    /// How processing ended; `None` when XDP passed the frame to TC, not counted and not changed.
    pub verdict: Option<Verdict>,
    /// The VLAN into which the frame was accepted; `None` if it was accepted into none.
    pub vlan: Option<VlanId>,
    /// The frames that would be sent, in emission order, tags in line.
    pub emitted: Vec<(PortId, EmissionKind, Vec<u8>)>,
    /// The port at which the frame is sampled, the frame's length and its head.
    pub sampled: Option<(PortId, usize, Vec<u8>)>,
    /// Clones made.
    pub clones: u16,
    /// Tag operations: each is a pop or a push.
    pub tag_operations: u16,
}

/// The kind of a frame that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmissionKind {
    /// A copy that the pipeline forwards.
    Copy,
    /// A monitor session's copy of the received frame.
    MirroredReceived,
    /// A monitor session's copy of the copy that was sent before it.
    MirroredSent,
}

impl DryRun {
    /// The frames that the pipeline forwards, or, if `mirrored`, the copies for monitor sessions, in emission order.
    #[must_use]
    pub fn sent(&self, mirrored: bool) -> Vec<(PortId, Vec<u8>)> {
        let chosen = self.emitted.iter().filter(|(_, kind, _)| (*kind != EmissionKind::Copy) == mirrored);
        chosen.map(|(port, _, bytes)| (*port, bytes.clone())).collect()
    }
}

/// The programs, loaded with `dry` set.
#[derive(Debug)]
struct Loaded {
    tc: OwnedFd,
    out_of_band: OutOfBand,
    xdp: OwnedFd,
    /// Kept open, because the programs jump by this map.
    _steps: MapHandle,
}

impl Loaded {
    fn load(tables: &Tables) -> Result<Self> {
        let (programs, steps) = object::load_dry(tables)?;
        let [tc, _, _, xdp] = <[OwnedFd; 4]>::try_from(programs)
            .map_err(|_| system("loading the dry programs", "one is missing"))?;
        Ok(Self { out_of_band: OutOfBand::before(&tc)?, tc, xdp, _steps: steps })
    }
}

/// The frame of a dry run, with its ingress port and the hook that processes it.
#[derive(Clone, Copy)]
pub(crate) struct DryFrame<'a> {
    pub hook: Hook,
    pub port: PortId,
    pub bytes: &'a [u8],
}

/// Makes dry runs over the tables of a plane. The programs are loaded at the first use.
#[derive(Debug, Default)]
pub(crate) struct Dry(Option<Loaded>);

impl Dry {
    /// Runs a frame at `now_ns` of the programs' clock, and makes the changes to the tables that `mode` selects. Returns
    /// also the journal.
    ///
    /// # Errors
    /// See [`EbpfPlane::dry_run`](crate::EbpfPlane::dry_run).
    pub(crate) fn run(
        &mut self,
        tables: &Tables,
        frame: DryFrame<'_>,
        now_ns: u64,
        mode: DryMode,
    ) -> Result<(Box<Journal>, DryRun)> {
        let (journal, out) = self.journal(tables, frame, now_ns, mode)?;
        let run = read_journal(tables, frame, &journal, out)?;
        Ok((journal, run))
    }

    /// Runs the program at a given time. Returns the journal and, for XDP, the frame that it would
    /// send.
    fn journal(
        &mut self,
        tables: &Tables,
        DryFrame { hook, port, bytes: frame }: DryFrame<'_>,
        now_ns: u64,
        mode: DryMode,
    ) -> Result<(Box<Journal>, Option<Vec<u8>>)> {
        let dry = match self.0.take() {
            Some(dry) => dry,
            None => Loaded::load(tables)?,
        };
        let dry = self.0.insert(dry);
        let mut journal = Box::new(Journal::new_zeroed());
        journal.now_ns = now_ns;
        journal.port = u32::from(port.get());
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        journal.mode = bit(mode.learn, abi::DRY_LEARN)
            | bit(mode.count, abi::DRY_COUNT)
            | bit(mode.police, abi::DRY_POLICE);
        journal.target_port = abi::NOT_FOUND;
        journal.target = abi::NO_TARGET;
        if frame.len() < HEADER_LEN {
            // The kernel's test run does not accept such a frame; it would fail the program's first
            // check.
            journal.verdict = abi::DROPPED;
            journal.reason = DropReason::Truncated as u8;
            return Ok((journal, None));
        }
        let mut given = taken(hook, frame).to_vec();
        given.resize(given.len().max(shortest_run(frame)), 0);
        journal.extra = (frame.len() as u32).wrapping_sub(given.len() as u32);
        tables.set_journal(&journal)?;
        let doing = || format!("test-running a frame of {} bytes", frame.len());
        let out = match hook {
            Hook::Tc => {
                let program = if mode.out_of_band { &dry.out_of_band.program } else { &dry.tc };
                run(program, &given, 0, mode.gso_size).doing(doing).map(|_| None)?
            }
            Hook::Xdp => {
                let (answer, bytes) = run(&dry.xdp, &given, 64, 0).doing(doing)?;
                if answer == XDP_PASS {
                    return Ok((journal, None));
                }
                Some(bytes)
            }
            Hook::Soft | Hook::Asic | Hook::None => {
                return Err(system("a dry run", format!("the hook {} has none", hook.name())));
            }
        };
        Ok((tables.journal()?, out))
    }
}

fn read_journal(
    tables: &Tables,
    DryFrame { hook, bytes: frame, .. }: DryFrame<'_>,
    journal: &Journal,
    out: Option<Vec<u8>>,
) -> Result<DryRun> {
    let nonsense =
        || system("reading the journal", format!("verdict {} reason {}", journal.verdict, journal.reason));
    let verdict = match journal.verdict {
        0 => None,
        abi::FORWARDED => Some(Verdict::Forwarded),
        abi::TRAPPED => Some(Verdict::Trapped(TrapReason::from_u8(journal.reason).ok_or_else(nonsense)?)),
        abi::DROPPED => Some(Verdict::Dropped(DropReason::from_u8(journal.reason).ok_or_else(nonsense)?)),
        _ => return Err(nonsense()),
    };
    let mut forms: [Option<Vec<u8>>; abi::JOURNAL_FORMS] = [const { None }; abi::JOURNAL_FORMS];
    let mut emitted = Vec::new();
    let count = usize::from(journal.egress_count);
    let slots = journal.egress_form.iter().zip(&journal.egress_slot);
    for (port, (form, slot)) in journal.egress_port.iter().zip(slots).take(count) {
        let kind = match *form & !abi::MIRRORED_REMOTE {
            abi::MIRRORED | abi::MIRRORED_BARE | abi::MIRRORED_NAMED => EmissionKind::MirroredReceived,
            form if form & abi::MIRRORED_SENT != 0 => EmissionKind::MirroredSent,
            _ => EmissionKind::Copy,
        };
        let form = usize::from(*slot) % abi::JOURNAL_FORMS;
        let bytes = match (&out, &mut forms[form]) {
            (Some(bytes), _) => whole(hook, bytes.clone(), frame),
            (None, Some(bytes)) => bytes.clone(),
            (None, slot) => {
                slot.insert(whole(hook, journal_frame(tables, form, &journal.form[form])?, frame)).clone()
            }
        };
        emitted.push((PortId::new(*port).ok_or_else(nonsense)?, kind, bytes));
    }
    let sampled = if journal.sampled_len == 0 {
        None
    } else {
        let form = usize::from(abi::SAMPLED);
        let mut head = whole(hook, journal_frame(tables, form, &journal.form[form])?, frame);
        head.truncate(SamplingRate::HEAD);
        let port = u16::try_from(journal.sampled_port).ok().and_then(PortId::new).ok_or_else(nonsense)?;
        Some((port, journal.sampled_len as usize, head))
    };
    let (clones, tag_operations) = (journal.clones, journal.tag_ops);
    Ok(DryRun { verdict, vlan: VlanId::new(journal.vlan), emitted, sampled, clones, tag_operations })
}

/// The bytes of a form, with the out-of-band tag put back in line.
fn journal_frame(tables: &Tables, form: usize, how: &JournalForm) -> Result<Vec<u8>> {
    let mut bytes = tables.journal_bytes(form, how.len as usize)?;
    if how.tag_proto != 0 {
        push(&mut bytes, how.tag_proto, Tag::from_tci(how.tag_tci))
            .doing(|| "putting the tag in line".into())?;
    }
    Ok(bytes)
}

/// Restores the bytes truncated from the end of `frame`, or removes the padding.
fn whole(hook: Hook, mut bytes: Vec<u8>, frame: &[u8]) -> Vec<u8> {
    bytes.extend_from_slice(frame.get(taken(hook, frame).len()..).unwrap_or_default());
    bytes.truncate(bytes.len() - shortest_run(frame).saturating_sub(frame.len()));
    bytes
}

/// The length a frame of this EtherType must have for the kernel's test run.
fn shortest_run(frame: &[u8]) -> usize {
    match frame.get(12..HEADER_LEN) {
        Some([0x08, 0x00]) => HEADER_LEN + 20,
        Some([0x86, 0xdd]) => HEADER_LEN + 40,
        _ => HEADER_LEN,
    }
}

/// Makes one test run. Returns the program's result and, with `grow`, the frame afterwards, which
/// may be longer by that many bytes.
fn run(program: &OwnedFd, frame: &[u8], grow: usize, gso_size: u32) -> io::Result<(u32, Vec<u8>)> {
    let mut out = vec![0; if grow == 0 { 0 } else { frame.len() + grow }];
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: u32::try_from(frame.len()).map_err(io::Error::other)?,
        repeat: 1,
        ..Default::default()
    };
    // struct __sk_buff of linux/bpf.h, as words. The kernel accepts a few of them and requires the others to
    // be 0.
    let mut skb = [0_u32; SKB_WORDS];
    if gso_size != 0 {
        skb[SKB_GSO_SEGS] = (frame.len() as u32).div_ceil(gso_size);
        skb[SKB_GSO_SIZE] = gso_size;
        opts.ctx_in = skb.as_ptr().cast();
        opts.ctx_size_in = size_of_val(&skb) as u32;
    }
    if grow != 0 {
        opts.data_out = out.as_mut_ptr().cast();
        opts.data_size_out = u32::try_from(out.len()).map_err(io::Error::other)?;
    }
    // SAFETY: the buffers are live and of the stated lengths.
    check(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut opts) })?;
    out.truncate(opts.data_size_out as usize);
    Ok((opts.retval, out))
}
