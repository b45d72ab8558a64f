//! [`Device`]: the chip as its drivers see it: sessions, the bus and its latency, faults. It does no I/O; time is an
//! argument.
//!
//! The bus does one thing at a time, in the order in which requests arrive. A transaction takes `write_us` for each
//! `bulk` entries, a query takes `query_us`. A request takes effect when its time is over, and its answer is sent then.
//! An operation may write more than one entry (entries that an insertion had to move, members of a group, a VRF); the
//! further ones occupy the bus, too.
//!
//! Invariants: a session's requests are answered in order. A session that does not read gets no notices but the number
//! of those it missed, and no more requests are taken from it ([`Device::takes`]). Forwarding never waits for a
//! session.

mod diverted;
mod frames;
mod relayed;
mod watchdog;

pub use frames::Exit;
use watchdog::Watchdogs;

use super::fabric::Fabric;
use super::segments::Offload;
use super::{Chip, Effects};
use crate::platform::Platform;
use crate::sdk::cpu::CpuHeader;
use crate::sdk::faults::{Fault, FaultPlan};
use crate::sdk::message::{
    Answer, Code, Event, LearnedEntry, Notice, PortCounts, PortInfo, Refused, Request, Welcome,
};
use crate::sdk::operation::{Operation, OperationKind};
use crate::sdk::{VERSION, message};
use ipnet::IpNet;
use lanyard_pipeline::Timestamp;
use lanyard_types::{DropReason, PortId, VrfId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most waiting requests of a session.
const MAX_WAITING: usize = 4096;
/// The bytes of waiting output for a session from which on the chip takes no more requests from it.
const MAX_OUT: usize = 1 << 20;
/// The most bytes of waiting output with which a notice is still sent to the session; others are dropped. Less than [`MAX_OUT`],
/// so that notices alone never block the requests of a driver, which may send a frame for each notice that it gets.
const MAX_NOTICES: usize = MAX_OUT / 2;
/// The most operations or learned entries of one answer.
const PAGE: usize = 512;

/// Bits of [`Request::Subscribe`].
pub mod wants {
    /// Learned addresses, their moves and their removal.
    pub const LEARNING: u32 = 1;
    /// Links of front-panel ports that come up or go down.
    pub const LINKS: u32 = 2;
    /// Frames of the CPU port.
    pub const PACKETS: u32 = 4;
    /// Frames that diverted lists have to judge. Only one session gets them: the oldest one that has subscribed to them.
    pub const DIVERTED: u32 = 8;
    /// The acknowledgement of an expiry of the watchdog of spanning tree.
    pub const EXPIRY: u32 = 16;
}

/// Identifies a driver's connection. Numbers are not reused.
pub type SessionId = u64;

#[derive(Debug, Default)]
struct Session {
    greeted: bool,
    wants: u32,
    out: VecDeque<u8>,
    waiting: usize,
    lost: u64,
    entries: VecDeque<Operation>,
    learned: VecDeque<LearnedEntry>,
    activity: VecDeque<(VrfId, IpNet, u64)>,
    /// True once the chip takes no more requests from the session and sends it no more messages; waiting output is still sent.
    closed: bool,
}

#[derive(Debug)]
struct Pending {
    session: SessionId,
    number: u32,
    request: Request,
    arrived: u64,
}

/// The request that the bus is processing: the time in nanoseconds at which it ends, and the fault planned for it.
#[derive(Debug)]
struct Running {
    due: u64,
    refuse: Option<u32>,
    cut: bool,
}

/// See the module comment.
#[derive(Debug)]
pub struct Device {
    chip: Chip,
    fabric: Fabric,
    welcome: Welcome,
    /// Speed of each front-panel port in Mbit/s.
    speeds: BTreeMap<PortId, u32>,
    up: BTreeSet<PortId>,
    sessions: BTreeMap<SessionId, Session>,
    next_session: SessionId,
    bus: VecDeque<Pending>,
    running: Option<Running>,
    /// The time in nanoseconds at which the bus becomes free.
    free: u64,
    answers: VecDeque<(u64, SessionId, u32, Answer)>,
    /// The diverted frames that a session has got and not given back, by the port that received them.
    diverted: BTreeMap<PortId, u64>,
    watchdogs: Watchdogs,
    faults: FaultPlan,
    dead: bool,
    /// True while frames for interfaces go to a netdev, through `cpu_out` unless an [`Exit`] takes them at once.
    cpu_netdev: bool,
    cpu_out: Vec<(CpuHeader, Vec<u8>, Offload)>,
    /// The reason why the netdev of the last [`Request::CpuNetdev`] could not be opened.
    cpu_refusal: Option<String>,
}

impl Device {
    /// Creates a chip with this platform. `salt` determines which keys collide, `boot` distinguishes this run of
    /// the chip from others.
    #[must_use]
    pub fn new(platform: &Platform, salt: u64, boot: u64) -> Self {
        let bus = platform.bus;
        let welcome = Welcome {
            version: VERSION,
            platform: platform.name.clone(),
            boot,
            salt,
            write_us: bus.write_us,
            query_us: bus.query_us,
            bulk: bus.bulk.max(1),
        };
        let speed = |row: &crate::platform::FrontPort| row.speeds.iter().copied().max().unwrap_or(0);
        let speeds = platform.ports().filter_map(|(number, row)| Some((PortId::new(number)?, speed(row))));
        let speeds = speeds.chain(platform.parts().map(|(_, part)| (part.id, part.speed_mbps)));
        let speeds: BTreeMap<PortId, u32> = speeds.collect();
        let mut chip = Chip::new(platform, salt);
        speeds.keys().for_each(|port| chip.set_link(*port, false));
        Self {
            chip,
            fabric: Fabric::new(platform),
            welcome,
            speeds,
            up: BTreeSet::new(),
            sessions: BTreeMap::new(),
            next_session: 1,
            bus: VecDeque::new(),
            running: None,
            free: 0,
            answers: VecDeque::new(),
            diverted: BTreeMap::new(),
            watchdogs: Watchdogs::default(),
            faults: FaultPlan::default(),
            dead: false,
            cpu_netdev: false,
            cpu_out: Vec::new(),
            cpu_refusal: None,
        }
    }

    /// The chip, for inspection.
    #[must_use]
    pub fn chip(&self) -> &Chip {
        &self.chip
    }
    /// The fabric, for inspection.
    #[must_use]
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }
    /// Sets the fault plan.
    pub fn set_faults(&mut self, plan: FaultPlan) {
        self.faults = plan;
    }
    /// True once a fault has ended the chip: nothing is answered or forwarded any more.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Opens a session for a driver that has connected.
    pub fn open(&mut self) -> SessionId {
        let id = self.next_session;
        self.next_session += 1;
        self.sessions.insert(id, Session::default());
        id
    }
    /// Closes the session of a driver that has disconnected. Its waiting requests are not carried out;
    /// everything it has written stays.
    pub fn close(&mut self, session: SessionId) {
        if self.sessions.remove(&session).is_some_and(|session| session.wants & wants::DIVERTED != 0) {
            self.count_lost_diverted();
        }
        let first = self.bus.front().map(|first| first.session);
        self.bus.retain(|pending| pending.session != session);
        if first == Some(session) {
            self.running = None;
        }
    }
    /// True while the chip takes requests from the session: not too many of its requests wait, and it reads its output.
    #[must_use]
    pub fn takes(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| {
            !session.closed && session.waiting < MAX_WAITING && session.out.len() < MAX_OUT
        })
    }
    /// The bytes to send to a session, oldest first.
    pub fn output(&mut self, session: SessionId) -> Option<&mut VecDeque<u8>> {
        self.sessions.get_mut(&session).map(|session| &mut session.out)
    }
    /// True when the session must be closed after its output has been sent.
    #[must_use]
    pub fn closing(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_none_or(|session| session.closed)
    }

    /// True after the session's hello.
    #[must_use]
    pub fn is_greeted(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|session| session.greeted)
    }
    /// Sets whether frames for interfaces go to a netdev from now on ([`Device::cpu_frames`]). An error is the reason why the
    /// netdev cannot be opened; the answer to the driver's request contains it.
    pub fn set_cpu_netdev(&mut self, outcome: Result<bool, String>) {
        match outcome {
            Ok(on) => self.cpu_netdev = on,
            Err(why) => self.cpu_refusal = Some(why),
        }
    }
    /// Accepts a request of a session. Requests that carry a frame ([`Request::Packet`], [`Request::Relay`], [`Request::Judged`])
    /// are carried out at once, others when the bus comes to them. Requests about the watchdog of spanning tree do not wait for
    /// the bus while the session waits for no other answer.
    pub fn request(&mut self, now: Timestamp, session: SessionId, number: u32, request: Request) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        match &request {
            Request::Hello(version, _) if *version == VERSION => state.greeted = true,
            _ if state.greeted => {}
            _ => {
                state.closed = true;
                let text =
                    format!("this chip speaks version {VERSION} of the protocol and expects a hello first");
                state.out.extend(Answer::Refused(refused(Code::Version, text)).encode(number));
                return;
            }
        }
        if let Request::Packet(header, frame) = &request {
            self.packet(now, *header, frame);
            return;
        }
        if let Request::Relay(vlan, from, ports, frame) = &request {
            self.relay(now, (*vlan, *from, ports), frame);
            return;
        }
        if let Request::Judged(frame, answers) = &request {
            self.judged(now, frame, answers);
            return;
        }
        if self.answers_at_once(now, session, number, &request) {
            return;
        }
        if let Some(state) = self.sessions.get_mut(&session) {
            state.waiting += 1;
        }
        self.bus.push_back(Pending { session, number, request, arrived: now.as_nanos() });
        self.advance(now);
    }

    /// Does the work that is due.
    pub fn advance(&mut self, now: Timestamp) {
        while !self.dead {
            let Some(first) = self.bus.front() else { break };
            let due = match &self.running {
                Some(running) => running.due,
                None => {
                    let running = begin(&mut self.faults, &self.welcome, first, self.free);
                    let Some(running) = running else {
                        self.dead = true;
                        return;
                    };
                    self.running.insert(running).due
                }
            };
            if due > now.as_nanos() {
                break;
            }
            if let (Some(pending), Some(running)) = (self.bus.pop_front(), self.running.take()) {
                self.free = due;
                self.finish(pending, &running);
            }
        }
        self.watch(now);
        while self.answers.front().is_some_and(|(due, ..)| *due <= now.as_nanos() && !self.dead) {
            let Some((_, session, number, answer)) = self.answers.pop_front() else { break };
            if let Some(session) = self.sessions.get_mut(&session) {
                session.waiting -= 1;
                session.out.extend(answer.encode(number));
            }
        }
    }

    /// When the bus completes its only request; `None` while it is idle or further requests wait. The driver that sent the
    /// request probably waits for its answer and sends nothing before, so the caller should wake up exactly at this time.
    #[must_use]
    pub fn awaited(&self) -> Option<Timestamp> {
        let alone = self.bus.len() + self.answers.len() == 1;
        let running = self.running.as_ref().map(|running| running.due);
        let due = running.or_else(|| self.answers.front().map(|(due, ..)| *due));
        due.filter(|_| alone).map(Timestamp::from_nanos)
    }

    /// When [`Device::advance`] or [`Device::departures`] has something to do; `None` while nothing is pending.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        [self.next_on_bus(), self.fabric.next(), self.watchdogs.next()].into_iter().flatten().min()
    }

    /// When [`Device::advance`] has to complete a request or send an answer; `None` while the bus is idle.
    #[must_use]
    pub fn next_on_bus(&self) -> Option<Timestamp> {
        let running = self.running.as_ref().map(|running| running.due);
        let answer = self.answers.front().map(|(due, ..)| *due);
        [running, answer].into_iter().flatten().min().map(Timestamp::from_nanos)
    }

    fn finish(&mut self, pending: Pending, running: &Running) {
        let now = Timestamp::from_nanos(running.due);
        let mut effects = Effects::default();
        let answer = match running.refuse {
            Some(at) => Answer::Refused(Refused { at, ..refused(Code::Fault, "a fault was planned".into()) }),
            None => self.carry_out(now, &pending, &mut effects),
        };
        self.publish(effects);
        if running.cut {
            if let Some(session) = self.sessions.get_mut(&pending.session) {
                session.closed = true;
            }
            return;
        }
        self.answers.push_back((self.free, pending.session, pending.number, answer));
    }

    fn carry_out(&mut self, now: Timestamp, pending: &Pending, effects: &mut Effects) -> Answer {
        let Some(session) = self.sessions.get_mut(&pending.session) else { return Answer::Done(0) };
        let done = |count: Result<u64, Refused>| count.map_or_else(Answer::Refused, Answer::Done);
        match &pending.request {
            Request::Hello(..) => Answer::Welcome(self.welcome.clone()),
            Request::Commit(list) => {
                let written = self.chip.commit(now, list, effects);
                if let Ok(written) = written {
                    let moved = u64::from(written).saturating_sub(list.len() as u64);
                    self.free +=
                        moved.div_ceil(self.welcome.bulk.into()) * u64::from(self.welcome.write_us) * 1000;
                }
                done(written.map(u64::from))
            }
            Request::Usage => Answer::Usage(self.chip.usage()),
            Request::Entries(anew) => {
                if *anew {
                    session.entries = self.chip.entries().into();
                }
                let mut bytes = 0;
                let mut page = Vec::new();
                while page.len() < PAGE && bytes < message_budget() {
                    let Some(operation) = session.entries.pop_front() else { break };
                    let mut writer = crate::sdk::bytes::Writer::default();
                    operation.write(&mut writer);
                    bytes += writer.0.len();
                    page.push(operation);
                }
                Answer::Operations(!session.entries.is_empty(), page)
            }
            Request::Learned(anew) => {
                if *anew {
                    session.learned = self.chip.learned(now).into();
                }
                let count = session.learned.len().min(PAGE);
                let page = session.learned.drain(..count).collect();
                Answer::Learned(!session.learned.is_empty(), page)
            }
            Request::Activity(anew) => {
                if *anew {
                    session.activity = self.chip.take_activity().into();
                }
                let count = session.activity.len().min(PAGE);
                let page = session.activity.drain(..count).collect();
                Answer::Activity(!session.activity.is_empty(), page)
            }
            Request::Counters(port) => Answer::Counters(self.counters(*port)),
            Request::Matches(id, clear) => Answer::Matches(self.chip.list_matches(*id, *clear)),
            Request::Ports => Answer::Ports(self.ports()),
            Request::Subscribe(mask) => {
                session.wants = *mask;
                Answer::Done(u64::from(*mask))
            }
            Request::Faults(text) => match FaultPlan::parse(text) {
                Ok(plan) => {
                    let count = plan.len() as u64;
                    self.faults = plan;
                    Answer::Done(count)
                }
                Err(text) => Answer::Refused(refused(Code::Invalid, text)),
            },
            Request::Resize(path, size) => done(self.chip.resize(path, *size).map(|()| 0)),
            Request::Flush(vlan, port, mac) => {
                let filter = Request::filter(*vlan, *port, *mac);
                Answer::Done(self.chip.flush(&filter, now, effects))
            }
            Request::Age(seconds) => Answer::Done(self.chip.age(*seconds, now, effects)),
            Request::Speed(port, mbps) => match self.speeds.get_mut(port) {
                Some(speed) => {
                    *speed = *mbps;
                    self.fabric.set_speed(*port, *mbps);
                    Answer::Done(u64::from(*mbps))
                }
                None => {
                    Answer::Refused(refused(Code::Invalid, format!("{port} is no port of the front panel")))
                }
            },
            Request::CpuNetdev(_) => match self.cpu_refusal.take() {
                Some(why) => Answer::Refused(refused(Code::Invalid, why)),
                None => Answer::Done(u64::from(self.cpu_netdev)),
            },
            Request::SnoopingWatchdog(after_ms) => {
                Answer::Done(self.restart_snooping_watchdog(now, *after_ms).into())
            }
            request @ (Request::TreeWatchdog(_) | Request::TreeExpiry(_)) => self.tree_watchdog(now, request),
            Request::Packet(..) | Request::Judged(..) | Request::Relay(..) => Answer::Done(0),
        }
    }

    fn counters(&self, port: PortId) -> PortCounts {
        let counted = self.chip.pipeline().counters().port(port);
        let dropped = DropReason::ALL.iter().filter_map(|reason| {
            let frames = counted.dropped[reason.index()];
            (frames > 0).then_some((reason.index() as u8, frames))
        });
        PortCounts {
            rx: counted.rx,
            tx: counted.tx,
            forwarded: counted.forwarded,
            trapped: counted.trapped,
            tx_dropped: counted.tx_dropped,
            tail_drops: self.fabric.drops(port),
            dropped: dropped.collect(),
        }
    }

    fn ports(&self) -> Vec<PortInfo> {
        let info = |(port, speed): (&PortId, &u32)| {
            let counted = self.chip.pipeline().counters().port(*port);
            let (port, speed_mbps, up) = (*port, *speed, self.up.contains(port));
            PortInfo {
                port,
                speed_mbps,
                up,
                rx: counted.rx,
                tx: counted.tx,
                tail_drops: self.fabric.drops(port),
            }
        };
        self.speeds.iter().map(info).collect()
    }

    /// Sets whether a port has a link, and reports a change to the sessions that have subscribed to links.
    pub fn link(&mut self, port: PortId, up: bool) {
        let news = if up { self.up.insert(port) } else { self.up.remove(&port) };
        if news {
            self.chip.set_link(port, up);
            self.publish(Effects { events: vec![Event::Link(port, up)], ..Effects::default() });
        }
    }

    fn notify(&mut self, wanted: u32, notice: &Notice) {
        let mut encoded = None;
        for session in
            self.sessions.values_mut().filter(|session| session.wants & wanted != 0 && !session.closed)
        {
            let bytes = encoded.get_or_insert_with(|| notice.encode());
            if session.out.len() + bytes.len() > MAX_NOTICES {
                session.lost += 1;
                continue;
            }
            if session.lost > 0 {
                session.out.extend(Notice::Event(Event::Lost(std::mem::take(&mut session.lost))).encode());
            }
            session.out.extend(bytes.iter());
        }
    }
}

