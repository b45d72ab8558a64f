//! The servers of `tacacs server`: the order in which they are asked, which of them do not answer, and their counters.

use std::net::SocketAddr;

/// For how long a server that has not answered is asked after the others, in milliseconds.
const AVOIDED_MS: u64 = 60_000;

/// A server as the configuration has it.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Its address and TCP port.
    pub address: SocketAddr,
    /// The key.
    pub key: Vec<u8>,
    /// How long a connection or a reply may take, in milliseconds.
    pub timeout_ms: u64,
}

impl std::fmt::Debug for Server {
    /// Everything but the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} ms", self.name, self.address, self.timeout_ms)
    }
}

/// The counters of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections that were begun.
    pub opens: u64,
    /// Connections that were closed by the switch.
    pub closes: u64,
    /// Connections that the server has closed before it had answered.
    pub aborts: u64,
    /// Connections that have failed in another way after they were open.
    pub errors: u64,
    /// Connections and replies that took too long.
    pub timeouts: u64,
    /// Connections that could not be opened, for example because the server refused them or there was no route.
    pub failed_connects: u64,
    /// Packets to the server.
    pub sent: u64,
    /// Valid replies from the server.
    pub received: u64,
    /// Connections that the switch has ended because the server sent an invalid reply.
    pub invalid: u64,
    /// Logins that the server has accepted, and users to whom it has permitted a shell.
    pub accepts: u64,
    /// Logins and users that it has rejected.
    pub rejects: u64,
}

/// A server's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerView {
    /// Its name.
    pub name: String,
    /// Its address and TCP port.
    pub address: SocketAddr,
    /// True if the server has not answered the last question.
    pub dead: bool,
    /// The counters.
    pub counters: Counters,
}

/// The events for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The server does not answer any more.
    Dead,
    /// It answers again.
    Alive,
}

struct Known {
    server: Server,
    counters: Counters,
    /// The time in milliseconds until which it is asked after the others; `None` unless the last question is unanswered.
    avoided_until: Option<u64>,
}

/// The servers.
#[derive(Default)]
pub struct Servers {
    known: Vec<Known>,
}

impl Servers {
    /// Takes the servers of a configuration. Servers whose name and address have not changed keep their counters and state.
    pub fn configure(&mut self, servers: Vec<Server>) {
        let mut held = std::mem::take(&mut self.known);
        for server in servers {
            let same =
                |known: &Known| known.server.name == server.name && known.server.address == server.address;
            self.known.push(match held.iter().position(same) {
                Some(at) => Known { server, ..held.swap_remove(at) },
                None => Known { server, counters: Counters::default(), avoided_until: None },
            });
        }
    }
    /// The servers in the order in which they are asked at `now_ms`: that of the configuration, but those that have failed to
    /// answer within the last minute come after the others.
    #[must_use]
    pub fn order(&self, now_ms: u64) -> Vec<Server> {
        let avoided = |known: &&Known| known.avoided_until.is_some_and(|until| until > now_ms);
        let (last, first): (Vec<_>, Vec<_>) = self.known.iter().partition(avoided);
        first.into_iter().chain(last).map(|known| known.server.clone()).collect()
    }
    fn find(&mut self, server: &Server) -> Option<&mut Known> {
        self.known
            .iter_mut()
            .find(|known| known.server.name == server.name && known.server.address == server.address)
    }
    /// Changes the counters of a server with `change`; does nothing if the server is not configured.
    pub fn count(&mut self, server: &Server, change: impl FnOnce(&mut Counters)) {
        if let Some(known) = self.find(server) {
            change(&mut known.counters);
        }
    }
    /// Records whether a server has answered; returns the event for the log if that has changed its state.
    pub fn record(&mut self, now_ms: u64, server: &Server, answered: bool) -> Option<Report> {
        let known = self.find(server)?;
        let was_avoided = known.avoided_until.is_some();
        known.avoided_until = (!answered).then_some(now_ms + AVOIDED_MS);
        match (was_avoided, answered) {
            (false, false) => Some(Report::Dead),
            (true, true) => Some(Report::Alive),
            _ => None,
        }
    }
    /// The servers in the order of the configuration.
    #[must_use]
    pub fn view(&self) -> Vec<ServerView> {
        let view = |known: &Known| ServerView {
            name: known.server.name.clone(),
            address: known.server.address,
            dead: known.avoided_until.is_some(),
            counters: known.counters,
        };
        self.known.iter().map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(n: u8) -> Server {
        let address = SocketAddr::from(([10, 0, 0, n], 49));
        Server { name: format!("S{n}"), address, key: b"key".to_vec(), timeout_ms: 5000 }
    }

    fn names(servers: &Servers, now_ms: u64) -> Vec<String> {
        servers.order(now_ms).into_iter().map(|server| server.name).collect()
    }

    #[test]
    fn a_server_that_does_not_answer_is_asked_last() {
        let mut servers = Servers::default();
        servers.configure(vec![server(1), server(2), server(3)]);
        assert_eq!(names(&servers, 0), ["S1", "S2", "S3"]);
        assert_eq!(servers.record(0, &server(1), false), Some(Report::Dead));
        assert_eq!(servers.record(10, &server(1), false), None);
        assert_eq!(names(&servers, 60_009), ["S2", "S3", "S1"]);
        assert_eq!(names(&servers, 60_010), ["S1", "S2", "S3"], "it gets another chance");
        assert!(servers.view()[0].dead, "nothing was heard of it since");
        assert_eq!(servers.record(70_000, &server(1), true), Some(Report::Alive));
        assert_eq!(servers.record(70_000, &server(1), true), None);
        assert!(!servers.view()[0].dead);
    }

    #[test]
    fn a_new_configuration_keeps_the_counters_of_remaining_servers() {
        let mut servers = Servers::default();
        servers.configure(vec![server(1), server(2)]);
        servers.count(&server(2), |counters| counters.sent += 1);
        servers.record(0, &server(2), false);
        let changed = Server { key: b"other".to_vec(), ..server(2) };
        servers.configure(vec![changed.clone(), server(3)]);
        assert_eq!(servers.order(0)[1], changed);
        let view = servers.view();
        assert_eq!((view[0].counters.sent, view[0].dead), (1, true));
        let moved = Server { address: SocketAddr::from(([10, 0, 0, 2], 4949)), ..server(2) };
        servers.configure(vec![moved]);
        assert_eq!((servers.view()[0].counters.sent, servers.view()[0].dead), (0, false));
        // A server that is no longer configured is not counted.
        servers.count(&server(3), |counters| counters.sent += 1);
        assert_eq!(servers.record(0, &server(3), false), None);
        assert!(!format!("{:?}", servers.order(0)).contains("key"));
    }
}
