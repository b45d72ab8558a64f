//! The devices of a run, from the command line: created by the bench, brought up by shell commands, or
//! already present between given ports.
//!
//! Invariant: a device that does not come up is reported with the reason, and the others are measured.

use super::Subject;
use crate::dut::{Executable, Hook, Kind};
use crate::report::{DeviceNote, Results};
use crate::selftest::own_latency;
use crate::testbed::{Given, Setup, TestBed};
use anyhow::{Context, Result, bail, ensure};
use lanyard_tester::os::{check_interrupted, cores};
use lanyard_tester::traffic::CountAt;
use lanyard_tester::trial::{Offer, Outcome, Tester};
use std::path::PathBuf;
use std::time::Duration;

/// The arguments by which every subcommand chooses its devices.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Devices under test")]
pub struct DeviceArgs {
    /// The devices, which take turns trial by trial: lanyard, lanyard-tc, lanyard-tc-peer, lanyard-xdp, lanyard-soft,
    /// bridge, ovs, bare-tc, bare-tc-peer, bare-xdp; routing: lanyard-router, lanyard-router-tc,
    /// lanyard-router-xdp, router
    #[arg(long, value_name = "DEVICE,...", value_delimiter = ',')]
    pub dut: Vec<String>,
    /// One more device: a shell command that joins the interfaces named in $PORTS
    #[arg(long, value_name = "COMMAND")]
    pub dut_up: Option<String>,
    /// The command that takes it down again
    #[arg(long, value_name = "COMMAND", requires = "dut_up")]
    pub dut_down: Option<String>,
    /// The name of the device of --dut-up or --ports in reports
    #[arg(long, value_name = "NAME", default_value = "given")]
    pub dut_name: String,
    /// Measure the device that connects these interfaces (a switch between two NICs), instead of creating one
    #[arg(long, value_name = "INTERFACE,...", value_delimiter = ',', conflicts_with = "dut")]
    pub ports: Vec<String>,
    /// For --ports, the device's MAC address at each port, if it routes
    #[arg(long, value_name = "MAC,...", value_delimiter = ',', requires = "ports", value_parser = mac)]
    pub router_mac: Vec<[u8; 6]>,
    /// A shell command that resets the device (default for Lanyard: kill -9 and a new daemon)
    #[arg(long, value_name = "COMMAND")]
    pub reset: Option<String>,
    /// The lanyard to measure (default: this one)
    #[arg(long, value_name = "PATH")]
    pub lanyard: Option<PathBuf>,
    /// The core that sends (default: the first)
    #[arg(long, value_name = "CORE")]
    pub tester_core: Option<usize>,
    /// The core that polls the device's ports (default: the last)
    #[arg(long, value_name = "CORE")]
    pub device_core: Option<usize>,
    /// Poll the device's ports on the core that sends: the tester then sends only what the device can take, so
    /// no frame is lost
    #[arg(long, conflicts_with = "device_core")]
    pub inline: bool,
}

/// Parses the MAC address of a router.
fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Vec<u8> =
        text.split([':', '-']).filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
    <[u8; 6]>::try_from(bytes).map_err(|_| "not a MAC address".to_owned())
}

/// A device, and the arguments to create it again.
struct Bench {
    bed: Option<TestBed>,
    make: Box<dyn Fn() -> Result<TestBed>>,
    /// True if the bench can create the device again, which makes it forget its addresses.
    remade: bool,
    reset: Option<String>,
}

impl Bench {
    fn bed(&mut self) -> Result<&mut TestBed> {
        self.bed.as_mut().context("the device did not come back")
    }
}

impl Tester for Bench {
    fn ports(&self) -> usize {
        self.bed.as_ref().map_or(0, Tester::ports)
    }

    fn line_rate_pps(&self, frame_bytes: usize) -> Option<f64> {
        self.bed.as_ref().and_then(|bed| bed.line_rate_pps(frame_bytes))
    }

