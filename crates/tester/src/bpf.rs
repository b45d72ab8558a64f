//! The compiled BPF programs, the structs they share with the bench, and functions that load and attach them.
//!
//! Read first: `bpf/traffic.h`. Invariant: a struct here has the size and the order of its namesake there.

use anyhow::{Context, Result, anyhow, ensure};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramMut, libbpf_sys};
use libbpf_rs::{TC_INGRESS, TcHook, TcHookBuilder};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The object compiled from `generate.bpf.c`.
pub const GENERATE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/generate.bpf.o"));
/// The object compiled from `receive.bpf.c`.
pub const RECEIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/receive.bpf.o"));
/// The object compiled from `impair.bpf.c`.
pub const IMPAIR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/impair.bpf.o"));
/// The object compiled from `send.bpf.c`.
pub const SEND: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/send.bpf.o"));
/// The object compiled from `checker.bpf.c`.
pub const CHECKER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/checker.bpf.o"));
/// The object compiled from `wire.bpf.c`.
pub const WIRE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wire.bpf.o"));

/// Slots in the receiver's `arrivals` map; a device's slot is its ifindex modulo this.
pub const DEVICE_SLOTS: u32 = 64;

/// The most frames of [`StreamAbi::words`].
pub const TEMPLATES: usize = 8;

/// `struct stream`: what a generator sends.
#[derive(Debug, Clone, Copy, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StreamAbi {
    pub ifindex: u32,
    pub src_first: u32,
    pub src_count: u32,
    pub dst_first: u32,
    pub dst_count: u32,
    pub random: u32,
    pub interval_256: u32,
    pub stamp: u32,
    pub tci: u16,
    pub stream: u16,
    pub ip_length: u16,
    pub group: u16,
    pub prefixes: u32,
    pub six: u32,
    pub templates: u32,
    pub sources: u32,
    pub words: [[u8; 64]; TEMPLATES],
}
const _: () = assert!(size_of::<StreamAbi>() == 56 + TEMPLATES * 64);

/// `struct progress`: how far a generator has come.
#[derive(Debug, Clone, Copy, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProgressAbi {
    pub sent: u64,
    pub due_256: u64,
    pub runs: u64,
    pub started_ns: u64,
    pub latest_ns: u64,
    pub next_src: u32,
    pub next_dst: u32,
}
const _: () = assert!(size_of::<ProgressAbi>() == 48);

/// `struct arrivals`: counts of the frames that one device received on one CPU.
#[derive(Debug, Clone, Copy, Default, IntoBytes, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ArrivalsAbi {
    pub frames: u64,
    pub bytes: u64,
    pub first_ns: u64,
    pub expected: u64,
    pub missing: u64,
    pub late: u64,
}
const _: () = assert!(size_of::<ArrivalsAbi>() == 48);

/// How an object is loaded.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadOptions<'a> {
    /// Written over the start of the object's read-only data.
    pub constants: &'a [u8],
    /// The names of maps that get another size, and their numbers of entries.
    pub sizes: &'a [(&'a str, u32)],
    /// The only program to load, because verifying the others would take time; `None` to load all.
    pub program: Option<&'a str>,
}

/// Loads an object.
///
/// # Errors
/// When the kernel refuses it, most often because CAP_BPF is missing.
pub fn load(object: &[u8], options: &LoadOptions<'_>) -> Result<Object> {
    let LoadOptions { constants, sizes, program } = *options;
    // libbpf's own messages add nothing to its error.
    libbpf_rs::set_print(None);
    let mut open = ObjectBuilder::default().open_memory(object).context("opening a BPF object")?;
    if !constants.is_empty() {
        let mut rodata = open
            .maps_mut()
            .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
            .ok_or_else(|| anyhow!("the BPF object has no read-only data"))?;
        let area = rodata.initial_value_mut().ok_or_else(|| anyhow!("read-only data without a value"))?;
        ensure!(area.len() >= constants.len(), "read-only data of {} bytes", area.len());
        area[..constants.len()].copy_from_slice(constants);
    }
    for (name, entries) in sizes {
        let mut map = open
            .maps_mut()
            .find(|map| map.name().to_string_lossy() == *name)
            .ok_or_else(|| anyhow!("no BPF map {name}"))?;
        map.set_max_entries(*entries).with_context(|| format!("{entries} entries for {name}"))?;
    }
    for mut found in open.progs_mut() {
        let wanted = program.is_none_or(|name| found.name() == name);
        found.set_autoload(wanted);
    }
    open.load().context("loading a BPF object (needs root, or CAP_BPF and CAP_NET_ADMIN)")
}

/// The reason why this process may not load BPF programs, or `None`. It is determined once.
pub fn refused() -> Option<&'static str> {
    static REFUSED: OnceLock<Option<String>> = OnceLock::new();
    REFUSED.get_or_init(|| load(WIRE, &LoadOptions::default()).err().map(|why| format!("{why:#}"))).as_deref()
}

/// The program called `name`.
///
/// # Errors
/// When there is none.
pub fn program<'o>(object: &'o Object, name: &str) -> Result<ProgramMut<'o>> {
    object.progs_mut().find(|p| p.name() == name).ok_or_else(|| anyhow!("no BPF program {name}"))
}

