//! The compiled programs of `bpf/`: loads them, with new maps or with existing ones.
//!
//! Read first: the kernel's Documentation/bpf/libbpf/libbpf_overview.rst. A load leaves descriptors
//! only; the libbpf object is closed again, so that adopting pins and loading new maps give the same
//! result.

use crate::abi;
use crate::bound::stays_in_place;
use crate::bpffs::Pins;
use crate::clock::tick_ns;
use crate::embedded::{LANYARD, plane_object};
use crate::error::{Doing, Result, check, system};
use crate::kernel_release;
use crate::refusal::Messages;
use crate::tables::{self, META, Meta, STEPS, Tables};
use libbpf_rs::{AsRawLibbpf, MapCore, MapFlags, MapHandle, MapType, ObjectBuilder, OpenObject};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::{fs, io};

/// The programs that others jump to, in the order of `enum ly_step`.
const JUMPED_TO: [&str; abi::STEPS] = ["lanyard_router", "lanyard_flood"];
/// The programs that every plane runs on, by their names in `bpf/`, in the order of [`Programs::new`] and of [`LOADS`].
pub(crate) const PROGRAMS: [&str; 9] = [
    "clock_read",
    "lanyard_tc",
    "lanyard_flood",
    "lanyard_xdp_copy",
    "fdb_set",
    "fdb_delete",
    "fdb_scan",
    "fdb_migrate",
    "watchdog_set",
];
/// The XDP program for a device whose driver reports out-of-band tags.
pub(crate) const XDP_BOUND: &str = "lanyard_xdp_bound";
/// The programs of a dry run.
const DRY: [&str; 4] = ["lanyard_tc", "lanyard_router", "lanyard_flood", "lanyard_xdp"];

/// The programs that a plane loads when it first needs them. The kernel's verification of these takes longer than that
/// of all others together, and a switch that only bridges at TC needs none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deferred {
    /// Routes at TC: an entry of the map `steps` refers to it.
    Router,
    /// Forwards at XDP.
    Xdp,
    /// Forwards at XDP of a veth. Kernels that do not have what it reads refuse it; see [`Programs::veth`].
    XdpVeth,
}

impl Deferred {
    pub(crate) const ALL: [Self; 3] = [Self::Router, Self::Xdp, Self::XdpVeth];
    /// The deferred programs that every kernel accepts on which the plane runs.
    pub(crate) const EVERYWHERE: [Self; 2] = [Self::Router, Self::Xdp];

    /// The program's name in `bpf/`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Router => "lanyard_router",
            Self::Xdp => "lanyard_xdp",
            Self::XdpVeth => "lanyard_xdp_veth",
        }
    }
}

