//! The connection to a chip's process. Two threads handle the two directions, so sending never waits for the bus.
//!
//! [`Hardware::send`] puts a request into a queue, and the caller goes on: it makes no system call on the socket.
//! [`Hardware::ask`] is for requests whose answer is awaited: when nothing is queued it writes to the socket itself, which saves
//! the switch to another thread and back; this takes as long as a query of the chip.

use crate::hardware::{Failure, Hardware, Ticket};
use lanyard_asic::chip::device::wants;
use lanyard_asic::sdk::client::{Client, Receiver, Sender};
use lanyard_asic::sdk::message::{Answer, Event, Incoming, Notice, Request, Welcome};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// The most requests that are sent with one system call in addition to the first one.
const GATHERED: usize = 256;

/// A chip that has not answered for this time counts as gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module comment.
#[derive(Debug)]
pub struct Live {
    socket: PathBuf,
    welcome: Welcome,
    requests: mpsc::Sender<Request>,
    out: Arc<Out>,
    incoming: mpsc::Receiver<Incoming>,
    next: u64,
    under_way: VecDeque<Ticket>,
    answers: VecDeque<(Ticket, Result<Answer, Failure>)>,
    events: Vec<Event>,
}

/// The direction to the chip, which the writing thread and [`Hardware::ask`] share.
#[derive(Debug)]
struct Out {
    sender: Mutex<Sender>,
    /// The number of requests that are queued or being written.
    queued: AtomicUsize,
}

impl Out {
    fn write(&self, requests: &[Request]) -> std::io::Result<()> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).send_all(requests)
    }
}

impl Live {
    /// Connects to the chip at a socket.
    ///
    /// # Errors
    /// When no chip answers there.
    pub fn connect(socket: &Path) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| format!("{}: {error}", socket.display());
        let mut client = Client::connect(socket, "offload").map_err(|error| text(&error))?;
        client.number(&Request::Subscribe(wants::LEARNING)).map_err(|error| text(&error))?;
        let welcome = client.welcome().clone();
        let (sender, receiver) = client.split();
        let out = Arc::new(Out { sender: Mutex::new(sender), queued: AtomicUsize::new(0) });
        let writing = out.clone();
        let (requests, queue) = mpsc::channel::<Request>();
        // Both threads end when the connection ends or the other end of their channel is dropped. Requests
        // that were queued while the thread was writing are sent with one system call.
        let writer = move || {
            while let Ok(first) = queue.recv() {
                let more: Vec<Request> =
                    std::iter::once(first).chain(queue.try_iter().take(GATHERED)).collect();
                if writing.write(&more).is_err() {
                    return;
                }
                writing.queued.fetch_sub(more.len(), Ordering::Release);
            }
        };
        let (printed, incoming) = mpsc::channel();
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(run).map_err(|error| text(&error))
        };
        spawn("lanyard-sdk-out", Box::new(writer))?;
        spawn("lanyard-sdk-in", Box::new(move || read(receiver, &printed)))?;
        Ok(Self {
            socket: socket.to_owned(),
            welcome,
            requests,
            out,
            incoming,
            next: 1,
            under_way: VecDeque::new(),
            answers: VecDeque::new(),
            events: Vec::new(),
        })
    }

    fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.under_way.push_back(ticket);
        ticket
    }
    fn received(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Answer(_, answer) => {
                // Answers arrive in the order of the requests.
                let Some(ticket) = self.under_way.pop_front() else { return };
                let outcome = match answer {
                    Answer::Refused(refused) => Err(Failure::Refused(refused)),
                    answer => Ok(answer),
                };
                self.answers.push_back((ticket, outcome));
            }
            Incoming::Notice(Notice::Event(event)) => self.events.push(event),
            Incoming::Notice(Notice::Packet(..) | Notice::Diverted(..)) => {}
        }
    }
    fn gone(&mut self) {
        let gone = || Err(Failure::Gone("the chip has closed the connection".into()));
        self.answers.extend(self.under_way.drain(..).map(|ticket| (ticket, gone())));
    }
}

fn read(mut receiver: Receiver, printed: &mpsc::Sender<Incoming>) {
    while let Ok(incoming) = receiver.receive(None) {
        if incoming.is_some_and(|incoming| printed.send(incoming).is_err()) {
            return;
        }
    }
}

impl Hardware for Live {
    fn send(&mut self, request: Request) -> Ticket {
        let ticket = self.ticket();
        self.out.queued.fetch_add(1, Ordering::Relaxed);
        // If the connection has ended, this is noticed when the answers are read.
        let _ = self.requests.send(request);
        ticket
    }
    fn ask(&mut self, request: Request) -> Ticket {
        // Only this thread adds to the queue, so no other request can be sent between this check and the write.
        if self.out.queued.load(Ordering::Acquire) > 0 {
            return self.send(request);
        }
        let _ = self.out.write(std::slice::from_ref(&request));
        self.ticket()
    }
    fn poll(&mut self, wait: bool) -> Option<(Ticket, Result<Answer, Failure>)> {
        loop {
            match self.incoming.try_recv() {
                Ok(incoming) => self.received(incoming),
                Err(mpsc::TryRecvError::Disconnected) => {
                    self.gone();
                    break;
                }
                Err(mpsc::TryRecvError::Empty) => break,
            }
        }
        while wait && self.answers.is_empty() && !self.under_way.is_empty() {
            match self.incoming.recv_timeout(PATIENCE) {
                Ok(incoming) => self.received(incoming),
                // A chip that has stopped answering is treated like one that has ended.
                Err(_) => self.gone(),
            }
        }
        self.answers.pop_front()
    }
    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
    fn welcome(&self) -> &Welcome {
        &self.welcome
    }
    fn reconnect(&mut self) -> Result<(), String> {
        *self = Self::connect(&self.socket.clone())?;
        Ok(())
    }
}
