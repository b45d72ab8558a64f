//! A device under test between the ports of a tester: the object that procedures measure.
//!
//! Read first: `trial.rs`; RFC 2544, section 6 (test set up). Either the bench creates everything (namespaces, veth,
//! one of [`Kind::ALL`]), or the ports are given, together with any device that connects them. Invariant: the tester is
//! up before the device, and is removed after it. Everything that was created is removed when the bed is dropped.

use crate::bed::{Bed, Traffic, poll_on, set_features};
use crate::dut::{Commanded, Device, Executable, Kind, PortMode};
use anyhow::{Context, Result, ensure};
use lanyard_tester::os::{Netns, check_interrupted, cores, thread_time};
use lanyard_tester::traffic::{CountAt, HOSTS_OF_A_PORT, Hosts, Ip, Stream};
use lanyard_tester::trial::{About, Offer, Outcome, Tester};
use lanyard_tester::{Answers, Options, PortTester, SendMethod, ports_of};
use nix::unistd::Pid;
use std::thread;
use std::time::{Duration, Instant};

/// The rate in frames per second at which hosts are made known to a device that learns in a thread of its
/// own.
const LEARN_PPS: u32 = 20_000;
/// The most repetitions of making hosts known, until all of their frames arrive.
const LEARN_TRIES: usize = 20;

/// The settings of a bed.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The `lanyard` to measure.
    pub lanyard: Executable,
    /// Ports of the device, 2 to 61.
    pub ports: usize,
    /// The hook at which arrivals are checked; `None` is the best one for the device: XDP for devices that
    /// redirect from XDP, else TC.
    pub count_at: Option<CountAt>,
    /// The cores that send; empty for the first one.
    pub cores: Vec<usize>,
    /// The core on which the device's ports are polled, where the device does not forward in threads of its own.
    /// `None`: the core that sends the frame.
    pub device_core: Option<usize>,
}

impl Setup {
    /// Two ports, and this program as `lanyard`.
    ///
    /// # Errors
    /// When the path of this program is not known.
    pub fn new() -> Result<Self> {
        Ok(Self {
            lanyard: Executable::new(None)?,
            ports: 2,
            count_at: None,
            cores: vec![0],
            device_core: None,
        })
    }
}

/// A device under test that is not one of [`Kind::ALL`]: any device that connects the given ports.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The tester's ports: devices of the current namespace.
    pub ports: Vec<String>,
    /// The hook at which arrivals are checked; `None` is XDP.
    pub count_at: Option<CountAt>,
    /// The cores that send; empty for the first one.
    pub cores: Vec<usize>,
    /// The shell command that brings the device up, with the ports in `$PORTS`.
    pub up: Option<String>,
    /// The shell command that takes it down.
    pub down: Option<String>,
    /// The device's MAC address at each port; empty for a device that bridges.
    pub router_macs: Vec<[u8; 6]>,
}

/// A tester and a device, joined and up.
pub struct TestBed {
    // Dropped in this order.
    device: Box<dyn Device>,
    _answers: Option<Answers>,
    tester: PortTester,
    bed: Option<Bed>,
    ports: Vec<String>,
    name: String,
    router_macs: Vec<[u8; 6]>,
    /// The threads that poll the device's ports, where the ports have threads of their own.
    pollers: Vec<Pid>,
}

impl TestBed {
    /// Makes a bed with `kind` in it.
    ///
    /// # Errors
    /// Without root, or when the device does not come up.
    pub fn up(kind: Kind, setup: &Setup) -> Result<Self> {
        let count_at = setup.count_at.unwrap_or(if kind.in_xdp() { CountAt::Xdp } else { CountAt::Tc });
        let device_core = setup.device_core.filter(|_| !kind.own_threads());
        let setup = Setup { count_at: Some(count_at), device_core, ..setup.clone() };
        Self::with(kind.name(), &setup, kind.routes(), |bed| kind.up(bed, &setup.lanyard, PortMode::Access))
    }

    /// Makes a bed in which a shell command brings the device up. The command runs in the namespace of the ports, with
    /// their names in `$PORTS`.
    ///
    /// # Errors
    /// Without root, or when the command fails.
    pub fn commanded(name: &str, setup: &Setup, up: &str, down: Option<&str>) -> Result<Self> {
        let setup = Setup { count_at: setup.count_at.or(Some(CountAt::Tc)), ..setup.clone() };
        Self::with(name, &setup, false, |bed| {
            Ok(Box::new(Commanded::up(&bed.switch, &bed.ports(), Some(up), down)?))
        })
    }

