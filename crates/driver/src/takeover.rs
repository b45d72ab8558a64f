//! Forwarding passes from a chip that has ended to the software plane, and back when the chip answers again.
//!
//! Invariants: the chip or the software plane, whichever forwards, has the whole state: the states of trees, the members in use
//! of port-channels, the routes, and the multicast groups as far as there is room. Both never use the same wires at one time.

use crate::channels::Channels;
use crate::chip::{self, Software};
use crate::lower::{self, SETUP};
use crate::partitions;
use crate::plane::{AsicPlane, connect, manager_at, plane_error, system};
use crate::policies;
use crate::protocols;
use crate::routes::{Routing, error_of};
use crate::settings;
use crate::trees;
use lanyard_asic::chip::serve::clock_ns;
use lanyard_asic::sdk::Client;
use lanyard_asic::sdk::message::Request;
use lanyard_asic::sdk::operation::Operation;
use lanyard_offload::Manager;
use lanyard_offload::live::Live;
use lanyard_pipeline::state::PlaneState;
use lanyard_plane::{ChipSettings, PlaneError, PlaneEvent, TreeStates, changes};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Attempts to give a chip the states in trees while the protocols change them.
const PUSHES: usize = 8;

impl AsicPlane {
    /// Replaces a chip that has ended by the pipeline in this process, at the same wires.
    pub(crate) fn take_over(&mut self) {
        let text = match self.move_to_software() {
            Ok(()) => "the chip does not answer: the software plane forwards".to_owned(),
            Err(error) => {
                format!("the chip does not answer, and the software plane cannot take over: {error}")
            }
        };
        self.shared.push(PlaneEvent::Chip { up: false, what: text });
    }

    fn move_to_software(&mut self) -> Result<(), PlaneError> {
        self.carrier = None;
        let socket = self.options.run.join("software.sock");
        let plugs = self.plugs();
        let watched = self.options.place.socket.clone();
        let found = self.shared.clone();
        let software = Software::start(&self.platform, plugs, &socket, watched, move || found.ring())
            .map_err(|error| system("starting the software plane")(error.to_string()))?;
        // It stays even if a later step fails: forwarding with a part of the state is better than none.
        self.software = Some(software);
        let platform = chip::unlimited(&self.platform);
        let manager = manager_at(&socket, &platform, "predict-flat", 1)?;
        self.drive(socket, manager)
    }

    /// Gives the chip at a socket the whole state, and drives it from then on.
    fn drive(&mut self, socket: PathBuf, mut manager: Manager<Live>) -> Result<(), PlaneError> {
        self.client = connect(&socket, "switch")?;
        // The states in trees come before the ports, so that no port forwards that has to discard.
        self.arm(&socket)?;
        let mut given = TreeStates::default();
        self.push_trees(&mut given)?;
        let list = lower::operations(changes(&PlaneState::default(), &self.state));
        let global = Operation::Global(Box::new(self.state.global.clone()));
        let setup: Vec<Operation> = std::iter::once(global).chain(list.setup).collect();
        for part in lower::transactions(setup, SETUP) {
            manager.setup(&part).map_err(|refusal| error_of(&refusal))?;
        }
        Routing::copy(&self.manager, &mut manager)?;
        self.manager = manager;
        self.speeds.clear();
        let settings = self.settings.clone();
        self.set_speeds(&settings)?;
        let channels = self.push_channels()?;
        protocols::move_groups(&self.endpoint, &mut self.client, socket, &channels).map_err(plane_error)?;
        // Lets the protocol thread write the changes of groups and port-channels that it has made meanwhile.
        self.shared.ring_protocols();
        // The protocols may have changed states meanwhile, on the connection that has ended.
        self.push_trees(&mut given)?;
        self.carry()
    }

    /// Writes the members in use of port-channels to the chip; returns the operations.
    fn push_channels(&mut self) -> Result<Vec<Operation>, PlaneError> {
        let list = match self.claimed {
            true => self.endpoint().channels.operations(),
            false => Channels::of(self.state.channels.clone()).operations(),
        };
        if !list.is_empty() {
            self.client.commit(&list).map_err(plane_error)?;
        }
        Ok(list)
    }
    /// Writes the states in trees to the chip; `given` are the states that it holds, before the call and after it.
    fn push_trees(&mut self, given: &mut TreeStates) -> Result<(), PlaneError> {
        for _ in 0..PUSHES {
            let wanted = match self.claimed {
                true => self.endpoint().trees.wanted.clone(),
                false => TreeStates { stp: self.state.stp.clone(), watched: self.state.watched.clone() },
            };
            let next = self.endpoint().trees.for_chip(&wanted);
            trees::write(&mut self.client, given, &next).map_err(plane_error)?;
            *given = next;
            let mut endpoint = self.endpoint();
            if !self.claimed || endpoint.trees.wanted == wanted {
                endpoint.trees.held = Some(given.clone());
                break;
            }
        }
        Ok(())
    }

    /// Starts the watchdog of spanning tree of the chip at a socket with the rest of the period that runs, because this process
    /// may end before the protocols restart it.
    fn arm(&mut self, socket: &Path) -> Result<(), PlaneError> {
        let watchdog = trees::has_watchdog(socket);
        let due = {
            let mut endpoint = self.endpoint();
            endpoint.trees.watchdog = watchdog;
            endpoint.trees.due_ns.filter(|_| watchdog)
        };
        let Some(due) = due else { return Ok(()) };
        let left = Duration::from_nanos(due.saturating_sub(clock_ns()));
        let request = Request::TreeWatchdog(trees::period_ms(Some(left)));
        self.client.number(&request).map(drop).map_err(plane_error)
    }

    fn drive_chip(&mut self, socket: PathBuf) -> Result<(), PlaneError> {
        chip::empty(&mut connect(&socket, "switch")?).map_err(plane_error)?;
        let (strategy, units) = (self.settings.strategy.name(), settings::units(self.settings.strategy));
        let mut manager = manager_at(&socket, &self.platform, strategy, units)?;
        let (policy, kinds) = policies::lower(&self.platform, &self.settings).map_err(PlaneError::Invalid)?;
        policies::apply(&mut manager, policy, &kinds);
        partitions::resize(&mut manager, &self.settings.sizes).map_err(|refusal| error_of(&refusal))?;
        partitions::set_thresholds(&mut manager, &ChipSettings::default(), &self.settings)
            .map_err(PlaneError::Invalid)?;
        self.drive(socket, manager)
    }

    /// Goes back to a chip that answers again.
    pub(crate) fn rejoin(&mut self) {
        let socket = self.options.place.socket.clone();
        let Ok(client) = Client::connect(&socket, "switch") else { return };
        if client.welcome().platform != self.platform.name {
            return;
        }
        drop(client);
        // The software plane ends first: two planes at the same wires would forward each frame twice.
        let software = self.software.take();
        drop(software);
        let what = match self.drive_chip(socket) {
            Ok(()) => "the chip answers again and forwards".to_owned(),
            Err(error) => {
                self.take_over();
                format!("the chip answers again, and cannot be given its state: {error}")
            }
        };
        self.shared.push(PlaneEvent::Chip { up: self.software.is_none(), what });
    }
}
