//! `lanyard lab up`: creates namespaces, links and switches and runs commands, in this order.
//!
//! Read first: network_namespaces(7), veth(4). Invariant: a lab is built completely or not at all.
//! After a failure or ctrl-C everything is removed again before the error is reported.

use crate::down;
use crate::frr;
use crate::load::Lab;
use crate::netns::{self, Place};
use crate::program::program;
use crate::state::{self, LabState, NodeState, Phase, ProcessId};
use crate::steps::Step;
use crate::topology::{Kind, Node, PlaneChoice};
use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a switch may take until its ready line.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How often logs are read while waiting.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The maximum number of bytes of a log or of a command's output that a message quotes.
const QUOTED_BYTES: usize = 2_000;

/// The options of `lanyard lab up`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// `--plane`: the plane of switches without a `type`.
    pub plane: Option<PlaneChoice>,
    /// `--strict`: warnings count as errors.
    pub strict: bool,
    /// Print only warnings and errors.
    pub quiet: bool,
}

/// Records ctrl-C, SIGTERM and SIGHUP until the builder checks for them, because it has to clean up before it
/// ends.
pub struct Interrupts(Arc<AtomicBool>);

impl Interrupts {
    /// Begins to record these signals. Programs that are started receive them as usual.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn hold() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("can't watch for signals")?;
        }
        Ok(Self(flag))
    }

    /// # Errors
    /// A signal has been received.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { bail!("interrupted") } else { Ok(()) }
    }
}

/// Builds a lab.
///
/// # Errors
/// The reason for which it could not be built; everything has been removed again then.
pub fn up(lab: &Lab, options: Options, interrupts: &Interrupts) -> Result<LabState> {
    let topology = &lab.topology;
    let _lock = state::lock()?;
    if let Some(state) = LabState::load(&topology.name)? {
        match state.phase {
            Phase::Up => bail!("lab {0} is already up; `lanyard lab down {0}` takes it down", state.name),
            _ => bail!("lab {0} is half built; `lanyard lab down {0}` clears it away", state.name),
        }
    }
    for node in &topology.nodes {
        let namespace = topology.namespace(node);
        if netns::path(&namespace).exists() {
            bail!(
                "the network namespace {namespace} exists already; `lanyard lab down {}` or `ip netns delete {namespace}`",
                lab.origin
            );
        }
        for folder in [state::instance(&namespace), state::kept(&namespace)] {
            if node.kind.is_switch() && folder.exists() {
                bail!(
                    "a switch instance {namespace} is there already ({}); if it is a lab's, `lanyard lab down {}`",
                    folder.display(),
                    lab.origin
                );
            }
        }
    }
    let mut state = LabState {
        name: topology.name.clone(),
        file: lab.file.clone(),
        phase: Phase::Starting,
        nodes: topology
            .nodes
            .iter()
            .map(|node| NodeState {
                name: node.name.clone(),
                kind: node.kind.word().into(),
                netns: topology.namespace(node),
                process: None,
                ready: None,
            })
            .collect(),
    };
    state.save()?;
    let builder = Builder { lab, options, interrupts };
    match builder.build(&mut state) {
        Ok(()) => Ok(state),
        Err(error) => {
            let step = Step::begin("undoing", options.quiet);
            match down::clear(&state) {
                Ok(_) => step.done("all of it"),
                Err(left) => {
                    return Err(error.context(format!("the lab could not be undone either: {left:#}")));
                }
            }
            Err(error)
        }
    }
}

struct Builder<'a> {
    lab: &'a Lab,
    options: Options,
    interrupts: &'a Interrupts,
}

