//! The switch as the command line sees it.

use crate::clock::wall_clock;
use crate::core::{Core, Rollback};
use crate::files;
use lanyard_cli::backend::{
    Configuration, Family, Fdb, Files, Interfaces, MAX_CONFIG_BYTES, MacFilter, Neighbors, Platform, Refusal,
    RouteQuery, Routes, Services, SpanningTree, System,
};
use lanyard_cli::sessions::ConfigSessions;
use lanyard_cli::view;
use lanyard_config::{Config, InterfaceName};
use lanyard_plane::FdbKind;
use lanyard_types::VlanId;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

impl Core {
    fn read(&self, path: &Path) -> Result<String, Refusal> {
        files::read_text(path, MAX_CONFIG_BYTES)
            .map_err(|error| Refusal(format!("{}: {error}", path.display())))
    }
    fn write(&self, path: &Path, text: &str) -> Result<(), Refusal> {
        let wrong = |error| Refusal(format!("{}: {error}", path.display()));
        if let Some(parent) = path.parent().filter(|parent| *parent == self.paths.state) {
            std::fs::create_dir_all(parent).map_err(wrong)?;
        }
        files::replace(path, text.as_bytes()).map_err(wrong)
    }
}

impl Configuration for Core {
    fn running(&self) -> &Config {
        self.switch.config()
    }
    fn commit(&mut self, candidate: Config) -> Result<(), Refusal> {
        Ok(self.take(candidate)?)
    }
    fn commit_confirmed(&mut self, candidate: Config, minutes: u32) -> Result<(), Refusal> {
        let before = self.switch.config().clone();
        self.take(candidate)?;
        let config = self.rollback.take().map_or(before, |waiting| waiting.config);
        self.rollback = Some(Rollback { config, at_ms: self.clock.now_ms() + u64::from(minutes) * 60_000 });
        Ok(())
    }
    fn confirm(&mut self) -> bool {
        self.rollback.take().is_some()
    }
    fn rollback_in_s(&self) -> Option<u64> {
        let now_ms = self.clock.now_ms();
        self.rollback.as_ref().map(|rollback| rollback.at_ms.saturating_sub(now_ms).div_ceil(1000))
    }
    fn config_sessions(&mut self) -> &mut ConfigSessions {
        &mut self.config_sessions
    }
}

impl Files for Core {
    fn load_startup(&mut self) -> Result<String, Refusal> {
        if self.startup_file.exists() { self.read(&self.startup_file) } else { Ok(String::new()) }
    }
    fn save_startup(&mut self, text: &str) -> Result<(), Refusal> {
        self.write(&self.startup_file, text)
    }
    fn read_file(&mut self, path: &str) -> Result<String, Refusal> {
        self.read(Path::new(path))
    }
    fn write_file(&mut self, path: &str, text: &str) -> Result<(), Refusal> {
        self.write(Path::new(path), text)
    }
}

impl Fdb for Core {
    fn mac_table(&mut self, filter: &MacFilter) -> view::MacTable {
        self.view_macs(filter)
    }
    fn mac_count(&mut self, vlan: Option<VlanId>) -> view::MacCount {
        self.view_mac_count(vlan)
    }
    fn clear_mac_table(&mut self, filter: &MacFilter) -> u64 {
        let Some(mut filter) = self.fdb_filter(filter) else { return 0 };
        if filter.kind.is_some_and(|kind| kind != FdbKind::Dynamic) {
            return 0;
        }
        filter.kind = None;
        self.plane.fdb_flush(&filter)
    }
}

impl Interfaces for Core {
    fn netdev_names(&self) -> Vec<String> {
        let ours =
            |alias: &Option<String>| alias.as_deref().is_some_and(|alias| alias.starts_with("lanyard:"));
        let usable = self.facts().iter().filter(|link| link.ethernet && !link.loopback && !ours(&link.alias));
        usable.map(|link| link.name.clone()).collect()
    }
    fn interfaces(&mut self, only: Option<&InterfaceName>) -> view::Interfaces {
        self.view_interfaces(only)
    }
    fn drops(&mut self, only: Option<&InterfaceName>) -> view::Drops {
        self.view_drops(only)
    }
    fn clear_counters(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        let names: Vec<InterfaceName> = match only {
            Some(name) if !self.switch.config().interfaces.contains_key(name) => {
                return Err(format!("{name} is no interface of the switch").into());
            }
            Some(name) => vec![name.clone()],
            None => self.switch.config().interfaces.keys().cloned().collect(),
        };
        let links = self.kernel.netdev().links().unwrap_or_default();
        for name in names {
            if let Some(port) = self.port_of(&name) {
                self.plane.clear_counters(port);
            }
            let name = name.to_string();
            if let Some(link) = links.iter().find(|link| link.name == name) {
                self.cleared.insert(name, link.stats);
            }
        }
        Ok(())
    }
}