    /// Makes a bed with the device that `device` brings up in it; `routes` is true for a router.
    ///
    /// # Errors
    /// Without root, or when the device does not come up.
    pub fn with(
        name: &str,
        setup: &Setup,
        routes: bool,
        device: impl FnOnce(&Bed) -> Result<Box<dyn Device>>,
    ) -> Result<Self> {
        ensure!((2..=61).contains(&setup.ports), "{} ports: 2-61", setup.ports);
        let count_at = setup.count_at.unwrap_or(CountAt::Xdp);
        let traffic = if count_at == CountAt::Xdp { Traffic::XdpFrames } else { Traffic::Frames };
        let bed = Bed::new(setup.ports as u16 - 1, traffic)?;
        let mut ports = ports_of(&bed.sender, &["tx0".to_owned()])?;
        ports.extend(ports_of(&bed.sink, &bed.receivers())?);
        let answers = routes.then(|| Answers::at(&ports)).transpose()?;
        let options = Options { count_at, cores: senders(&setup.cores), copies: setup.ports - 1 };
        let tester = PortTester::new(ports, options)?;
        let device = device(&bed).with_context(|| name.to_owned())?;
        let mut pollers = Vec::new();
        if let Some(core) = setup.device_core {
            for port in bed.ports() {
                pollers.extend(poll_on(&bed.switch, &port, core)?);
            }
        }
        let macs = |port| device.router_mac(port).context("a router without MAC address");
        let router_macs = if routes { (0..setup.ports).map(macs).collect::<Result<_>>()? } else { vec![] };
        let (name, ports) = (name.to_owned(), bed.ports());
        Ok(Self { device, _answers: answers, tester, bed: Some(bed), ports, name, router_macs, pollers })
    }

    /// Makes a bed without a device: the tester's two ports are joined to each other.
    ///
    /// # Errors
    /// Without root.
    pub fn wire(setup: &Setup) -> Result<Self> {
        let (near, far) = (Netns::new()?, Netns::new()?);
        near.ip(&format!("link add tx0 up type veth peer name rx1 netns {}\n", far.path()))?;
        far.ip("link set rx1 up\n")?;
        let mut ports = ports_of(&near, &["tx0".to_owned()])?;
        ports.extend(ports_of(&far, &["rx1".to_owned()])?);
        for port in &ports {
            set_features(port.netns(), port.name(), &["gro", "on"])?;
        }
        let count_at = setup.count_at.unwrap_or(CountAt::Xdp);
        let tester = PortTester::new(ports, Options { count_at, cores: senders(&setup.cores), copies: 1 })?;
        let device = Box::new(Commanded::up(&near, &[], None, None)?);
        let (name, ports) = ("wire".to_owned(), Vec::new());
        let (router_macs, pollers) = (Vec::new(), Vec::new());
        Ok(Self { device, _answers: None, tester, bed: None, ports, name, router_macs, pollers })
    }

    /// Makes the tester send by `way` instead of the best way.
    ///
    /// # Errors
    /// Where that way is not available.
    pub fn send_by(&mut self, way: SendMethod) -> Result<()> {
        self.tester.send_by(way)
    }

    /// Stores the latency that the tester itself adds ([`crate::selftest::own_latency`]). It is reported and
    /// not subtracted.
    pub fn calibrated(&mut self, own_latency_ns: u64) {
        self.tester.calibrated(own_latency_ns);
    }

    /// Makes a bed of ports that exist already and the device that connects them.
    ///
    /// # Errors
    /// For ports that are missing or down, or when the command fails.
    pub fn given(name: &str, given: &Given) -> Result<Self> {
        let here = Netns::current()?;
        ensure!(given.ports.len() >= 2, "give two ports or more");
        let macs = given.router_macs.len();
        ensure!(
            macs == 0 || macs == given.ports.len(),
            "{macs} MAC addresses for {} ports",
            given.ports.len()
        );
        let device = Commanded::up(&here, &given.ports, given.up.as_deref(), given.down.as_deref())?;
        let ports = ports_of(&here, &given.ports)?;
        let answers = (macs > 0).then(|| Answers::at(&ports)).transpose()?;
        let count_at = given.count_at.unwrap_or(CountAt::Xdp);
        let options = Options { count_at, cores: senders(&given.cores), copies: given.ports.len() - 1 };
        let tester = PortTester::new(ports, options)?;
        Ok(Self {
            device: Box::new(device),
            _answers: answers,
            tester,
            bed: None,
            ports: given.ports.clone(),
            name: name.to_owned(),
            router_macs: given.router_macs.clone(),
            pollers: Vec::new(),
        })
    }

    /// The device's name in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's description of itself.
    #[must_use]
    pub fn detail(&self) -> String {
        self.device.detail()
    }

    /// True when the device routes.
    #[must_use]
    pub fn routes(&self) -> bool {
        !self.router_macs.is_empty()
    }

    /// The device's MAC address at a port, if it routes.
    #[must_use]
    pub fn router_mac(&self, port: usize) -> Option<[u8; 6]> {
        self.router_macs.get(port).copied()
    }