    fn trial(&mut self, offer: &Offer) -> Result<Outcome> {
        self.bed()?.trial(offer)
    }

    fn about(&self) -> lanyard_tester::trial::About {
        self.bed.as_ref().map(Tester::about).unwrap_or_default()
    }
}

impl Subject for Bench {
    fn tester(&mut self) -> &mut dyn Tester {
        self
    }

    fn detail(&self) -> String {
        self.bed.as_ref().map(TestBed::detail).unwrap_or_default()
    }

    fn router_mac(&self, port: usize) -> Option<[u8; 6]> {
        self.bed.as_ref().and_then(|bed| bed.router_mac(port))
    }

    /// Stops the device and starts it again, which makes every kind of device forget its addresses. Returns false for a device
    /// that the bench does not start.
    fn forget(&mut self) -> Result<bool> {
        if self.remade {
            self.bed = None;
            self.bed = Some((self.make)()?);
        }
        Ok(self.remade)
    }

    fn trial_with_reset(&mut self, offer: &Offer, after: Duration) -> Result<Option<Outcome>> {
        let command = self.reset.clone();
        self.bed()?.trial_with_reset(offer, after, command.as_deref())
    }
}

/// The devices that came up, and those that did not.
pub struct Devices {
    /// The devices that came up, each with its name.
    pub up: Vec<(String, Box<dyn Subject>)>,
    /// The devices that did not come up, with the reasons.
    pub down: Vec<DeviceNote>,
}

/// The checked form of [`DeviceArgs`]; nothing has been created yet.
pub struct Chosen {
    kinds: Vec<Kind>,
    args: DeviceArgs,
    setup: Setup,
    routed: bool,
}

impl DeviceArgs {
    /// Checks the arguments for devices with `ports` ports, which route if `routed` is true, and bridge otherwise. If no device
    /// is named, Lanyard and the kernel are chosen.
    ///
    /// # Errors
    /// For unknown devices or cores.
    pub fn choose(&self, ports: usize, routed: bool) -> Result<Chosen> {
        let mut names = self.dut.clone();
        if names.is_empty() && self.ports.is_empty() && self.dut_up.is_none() {
            let usual: &[&str] = if routed { &["lanyard-router", "router"] } else { &["lanyard", "bridge"] };
            names = usual.iter().map(|name| (*name).to_owned()).collect();
        }
        let kinds = names.iter().map(|name| Kind::named(name)).collect::<Result<Vec<_>>>()?;
        for (index, kind) in kinds.iter().enumerate() {
            ensure!(!kinds[..index].contains(kind), "--dut: {} is there twice", kind.name());
            match (routed, kind.routes()) {
                (true, false) => bail!("--dut {}: does not route; leave --routed out", kind.name()),
                (false, true) => bail!("--dut {}: routes; add --routed", kind.name()),
                _ => {}
            }
            let wire = matches!(kind, Kind::BareTc | Kind::BareTcPeer | Kind::BareXdp);
            ensure!(!wire || ports == 2, "--dut {}: a wire has two ends, not {ports} ports", kind.name());
        }
        if !self.ports.is_empty() {
            ensure!(self.ports.len() >= 2, "--ports {}: give two or more", self.ports.join(","));
            ensure!(
                routed != self.router_mac.is_empty(),
                "--ports and --routed want --router-mac, and only together"
            );
        } else {
            ensure!(
                !(routed && self.dut_up.is_some()),
                "--dut-up can't be used with --routed, unless with --ports"
            );
        }
        let available = cores();
        let tester = self.tester_core.unwrap_or(0);
        for core in [Some(tester), self.device_core].into_iter().flatten() {
            ensure!(core < available, "no core {core}: 0-{}", available - 1);
        }
        let device_core = match (self.inline, self.device_core) {
            (true, _) => None,
            (_, Some(core)) => Some(core),
            (_, None) => (0..available).rev().find(|core| *core != tester),
        };
        ensure!(device_core != Some(tester), "--device-core {tester}: sends; --inline has one core do both");
        let lanyard = Executable::new(self.lanyard.as_deref())?;
        let setup = Setup { lanyard, ports, count_at: None, cores: vec![tester], device_core };
        Ok(Chosen { kinds, args: self.clone(), setup, routed })
    }
}

