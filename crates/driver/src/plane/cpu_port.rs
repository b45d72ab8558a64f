//! The connection of the CPU port: with the netdevs of the front panel, and with the pipeline's ends of VLAN interfaces and
//! subinterfaces. Programs in the kernel carry the frames where they can be loaded, otherwise a thread of this process.

use super::{AsicPlane, connect, plane_error, system};
use crate::cpu::{Carrier, Outlet};
use lanyard_asic::sdk::message::{Answer, Request};
use lanyard_ebpf::{Behind, CpuPort};
use lanyard_netdev::{PacketSocket, Tap};
use lanyard_pipeline::state::{PlaneState, PortKind};
use lanyard_plane::PlaneError;
use lanyard_types::PortId;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

impl AsicPlane {
    /// Connects the netdevs of the front panel to the CPU port.
    pub(super) fn connect_panel(&mut self, taps: BTreeMap<PortId, Tap>) -> Result<(), PlaneError> {
        if let (Some(kernel), Some((ifindex, _))) = (&self.kernel, &self.panel.cpu) {
            kernel.prepare(*ifindex)?;
        }
        for (id, port) in &self.panel.ports {
            if let (Some(kernel), Some(far)) = (&mut self.kernel, port.far) {
                kernel.set(*id, Some(Behind::Front { netdev: port.ifindex, far }))?;
                self.shared.set_outlet(*id, Some(Outlet::Far(far)));
            }
        }
        for (port, tap) in taps {
            self.shared.set_outlet(port, Some(Outlet::Tap(tap)));
        }
        Ok(())
    }

    /// Begins to carry frames of the CPU port of the current chip.
    pub(crate) fn carry(&mut self) -> Result<(), PlaneError> {
        self.carrier = None;
        let socket = self.socket();
        let probes = self.endpoint().trees.watchdog;
        let carrier = Carrier::start(connect(&socket, "cpu")?, self.shared.clone(), probes);
        self.carrier = Some(carrier.map_err(system("carrying frames of the CPU port"))?);
        if let (Some(kernel), Some((ifindex, name))) = (&self.kernel, &self.panel.cpu) {
            self.client.number(&Request::CpuNetdev(name.clone())).map_err(plane_error)?;
            kernel.open(*ifindex)?;
        }
        let Ok(Answer::Ports(ports)) = self.client.ask(&Request::Ports) else {
            return Err(system("asking the chip for its ports")("no answer".into()));
        };
        ports.iter().for_each(|port| self.shared.set_carrier(port.port, port.up));
        Ok(())
    }
    fn socket(&self) -> PathBuf {
        self.endpoint().socket.clone()
    }

    /// Connects the pipeline's ends of VLAN interfaces and subinterfaces to the CPU port, and disconnects those that `state` does
    /// not have any more.
    pub(super) fn open_sockets(&mut self, state: &PlaneState) -> Result<(), PlaneError> {
        let made = state.ports.iter().filter(|(_, port)| {
            matches!(port.kind, PortKind::Svi(_) | PortKind::Subinterface { .. }) && port.ifindex != 0
        });
        let wanted: BTreeMap<PortId, u32> = made.map(|(id, port)| (*id, port.ifindex)).collect();
        if let Some(kernel) = &mut self.kernel {
            for port in self.made.keys().filter(|port| !wanted.contains_key(port)) {
                kernel.set(*port, None)?;
            }
            for (port, ifindex) in
                wanted.iter().filter(|(port, ifindex)| self.made.get(port) != Some(ifindex))
            {
                kernel.set(*port, Some(Behind::Made(*ifindex)))?;
            }
            self.made = wanted;
            return Ok(());
        }
        for port in self.shared.sockets() {
            if !wanted.contains_key(&port) {
                self.shared.set_outlet(port, None);
            }
        }
        for (port, ifindex) in wanted {
            if self.shared.socket_at(port) == Some(ifindex) {
                continue;
            }
            let name = &state.ports[&port].name;
            let socket = PacketSocket::open(ifindex)
                .map_err(|error| system(&format!("opening {name}"))(error.to_string()))?;
            self.shared.set_outlet(port, Some(Outlet::Socket(ifindex, socket)));
        }
        Ok(())
    }

    /// Creates the netdevs of the front panel that are missing or were of another kind, and connects all to the CPU port in the
    /// kernel or (`None`) in this process. New netdevs have other indices, so the caller must configure them again.
    pub(crate) fn rebuild_panel(&mut self, kernel: Option<CpuPort>) -> Result<(), PlaneError> {
        if self.kernel.is_some() != kernel.is_some() {
            // An error is ignored: a device that does not know the request uses no netdev.
            let _ = self.client.number(&Request::CpuNetdev(String::new()));
            self.forget_outlets();
            self.kernel = kernel;
        }
        let taps = self.panel.arrange(&self.netdev, &self.front_ports, self.kernel.is_some());
        let taps = taps.map_err(system("making the front panel"))?;
        let there: BTreeSet<PortId> = self.front_ports.iter().map(|port| port.id).collect();
        for port in self.front.difference(&there) {
            self.shared.set_outlet(*port, None);
            if let Some(kernel) = &mut self.kernel {
                kernel.set(*port, None)?;
            }
        }
        self.front = there;
        self.connect_panel(taps)?;
        self.carry()?;
        self.open_sockets(&self.state.clone())
    }
    pub(super) fn forget_outlets(&mut self) {
        for port in self.shared.outlets() {
            self.shared.set_outlet(port, None);
        }
        self.made.clear();
    }
}