impl Neighbors for Core {
    fn neighbors(&mut self, family: Family, vrf: Option<&str>) -> Result<view::Neighbors, Refusal> {
        Ok(self.view_neighbours(family, vrf)?)
    }
    fn clear_neighbors(
        &mut self,
        family: Family,
        vrf: Option<&str>,
        only: Option<IpAddr>,
    ) -> Result<u64, Refusal> {
        Ok(self.forget_neighbours(family, vrf, only)?)
    }
}

impl Routes for Core {
    fn routes(&mut self, query: &RouteQuery) -> Result<view::Routes, Refusal> {
        Ok(self.view_routes(query)?)
    }
    fn cef(&mut self, family: Family, vrf: Option<&str>, only: Option<IpAddr>) -> Result<view::Cef, Refusal> {
        Ok(self.view_cef(family, vrf, only)?)
    }
    fn cef_summary(&mut self, vrf: Option<&str>) -> Result<view::CefSummary, Refusal> {
        Ok(self.view_cef_summary(vrf)?)
    }
    fn cef_exact(&mut self, vrf: Option<&str>, flow: &view::Flow) -> Result<view::CefExact, Refusal> {
        Ok(self.view_cef_exact(vrf, flow)?)
    }
    fn vrfs_present(&mut self) -> BTreeSet<String> {
        let config = self.switch.config();
        self.kernel.spaces.names().filter(|vrf| config.vrfs.contains_key(*vrf)).map(str::to_owned).collect()
    }
}

impl SpanningTree for Core {
    fn spanning_tree(&mut self) -> view::SpanningTree {
        self.view_spanning_tree()
    }
    fn root_primary_priority(&self, tree: view::TreeKey) -> Option<u16> {
        self.root_primary(tree)
    }
    fn clear_detected_protocols(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        self.clear_protocols(only)
    }
    fn clear_spanning_tree_counters(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        self.clear_bpdu_counters(only)
    }
}

impl Services for Core {
    fn tracks(&mut self) -> view::Tracks {
        self.view_tracks()
    }
    fn vrrp(&mut self) -> view::Vrrps {
        self.view_vrrp()
    }
    fn dhcp_relay(&mut self, family: Family) -> view::Relay {
        self.view_relay(family)
    }
    fn fpm(&mut self) -> view::Fpm {
        self.view_fpm()
    }
}

impl Platform for Core {
    fn platform(&mut self) -> view::Platform {
        let able = self.plane.capabilities();
        view::Platform {
            plane: able.name.into(),
            survives_daemon: able.survives_daemon,
            max_ports: able.ports as u64,
            max_mac_addresses: able.fdb.into(),
            notes: able.notes.clone(),
        }
    }
    fn resources(&mut self) -> view::Resources {
        self.view_resources()
    }
    fn traps(&mut self) -> view::Traps {
        self.view_traps()
    }
    fn packet_trace(
        &mut self,
        interface: &InterfaceName,
        frame: &[u8],
    ) -> Result<view::PacketTrace, Refusal> {
        Ok(self.view_trace(interface, frame)?)
    }
}

impl System for Core {
    fn version(&mut self) -> view::Version {
        let identity = self.switch.identity();
        view::Version {
            version: crate::VERSION.into(),
            hostname: self.switch.config().hostname.clone(),
            instance: identity.instance.clone(),
            plane: self.plane.capabilities().name.into(),
            uptime_s: self.clock.now_ms() / 1000,
            plane_uptime_s: self.plane_since.elapsed().ok().map(|since| since.as_secs()),
            kernel: crate::kernel_release(),
            base_mac: Some(identity.base_mac),
            ports: u32::try_from(lanyard_switch::compile::ports(self.switch.config()).count())
                .unwrap_or(u32::MAX),
            startup_config: Some(self.startup_file.display().to_string()),
        }
    }
    fn users(&mut self) -> view::Users {
        self.users.view(self.clock.now_ms())
    }
    fn logging(&mut self) -> view::Logging {
        self.log.view()
    }
    fn clear_logging(&mut self) {
        self.log.clear();
    }
    fn log(&mut self, facility: &str, severity: u8, mnemonic: &str, text: &str) {
        Core::log(self, facility, severity, mnemonic, text);
    }
    fn clock(&self) -> String {
        wall_clock()
    }
}