/// Begins a request on the bus, with the faults that are planned for it; `None` if one of these makes the chip die.
fn begin(faults: &mut FaultPlan, welcome: &Welcome, pending: &Pending, free: u64) -> Option<Running> {
    let (mut slow, mut refuse, mut cut) = (0_u64, None, false);
    let mut ask = |at: u32, kind| {
        let (us, fault) = faults.next(kind);
        slow += u64::from(us);
        match fault {
            Some(Fault::Fail) => refuse = refuse.or(Some(at)),
            Some(Fault::Cut) => cut = true,
            Some(Fault::Die) => return false,
            Some(Fault::Slow(_)) | None => {}
        }
        true
    };
    let (alive, cost) = match &pending.request {
        Request::Commit(list) => {
            let alive = list.iter().enumerate().all(|(at, operation)| ask(at as u32, operation.kind()));
            let writes = (list.len() as u64).div_ceil(welcome.bulk.into());
            (alive, writes * u64::from(welcome.write_us))
        }
        Request::Resize(..) => (ask(0, OperationKind::Resize), u64::from(welcome.write_us)),
        Request::Flush(..) => (ask(0, OperationKind::Flush), u64::from(welcome.write_us)),
        Request::Age(_) => (ask(0, OperationKind::Age), u64::from(welcome.write_us)),
        Request::Speed(..) => (true, u64::from(welcome.write_us)),
        Request::SnoopingWatchdog(_) => (ask(0, OperationKind::Watchdog), u64::from(welcome.write_us)),
        Request::TreeWatchdog(_) | Request::TreeExpiry(_) => (ask(0, OperationKind::Watchdog), 0),
        Request::Usage
        | Request::Entries(_)
        | Request::Learned(_)
        | Request::Activity(_)
        | Request::Counters(_)
        | Request::Matches(..)
        | Request::Ports => (ask(0, OperationKind::Query), u64::from(welcome.query_us)),
        Request::Hello(..)
        | Request::Subscribe(_)
        | Request::Faults(_)
        | Request::CpuNetdev(_)
        | Request::Packet(..)
        | Request::Relay(..)
        | Request::Judged(..) => (true, 0),
    };
    let due = pending.arrived.max(free) + (cost + slow) * 1000;
    alive.then_some(Running { due, refuse, cut })
}

/// The most bytes of operations in one answer, so that it stays far below the longest message.
const fn message_budget() -> usize {
    crate::sdk::MAX_MESSAGE / 4 - message::PACKET_OVERHEAD
}

fn refused(code: Code, text: String) -> Refused {
    Refused { code, at: 0, table: String::new(), shortage: None, units: (0, 0), text }
}
