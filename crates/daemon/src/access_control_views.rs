//! The commands that show and end sessions of access control.

use crate::core::Core;
use lanyard_cli::backend::{self, AuthenticationFilter, Refusal};
use lanyard_cli::view;
use lanyard_config::{Interface, InterfaceName, PortAccess};
use lanyard_dot1x::{Control, HostMode, Reauthenticate, SessionView};
use lanyard_pipeline::state::PortKind;
use lanyard_switch::compile::switchports;
use lanyard_types::{DropReason, PortLock};

impl backend::AccessControl for Core {
    fn access_control(&mut self) -> view::AccessControl {
        let config = self.ctx.switch.config().clone();
        let ports = switchports(&config).filter(|(_, interface)| interface.access != PortAccess::default());
        let mut list: Vec<view::AccessPort> =
            ports.map(|(name, interface)| self.access_port(config.dot1x, name, interface)).collect();
        list.sort_by_cached_key(|port| InterfaceName::Netdev(port.interface.clone()));
        let sessions = self.access_control.sessions();
        let servers = self.access_control.servers().into_iter();
        view::AccessControl {
            system_auth_control: config.dot1x,
            ports: list,
            sessions: sessions.into_iter().map(|session| self.authentication(session)).collect(),
            servers: servers
                .map(|server| view::RadiusServerView {
                    address: server.address.ip().to_string(),
                    auth_port: server.address.port(),
                    state: if server.dead { "dead" } else { "up" },
                    requests: server.requests,
                    retransmissions: server.retransmissions,
                    timeouts: server.timeouts,
                    accepts: server.accepts,
                    rejects: server.rejects,
                    challenges: server.challenges,
                    invalid: server.invalid,
                })
                .collect(),
        }
    }

    fn clear_authentications(&mut self, filter: &AuthenticationFilter) -> Result<(), Refusal> {
        let port = match &filter.interface {
            None => None,
            Some(name) => {
                let port = self.ctx.port_of(name);
                Some(port.ok_or_else(|| Refusal(format!("{name} is no port of the switch")))?)
            }
        };
        let outcome = self.access_control.clear(&mut self.ctx, port, filter.mac);
        self.control_access(outcome);
        Ok(())
    }
}

impl Core {
    fn access_port(&mut self, on: bool, name: &str, interface: &Interface) -> view::AccessPort {
        let access = &interface.access;
        let id = self.ctx.switch.ports().get(name);
        let state = id.and_then(|id| self.ctx.plane.state().ports.get(&id));
        let authorized = state.is_some_and(|port| port.stages.guard.lock != PortLock::Closed);
        let vlan = state.and_then(|port| port.pvid).unwrap_or(interface.switchport.access_vlan);
        let counters = id.map(|id| self.ctx.plane.port_counters(id));
        view::AccessPort {
            interface: name.to_owned(),
            port_control: match access.control {
                _ if !on => "force-authorized",
                Control::Auto => "auto",
                Control::ForceAuthorized => "force-authorized",
                Control::ForceUnauthorized => "force-unauthorized",
            },
            host_mode: match access.host_mode {
                HostMode::Single => "single-host",
                HostMode::Multi => "multi-host",
                HostMode::MultiAuth => "multi-auth",
            },
            authorized,
            vlan: vlan.get(),
            authenticator: access.authenticator,
            mab: access.mab,
            periodic: access.periodic,
            reauthenticate_s: match access.reauthenticate {
                Reauthenticate::After(seconds) => Some(seconds),
                Reauthenticate::Server => None,
            },
            quiet_period_s: access.quiet_s,
            tx_period_s: access.tx_s,
            supp_timeout_s: access.supplicant_s,
            max_req: access.max_req,
            max_reauth_req: access.max_reauth_req,
            dropped: counters.map_or(0, |counters| counters.dropped[DropReason::Unauthorized.index()]),
        }
    }