impl Chosen {
    /// Switches to measuring through sockets, where BPF is not available, and notes the effect on the
    /// figures.
    pub fn by_sockets(&mut self, results: &mut Results, why: &str) {
        // Without the right to load BPF, the kernel's threads that poll the device's ports cannot be pinned either.
        self.setup.device_core = None;
        if self.args.dut.is_empty() && self.args.ports.is_empty() && self.args.dut_up.is_none() {
            let usual = if self.routed { Kind::Router } else { Kind::Lanyard(Hook::Soft) };
            self.kinds.retain(|kind| {
                *kind != Kind::Lanyard(Hook::Auto) && *kind != Kind::LanyardRouter(Hook::Auto)
            });
            if !self.kinds.contains(&usual) {
                self.kinds.insert(0, usual);
            }
        }
        results.parameter("engine", "sockets");
        results.note(format!(
            "through sockets, for want of BPF ({why}): the tester sends and counts less than a million frames per second, \
             so \"at least this\" is soon reached; latency is until the kernel's stamp on arrival; devices made of \
             BPF programs are left out"
        ));
    }

    /// Adds the settings that the figures depend on to the report.
    pub fn describe(&self, results: &mut Results) {
        results.parameter("mode", if self.routed { "routed" } else { "bridged" });
        let ports = if self.args.ports.is_empty() { self.setup.ports } else { self.args.ports.len() };
        results.parameter("ports", ports);
        results.parameter("tester_core", self.setup.cores[0]);
        match self.setup.device_core.filter(|_| self.args.ports.is_empty()) {
            Some(core) => results.parameter("device_core", core),
            None if self.args.ports.is_empty() => {
                results.parameter("device_core", "inline");
                results.note(
                    "inline: tester and device share a core, so what the device can't take is not sent, and no load is more \
                     than it can take; throughput is what the core carries in all",
                );
            }
            None => {}
        }
    }

    /// Brings every device up.
    ///
    /// # Errors
    /// On ctrl-C, or when none comes up.
    pub fn up(self) -> Result<Devices> {
        let mut devices = Devices { up: Vec::new(), down: Vec::new() };
        let Self { kinds, args, setup, .. } = self;
        let mut add = |name: &str, bench: Result<Bench>| -> Result<()> {
            check_interrupted()?;
            match bench {
                Ok(bench) => devices.up.push((name.to_owned(), Box::new(bench))),
                Err(why) => {
                    let broken = Some(format!("{why:#}"));
                    devices.down.push(DeviceNote { name: name.to_owned(), detail: String::new(), broken });
                }
            }
            Ok(())
        };
        for kind in kinds {
            let bench = match kind.unavailable(&setup.lanyard) {
                Some(why) => Err(anyhow::anyhow!(why)),
                None => {
                    let (setup, at) = (setup.clone(), count_at(kind));
                    made(args.reset.clone(), true, Some(at), move || TestBed::up(kind, &setup))
                }
            };
            add(kind.name(), bench)?;
        }
        let name = args.dut_name.clone();
        if !args.ports.is_empty() {
            let title = name.clone();
            let given = Given {
                ports: args.ports.clone(),
                count_at: None,
                cores: setup.cores.clone(),
                up: args.dut_up.clone(),
                down: args.dut_down.clone(),
                router_macs: args.router_mac.clone(),
            };
            let bench = made(args.reset, given.up.is_some(), None, move || TestBed::given(&title, &given));
            add(&name, bench)?;
        } else if let Some(up) = args.dut_up {
            let (title, down) = (name.clone(), args.dut_down);
            let make = move || TestBed::commanded(&title, &setup, &up, down.as_deref());
            add(&name, made(args.reset, true, Some(CountAt::Tc), make))?;
        }
        if devices.up.is_empty() {
            let printed =
                |note: &DeviceNote| format!("{}: {}", note.name, note.broken.as_deref().unwrap_or_default());
            let why: Vec<String> = devices.down.iter().map(printed).collect();
            bail!("no device to measure: {}", why.join("; "));
        }
        Ok(devices)
    }
}