/// A loaded program, with its name in `bpf/`.
type Named = (&'static str, OwnedFd);

/// A plane's programs.
#[derive(Debug)]
pub(crate) struct Programs {
    pub tc: OwnedFd,
    /// Floods at TC: an entry of the map `steps` refers to it.
    pub flood: OwnedFd,
    /// Finishes the copies of a flood from XDP: entries of the map `xdp_flood` refer to it.
    pub xdp_copy: OwnedFd,
    pub fdb_set: OwnedFd,
    pub fdb_delete: OwnedFd,
    pub fdb_scan: OwnedFd,
    pub fdb_migrate: OwnedFd,
    /// Reads the programs' clock.
    pub clock_read: OwnedFd,
    /// Starts and stops a watchdog.
    pub watchdog_set: OwnedFd,
    /// Those of [`Deferred::ALL`] that have been loaded.
    deferred: [OnceLock<OwnedFd>; Deferred::ALL.len()],
    /// Set when the kernel has refused [`Deferred::XdpVeth`], so that loading it is not tried again for each port.
    veth_refused: OnceLock<()>,
}

impl Programs {
    /// Takes one descriptor for each of [`PROGRAMS`], in that order.
    pub(crate) fn new(programs: Vec<OwnedFd>) -> Result<Self> {
        let [clock_read, tc, flood, xdp_copy, fdb_set, fdb_delete, fdb_scan, fdb_migrate, watchdog_set] =
            <[OwnedFd; 9]>::try_from(programs)
                .map_err(|_| system("loading the eBPF programs", "one of them is missing"))?;
        let deferred = Default::default();
        Ok(Self {
            tc,
            flood,
            xdp_copy,
            fdb_set,
            fdb_delete,
            fdb_scan,
            fdb_migrate,
            clock_read,
            watchdog_set,
            deferred,
            veth_refused: OnceLock::new(),
        })
    }

    /// Takes each of [`PROGRAMS`] from `loaded`, and those of [`Deferred`] that are there.
    fn from_named(mut loaded: Vec<Named>) -> Result<Self> {
        let mut take = |name| {
            let at = loaded.iter().position(|(found, _)| *found == name)?;
            Some(loaded.swap_remove(at).1)
        };
        let programs = Self::new(PROGRAMS.into_iter().filter_map(&mut take).collect())?;
        for which in Deferred::ALL {
            if let Some(program) = take(which.name()) {
                programs.put(which, program);
            }
        }
        Ok(programs)
    }

    /// Stores a program that has been loaded already. Nothing changes if there is one.
    pub(crate) fn put(&self, which: Deferred, program: OwnedFd) {
        let _ = self.deferred[which as usize].set(program);
    }

    /// The program, if it has been loaded.
    pub(crate) fn get(&self, which: Deferred) -> Option<&OwnedFd> {
        self.deferred[which as usize].get()
    }

    /// The program, which is loaded with the maps of `tables`, and pinned, when it is first needed.
    ///
    /// # Errors
    /// When the kernel refuses the program, or its pin.
    pub(crate) fn load(&self, which: Deferred, tables: &Tables, pins: Option<&Pins>) -> Result<&OwnedFd> {
        if self.get(which).is_none() {
            let name = which.name();
            let loaded = load_over(tables, &[name], None)?.into_iter().next();
            let program =
                loaded.ok_or_else(|| system(format!("loading the program {name}"), "there is none"))?;
            if let Some(pins) = pins {
                pin_program(pins, name, &program)?;
            }
            self.put(which, program);
        }
        self.get(which).ok_or_else(|| system("loading the eBPF programs", "one of them is missing"))
    }

    /// The program for veths, or `None` if the kernel refuses it: the structures of veth that it reads are those of Linux 6.3 and
    /// later, and to read memory of the kernel it needs CAP_PERFMON.
    pub(crate) fn veth(&self, tables: &Tables, pins: Option<&Pins>) -> Option<&OwnedFd> {
        if self.veth_refused.get().is_some() {
            return None;
        }
        let program = self.load(Deferred::XdpVeth, tables, pins).ok();
        if program.is_none() {
            let _ = self.veth_refused.set(());
        }
        program
    }

    /// Behaves from now on as if the kernel had refused [`Deferred::XdpVeth`].
    #[cfg(test)]
    pub(crate) fn refuse_veth(&self) {
        let _ = self.veth_refused.set(());
    }

    /// The name and descriptor of each program that has been loaded.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, &OwnedFd)> {
        let programs = [
            &self.clock_read,
            &self.tc,
            &self.flood,
            &self.xdp_copy,
            &self.fdb_set,
            &self.fdb_delete,
            &self.fdb_scan,
            &self.fdb_migrate,
            &self.watchdog_set,
        ];
        let deferred = Deferred::ALL.into_iter().filter_map(|which| Some((which.name(), self.get(which)?)));
        PROGRAMS.into_iter().zip(programs).chain(deferred)
    }
}

