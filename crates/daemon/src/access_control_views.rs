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
