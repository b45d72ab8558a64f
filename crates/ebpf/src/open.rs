//! Opens a plane: adopts existing pins, or creates everything.
//!
//! Invariant: while a plane is opened, forwarding continues according to the tables. Opening flushes and detaches
//! nothing, unless the pins have another layout and the plane has to be created again.

use crate::abi::{self, Usage};
use crate::acl::Acls;
use crate::attach::{Attaching, Hooks};
use crate::bindings::Bindings;
use crate::bpffs::{self, Pins};
use crate::chains::Chains;
use crate::clock;
use crate::dry::Dry;
use crate::error::{Doing, PLANE, Result, system};
use crate::events::Events;
use crate::follow::{Follower, vouch};
use crate::hurry::{self, Hurry};
use crate::lower::VlanSets;
use crate::mdb::Mdb;
use crate::object::{self, Deferred, PROGRAMS, Programs};
use crate::pairs::Pairs;
use crate::plane::{EbpfPlane, Kept};
use crate::qos::Policies;
use crate::routing::Routing;
use crate::saved::{Saved, StateFile};
use crate::tables::{META, Meta, Tables, names};
use crate::tc::has_tcx;
use crate::{probe, recover, watchdog};
use lanyard_netdev::Netdev;
use lanyard_pipeline::state::FDB_LIMIT_DEFAULT;
use lanyard_plane::{Capabilities, PlaneState};
use lanyard_types::MAX_PORTS;
use libbpf_rs::MapHandle;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// Options for opening a plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The instance's name: that of its directory of pins. No slash, no leading dot.
    pub instance: String,
    /// The instance's state directory, where one file is kept; `/run/lanyard/INSTANCE` by default.
    pub state_dir: PathBuf,
    /// A directory on a bpffs for the pins, instead of the one the plane finds or mounts.
    pub bpffs: Option<PathBuf>,
    /// FDB entries that must fit, 1..=2^30. An adopted plane keeps its size.
    pub fdb_capacity: u32,
    /// False attaches with clsact filters even where the kernel has TCX.
    pub tcx: bool,
    /// True also loads the programs that would be loaded when they are first needed, if a plane is created. Opening it then
    /// fails where the kernel refuses any of them.
    pub whole: bool,
}

impl Options {
    /// The options for `instance`, everything else by default.
    #[must_use]
    pub fn new(instance: &str) -> Self {
        Self {
            instance: instance.to_owned(),
            state_dir: PathBuf::from("/run/lanyard").join(instance),
            bpffs: None,
            fdb_capacity: FDB_LIMIT_DEFAULT,
            tcx: true,
            whole: false,
        }
    }
}

/// The parts that opening a plane has found or created.
struct Found {
    tables: Tables,
    programs: Programs,
    /// True if the programs are newer than those of the links.
    update: bool,
    saved: Option<Saved>,
    notes: Vec<String>,
}

impl EbpfPlane {
    /// Adopts the instance's pins, or creates a plane without ports. Netdevs are those of the
    /// calling thread's namespace.
    ///
    /// # Errors
    /// When the kernel refuses the programs, rights are missing, no bpffs is available, or the
    /// instance runs in another namespace.
    pub fn open(options: &Options) -> Result<Self> {
        probe::rights()?;
        hurry::sweep();
        let mut notes = Vec::new();
        let root = match &options.bpffs {
            Some(root) if bpffs::is_bpffs(root) => root.clone(),
            Some(root) => {
                return Err(system(format!("pinning below {}", root.display()), "it is not a bpffs"));
            }
            None => {
                let place = bpffs::locate()?;
                notes.extend(place.note);
                place.root
            }
        };
        let pins = Pins::new(&root, &options.instance)?;
        let file = StateFile::new(&options.state_dir);
        let netns = netns_inode()?;
        let mut found = match adopt(&pins, &file, netns)? {
            Adopted::Yes(found) => *found,
            Adopted::No(why) => {
                notes.extend(why);
                create(&pins, &file, options, netns)?
            }
        };
        notes.append(&mut found.notes);
        let tcx = options.tcx && has_tcx();
        if !tcx {
            notes.push("this kernel has no TCX (Linux 6.6): TC runs as a clsact filter".into());
        }
        let netdev = Netdev::open().doing(|| "opening netlink".into())?;
        let hooks = Hooks::new(pins.clone(), tcx);
        let kept = Kept { pins, file, hooks, netdev, chains: Chains::open() };
        let mut plane = Self::build(found.tables, found.programs, Some(kept), notes)?;
        plane.take_over(found.saved, found.update)?;
        vouch(&plane.tables);
        plane.renew_leases()?;
        Ok(plane)
    }

