//! A chip in this process whose clock moves only while a caller waits. Tests and models run as fast as the machine
//! allows, and their figures are those of the bus alone.

use crate::hardware::{Failure, Hardware, Ticket};
use lanyard_asic::chip::device::{Device, SessionId, wants};
use lanyard_asic::platform::Platform;
use lanyard_asic::sdk::faults::FaultPlan;
use lanyard_asic::sdk::message::{Answer, Event, Incoming, Notice, Request, Welcome, announced};
use lanyard_asic::sdk::{Operation, VERSION};
use lanyard_pipeline::Timestamp;
use std::collections::VecDeque;

/// See the module comment.
#[derive(Debug)]
pub struct Simulated {
    device: Device,
    session: SessionId,
    welcome: Welcome,
    platform: Platform,
    /// The salt, which determines the collisions of keys; a change takes effect at the next start of the chip.
    pub salt: u64,
    now_ns: u64,
    number: u32,
    under_way: VecDeque<u32>,
    answers: VecDeque<(Ticket, Result<Answer, Failure>)>,
    events: Vec<Event>,
    /// True if a chip that died can be started again.
    pub restarts: bool,
    /// Returns the processor time of this thread in nanoseconds. If it is set, [`Simulated::own_ns`] counts the part of that time
    /// that simulating the chip takes.
    pub meter: Option<fn() -> u64>,
    own_ns: u64,
}

impl Simulated {
    /// Creates a chip with this platform.
    #[must_use]
    pub fn new(platform: &Platform, salt: u64) -> Self {
        let mut device = Device::new(platform, salt, 1);
        let session = device.open();
        let bus = platform.bus;
        let welcome = Welcome {
            version: VERSION,
            platform: platform.name.clone(),
            boot: 1,
            salt,
            write_us: bus.write_us,
            query_us: bus.query_us,
            bulk: bus.bulk,
        };
        let mut this = Self {
            device,
            session,
            welcome,
            platform: platform.clone(),
            salt,
            now_ns: 0,
            number: 0,
            under_way: VecDeque::new(),
            answers: VecDeque::new(),
            events: Vec::new(),
            restarts: true,
            meter: None,
            own_ns: 0,
        };
        this.greet();
        this
    }

    fn greet(&mut self) {
        let now = self.now();
        self.device.request(now, self.session, 0, Request::Hello(VERSION, "simulated".into()));
        self.device.request(now, self.session, 0, Request::Subscribe(wants::LEARNING));
        self.device.advance(now);
        if let Some(output) = self.device.output(self.session) {
            output.clear();
        }
    }
    /// The simulated time in microseconds.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.now_ns / 1000
    }
    /// Lets time pass: the chip does what is due.
    pub fn advance(&mut self, us: u64) {
        self.advance_ns(us * 1000);
    }
    /// As [`Simulated::advance`], in nanoseconds.
    pub fn advance_ns(&mut self, ns: u64) {
        self.now_ns += ns;
        self.metered(Self::take);
    }
    /// The simulated time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now_ns)
    }
    /// The processor time in nanoseconds that simulating the chip, and measuring that time, has taken; 0 without a
    /// [`Simulated::meter`].
    #[must_use]
    pub fn own_ns(&self) -> u64 {
        self.own_ns
    }
    fn metered<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        let Some(meter) = self.meter else { return work(self) };
        let (before, again) = (meter(), meter());
        let outcome = work(self);
        // Reading the meter takes as long as the work, so three readings are counted: the time from the first to the last
        // includes two of them, and `again - before` is the time of one.
        self.own_ns += meter().saturating_sub(before) + again.saturating_sub(before);
        outcome
    }
    /// The chip, for inspection and for sending frames to it.
    pub fn device(&mut self) -> &mut Device {
        &mut self.device
    }
    /// Sets the chip's fault plan.
    pub fn set_faults(&mut self, plan: FaultPlan) {
        self.device.set_faults(plan);
    }
    /// The chip's configuration, read without the bus and the protocol.
    #[must_use]
    pub fn truth(&self) -> Vec<Operation> {
        self.device.chip().entries()
    }

    /// Handles the messages that the chip has sent by now.
    fn take(&mut self) {
        self.device.advance(self.now());
        let bytes: Vec<u8> =
            self.device.output(self.session).map(|out| out.drain(..).collect()).unwrap_or_default();
        let mut rest = &bytes[..];
        while let Ok(Some(length)) = announced(rest) {
            match Incoming::decode(&rest[..length]) {
                Ok(Incoming::Answer(number, Answer::Refused(refused))) => {
                    self.answers.push_back((Ticket(number.into()), Err(Failure::Refused(refused))));
                    self.under_way.pop_front();
                }
                Ok(Incoming::Answer(number, answer)) => {
                    self.answers.push_back((Ticket(number.into()), Ok(answer)));
                    self.under_way.pop_front();
                }
                Ok(Incoming::Notice(Notice::Event(event))) => self.events.push(event),
                Ok(Incoming::Notice(Notice::Packet(..) | Notice::Diverted(..))) | Err(_) => {}
            }
            rest = &rest[length..];
        }
        if self.device.is_dead() || self.device.closing(self.session) {
            let gone = || Err(Failure::Gone("the chip has died or closed the connection".into()));
            self.answers.extend(self.under_way.drain(..).map(|number| (Ticket(number.into()), gone())));
        }
    }
}

impl Hardware for Simulated {
    fn send(&mut self, request: Request) -> Ticket {
        self.number += 1;
        self.under_way.push_back(self.number);
        let (now, session, number) = (self.now(), self.session, self.number);
        self.metered(|this| this.device.request(now, session, number, request));
        Ticket(self.number.into())
    }
    fn poll(&mut self, wait: bool) -> Option<(Ticket, Result<Answer, Failure>)> {
        self.metered(|this| {
            this.take();
            while wait && this.answers.is_empty() && !this.under_way.is_empty() {
                let next = this.device.next_on_bus()?;
                this.now_ns = this.now_ns.max(next.as_nanos());
                this.take();
            }
            this.answers.pop_front()
        })
    }
    fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
    fn welcome(&self) -> &Welcome {
        &self.welcome
    }
    fn reconnect(&mut self) -> Result<(), String> {
        if self.device.is_dead() {
            if !self.restarts {
                return Err("the chip is dead".into());
            }
            self.welcome.boot += 1;
            self.welcome.salt = self.salt;
            self.device = Device::new(&self.platform, self.salt, self.welcome.boot);
        } else {
            self.device.close(self.session);
        }
        self.session = self.device.open();
        self.greet();
        Ok(())
    }
}
