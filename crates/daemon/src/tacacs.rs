//! The state of the TACACS+ servers: their order, their counters, and log lines about them. [`crate::tacacs_logins`] asks them.

use crate::context::{Context, Module};
use lanyard_access::tacacs::{Answer, Counters, Report, Server, Servers};
use lanyard_cli::view;
use lanyard_config::Config;
use std::fmt::Display;
use std::net::SocketAddr;

/// The module.
#[derive(Default)]
pub(crate) struct Tacacs {
    servers: Servers,
}

impl Module for Tacacs {
    type Event<'a> = ();

    fn configure(&mut self, ctx: &mut Context) {
        self.servers.configure(lower(ctx.switch.config()));
    }

    fn handle(&mut self, _ctx: &mut Context, (): ()) -> usize {
        0
    }
}

/// The servers of a configuration that can be asked: those with an address and a key.
fn lower(config: &Config) -> Vec<Server> {
    let tacacs = &config.tacacs;
    let lower = |(name, server): &(String, lanyard_config::tacacs::TacacsServer)| {
        Some(Server {
            name: name.clone(),
            address: SocketAddr::from((server.address?, server.port)),
            key: server.key.as_ref().or(tacacs.key.as_ref())?.clone().into_bytes(),
            timeout_ms: u64::from(server.timeout_s.unwrap_or(tacacs.timeout_s)) * 1000,
        })
    };
    tacacs.servers.iter().filter_map(lower).collect()
}

impl Tacacs {
    /// The servers in the order in which they are asked now.
    pub(crate) fn order(&self, ctx: &Context) -> Vec<Server> {
        self.servers.order(ctx.clock.now_ms())
    }
    /// Counts and logs the result of a question to a server. Returns why the next server has to be asked; `None` if this one has
    /// answered.
    pub(crate) fn record(
        &mut self,
        ctx: &mut Context,
        server: &Server,
        user: &str,
        result: &Result<Answer, impl Display>,
        counted: &Counters,
    ) -> Option<String> {
        let address = server.address;
        self.servers.count(server, |counters| add(counters, counted));
        let report = self.servers.record(ctx.clock.now_ms(), server, result.is_ok());
        let reason = match result {
            Err(why) => Some(why.to_string()),
            Ok(Answer::Unable(why)) => Some(why.clone()),
            Ok(_) => None,
        };
        match report {
            Some(Report::Dead) => {
                let why = reason.as_deref().unwrap_or_default();
                let text = format!("TACACS+ server {address} is not responding: {why}.");
                ctx.log("TACACS", 4, "TACACS_DEAD", &text);
            }
            Some(Report::Alive) => {
                let text = format!("TACACS+ server {address} is being marked alive.");
                ctx.log("TACACS", 4, "TACACS_ALIVE", &text);
            }
            None => {}
        }
        match result {
            Ok(Answer::Unable(why)) => {
                ctx.log("TACACS", 4, "ERROR", &format!("TACACS+ server {address}: {why}"));
            }
            Ok(Answer::Rejected(why)) => {
                let text = format!("TACACS+ server {address} rejects user {user}: {why}");
                ctx.log("TACACS", 6, "REJECTED", &text);
            }
            _ => {}
        }
        reason
    }
    /// `show tacacs`.
    pub(crate) fn view(&self) -> view::TacacsServers {
        let view = |server: lanyard_access::tacacs::ServerView| {
            let counters = server.counters;
            view::TacacsServerView {
                name: server.name,
                address: server.address.ip().to_string(),
                port: server.address.port(),
                state: if server.dead { "dead" } else { "up" },
                socket_opens: counters.opens,
                socket_closes: counters.closes,
                socket_aborts: counters.aborts,
                socket_errors: counters.errors,
                socket_timeouts: counters.timeouts,
                failed_connects: counters.failed_connects,
                packets_sent: counters.sent,
                packets_received: counters.received,
                invalid: counters.invalid,
                accepts: counters.accepts,
                rejects: counters.rejects,
            }
        };
        view::TacacsServers { servers: self.servers.view().into_iter().map(view).collect() }
    }
}

fn add(sum: &mut Counters, more: &Counters) {
    let Counters {
        opens,
        closes,
        aborts,
        errors,
        timeouts,
        failed_connects,
        sent,
        received,
        invalid,
        accepts,
        rejects,
    } = more;
    sum.opens += opens;
    sum.closes += closes;
    sum.aborts += aborts;
    sum.errors += errors;
    sum.timeouts += timeouts;
    sum.failed_connects += failed_connects;
    sum.sent += sent;
    sum.received += received;
    sum.invalid += invalid;
    sum.accepts += accepts;
    sum.rejects += rejects;
}