    /// True when a plane of this instance is attached to netdevs, as far as this can be determined without opening
    /// it. Changes nothing and needs no rights. A plane that this process may not inspect counts as live.
    #[must_use]
    pub fn is_live(options: &Options) -> bool {
        let roots = options.bpffs.clone().map_or_else(bpffs::existing, |root| vec![root]);
        let mut pins = roots.iter().filter_map(|root| Pins::new(root, &options.instance).ok());
        pins.any(|pins| {
            Hooks::may_be_alive(&pins) || !has_tcx() && pins.map(META).exists() && has_ports(options)
        })
    }

    /// Creates a plane without pins and netdevs, for dry runs: its ports have no hook, and the plane ends when the
    /// value is dropped. Needs only CAP_BPF and CAP_PERFMON.
    ///
    /// # Errors
    /// When the kernel refuses the programs or rights are missing.
    pub fn open_private(options: &Options) -> Result<Self> {
        probe::rights()?;
        let (tables, programs) = fresh(options, 0)?;
        let mut plane = Self::build(tables, programs, None, Vec::new())?;
        plane.take_over(None, false)?;
        Ok(plane)
    }

    /// Removes an instance's pins and state file without opening the plane. Hooks are detached with their pins, in any
    /// namespace and for pins of any version. Offloads that were switched off stay off; use
    /// [`lanyard_plane::Plane::detach`] where the plane is open. Returns true if there was anything to remove.
    ///
    /// # Errors
    /// When no bpffs is available or a pin cannot be removed.
    pub fn discard(options: &Options) -> Result<bool> {
        let root = options.bpffs.clone().map_or_else(|| bpffs::locate().map(|place| place.root), Ok)?;
        let pins = Pins::new(&root, &options.instance)?;
        let found = pins.dir().exists();
        let _hurry = Hurry::for_changes(pins.links().len());
        // The kernel detaches a link some time after its last pin was removed. Detach it now.
        let detached = Hooks::detach_all(&pins);
        pins.remove().doing(|| format!("removing {}", pins.dir().display()))?;
        detached?;
        StateFile::new(&options.state_dir).remove().doing(|| "removing the state file".into())?;
        Ok(found)
    }