    fn authentication(&self, session: SessionView) -> view::AuthenticationSession {
        let now = self.ctx.clock.boot_ms();
        let port = self.ctx.plane.state().ports.get(&session.port);
        let vlan = session.vlan.or_else(|| port.filter(|it| it.kind == PortKind::Netdev)?.pvid);
        view::AuthenticationSession {
            interface: self.ctx.port_name(session.port).to_string(),
            mac: session.mac,
            session_id: self.access_control.session_id(session.id),
            method: session.method.name(),
            status: session.status.name(),
            authorized_by: session.grant.map(lanyard_dot1x::GrantKind::name),
            vlan: vlan.filter(|_| session.grant.is_some()).map(lanyard_types::VlanId::get),
            user: session.user,
            age_s: now.saturating_sub(session.since_ms) / 1000,
            timeout_s: session.ends.map(|(at, _)| at.saturating_sub(now).div_ceil(1000)),
            timeout_action: if session.ends.is_none_or(|(_, again)| again) {
                "reauthenticate"
            } else {
                "terminate"
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, config, messages};
    use lanyard_cli::backend::{AccessControl as _, Configuration};
    use lanyard_dot1x::{GrantKind, Method, SessionStatus};
    use lanyard_types::{MacAddr, VlanId};
    use std::net::UdpSocket;

    const ON: &str = "dot1x system-auth-control\n";
    /// Hosts at the port are authenticated by their MAC addresses, and let into VLAN 20 when no server answers.
    const MAB: &str = " authentication port-control auto\n mab\n authentication host-mode multi-auth\n \
                       authentication event server dead action authorize vlan 20\n";

    /// A switch with three ports that have a link.
    fn switch(lines: &str) -> (Bench, Core) {
        let bench = Bench::new();
        let mut core = bench.core();
        bench.plug(&mut core, &["eth1", "eth2", "eth10"]);
        configure(&mut core, lines);
        (bench, core)
    }

    fn configure(core: &mut Core, lines: &str) {
        let ports = ["eth10", "eth2", "eth1"].map(|name| format!("interface {name}\n switchport\n")).concat();
        core.commit(config(&format!("vlan 20\n{ports}{lines}"))).expect("taken");
        core.tick();
    }

    /// Sends a broadcast of the host 0200.0000.00`host`.
    fn send(bench: &Bench, core: &mut Core, name: &str, host: u8) {
        let port = core.ctx.switch.ports().get(name).expect("a port");
        let mut frame = [[0xff; 6], [2, 0, 0, 0, 0, host]].concat();
        frame.resize(60, 0);
        bench.ports.borrow().as_ref().expect("a plane").push(port, &frame);
        core.plane_events();
        core.tick();
        core.protocol_reports();
    }

    /// The ports, each with its frames that were dropped.
    fn ports(core: &mut Core) -> Vec<(String, &'static str, bool, u16, u64)> {
        let row = |it: view::AccessPort| (it.interface, it.port_control, it.authorized, it.vlan, it.dropped);
        core.access_control().ports.into_iter().map(row).collect()
    }

    #[test]
    fn ports_with_lines_of_access_control_are_shown_in_natural_order() {
        // eth3 has no netdev.
        let lines = "interface eth10\n dot1x pae authenticator\n\
             interface eth3\n switchport\n switchport access vlan 20\n authentication port-control auto\n\
             interface eth1\n authentication port-control auto\n authentication timer reauthenticate server\n \
             dot1x timeout quiet-period 11\n dot1x timeout tx-period 12\n dot1x timeout supp-timeout 13\n";
        let (_bench, mut core) = switch(&format!("{ON}{lines}"));
        let want = [
            ("eth1".to_owned(), "auto", false, 1, 0),
            ("eth3".to_owned(), "auto", false, 20, 0),
            ("eth10".to_owned(), "force-authorized", true, 1, 0),
        ];
        assert_eq!(ports(&mut core), want);
        let timers = |it: &view::AccessPort| {
            (it.reauthenticate_s, it.quiet_period_s, it.tx_period_s, it.supp_timeout_s)
        };
        let shown = core.access_control().ports;
        assert_eq!(timers(&shown[0]), (None, 11, 12, 13));
        assert_eq!(timers(&shown[2]), (Some(3600), 60, 30, 30));
        // Without `dot1x system-auth-control` the lines of a port have no effect.
        configure(&mut core, lines);
        assert_eq!(ports(&mut core)[0], ("eth1".to_owned(), "force-authorized", true, 1, 0));
    }

    #[test]
    fn a_host_that_is_let_in_without_a_server_is_shown_across_a_restart() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let auth_port = socket.local_addr().expect("bound").port();
        let lines = format!(
            "{ON}radius server R\n address ipv4 127.0.0.1 auth-port {auth_port}\n key 0 secret\n\
             radius-server timeout 5\nradius-server retransmit 1\nradius-server deadtime 2\n\
             interface eth1\n{MAB} authentication periodic\n authentication timer reauthenticate 600\n"
        );
        let (bench, mut core) = switch(&lines);
        bench.clock.set(1_000);
        send(&bench, &mut core, "eth1", 5);
        for (now_ms, server, session) in [
            (3_500, ("up", 1, 0, 0), ("running", None, None, 2, None)),
            (6_000, ("up", 1, 1, 0), ("running", None, None, 5, None)),
            // The age counts since the port was opened for the host.
            (11_000, ("dead", 1, 1, 1), ("authorized", Some("server-dead"), Some(20), 0, Some(600))),
            (15_500, ("dead", 1, 1, 1), ("authorized", Some("server-dead"), Some(20), 4, Some(596))),
        ] {
            bench.clock.set(now_ms);
            core.tick();
            let view = core.access_control();
            let it = &view.servers[0];
            assert_eq!((it.state, it.requests, it.retransmissions, it.timeouts), server, "{now_ms}");
            let it = &view.sessions[0];
            assert_eq!((it.status, it.authorized_by, it.vlan, it.age_s, it.timeout_s), session, "{now_ms}");
        }
        assert_eq!(ports(&mut core), [("eth1".to_owned(), "auto", true, 20, 1)]);
        let session = core.access_control().sessions.remove(0);
        let logged = format!(
            "SUCCESS: Authorization succeeded by authentication event server-dead for client (0200.0000.0005) on \
             Interface eth1 AuditSessionID {}",
            session.session_id
        );
        assert!(messages(&core.ctx).contains(&logged), "{:?}", messages(&core.ctx));
        drop(core);
        let mut core = bench.core();
        configure(&mut core, &lines);
        let view = core.access_control();
        // The new daemon authenticates each host again soon.
        assert_eq!(view.sessions, [view::AuthenticationSession { timeout_s: Some(2), ..session }]);
        assert_eq!((view.servers[0].state, view.servers[0].requests), ("up", 0));
        assert_eq!(ports(&mut core)[0].3, 20);
    }

    #[test]
    fn clear_ends_the_sessions_that_match_every_part_of_the_filter() {
        let (bench, mut core) = switch(&format!("{ON}interface eth1\n{MAB}interface eth10\n{MAB}"));
        for (name, host) in [("eth1", 5), ("eth1", 6), ("eth10", 7)] {
            send(&bench, &mut core, name, host);
        }
        let filter = |name: Option<&str>, host: Option<u8>| AuthenticationFilter {
            interface: name.map(|name| InterfaceName::Netdev(name.into())),
            mac: host.map(|host| MacAddr([2, 0, 0, 0, 0, host])),
        };
        let refused = core.clear_authentications(&filter(Some("eth9"), None)).expect_err("no such port").0;
        assert_eq!(refused, "eth9 is no port of the switch");
        for (name, host, left) in [
            (Some("eth1"), Some(7), &[5, 6, 7][..]),
            (None, Some(5), &[6, 7]),
            (Some("eth10"), None, &[6]),
            (None, None, &[]),
        ] {
            core.clear_authentications(&filter(name, host)).expect("cleared");
            let sessions = core.access_control().sessions;
            let hosts: Vec<u8> = sessions.iter().map(|session| session.mac.0[5]).collect();
            assert_eq!(hosts, left, "{name:?} {host:?}");
            let open: Vec<bool> = ports(&mut core).into_iter().map(|port| port.2).collect();
            assert_eq!(open, [left.contains(&6), left.contains(&7)], "{name:?} {host:?}");
        }
        assert_eq!(ports(&mut core)[1].4, 1);
        send(&bench, &mut core, "eth10", 7);
        assert_eq!(ports(&mut core)[1].4, 2, "the host has to be authenticated anew");
    }

    #[test]
    fn sessions_show_why_the_port_is_open_and_for_how_long() {
        let (bench, core) = switch("");
        bench.clock.set(10_000);
        let port = core.ctx.switch.ports().get("eth1").expect("a port");
        let (mab, assigned) = (GrantKind::Method(Method::Mab), VlanId::new(20));
        for (grant, vlan, ends, want) in [
            (None, assigned, None, (None, None, None, "reauthenticate")),
            (Some(mab), None, Some((14_001, false)), (Some("mab"), Some(1), Some(5), "terminate")),
            (Some(GrantKind::Fail), assigned, None, (Some("fail"), Some(20), None, "reauthenticate")),
            // The time has come, and the new authentication is running.
            (Some(mab), assigned, Some((9_000, true)), (Some("mab"), Some(20), Some(0), "reauthenticate")),
        ] {
            let mac = MacAddr([2, 0, 0, 0, 0, 5]);
            let (method, status, user) = (Method::Mab, SessionStatus::Running, String::new());
            let view = SessionView { port, mac, id: 3, method, status, grant, vlan, user, since_ms: 0, ends };
            let it = core.authentication(view);
            assert_eq!(
                (it.authorized_by, it.vlan, it.timeout_s, it.timeout_action),
                want,
                "{grant:?} {ends:?}"
            );
        }
    }
}