/// A fingerprint (FNV-1a) of the embedded programs.
#[must_use]
pub fn fingerprint() -> u64 {
    LANYARD
        .compressed()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The constants of one load (`const volatile` in `bpf/maps.h`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Constants {
    pub buckets: u32,
    pub salt: u64,
    pub dry: bool,
}

/// [`PROGRAMS`] in groups that are loaded beside each other: almost all the time of a load is the kernel's verification, which uses
/// one processor for each load. The first group is loaded before the others, because its load makes the maps, so it is the program
/// that takes the least; the others take about as long as each other.
const LOADS: [&[&str]; 3] = {
    let [clock, tc, others @ ..] = &PROGRAMS;
    [std::slice::from_ref(clock), std::slice::from_ref(tc), others]
};

/// Creates the maps and loads [`PROGRAMS`]. With `whole` it also loads [`Deferred::EVERYWHERE`], which shows that the kernel
/// accepts every program.
pub(crate) fn create(buckets: u32, salt: u64, whole: bool) -> Result<(Tables, Programs)> {
    let constants = Constants { buckets, salt, dry: false };
    let _shared = plane_object()?;
    let [first, others @ ..] = LOADS;
    let Loaded { mut maps, programs, .. } = load(first, constants, None, None)?;
    maps.push(create_meta()?);
    let tables = Tables::new(maps, true)?;
    let mut loaded: Vec<Named> = first.iter().copied().zip(programs).collect();
    let deferred: &[Deferred] = if whole { &Deferred::EVERYWHERE } else { &[] };
    loaded.extend(load_beside(&others, deferred, constants, &tables)?);
    Ok((tables, Programs::from_named(loaded)?))
}

/// Loads [`PROGRAMS`], and those of `deferred`, with the maps of `tables`.
pub(crate) fn load_programs(tables: &Tables, deferred: &[Deferred]) -> Result<Programs> {
    Programs::from_named(load_beside(&LOADS, deferred, constants_of(tables), tables)?)
}

/// Loads the programs of each group, and each of `deferred`, with the maps of `tables`, on a thread of its own.
fn load_beside(
    groups: &[&[&'static str]],
    deferred: &[Deferred],
    constants: Constants,
    tables: &Tables,
) -> Result<Vec<Named>> {
    #[cfg(test)]
    refuse()?;
    let _shared = plane_object()?;
    let load_group = |names: &[&'static str]| -> Result<Vec<Named>> {
        let programs = load(names, constants, Some(tables), None)?.programs;
        Ok(names.iter().copied().zip(programs).collect())
    };
    let alone: Vec<[&str; 1]> = deferred.iter().map(|which| [which.name()]).collect();
    let groups = groups.iter().copied().chain(alone.iter().map(|name| &name[..]));
    let (mut loaded, mut refused) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let _messages = Messages::listen();
        let begin = |names| (names, scope.spawn(move || load_group(names)));
        for (names, thread) in groups.map(begin).collect::<Vec<_>>() {
            match thread.join() {
                Ok(Ok(programs)) => loaded.extend(programs),
                _ => refused.push(names),
            }
        }
    });
    // libbpf's messages about several loads are mixed. So a group that was refused is loaded again by itself, to get the reason.
    for names in refused {
        loaded.extend(load_group(names)?);
    }
    Ok(loaded)
}

/// The constants with which the maps of `tables` were made.
fn constants_of(tables: &Tables) -> Constants {
    let meta = tables.meta.get(0);
    Constants { buckets: meta.buckets, salt: meta.salt, dry: false }
}

/// Loads `names` with the maps of `tables`; `ifindex` binds them to a device.
pub(crate) fn load_over(tables: &Tables, names: &[&str], ifindex: Option<u32>) -> Result<Vec<OwnedFd>> {
    load(names, constants_of(tables), Some(tables), ifindex).map(|loaded| loaded.programs)
}

/// Loads the programs of [`DRY`], in that order, for dry runs with the maps of `tables`. Returns also the map by which they jump,
/// which is emptied when it is dropped.
pub(crate) fn load_dry(tables: &Tables) -> Result<(Vec<OwnedFd>, MapHandle)> {
    let constants = Constants { dry: true, ..constants_of(tables) };
    let loaded = load(&DRY, constants, Some(tables), None)?;
    Ok((loaded.programs, loaded.steps))
}

#[cfg(test)]
thread_local! {
    /// If true, every load of this thread fails.
    pub(crate) static REFUSED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(test)]
fn refuse() -> Result<()> {
    if REFUSED.get() { Err(system("loading the eBPF programs", "refused by a test")) } else { Ok(()) }
}

/// The result of a load.
struct Loaded {
    /// A map for each of [`tables::names`] except [`META`], if the load created them.
    maps: Vec<MapHandle>,
    programs: Vec<OwnedFd>,
    steps: MapHandle,
}

fn load(
    names: &[&str],
    constants: Constants,
    tables: Option<&Tables>,
    ifindex: Option<u32>,
) -> Result<Loaded> {
    #[cfg(test)]
    refuse()?;
    let messages = Messages::listen();
    let failed = |error: libbpf_rs::Error| system("loading the eBPF programs", messages.reason(&error));
    let mut builder = ObjectBuilder::default();
    let file = plane_object()?;
    let mut object = builder.name("lanyard").and_then(|b| b.open_memory(file.bytes())).map_err(failed)?;
    write_constants(&mut object, constants).doing(|| "setting the constants of the eBPF programs".into())?;
    for mut program in object.progs_mut() {
        let wanted = names.iter().any(|name| program.name() == *name);
        program.set_autoload(wanted);
        if let (true, Some(ifindex)) = (wanted, ifindex) {
            program.set_ifindex(ifindex);
            let flags = program_flags(&program) | libbpf_sys::BPF_F_XDP_DEV_BOUND_ONLY;
            program.set_flags(flags);
        }
    }
    for mut map in object.maps_mut() {
        let Some(name) = tables::names().find(|name| is_named(map.name(), name)) else { continue };
        match tables {
            // Programs for dry runs jump to programs for dry runs.
            Some(_) if constants.dry && name == STEPS => {}
            Some(tables) => map.reuse_fd(tables.map(name).as_fd()).map_err(failed)?,
            // The first buckets are a section of the object. A map cannot be empty.
            None if name == "fdb" => {
                map.set_max_entries((constants.buckets - abi::FDB_NEAR).max(1)).map_err(failed)?
            }
            None if name == "fdb_times" => map.set_max_entries(constants.buckets).map_err(failed)?,
            None => {}
        }
    }
    let mut object = object.load().map_err(|error| {
        let cause = format!("{} ({})", messages.reason(&error), kernel_release::explanation());
        system("loading the eBPF programs", cause)
    })?;
    let mut map = |name: &str| {
        let found = object.maps_mut().find(|map| is_named(map.name(), name));
        let map = found.ok_or_else(|| system(format!("opening the map {name}"), "the object has none"))?;
        MapHandle::try_from(&*map).map_err(failed)
    };
    let steps = map(STEPS)?;
    let mut maps = Vec::new();
    if tables.is_none() {
        for name in tables::names().filter(|name| *name != META) {
            maps.push(map(name)?);
        }
    }
    let mut programs = Vec::new();
    for name in names {
        let found = object.progs_mut().find(|program| program.name() == *name);
        let program =
            found.ok_or_else(|| system(format!("opening the program {name}"), "the object has none"))?;
        if ifindex.is_some() {
            // SAFETY: the pointer is that of a program of a loaded object, which `program` borrows.
            let insns = unsafe { libbpf_sys::bpf_program__insn_cnt(program.as_libbpf_object().as_ptr()) };
            stays_in_place(program.as_fd(), insns as usize)
                .doing(|| format!("binding the program {name}"))?;
        }
        programs.push(program.as_fd().try_clone_to_owned().doing(|| format!("opening the program {name}"))?);
    }
    for (place, jumped_to) in JUMPED_TO.iter().enumerate() {
        let Some(at) = names.iter().position(|name| name == jumped_to) else { continue };
        let (key, fd) = (place as u32, programs[at].as_raw_fd() as u32);
        steps
            .update(&key.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
            .doing(|| format!("storing the program {jumped_to}, to which others jump"))?;
    }
    Ok(Loaded { maps, programs, steps })
}

/// True if libbpf's name of a map belongs to `name`: the same, or that of its section (`ROWS` in
/// `bpf/maps.h`).
fn is_named(found: &OsStr, name: &str) -> bool {
    let section = format!(".bss.{name}");
    // The kernel cuts names to this length.
    found == name || found == &section[..section.len().min(15)]
}

fn program_flags(program: &libbpf_rs::OpenProgramMut<'_>) -> u32 {
    // SAFETY: the pointer is that of a program of an open object, which `program` borrows.
    unsafe { libbpf_sys::bpf_program__flags(program.as_libbpf_object().as_ptr()) }
}

/// Writes the constants at the offsets given by the object's type information.
fn write_constants(object: &mut OpenObject, constants: Constants) -> io::Result<()> {
    let places = rodata_places(object)?;
    let missing = |name: &str| io::Error::other(format!("the object has no constant {name}"));
    let mut map = object
        .maps_mut()
        .find(|map| map.name().as_bytes().ends_with(b".rodata"))
        .ok_or_else(|| missing(".rodata"))?;
    let data = map.initial_value_mut().ok_or_else(|| missing(".rodata"))?;
    let mut put = |name: &str, value: &[u8]| {
        let place = places.iter().find(|(found, ..)| found == name);
        let (_, offset, size) =
            place.filter(|(.., size)| *size == value.len()).ok_or_else(|| missing(name))?;
        data.get_mut(*offset..offset + size).ok_or_else(|| missing(name))?.copy_from_slice(value);
        Ok::<(), io::Error>(())
    };
    put("fdb_mask", &(constants.buckets - 1).to_ne_bytes())?;
    put("fdb_salt", &constants.salt.to_ne_bytes())?;
    put("tick_ns", &tick_ns().to_ne_bytes())?;
    put("dry", &u32::from(constants.dry).to_ne_bytes())
}

/// Name, offset and size of each variable of `.rodata`, from the object's BTF.
fn rodata_places(object: &OpenObject) -> io::Result<Vec<(String, usize, usize)>> {
    const KIND_DATASEC: u32 = 15;
    // SAFETY: libbpf returns pointers into the BTF of the open object, which outlives this function; a type of
    // kind DATASEC is followed by as many secinfos as the low half of its `info` says.
    unsafe {
        let btf = libbpf_sys::bpf_object__btf(object.as_libbpf_object().as_ptr());
        let section = check(libbpf_sys::btf__find_by_name_kind(btf, c".rodata".as_ptr(), KIND_DATASEC))?;
        let section = libbpf_sys::btf__type_by_id(btf, section as u32);
        if section.is_null() {
            return Err(io::Error::other("no type information for .rodata"));
        }
        let count = (*section).info & 0xffff;
        let variables =
            std::slice::from_raw_parts(section.add(1).cast::<libbpf_sys::btf_var_secinfo>(), count as usize);
        let mut places = Vec::new();
        for variable in variables {
            let ty = libbpf_sys::btf__type_by_id(btf, variable.type_);
            if ty.is_null() {
                continue;
            }
            let name = libbpf_sys::btf__name_by_offset(btf, (*ty).name_off);
            if !name.is_null() {
                let name = CStr::from_ptr(name).to_string_lossy().into_owned();
                places.push((name, variable.offset as usize, variable.size as usize));
            }
        }
        Ok(places)
    }
}

fn create_meta() -> Result<MapHandle> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    MapHandle::create(MapType::Array, Some(META), 4, size_of::<Meta>() as u32, 1, &opts)
        .doing(|| format!("making the map {META}"))
}

/// Pins a program by its name, in the place of one that is pinned there.
pub(crate) fn pin_program(pins: &Pins, name: &str, program: &OwnedFd) -> Result<()> {
    let (path, next) = (pins.program(name), pins.program(&format!("{name}-next")));
    let doing = || format!("pinning {}", path.display());
    let _ = fs::remove_file(&next);
    pin(program, &next).doing(doing)?;
    fs::rename(&next, &path).doing(doing)
}

/// Pins an object.
pub(crate) fn pin(fd: impl AsFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a live descriptor and a terminated string.
    check(unsafe { libbpf_sys::bpf_obj_pin(fd.as_fd().as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Opens a pinned object.
pub(crate) fn pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a terminated string; the returned descriptor is owned by nobody else.
    let fd = check(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number of buckets for `capacity` entries. The table is at most half full, because it never
/// evicts an entry and two thirds would refuse some.
pub(crate) fn buckets_for(capacity: u32) -> u32 {
    let slots = u64::from(capacity) * 2;
    let buckets = slots.div_ceil(abi::FDB_WAYS as u64).next_power_of_two();
    u32::try_from(buckets).unwrap_or(1 << 28).clamp(abi::FDB_NEAR, 1 << 28)
}
