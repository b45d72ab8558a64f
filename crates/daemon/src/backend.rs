//! The switch as the command line sees it.

use crate::cef_views::CefError;
use crate::clock::wall_clock;
use crate::commit::CommitError;
use crate::core::Core;
use crate::kernel::KernelError;
use crate::{
    cef_views, fdb_views, files, interface_views, platform_views, resources, route_views, spanning, tracking,
    vrrp,
};
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

/// Converts an error to the text that the command line prints.
macro_rules! refusal_from {
    ($($error:ty),*) => {$(
        impl From<$error> for Refusal {
            fn from(error: $error) -> Self {
                Self(error.to_string())
            }
        }
    )*};
}
refusal_from!(CommitError, KernelError, CefError);

impl Core {
    fn read(&self, path: &Path) -> Result<String, Refusal> {
        files::read_text(path, MAX_CONFIG_BYTES)
            .map_err(|error| Refusal(format!("{}: {error}", path.display())))
    }
    fn write(&self, path: &Path, text: &str) -> Result<(), Refusal> {
        files::replace(path, text.as_bytes()).map_err(|error| Refusal(format!("{}: {error}", path.display())))
    }
}

impl Configuration for Core {
    fn running(&self) -> &Config {
        self.ctx.switch.config()
    }
    fn commit(&mut self, candidate: Config) -> Result<(), Refusal> {
        Ok(self.take(candidate)?)
    }
    fn commit_confirmed(&mut self, candidate: Config, minutes: u32) -> Result<(), Refusal> {
        let before = self.ctx.switch.config().clone();
        self.take(candidate)?;
        let at_ms = self.ctx.clock.now_ms() + u64::from(minutes) * 60_000;
        self.confirmation.await_until(at_ms, before);
        self.keep_running_config();
        Ok(())
    }
    fn confirm(&mut self) -> bool {
        let awaited = self.confirmation.confirm();
        if awaited {
            self.keep_running_config();
        }
        awaited
    }
    fn rollback_in_s(&self) -> Option<u64> {
        self.confirmation.left_s(self.ctx.clock.now_ms())
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
        if let Some(parent) = self.startup_file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            // The directory's parent must exist: a mistyped path must not create a tree.
            let base = if parent == self.ctx.paths.state { parent.parent() } else { None };
            base.map_or(Ok(()), std::fs::create_dir_all)
                .and_then(|()| files::make_directory(parent))
                .map_err(|error| {
                    let (file, parent) = (self.startup_file.display(), parent.display());
                    Refusal(format!("{file}: making the directory {parent}: {error}"))
                })?;
        }
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
        fdb_views::entries(&mut self.ctx, filter)
    }
    fn mac_count(&mut self, vlan: Option<VlanId>) -> view::MacCount {
        fdb_views::count(&mut self.ctx, vlan)
    }
    fn clear_mac_table(&mut self, filter: &MacFilter) -> u64 {
        let Some(mut filter) = fdb_views::filter_of(&self.ctx, filter) else { return 0 };
        if filter.kind.is_some_and(|kind| kind != FdbKind::Dynamic) {
            return 0;
        }
        filter.kind = None;
        self.ctx.plane.fdb_flush(&filter)
    }
}

impl Interfaces for Core {
    fn netdev_names(&self) -> Vec<String> {
        let ours =
            |alias: &Option<String>| alias.as_deref().is_some_and(|alias| alias.starts_with("lanyard:"));
        let usable =
            self.ctx.facts().iter().filter(|link| link.ethernet && !link.loopback && !ours(&link.alias));
        usable.map(|link| link.name.clone()).collect()
    }
    fn netdev_refusal(&self, name: &str) -> Option<&'static str> {
        let link = self.ctx.facts().iter().find(|link| link.name == name)?;
        if link.loopback {
            Some("is the loopback device: an interface of the switch is an Ethernet device")
        } else if !link.ethernet {
            Some("is no Ethernet device: it can't be an interface of the switch")
        } else {
            let ours = link.alias.as_deref().is_some_and(|alias| alias.starts_with("lanyard:"));
            ours.then_some("is a device that Lanyard made: it can't be a port")
        }
    }
    fn interfaces(&mut self, only: Option<&InterfaceName>) -> view::Interfaces {
        interface_views::interfaces(&mut self.ctx, &self.ports, only)
    }
    fn drops(&mut self, only: Option<&InterfaceName>) -> view::Drops {
        interface_views::drops(&mut self.ctx, only)
    }
    fn clear_counters(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        interface_views::clear(&mut self.ctx, &mut self.ports, only)
    }
}

