//! The data that every module of the daemon works with, [`Context`], and the interface of all modules, [`Module`].
//!
//! Invariants: a module accesses only its own state, the context and its arguments, never another module. Data of one
//! module that others use (configuration, facts, port numbers, states of tracked objects) is in the context, and only
//! that module writes it. [`crate::core`] calls the modules and determines their order.

use crate::bus::Bus;
use crate::clock::Clock;
use crate::files::FileError;
use crate::kernel::Kernel;
use crate::log::{Admission, Log};
use crate::paths::Paths;
use crate::protocols::Protocols;
use crate::record::{RecordFile, with_coming};
use lanyard_config::InterfaceName;
use lanyard_pipeline::state::PortKind;
use lanyard_plane::Plane;
use lanyard_switch::compile::{host_end_of, pipeline_end, subinterface};
use lanyard_switch::track::Tracks;
use lanyard_switch::{Facts, Record, Switch};
use lanyard_types::{MAX_PORTS, PortId};
use std::sync::Arc;

/// A service of the daemon. A module also has `view` functions for `show` commands.
pub(crate) trait Module {
    /// The events that the module handles, besides changes of configuration and the passing of time.
    type Event<'a>;
    /// Adapts the module to the present configuration, facts and tracked objects. Called after
    /// every change of these.
    fn configure(&mut self, ctx: &mut Context);
    /// Handles an event. If the event is a readable descriptor, returns how much was read; after 0
    /// the event loop waits for the descriptor again.
    fn handle(&mut self, ctx: &mut Context, event: Self::Event<'_>) -> usize;
    /// When [`Module::tick`] has something to do, on [`Context::clock`]; `None` while it waits for nothing.
    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        None
    }
    /// Does the work that is due. May be called at any time, also when nothing is due.
    fn tick(&mut self, _ctx: &mut Context) {}
}

/// The data that a module works with.
pub(crate) struct Context {
    /// The running configuration, the facts about netdevs and the port numbers.
    pub(crate) switch: Switch,
    /// The forwarding plane.
    pub(crate) plane: Box<dyn Plane>,
    /// The kernel's network configuration.
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) clock: Clock,
    /// Events for `monitor events` and `terminal monitor`.
    pub(crate) bus: Bus,
    pub(crate) log: Log,
    /// The paths of files.
    pub(crate) paths: Paths,
    /// The states of tracked objects, written by [`crate::tracking`].
    pub(crate) tracks: Tracks,
    /// The protocols, which run on a thread of their own.
    pub(crate) protocols: Protocols,
    /// Notices that the current session prints after its command's output.
    pub(crate) notices: Vec<String>,
    /// The record of the changes to netdevs, as it is on disk.
    record: RecordFile,
    /// Interface names by port number.
    names: Vec<Option<Arc<str>>>,
}

impl Context {
    pub(crate) fn new(
        switch: Switch,
        plane: Box<dyn Plane>,
        protocols: Protocols,
        kernel: Box<dyn Kernel>,
        clock: Clock,
        log: Log,
        paths: Paths,
    ) -> Self {
        let names = vec![None; MAX_PORTS];
        let record = RecordFile::new(switch.record());
        let (bus, tracks, notices) = (Bus::default(), Tracks::default(), Vec::new());
        Self { switch, plane, kernel, clock, bus, log, paths, tracks, protocols, notices, record, names }
    }

    /// Adds a message to the log and sends it to sessions that monitor the log, within the rates of `logging rate-limit`.
    pub(crate) fn log(&mut self, facility: &str, severity: u8, mnemonic: &str, text: &str) {
        let now_ms = self.clock.now_ms();
        if let Some(admission) = self.log.admit(now_ms, severity) {
            self.spread(admission, facility, severity, mnemonic, text);
        }
        self.log_reports();
    }
    /// Logs the log's reports about itself: suppressed messages, and files that cannot be written.
    pub(crate) fn log_reports(&mut self) {
        for (severity, mnemonic, text) in self.log.reports(self.clock.now_ms()) {
            self.spread(Admission::Everywhere, "SYS", severity, mnemonic, &text);
        }
    }
    fn spread(&mut self, admission: Admission, facility: &str, severity: u8, mnemonic: &str, text: &str) {
        let now_ms = self.clock.now_ms();
        let line = match admission {
            Admission::Everywhere => self.log.add(facility, severity, mnemonic, text),
            Admission::NotToConsole => self.log.keep(facility, severity, mnemonic, text),
        };
        self.log.send(now_ms, facility, severity, mnemonic, text);
        self.log.look_later(now_ms);
        self.bus.log(&line);
    }