/// Reads the whole `.bss` of an object, which starts with the struct `T`.
///
/// # Errors
/// When the object has none, or a smaller one.
pub fn read_bss<T: FromBytes + KnownLayout>(object: &Object) -> Result<T> {
    read_variables(&bss(object)?)
}

/// The map that holds the variables of an object.
///
/// # Errors
/// When the object has none.
pub fn bss(object: &Object) -> Result<MapHandle> {
    let map = object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss"));
    Ok(MapHandle::try_from(&map.ok_or_else(|| anyhow!("the BPF object has no variables"))?)?)
}

/// Reads the start of the variables that [`bss`] found.
///
/// # Errors
/// When they are smaller than `T`.
pub fn read_variables<T: FromBytes + KnownLayout>(variables: &MapHandle) -> Result<T> {
    let bytes = variables.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    T::read_from_prefix(&bytes).map(|(value, _)| value).map_err(|e| anyhow!("variables: {e}"))
}

/// Writes `value` over the start of the `.bss` of an object. Must not be called while its programs run.
///
/// # Errors
/// When the object has none, or a smaller one.
pub fn write_bss<T: IntoBytes + Immutable>(object: &Object, value: &T) -> Result<()> {
    let map = bss(object)?;
    let mut bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    let area = bytes.get_mut(..size_of::<T>()).ok_or_else(|| anyhow!("variables: too few"))?;
    area.copy_from_slice(value.as_bytes());
    map.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY)?;
    Ok(())
}

/// `BPF_F_TEST_XDP_LIVE_FRAMES`: run on frames of a page pool and carry out the verdict.
const LIVE_FRAMES: u32 = 1 << 1;

/// Runs an XDP program `repeat` times on copies of `frame`, which the kernel treats like frames of a driver. After
/// each `batch` (1..=256) of them the kernel runs the softirqs they caused.
///
/// # Errors
/// When the kernel refuses (before Linux 5.18: always), or a signal came.
pub fn run_live(program: &ProgramMut<'_>, frame: &[u8], repeat: u32, batch: u32) -> Result<()> {
    run_live_raw(program, frame, repeat, batch).context("sending live frames (Linux 5.18 or later?)")
}

/// As [`run_live`], with the kernel's own error: `EINTR` when a signal came.
///
/// # Errors
/// As [`run_live`].
#[allow(unsafe_code)]
pub fn run_live_raw(program: &ProgramMut<'_>, frame: &[u8], repeat: u32, batch: u32) -> std::io::Result<()> {
    let too_many = |_| std::io::Error::from_raw_os_error(libc::EINVAL);
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: u32::try_from(frame.len()).map_err(too_many)?,
        repeat: i32::try_from(repeat).map_err(too_many)?,
        flags: LIVE_FRAMES,
        batch_size: batch,
        ..Default::default()
    };
    // SAFETY: the program's descriptor is open, and `frame` and `options` outlive the call.
    let code = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &raw mut options) };
    if code == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(-code)) }
}

/// An attached program; it is detached when this is dropped.
pub enum Attached {
    /// Not attached any more.
    Nothing,
    /// A BPF link held by libbpf.
    Link { _link: Link },
    /// A `tcx` link.
    Tcx { _fd: OwnedFd },
    /// A `clsact` filter, on kernels before 6.6.
    Clsact { hook: TcHook },
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Self::Clsact { hook } = self {
            // The device may be gone by now, together with the filter.
            let _ = hook.detach();
        }
    }
}

/// Attaches a program to a device's XDP hook, in the driver when it has one. The device is looked up in the
/// network namespace of the calling thread.
///
/// # Errors
/// When the kernel refuses.
pub fn attach_xdp(program: &ProgramMut<'_>, ifindex: u32) -> Result<Attached> {
    let link = program.attach_xdp(ifindex as i32).context("attaching an XDP program")?;
    Ok(Attached::Link { _link: link })
}

/// Attaches a program to a device's TC ingress: `tcx`, or `clsact` where the kernel has no `tcx`. The device is
/// looked up in the network namespace of the calling thread.
///
/// # Errors
/// When the kernel refuses both.
pub fn attach_tc(program: &ProgramMut<'_>, ifindex: u32) -> Result<Attached> {
    if let Some(fd) = tcx_link(program, ifindex) {
        return Ok(Attached::Tcx { _fd: fd });
    }
    let mut hook =
        TcHookBuilder::new(program.as_fd()).ifindex(ifindex as i32).handle(1).priority(1).hook(TC_INGRESS);
    hook.create().context("making a clsact qdisc")?;
    let hook = hook.attach().context("attaching a TC program")?;
    Ok(Attached::Clsact { hook })
}

#[allow(unsafe_code)]
fn tcx_link(program: &ProgramMut<'_>, ifindex: u32) -> Option<OwnedFd> {
    // SAFETY: the program's descriptor is open for the length of the call, and no options are a null pointer.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            ifindex as i32,
            libbpf_sys::BPF_TCX_INGRESS,
            std::ptr::null(),
        )
    };
    // SAFETY: a descriptor that the call just returned, owned by nobody else.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}