    /// True if every program has been loaded, also those that other planes load when they need them, except the one for veths,
    /// which a plane can do without.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        Deferred::EVERYWHERE.iter().all(|which| self.programs.get(*which).is_some())
    }

    fn build(tables: Tables, programs: Programs, kept: Option<Kept>, mut notes: Vec<String>) -> Result<Self> {
        clock::set(&programs.clock_read)?;
        let events = Events::open(&tables)?;
        let follower = kept
            .as_ref()
            .map(|kept| {
                kept.chains.wake(&events)?;
                Follower::open(&events, &mut notes)
            })
            .transpose()?;
        let routing = Routing::open(&tables)?;
        let tables = Arc::new(tables);
        let pairs = Arc::new(Pairs::new(tables.clone(), kept.is_none()));
        let capabilities = Capabilities {
            name: PLANE,
            survives_daemon: kept.is_some(),
            hooks: kept.is_some(),
            ports: MAX_PORTS - 1,
            fdb: u32::try_from(tables.fdb_size() / 2).unwrap_or(u32::MAX),
            multicast: true,
            policies: true,
            acl_notes: true,
            queues: true,
            routing: true,
            notes,
        };
        Ok(Self {
            mdb: Arc::new(Mutex::new(Mdb::open(tables.clone())?)),
            bindings: Arc::new(Mutex::new(Bindings::open(tables.clone()))),
            tables,
            pairs,
            programs,
            kept,
            state: PlaneState::default(),
            facts: BTreeMap::new(),
            captures: BTreeMap::new(),
            cleared: BTreeMap::new(),
            leaving: BTreeSet::new(),
            emptied: Vec::new(),
            vlan_flags: VlanSets::default(),
            rough: false,
            events,
            follower,
            dry: Dry::default(),
            injector: None,
            capabilities,
            peaks: BTreeMap::new(),
            routing,
            acls: Acls::default(),
            policies: Policies::default(),
            vlan_lists: false,
            #[cfg(test)]
            fail_at: None,
            #[cfg(test)]
            rows_written: std::sync::atomic::AtomicUsize::new(0),
        })
    }

    /// Takes over the state of the tables from `saved`, or reads it from the tables.
    fn take_over(&mut self, saved: Option<Saved>, update: bool) -> Result<()> {
        self.migrate();
        if let Some(Kept { hooks, netdev, .. }) = &mut self.kept {
            hooks.adopt(&Attaching { tables: &self.tables, programs: &self.programs, netdev }, update)?;
        }
        let meta = self.tables.meta.get(0);
        let fits = |saved: &Saved| {
            saved.salt == meta.salt
                && (saved.generation == meta.generation
                    || meta.writing == 1 && saved.generation == meta.generation + 1)
        };
        match saved {
            Some(mut saved) if fits(&saved) => {
                if saved.trees_apart {
                    recover::trees(&self.tables, &mut saved.state);
                    recover::channels(&self.tables, &mut saved.state);
                }
                let own = watchdog::with_own_trees(&self.pairs, &self.state, &saved.state);
                let saved = Saved { state: own.unwrap_or(saved.state), ..saved };
                self.cleared = saved.cleared;
                if let Some(kept) = &mut self.kept {
                    kept.hooks.switched_off = saved.switched_off;
                    kept.hooks.gro = saved.gro;
                    kept.hooks.tags_kept = saved.tags_kept;
                    kept.hooks.made_qdisc = saved.made_qdisc;
                }
                self.tables.meta.u64(0, offset_of!(Meta, generation)).store(saved.generation, Relaxed);
                self.adopt_state(saved.state)
            }
            _ if meta.generation == 0 && meta.writing == 0 => self.rewrite(&PlaneState::default()),
            _ => {
                let note = "the state file does not belong to the pins: ports were read back from the tables, and the next \
                            configuration is written over them whole";
                self.capabilities.notes.push(note.into());
                let names = self
                    .kept
                    .as_ref()
                    .map(|kept| kept.netdev.links().unwrap_or_default())
                    .unwrap_or_default();
                self.state = recover::state(&self.tables, &names)?;
                if let Some(kept) = &mut self.kept {
                    kept.hooks.presume(self.state.ports.values().map(|port| port.ifindex));
                }
                self.rough = true;
                Ok(())
            }
        }
    }
}

/// True when a netdev of the saved state exists. Before TCX the kernel has no link that shows where
/// a program is attached.
fn has_ports(options: &Options) -> bool {
    let links = Netdev::open().and_then(|netdev| netdev.links().map_err(std::io::Error::other));
    let saved = StateFile::new(&options.state_dir).read();
    let (Ok(links), Some(saved)) = (links, saved) else { return false };
    let mut ports = saved.state.ports.values();
    ports.any(|port| links.iter().any(|link| link.ifindex == port.ifindex && link.name == port.name))
}

enum Adopted {
    Yes(Box<Found>),
    /// The pins cannot be adopted for this reason; `None` if there are no pins.
    No(Option<String>),
}

