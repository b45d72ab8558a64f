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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, accept, config, messages};

    /// Configures the servers of `text`; returns them in the order in which they are asked.
    fn configure(tacacs: &mut Tacacs, ctx: &mut Context, text: &str) -> Vec<Server> {
        accept(ctx, config(text));
        tacacs.configure(ctx);
        tacacs.order(ctx)
    }

    #[test]
    fn only_servers_with_an_address_and_a_key_are_asked() {
        let mut world = World::new();
        let mut tacacs = Tacacs::default();
        let servers = "tacacs server A\n address ipv4 10.0.0.8\n key 0 own\n port 4949\n timeout 9\n\
            tacacs server B\n address ipv6 2001:db8::8\n\
            tacacs server C\n key 0 own\n";
        let a = "A 10.0.0.8:4949 own 9000";
        for (shared, want) in [
            ("tacacs-server key 0 all\ntacacs-server timeout 3\n", &[a, "B [2001:db8::8]:49 all 3000"][..]),
            ("tacacs-server key 0 all\n", &[a, "B [2001:db8::8]:49 all 5000"]),
            ("", &[a]),
        ] {
            let order = configure(&mut tacacs, &mut world.ctx, &format!("{shared}{servers}"));
            let shown = |server: &Server| {
                let key = String::from_utf8_lossy(&server.key);
                format!("{} {} {key} {}", server.name, server.address, server.timeout_ms)
            };
            assert_eq!(order.iter().map(shown).collect::<Vec<_>>(), want, "{shared}");
            assert_eq!(tacacs.view().servers.len(), want.len(), "{shared}");
        }
    }

    const ONE: &str = "tacacs server A\n address ipv4 10.0.0.8\n key 0 own";

    #[test]
    fn each_result_is_logged_and_decides_whether_the_next_server_is_asked() {
        let mut world = World::new();
        let ctx = &mut world.ctx;
        let mut tacacs = Tacacs::default();
        let server = configure(&mut tacacs, ctx, ONE).remove(0);
        let unable = Answer::Unable("error: no database".into());
        let rejected = Answer::Rejected("the name or the secret is wrong".into());
        let dead = "TACACS_DEAD: TACACS+ server 10.0.0.8:49 is not responding: no answer within 5 s.";
        let alive = "TACACS_ALIVE: TACACS+ server 10.0.0.8:49 is being marked alive.";
        let slow = Err("no answer within 5 s");
        for (result, reason, logged, state) in [
            (slow.clone(), Some("no answer within 5 s"), &[dead][..], "dead"),
            (slow.clone(), Some("no answer within 5 s"), &[], "dead"),
            // A server that reports an error has answered.
            (
                Ok(unable),
                Some("error: no database"),
                &[alive, "ERROR: TACACS+ server 10.0.0.8:49: error: no database"],
                "up",
            ),
            (
                Ok(rejected),
                None,
                &["REJECTED: TACACS+ server 10.0.0.8:49 rejects user ann: the name or the secret is wrong"],
                "up",
            ),
            (Ok(Answer::Accepted), None, &[], "up"),
            (Ok(Answer::Permitted(Some(15))), None, &[], "up"),
            (slow.clone(), Some("no answer within 5 s"), &[dead], "dead"),
        ] {
            let before = messages(ctx).len();
            let next = tacacs.record(ctx, &server, "ann", &result, &Counters::default());
            assert_eq!(next.as_deref(), reason, "{result:?}");
            assert_eq!(messages(ctx)[before..], *logged, "{result:?}");
            assert_eq!(tacacs.view().servers[0].state, state, "{result:?}");
        }
        // A question may end after its server was removed from the configuration.
        configure(&mut tacacs, ctx, "");
        let before = messages(ctx).len();
        let next = tacacs.record(ctx, &server, "ann", &slow, &Counters::default());
        assert_eq!((next.as_deref(), messages(ctx).len()), (Some("no answer within 5 s"), before));
    }

    #[test]
    fn the_counters_of_questions_add_up_in_show_tacacs() {
        let mut world = World::new();
        let ctx = &mut world.ctx;
        let mut tacacs = Tacacs::default();
        let server = configure(&mut tacacs, ctx, ONE).remove(0);
        // Different values, so that no two counters can be exchanged.
        let counted = Counters {
            opens: 1,
            closes: 2,
            aborts: 3,
            errors: 4,
            timeouts: 5,
            failed_connects: 6,
            sent: 7,
            received: 8,
            invalid: 9,
            accepts: 10,
            rejects: 11,
        };
        let accepted: Result<Answer, &str> = Ok(Answer::Accepted);
        for _ in 0..2 {
            tacacs.record(ctx, &server, "ann", &accepted, &counted);
        }
        let shown = serde_json::to_value(tacacs.view()).expect("JSON");
        let want = serde_json::json!({"servers": [{
            "name": "A", "address": "10.0.0.8", "port": 49, "state": "up",
            "socket_opens": 2, "socket_closes": 4, "socket_aborts": 6, "socket_errors": 8,
            "socket_timeouts": 10, "failed_connects": 12, "packets_sent": 14, "packets_received": 16,
            "invalid": 18, "accepts": 20, "rejects": 22,
        }]});
        assert_eq!(shown, want);
    }
}