/// Starts a device and, where the tester's own latency can be measured without the device, calibrates the
/// tester.
fn made(
    reset: Option<String>,
    remade: bool,
    calibrate_at: Option<CountAt>,
    make: impl Fn() -> Result<TestBed> + 'static,
) -> Result<Bench> {
    let own = match calibrate_at {
        Some(at) => {
            let mut wire = TestBed::wire(&Setup { count_at: Some(at), ..Setup::new()? })?;
            own_latency(&mut wire).context("calibrating the tester")?.percentile(50.0)
        }
        None => None,
    };
    let make = move || {
        let mut bed = make()?;
        if let Some(own) = own {
            bed.calibrated(own);
        }
        Ok(bed)
    };
    let bed = Some(make()?);
    Ok(Bench { bed, make: Box::new(make), remade, reset })
}

/// The hook at which frames that pass this device are received and checked.
fn count_at(kind: Kind) -> CountAt {
    if kind.in_xdp() { CountAt::Xdp } else { CountAt::Tc }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        devices: DeviceArgs,
    }

    fn chosen(line: &str, ports: usize, routed: bool) -> Result<Vec<&'static str>, String> {
        let line = std::iter::once("x").chain(line.split_whitespace());
        let parsed = Line::try_parse_from(line).map_err(|e| e.to_string())?;
        let chosen = parsed.devices.choose(ports, routed).map_err(|e| format!("{e:#}"))?;
        Ok(chosen.kinds.iter().map(|kind| kind.name()).collect())
    }

    #[test]
    fn devices_are_chosen() {
        let check = |line: &str, ports, routed, expected: &[&str]| {
            assert_eq!(chosen(line, ports, routed).as_deref(), Ok(expected), "{line}");
        };
        check("", 2, false, &["lanyard", "bridge"]);
        check("", 2, true, &["lanyard-router", "router"]);
        check("--dut lanyard-xdp,bridge,ovs", 4, false, &["lanyard-xdp", "bridge", "ovs"]);
        check("--dut bare-xdp", 2, false, &["bare-xdp"]);
        check("--ports eth1,eth2", 2, false, &[]);
        check("--ports eth1,eth2 --router-mac 02:00:00:00:00:01,02-00-00-00-00-02", 2, true, &[]);
        check("--dut-up true --dut bridge", 2, false, &["bridge"]);
    }

    #[test]
    fn impossible_device_and_port_options_are_refused_with_a_reason() {
        let check = |line: &str, ports, routed, why: &str| {
            let printed = chosen(line, ports, routed).expect_err(why);
            assert!(printed.contains(why), "{line}: {printed}");
        };
        check("--dut brigde", 2, false, "no device `brigde`");
        check("--dut bridge,bridge", 2, false, "bridge is there twice");
        check("--dut router", 2, false, "--dut router: routes; add --routed");
        check("--dut bridge", 2, true, "--dut bridge: does not route");
        check("--dut bare-tc", 4, false, "a wire has two ends");
        check("--ports eth1", 2, false, "give two or more");
        check("--ports eth1,eth2", 2, true, "--router-mac");
        check("--ports eth1,eth2 --dut bridge", 2, false, "cannot be used with");
        check("--ports eth1,eth2 --router-mac zz", 2, true, "not a MAC address");
        check("--dut-down true", 2, false, "--dut-up");
        check("--tester-core 9999", 2, false, "no core 9999");
        check("--device-core 0 --tester-core 0", 2, false, "--inline");
    }
}