/// Opens the pins if their layout is the current one.
fn adopt(pins: &Pins, file: &StateFile, netns: u64) -> Result<Adopted> {
    let no = |why: &str| Ok(Adopted::No(Some(format!("the plane was created again: {why}"))));
    if !pins.map(META).exists() {
        // There are no pins, or those of an instance whose creation was interrupted before anything
        // was attached.
        return if pins.dir().exists() {
            no("the pins found were incomplete")
        } else {
            Ok(Adopted::No(None))
        };
    }
    let mut maps = Vec::new();
    for name in names() {
        match MapHandle::from_pinned_path(pins.map(name)) {
            Ok(map) => maps.push(map),
            Err(_) => return no("the pins found were incomplete"),
        }
    }
    let Ok(tables) = Tables::new(maps, false) else { return no("the pinned tables have another layout") };
    let meta = tables.meta.get(0);
    if meta.abi != abi::ABI {
        return no(&format!("the pins are of layout {}, this program's is {}", meta.abi, abi::ABI));
    }
    if meta.netns != netns {
        if Hooks::any_alive(pins) {
            let doing = format!("adopting the pins in {}", pins.dir().display());
            return Err(system(doing, "the instance runs in another network namespace"));
        }
        return no("the network namespace of the pins is gone");
    }
    let mut notes = Vec::new();
    let current = meta.object == object::fingerprint();
    let program = |name: &str| object::pinned(&pins.program(name)).ok();
    let pinned: Vec<_> = PROGRAMS.iter().filter_map(|name| program(name)).collect();
    let deferred: Vec<_> =
        Deferred::ALL.into_iter().filter_map(|which| Some((which, program(which.name())?))).collect();
    let (programs, update) = if current && pinned.len() == PROGRAMS.len() {
        let programs = Programs::new(pinned)?;
        deferred.into_iter().for_each(|(which, program)| programs.put(which, program));
        (programs, false)
    } else {
        // The program for veths is loaded when the first veth port is adopted, because the kernel may refuse this version's.
        let everywhere = |which: &Deferred| Deferred::EVERYWHERE.contains(which);
        let loaded: Vec<_> = deferred.into_iter().map(|(which, _)| which).filter(everywhere).collect();
        let programs = object::load_programs(&tables, &loaded)?;
        notes.push("the programs were replaced by this version's over the tables as they were".into());
        pin_programs(pins, &programs)?;
        tables.meta.u64(0, offset_of!(Meta, object)).store(object::fingerprint(), Relaxed);
        (programs, true)
    };
    Ok(Adopted::Yes(Box::new(Found { tables, programs, update, saved: file.read(), notes })))
}

/// Replaces the pinned programs.
fn pin_programs(pins: &Pins, programs: &Programs) -> Result<()> {
    programs.each().try_for_each(|(name, program)| object::pin_program(pins, name, program))
}

fn create(pins: &Pins, file: &StateFile, options: &Options, netns: u64) -> Result<Found> {
    let doing = || format!("pinning below {}", pins.dir().display());
    // Pins of another layout may belong to a plane that is forwarding. They are removed only when
    // another plane can take over; a kernel that refuses the new programs keeps the old ones.
    let (tables, programs) = fresh(options, netns)?;
    pins.remove().doing(doing)?;
    file.remove().doing(|| "removing the old state file".into())?;
    pins.make().doing(doing)?;
    pin_programs(pins, &programs)?;
    // The map that describes the pins is pinned last. Without it the pins count as incomplete.
    for (name, map) in tables.maps() {
        object::pin(map, &pins.map(name)).doing(doing)?;
    }
    Ok(Found { tables, programs, update: false, saved: None, notes: Vec::new() })
}

fn fresh(options: &Options, netns: u64) -> Result<(Tables, Programs)> {
    let mut salt = [0; 8];
    fs::File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut salt))
        .doing(|| "reading /dev/urandom".into())?;
    let (buckets, salt) = (object::buckets_for(options.fdb_capacity), u64::from_ne_bytes(salt));
    let (tables, programs) = object::create(buckets, salt, options.whole)?;
    let object = object::fingerprint();
    tables.meta.set(0, &Meta { abi: abi::ABI, buckets, salt, object, netns, ..Meta::default() });
    tables.set_fdb_near();
    for slot in 0..abi::USAGES {
        tables.fdb_usage.u32(slot, offset_of!(Usage, limit)).store(abi::UNLIMITED, Relaxed);
    }
    Ok((tables, programs))
}

fn netns_inode() -> Result<u64> {
    let path = "/proc/thread-self/ns/net";
    fs::metadata(path).map(|found| found.ino()).doing(|| format!("reading {path}"))
}