    /// Writes the switch's record together with that of a coming change, before anything is
    /// changed.
    ///
    /// # Errors
    /// Why the file cannot be written: then nothing may be changed.
    pub(crate) fn write_ahead(&mut self, coming: &Record) -> Result<(), FileError> {
        let both = with_coming(self.switch.record(), coming);
        self.record.write(&self.paths.record(), both)
    }
    /// Writes the switch's record. Returns false, and logs the reason, if the file could not be written.
    pub(crate) fn save_record(&mut self) -> bool {
        let record = self.switch.record().clone();
        let Err(error) = self.record.write(&self.paths.record(), record) else { return true };
        if self.record.is_news(&error) {
            self.log("SYS", 3, "RECORD", &error.to_string());
        }
        false
    }

    /// The facts about netdevs.
    pub(crate) const fn facts(&self) -> &Facts {
        self.switch.facts()
    }
    /// Reads the facts again.
    pub(crate) fn refresh(&mut self) {
        match self.kernel.facts() {
            Ok(facts) => {
                // The kernel's facts have no port-channels: keep those of link aggregation.
                let known = self.switch.facts_mut();
                let (channels, bundled) =
                    (std::mem::take(&mut known.channels), std::mem::take(&mut known.bundled));
                *known = facts;
                (known.channels, known.bundled) = (channels, bundled);
            }
            Err(error) => self.log("LINK", 3, "NETLINK", &error.to_string()),
        }
    }

    /// Disables the ports of these netdevs in the plane before the netdevs go down. A frame sent to
    /// a netdev that is down would count as sent and be lost.
    pub(crate) fn disable_ports<'a>(&mut self, netdevs: impl Iterator<Item = &'a str>) {
        let ports: Vec<PortId> = netdevs.filter_map(|name| self.switch.ports().get(name)).collect();
        let mut state = self.plane.state().clone();
        for port in &ports {
            if let Some(port) = state.ports.get_mut(port) {
                port.enabled = false;
            }
        }
        if state != *self.plane.state()
            && let Err(error) = self.plane.apply(&state)
        {
            // The change that follows is refused for the same reason, or disables the ports itself.
            self.log("PLANE", 4, "APPLY", &format!("disabling ports that go down: {error}"));
        }
    }

    /// Takes over the names of the plane's present ports.
    pub(crate) fn rename_ports(&mut self) {
        self.names.fill(None);
        for (port, state) in &self.plane.state().ports {
            self.names[port.index()] = Some(match state.kind {
                PortKind::Netdev | PortKind::Routed => state.name.as_str().into(),
                PortKind::Subinterface { .. } => subinterface(&state.name).into(),
                PortKind::Svi(_) => host_end_of(&state.name).into(),
            });
        }
    }
    /// The name of a port's interface on the command line.
    pub(crate) fn port_name(&self, port: PortId) -> Arc<str> {
        self.names[port.index()].clone().unwrap_or_else(|| format!("port{port}").into())
    }
    /// The interfaces by port number, as [`Context::port_name`] uses them.
    pub(crate) fn port_names(&self) -> &[Option<Arc<str>>] {
        &self.names
    }
    /// The port of an interface.
    pub(crate) fn port_of(&self, name: &InterfaceName) -> Option<PortId> {
        let port = match name {
            InterfaceName::Netdev(name) => self.switch.ports().get(name),
            InterfaceName::Vlan(vlan) => self.switch.ports().get(&pipeline_end(*vlan)),
        };
        port.filter(|port| self.plane.state().ports.contains_key(port))
    }
}