impl Neighbors for Core {
    fn neighbors(&mut self, family: Family, vrf: Option<&str>) -> Result<view::Neighbors, Refusal> {
        Ok(route_views::neighbours(&self.ctx, &self.following, family, vrf)?)
    }
    fn clear_neighbors(
        &mut self,
        family: Family,
        vrf: Option<&str>,
        only: Option<IpAddr>,
    ) -> Result<u64, Refusal> {
        Ok(route_views::forget_neighbours(&self.ctx, family, vrf, only)?)
    }
}

impl Routes for Core {
    fn routes(&mut self, query: &RouteQuery) -> Result<view::Routes, Refusal> {
        Ok(route_views::routes(&self.ctx, &self.following, query)?)
    }
    fn cef(&mut self, family: Family, vrf: Option<&str>, only: Option<IpAddr>) -> Result<view::Cef, Refusal> {
        Ok(cef_views::cef(&mut self.ctx, &self.following, family, vrf, only)?)
    }
    fn cef_summary(&mut self, vrf: Option<&str>) -> Result<view::CefSummary, Refusal> {
        Ok(cef_views::summary(&self.ctx, &self.following, vrf)?)
    }
    fn cef_exact(&mut self, vrf: Option<&str>, flow: &view::Flow) -> Result<view::CefExact, Refusal> {
        Ok(cef_views::exact(&mut self.ctx, &self.following, vrf, flow)?)
    }
    fn vrfs_present(&mut self) -> BTreeSet<String> {
        let config = self.ctx.switch.config();
        self.ctx.kernel.vrfs().into_iter().filter(|vrf| config.vrfs.contains_key(vrf)).collect()
    }
}

impl SpanningTree for Core {
    fn spanning_tree(&mut self) -> view::SpanningTree {
        spanning::view(&self.ctx)
    }
    fn root_primary_priority(&self, tree: view::TreeKey) -> Option<u16> {
        spanning::root_primary(&self.ctx, tree)
    }
    fn clear_detected_protocols(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        self.spanning.clear_protocols(&mut self.ctx, only)
    }
    fn clear_spanning_tree_counters(&mut self, only: Option<&InterfaceName>) -> Result<(), Refusal> {
        spanning::clear_bpdu_counters(&mut self.ctx, only)
    }
}

impl Services for Core {
    fn tracks(&mut self) -> view::Tracks {
        tracking::view(&self.ctx)
    }
    fn vrrp(&mut self) -> view::Vrrps {
        vrrp::view(&self.ctx, &self.children)
    }
    fn dhcp_relay(&mut self, family: Family) -> view::Relay {
        self.relaying.view(family)
    }
    fn fpm(&mut self) -> view::Fpm {
        self.fpm.view(&self.ctx)
    }
}

impl Platform for Core {
    fn platform(&mut self) -> view::Platform {
        let able = self.ctx.plane.capabilities();
        view::Platform {
            plane: able.name.into(),
            survives_daemon: able.survives_daemon,
            max_ports: able.ports as u64,
            max_mac_addresses: able.fdb.into(),
            notes: able.notes.clone(),
        }
    }
    fn resources(&mut self) -> view::Resources {
        resources::view(&mut self.ctx)
    }
    fn traps(&mut self) -> view::Traps {
        platform_views::traps(&mut self.ctx)
    }
    fn packet_trace(
        &mut self,
        interface: &InterfaceName,
        frame: &[u8],
    ) -> Result<view::PacketTrace, Refusal> {
        platform_views::trace(&mut self.ctx, interface, frame)
    }
}

impl System for Core {
    fn version(&mut self) -> view::Version {
        let identity = self.ctx.switch.identity();
        view::Version {
            version: crate::VERSION.into(),
            hostname: self.ctx.switch.config().hostname.clone(),
            instance: identity.instance.clone(),
            plane: self.ctx.plane.capabilities().name.into(),
            uptime_s: self.ctx.clock.now_ms() / 1000,
            plane_uptime_s: self.plane_since.elapsed().ok().map(|since| since.as_secs()),
            kernel: crate::kernel_release(),
            base_mac: Some(identity.base_mac),
            ports: u32::try_from(lanyard_switch::compile::ports(self.ctx.switch.config()).count())
                .unwrap_or(u32::MAX),
            startup_config: Some(self.startup_file.display().to_string()),
        }
    }
    fn users(&mut self) -> view::Users {
        self.users.view(self.ctx.clock.now_ms())
    }
    fn logging(&mut self) -> view::Logging {
        self.ctx.log.view()
    }
    fn clear_logging(&mut self) {
        self.ctx.log.clear();
    }
    fn log(&mut self, facility: &str, severity: u8, mnemonic: &str, text: &str) {
        self.ctx.log(facility, severity, mnemonic, text);
    }
    fn clock(&self) -> String {
        wall_clock()
    }
}