impl Builder<'_> {
    fn build(&self, state: &mut LabState) -> Result<()> {
        let topology = &self.lab.topology;
        let step = Step::begin("namespaces", self.options.quiet);
        let add: Vec<String> = state.nodes.iter().map(|node| format!("netns add {}", node.netns)).collect();
        netns::batch(Place::Here, &add, false).context("can't make the network namespaces")?;
        for (node, made) in topology.nodes.iter().zip(&state.nodes) {
            settle(&made.netns, node.kind)?;
        }
        self.interrupts.check()?;
        step.done(&format!("{} made", add.len()));

        let step = Step::begin("links", self.options.quiet);
        self.links(state)?;
        self.interrupts.check()?;
        step.done(&format!("{} made", topology.links.len()));

        if topology.nodes.iter().any(|node| node.kind.is_switch()) {
            self.switches(state)?;
        }
        self.routers(state)?;
        self.commands(state)?;
        state.phase = Phase::Up;
        state.save()
    }

    fn links(&self, state: &LabState) -> Result<()> {
        let topology = &self.lab.topology;
        let links: Vec<String> = topology
            .links
            .iter()
            .map(|link| {
                let [a, b] = &link.ends;
                let (a_ns, b_ns) = (&state.nodes[a.node].netns, &state.nodes[b.node].netns);
                let mtu = link.mtu.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
                format!(
                    "link add name {}{mtu} netns {a_ns} type veth peer name {}{mtu} netns {b_ns}",
                    a.interface, b.interface
                )
            })
            .collect();
        netns::batch(Place::Here, &links, false).context("can't make the links")?;
        for (index, node) in state.nodes.iter().enumerate() {
            let mut lines = vec!["link set dev lo up".to_owned()];
            lines.extend(topology.interfaces(index).map(|(name, _)| format!("link set dev {name} up")));
            netns::batch(Place::Named(&node.netns), &lines, false)
                .with_context(|| format!("can't bring up the links of {}", node.name))?;
        }
        Ok(())
    }

    fn switches(&self, state: &mut LabState) -> Result<()> {
        let step = Step::begin("switches", self.options.quiet);
        let program = program()?;
        let mut waiting = Vec::new();
        for (index, node) in self.lab.topology.nodes.iter().enumerate() {
            let Kind::Lanyard { plane } = node.kind else { continue };
            let plane = plane.or(self.options.plane);
            let child = self
                .start(&program, node, &state.nodes[index].netns, plane)
                .with_context(|| format!("can't start switch {}", node.name))?;
            state.nodes[index].process = ProcessId::of(child.id().cast_signed());
            state.save()?;
            waiting.push((index, child));
        }
        let total = waiting.len();
        let deadline = Instant::now() + READY_WITHIN;
        while !waiting.is_empty() {
            self.interrupts.check()?;
            let mut still = Vec::new();
            for (index, mut child) in waiting {
                let node = &mut state.nodes[index];
                let log = log_path(&node.netns);
                node.ready = ready(&log);
                if node.ready.is_none() {
                    if let Some(status) = child.try_wait()? {
                        bail!("switch {} ended at once: {status}\n{}", node.name, tail(&log));
                    }
                    if Instant::now() > deadline {
                        let seconds = READY_WITHIN.as_secs();
                        bail!("switch {} is not ready after {seconds} s\n{}", node.name, tail(&log));
                    }
                    still.push((index, child));
                }
            }
            waiting = still;
            step.progress(&format!("{} of {total} ready", total - waiting.len()));
            if !waiting.is_empty() {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        // Switches with the same ready line share one line of output.
        let mut groups: Vec<(String, &str)> = Vec::new();
        for (name, ready) in state.nodes.iter().filter_map(|node| Some((&node.name, node.ready.as_deref()?)))
        {
            match groups.iter_mut().find(|(_, other)| *other == ready) {
                Some((names, _)) => *names = format!("{names}, {name}"),
                None => groups.push((name.clone(), ready)),
            }
        }
        let groups: Vec<String> = groups.iter().map(|(names, ready)| format!("{names}: {ready}")).collect();
        let groups = groups.join("; ");
        step.done(&if groups.len() <= 90 { format!("ready: {groups}") } else { format!("{total} ready") });
        self.warn(state)
    }

    /// Warns about startup-config lines that switches have refused, and about switches without any
    /// port: they run, but do not do what the lab is for.
    fn warn(&self, state: &LabState) -> Result<()> {
        let nodes = self.lab.topology.nodes.iter().zip(&state.nodes);
        let warnings: Vec<String> = nodes
            .filter(|(node, _)| node.kind.is_switch())
            .flat_map(|(node, made)| {
                let log = fs::read_to_string(log_path(&made.netns)).unwrap_or_default();
                let refused = refused_lines(&log);
                let mut warnings: Vec<String> =
                    refused.iter().map(|line| format!("{}: startup-config {line}", node.name)).collect();
                if made.ready.as_deref().is_some_and(|ready| ready.starts_with("0 ports")) {
                    warnings.push(format!(
                        "{} ({}:{}): the switch has no port; `switchport` or `no switchport` below an `interface` line of \
                         its startup-config makes one",
                        node.name, self.lab.origin, node.line
                    ));
                }
                warnings
            })
            .collect();
        warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
        if self.options.strict && !warnings.is_empty() {
            let counted = crate::topology::counted(warnings.len(), "warning", "warnings");
            bail!("{counted}, which --strict treats as errors");
        }
        Ok(())
    }

    /// Starts a switch's daemon in its namespace, in its own process group and without a terminal,
    /// so that it outlives this process.
    fn start(
        &self,
        program: &std::path::Path,
        node: &Node,
        netns: &str,
        plane: Option<PlaneChoice>,
    ) -> Result<Child> {
        let folder = state::instance(netns);
        // The daemon refuses a directory that others can write to.
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("can't make {}", folder.display()))?;
        let log = File::create(log_path(netns)).context("can't write its log")?;
        let mut command = Command::new(program);
        command.args(["run", "--instance", netns]);
        if let Some(config) = self.lab.configs.get(&node.name) {
            let path = folder.join("lab.cfg");
            fs::write(&path, config).with_context(|| format!("can't write {}", path.display()))?;
            command.arg("--config").arg(path);
        }
        if let Some(platform) = self.lab.platforms.get(&node.name) {
            let path = folder.join("platform.toml");
            fs::write(&path, platform).with_context(|| format!("can't write {}", path.display()))?;
            command.arg("--platform").arg(path);
        }
        if let Some(plane) = plane {
            command.args(["--plane", plane.word()]);
        }
        command.envs(&node.env).env_remove("NOTIFY_SOCKET");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        netns::within(Place::Named(netns), || {
            command.spawn().with_context(|| format!("can't run {}", program.display()))
        })
    }

    /// Starts FRR in the nodes that have a configuration for it.
    fn routers(&self, state: &LabState) -> Result<()> {
        let (frr, total) = (&self.lab.frr, self.lab.frr.len());
        if total == 0 {
            return Ok(());
        }
        let step = Step::begin("routers", self.options.quiet);
        let nodes = state.nodes.iter().filter_map(|node| Some((node, frr.get(&node.name)?)));
        for (done, (node, configuration)) in nodes.enumerate() {
            step.progress(&format!("{done} of {total} run FRR"));
            self.interrupts.check()?;
            frr::start(&node.name, &node.netns, configuration)?;
        }
        step.done(&format!("{total} run FRR"));
        Ok(())
    }

    fn commands(&self, state: &LabState) -> Result<()> {
        let topology = &self.lab.topology;
        let total: usize = topology.nodes.iter().map(|node| node.exec.len()).sum();
        if total == 0 {
            return Ok(());
        }
        let step = Step::begin("commands", self.options.quiet);
        let mut done = 0;
        for (node, made) in topology.nodes.iter().zip(&state.nodes) {
            for text in &node.exec {
                step.progress(&format!("{done} of {total} run  {}: {text}", node.name));
                self.command(node, &made.netns, text)?;
                done += 1;
            }
        }
        step.done(&format!("{total} run"));
        Ok(())
    }

    fn command(&self, node: &Node, netns: &str, text: &str) -> Result<()> {
        self.interrupts.check()?;
        let mut command = Command::new("sh");
        command.args(["-c", text]).envs(&node.env).envs(environment(netns)?);
        // Relative paths in a topology and in its commands are relative to its file.
        if let Some(folder) = std::path::Path::new(&self.lab.file).parent()
            && folder.is_dir()
        {
            command.current_dir(folder);
        }
        let output = netns::within(Place::Named(netns), || {
            command.stdin(Stdio::null()).output().context("can't run `sh`")
        })?;
        if output.status.success() {
            return Ok(());
        }
        // Ctrl-C also ends the command, which is not the command's failure.
        self.interrupts.check()?;
        let printed = [output.stdout, output.stderr].concat();
        let printed = quote(&String::from_utf8_lossy(&printed));
        bail!("{}: `{text}` failed: {}\n{printed}", node.name, output.status)
    }
}

