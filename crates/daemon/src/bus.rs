//! Distributes events and log messages to listeners: `monitor events` and `terminal monitor`.
//!
//! Invariant: a listener that does not read delays nothing and takes no memory beyond its queue. Lines that
//! it misses are counted, and the count is sent in their place.

use crate::clock::wall_clock;
use lanyard_cli::view::{Event, EventKind};
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use tokio::sync::mpsc;

/// The most events that wait for a listener.
pub const QUEUE: usize = 4096;
/// The most listeners.
pub const MAX_LISTENERS: usize = 64;

/// There are [`MAX_LISTENERS`] already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_LISTENERS} sessions are monitoring already")]
pub struct TooManyListeners;

/// Sends events to listeners.
#[derive(Debug, Default)]
pub struct Bus {
    listeners: Vec<Listener>,
}

#[derive(Debug)]
struct Listener {
    topics: Topics,
    queue: mpsc::Sender<Rc<str>>,
    lost: Rc<Cell<u64>>,
}

/// The messages that a listener receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topics {
    /// Events of these kinds, as JSON lines.
    Events(BTreeSet<EventKind>),
    /// Log messages.
    Log,
}

/// The receiving end of a listener.
#[derive(Debug)]
pub struct Subscription {
    queue: mpsc::Receiver<Rc<str>>,
    lost: Rc<Cell<u64>>,
}

impl Subscription {
    /// The next line, without its end. After a loss, a line with the number of lost lines comes
    /// first. `None` does not occur while the bus exists.
    pub async fn next(&mut self) -> Option<Rc<str>> {
        match self.lost.take() {
            0 => self.queue.recv().await,
            lost => {
                let line = json!({"time": wall_clock(), "type": "monitor", "action": "change", "lost": lost});
                Some(line.to_string().into())
            }
        }
    }
}

impl Bus {
    /// Adds a listener.
    ///
    /// # Errors
    /// When there are [`MAX_LISTENERS`] already.
    pub fn subscribe(&mut self, topics: Topics) -> Result<Subscription, TooManyListeners> {
        self.listeners.retain(|listener| !listener.queue.is_closed());
        if self.listeners.len() >= MAX_LISTENERS {
            return Err(TooManyListeners);
        }
        let (sender, queue) = mpsc::channel(QUEUE);
        let lost = Rc::new(Cell::new(0));
        self.listeners.push(Listener { topics, queue: sender, lost: lost.clone() });
        Ok(Subscription { queue, lost })
    }
    /// True when a listener wants events of `kind`. Events are created only then.
    #[must_use]
    pub fn wants(&self, kind: EventKind) -> bool {
        self.listeners.iter().any(|l| matches!(&l.topics, Topics::Events(kinds) if kinds.contains(&kind)))
    }
    /// Sends an event; `details` is a JSON object.
    pub fn event(
        &mut self,
        kind: EventKind,
        action: &'static str,
        details: impl FnOnce() -> Map<String, Value>,
    ) {
        if self.wants(kind) {
            let event = Event { time: wall_clock(), kind, action, details: details() };
            let Ok(line) = serde_json::to_string(&event) else { return };
            self.deliver(
                &line.into(),
                |topics| matches!(topics, Topics::Events(kinds) if kinds.contains(&kind)),
            );
        }
    }
    /// Sends a log message.
    pub fn log(&mut self, line: &str) {
        self.deliver(&line.into(), |topics| *topics == Topics::Log);
    }
    fn deliver(&mut self, line: &Rc<str>, wants: impl Fn(&Topics) -> bool) {
        self.listeners.retain(|listener| {
            if !wants(&listener.topics) {
                return true;
            }
            match listener.queue.try_send(line.clone()) {
                Ok(()) => true,
                Err(mpsc::error::TrySendError::Full(_)) => {
                    listener.lost.set(listener.lost.get() + 1);
                    true
                }
                Err(mpsc::error::TrySendError::Closed(_)) => false,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_slow_subscriber_loses_events_and_gets_their_number() {
        let mut bus = Bus::default();
        let mut slow = bus.subscribe(Topics::Events([EventKind::Fdb].into())).expect("room");
        let mut log = bus.subscribe(Topics::Log).expect("room");
        for n in 0..QUEUE + 3 {
            bus.event(EventKind::Fdb, "add", || [("n".to_owned(), json!(n))].into_iter().collect());
            bus.event(EventKind::Link, "add", Map::new);
        }
        bus.log("%SYS-5-X: y");
        assert_eq!(log.next().await.as_deref(), Some("%SYS-5-X: y"));
        let first: Value = serde_json::from_str(&slow.next().await.expect("a line")).expect("JSON");
        assert_eq!((&first["type"], &first["lost"]), (&json!("monitor"), &json!(3)));
        for n in 0..QUEUE {
            let line: Value = serde_json::from_str(&slow.next().await.expect("a line")).expect("JSON");
            assert_eq!((&line["type"], &line["n"]), (&json!("fdb"), &json!(n)));
        }
        drop(slow);
        assert!(bus.wants(EventKind::Fdb), "noticed at the next event");
        bus.event(EventKind::Fdb, "add", Map::new);
        assert!(!bus.wants(EventKind::Fdb));
    }

    #[test]
    fn bounded() {
        let mut bus = Bus::default();
        let kept: Vec<_> = (0..MAX_LISTENERS).map(|_| bus.subscribe(Topics::Log).expect("room")).collect();
        assert!(bus.subscribe(Topics::Log).is_err());
        drop(kept);
        assert!(bus.subscribe(Topics::Log).is_ok());
    }
}