    /// Runs a trial and resets the device `after` its beginning, by a shell command or by the device's own way. `None`
    /// when neither exists.
    ///
    /// # Errors
    /// When the trial or the reset fails.
    pub fn trial_with_reset(
        &mut self,
        offer: &Offer,
        after: Duration,
        command: Option<&str>,
    ) -> Result<Option<Outcome>> {
        let Self { device, tester, bed, ports, .. } = self;
        let here = match bed {
            Some(bed) => bed.switch.try_clone()?,
            None => Netns::current()?,
        };
        let mut resets = device.resets();
        if command.is_none() && resets.is_none() {
            return Ok(None);
        }
        let (outcome, done) = thread::scope(|scope| {
            let reset = scope.spawn(|| -> Result<()> {
                let begin = Instant::now();
                while begin.elapsed() < after {
                    check_interrupted()?;
                    thread::sleep(Duration::from_millis(5));
                }
                match (command, &mut resets) {
                    (Some(line), _) => Commanded::run(&here, ports, line).map(drop).context("--reset"),
                    (None, Some(device)) => device.reset().context("reset"),
                    (None, None) => Ok(()),
                }
            });
            let outcome = tester.trial(offer);
            (outcome, reset.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the reset died"))))
        });
        done?;
        if command.is_none()
            && let Some(device) = resets
        {
            device.after_reset()?;
        }
        outcome.map(Some)
    }

    /// A stream from port `from` to port `to`, between the first `hosts` hosts of each, addressed to the host or to
    /// the router, depending on the device. Number, size, rate and the other fields remain to be set.
    #[must_use]
    pub fn stream(&self, from: usize, to: usize, hosts: u32) -> Stream {
        let next_hop = self.router_macs.get(from).copied();
        Stream { src: Hosts::of_port(from, hosts), dst: Hosts::of_port(to, hosts), next_hop, ..Stream::new() }
    }

    /// Makes the first `hosts` hosts of every port known to the device. Each host sends a frame, repeatedly until all
    /// frames arrive where they should (RFC 2544, section 23: learning frames). A router has to resolve the hosts'
    /// addresses first; with IPv6 that takes two seconds after it came up.
    ///
    /// # Errors
    /// When frames still do not arrive after some tries; or on ctrl-C.
    pub fn learn(&mut self, hosts: u32, ip: Ip) -> Result<()> {
        let ports = self.tester.ports();
        let mut last = String::new();
        for _ in 0..LEARN_TRIES {
            let stream = |port: usize| {
                let stream = self.stream(port, (port + 1) % ports, hosts);
                (port, Stream { id: port as u16, ip, rate_pps: Some(LEARN_PPS), ..stream }.size(128))
            };
            let streams: Vec<_> = (0..ports).map(stream).collect();
            let offer = Offer {
                settle: Duration::from_millis(200),
                ..Offer::burst(streams, hosts.clamp(1, HOSTS_OF_A_PORT).into())
            };
            let outcome = self.tester.trial(&offer)?;
            if let Some(why) = outcome.cut_short {
                anyhow::bail!("{why}");
            }
            let arrived = |(port, s): (usize, &lanyard_tester::trial::StreamOutcome)| {
                let at = s.received_at.get((port + 1) % ports).copied().unwrap_or(0);
                // All frames arrived at the right port, and none at another one: the device no longer floods.
                at == s.sent && s.received == s.sent && s.reordered == 0
            };
            if outcome.streams.iter().enumerate().all(arrived) {
                return Ok(());
            }
            last = outcome.streams.iter().map(|s| format!(" {}/{}", s.received, s.sent)).collect();
        }
        anyhow::bail!("{}: frames do not arrive where their hosts are, at each port:{last}", self.name)
    }
}

/// The cores that send: those of `asked` that exist or, without any, the first one.
fn senders(asked: &[usize]) -> Vec<usize> {
    let some: Vec<usize> = asked.iter().copied().filter(|core| *core < cores()).collect();
    if some.is_empty() { vec![0] } else { some }
}

impl Tester for TestBed {
    fn ports(&self) -> usize {
        self.tester.ports()
    }

    fn line_rate_pps(&self, frame_bytes: usize) -> Option<f64> {
        self.tester.line_rate_pps(frame_bytes)
    }

    fn trial(&mut self, offer: &Offer) -> Result<Outcome> {
        let used = || self.pollers.iter().copied().map(thread_time).sum::<Option<Duration>>();
        let before = used();
        let mut outcome = self.tester.trial(offer)?;
        if let (false, Some(before), Some(after)) = (self.pollers.is_empty(), before, used()) {
            let sending = outcome.streams.iter().map(|stream| stream.tx_time).max().unwrap_or_default();
            let busy = after.saturating_sub(before).as_secs_f64() / sending.as_secs_f64().max(1e-9);
            outcome.device_busy = Some(busy.min(1.0));
        }
        Ok(outcome)
    }

    fn about(&self) -> About {
        self.tester.about()
    }
}