/// Sets the initial state of a namespace's interfaces: configured addresses work at once, and none
/// are configured automatically.
fn settle(netns: &str, kind: Kind) -> Result<()> {
    if kind.is_switch() {
        return Ok(());
    }
    netns::within(Place::Named(netns), || {
        for (name, value) in [("accept_ra", "0"), ("accept_dad", "0"), ("dad_transmits", "0")] {
            for scope in ["default", "all"] {
                let path = format!("/proc/sys/net/ipv6/conf/{scope}/{name}");
                match fs::write(&path, value) {
                    // A kernel without IPv6 has no such setting.
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(error).with_context(|| format!("can't write {path}"));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    })
}

/// The environment of programs in a node: `lanyard` is this program, and the default instance is
/// the node's.
///
/// # Errors
/// The path of the program is not known.
pub fn environment(netns: &str) -> Result<Vec<(&'static str, std::ffi::OsString)>> {
    let program = program()?;
    let mut variables =
        vec![("LANYARD_INSTANCE", netns.into()), ("LANYARD_BIN", program.clone().into_os_string())];
    if let Some(folder) = program.parent().filter(|folder| folder.is_absolute()) {
        let mut path = folder.as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into()));
        variables.push(("PATH", path));
    }
    Ok(variables)
}

/// A switch's log.
#[must_use]
pub fn log_path(netns: &str) -> PathBuf {
    state::instance(netns).join("log")
}

/// The text after `ready: ` in the line `lanyard: HOSTNAME ready: N ports, plane P`, once the line
/// is complete.
fn ready(log: &std::path::Path) -> Option<String> {
    let text = fs::read_to_string(log).ok()?;
    let complete = &text[..text.rfind('\n')?];
    complete.lines().find_map(|line| {
        let (name, what) = line.strip_prefix("lanyard: ")?.split_once(" ready: ")?;
        (!name.contains(' ')).then(|| what.to_owned())
    })
}

/// The startup-config lines that were refused according to a switch's log: `line N, column C:
/// reason: text`.
fn refused_lines(log: &str) -> Vec<&str> {
    let refused = log.lines().filter_map(|line| line.strip_prefix("lanyard: %SYS-3-STARTUP: "));
    refused.filter(|rest| rest.starts_with("line ")).collect()
}

fn tail(log: &std::path::Path) -> String {
    quote(&fs::read_to_string(log).unwrap_or_default())
}

/// The end of a program's output, indented.
fn quote(text: &str) -> String {
    let mut start = text.len().saturating_sub(QUOTED_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let lines: Vec<String> = text[start..].lines().map(|line| format!("  | {line}")).collect();
    if lines.is_empty() { "  (no output)".into() } else { lines.join("\n") }
}
