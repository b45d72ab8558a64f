//! `lanyard lab`: hosts and switches in network namespaces, from a topology file in containerlab's format.
//!
//! Read `topology` (what a lab is), `read` (the file), `up` and `down` (the kernel), then `graph` and `demo`.
//! Invariant: reading and drawing need no rights and touch no kernel; only `up`, `down`, `exec` and `demo` do.

pub mod demo;
pub mod down;
pub mod frr;
pub mod graph;
pub mod load;
mod names;
pub mod netns;
mod program;
pub mod read;
pub mod state;
mod steps;
pub mod topology;
pub mod up;
pub mod yaml;

pub use read::fuzz;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use lanyard_types::text::columns;
use serde_json::json;
use state::{LabState, Phase};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use topology::PlaneChoice;

/// `lanyard lab ...`.
#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Build a lab: namespaces, links, switches, then the nodes' commands
    Up {
        /// The topology file, in containerlab's format
        file: PathBuf,
        /// The plane of switches without a `type`
        #[arg(long, value_enum)]
        plane: Option<PlaneChoice>,
        /// Treat warnings as errors: refused startup-config lines, a switch without ports
        #[arg(long)]
        strict: bool,
        /// Print only warnings and errors
        #[arg(short, long)]
        quiet: bool,
    },
    /// Take a lab down and remove everything it created
    Down {
        /// The topology file, or the name of a lab that is up
        #[arg(value_name = "FILE|NAME")]
        file: PathBuf,
        /// Print only errors
        #[arg(short, long)]
        quiet: bool,
    },
    /// Show the labs that are up, with their nodes
    List {
        /// Only this lab: its topology file, or its name
        #[arg(value_name = "FILE|NAME")]
        file: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a command in a node (`-- lanyard cli` talks to the node's switch)
    Exec {
        /// The topology file, or the name of a lab that is up
        #[arg(value_name = "FILE|NAME")]
        file: PathBuf,
        /// Name of the node
        node: String,
        /// The command and its arguments; without one, a shell
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Draw a lab: as text, or with --dot or --svg
    Graph {
        /// The topology file
        file: PathBuf,
        /// Print the drawing in Graphviz's language
        #[arg(long, conflicts_with = "svg")]
        dot: bool,
        /// Write the drawing as SVG into this file (`-` is stdout)
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
    /// Build the LiSA four-port example, send real traffic, show which hosts reach each other and how fast, and
    /// take it down
    Demo {
        /// The plane of the switches
        #[arg(long, value_enum)]
        plane: Option<PlaneChoice>,
        /// Leave the lab up
        #[arg(long)]
        keep: bool,
        /// Seconds of each rate measurement, 1 to 60
        #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
        seconds: u32,
    },
}

/// Runs `lanyard lab`.
///
/// # Errors
/// The reason of the failure, as text for the user.
pub fn run(args: LabArgs) -> Result<ExitCode> {
    match args.verb {
        Verb::Up { file, plane, strict, quiet } => up(&file, up::Options { plane, strict, quiet }),
        Verb::Down { file, quiet } => down(&file, quiet),
        Verb::List { file, json } => list(file.as_deref(), json),
        Verb::Exec { file, node, command } => exec(&file, &node, &command),
        Verb::Graph { file, dot, svg } => graph(&file, dot, svg.as_deref()),
        Verb::Demo { plane, keep, seconds } => demo::run(demo::Options { plane, keep, seconds }),
    }
}

fn up(file: &Path, options: up::Options) -> Result<ExitCode> {
    let lab = load::file(file)?;
    if !options.quiet {
        for note in &lab.notes {
            eprintln!("note: {} ({}:{})", note.message, lab.origin, note.pos.line);
        }
    }
    if let Some(printed) = netns::rights()?
        && !options.quiet
    {
        eprintln!("note: {printed}");
    }
    let interrupts = up::Interrupts::hold()?;
    let started = std::time::Instant::now();
    if !options.quiet {
        eprintln!("{}: {}", lab.topology.name, lab.topology.summary());
    }
    up::up(&lab, options, &interrupts)?;
    if !options.quiet {
        eprintln!(
            "lab {} is up after {:.1} s. Look around:",
            lab.topology.name,
            started.elapsed().as_secs_f64()
        );
        for line in hints(&lab) {
            eprintln!("  {line}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Commands that the user may enter next.
fn hints(lab: &load::Lab) -> Vec<String> {
    let topology = &lab.topology;
    let lab_word = if lab.file.is_empty() { &topology.name } else { &lab.origin };
    let node = |switch: bool| topology.nodes.iter().find(|node| node.kind.is_switch() == switch);
    let mut lines = Vec::new();
    if let Some(switch) = node(true) {
        lines.push(format!("lanyard lab exec {lab_word} {} -- lanyard cli", switch.name));
    }
    if let Some(host) = node(false) {
        lines.push(format!("lanyard lab exec {lab_word} {} -- ip address", host.name));
    }
    lines.push("lanyard lab list".into());
    lines.push(format!("lanyard lab down {lab_word}"));
    lines
}

fn down(file: &Path, quiet: bool) -> Result<ExitCode> {
    netns::rights()?;
    // The file may have been damaged since the lab was built: the lab is then found by the recorded path of the file. If there
    // is no such file, the argument is the name of the lab.
    let topology = file.exists().then(|| load::topology(file));
    let (name, topology) = match topology {
        Some(Ok(topology)) => (topology.name.clone(), Some(topology)),
        Some(Err(error)) => match by_file(file)? {
            Some(name) => (name, None),
            None => return Err(error),
        },
        None => (name_only(file)?, None),
    };
    match down::down(&name, topology.as_ref())? {
        _ if quiet => {}
        None => eprintln!("lab {name} is not up; nothing to do"),
        Some(cleared) => eprintln!(
            "lab {name} is down: {} detached, {} ended, {} deleted",
            topology::counted(cleared.switches, "switch", "switches"),
            topology::counted(cleared.processes, "process", "processes"),
            topology::counted(cleared.namespaces, "namespace", "namespaces")
        ),
    }
    Ok(ExitCode::SUCCESS)
}

/// The lab that was built from this file.
fn by_file(file: &Path) -> Result<Option<String>> {
    let absolute = std::fs::canonicalize(file)?;
    let (labs, _) = LabState::all()?;
    Ok(labs.into_iter().find(|lab| Path::new(&lab.file) == absolute).map(|lab| lab.name))
}

fn name_only(word: &Path) -> Result<String> {
    match word.to_str() {
        Some(name) if names::check_name(name).is_ok() && !name.ends_with(".yml") => Ok(name.into()),
        _ => bail!("no topology file {}", word.display()),
    }
}

fn list(file: Option<&Path>, json: bool) -> Result<ExitCode> {
    let only = file.map(load::name_of).transpose()?;
    let (mut labs, damaged) = LabState::all()?;
    labs.retain(|lab| only.as_ref().is_none_or(|name| *name == lab.name));
    for error in &damaged {
        eprintln!("{error}");
    }
    if json {
        let labs: Vec<_> = labs.iter().map(lab_json).collect();
        print(&format!("{:#}\n", json!({ "labs": labs })))?;
    } else if labs.is_empty() {
        eprintln!("no lab is up");
    } else {
        let mut rows = Vec::new();
        for lab in &labs {
            for node in &lab.nodes {
                let state = match (lab.phase, node.condition()) {
                    (Phase::Up, "ready") => format!("ready: {}", node.ready.as_deref().unwrap_or_default()),
                    (Phase::Up, state) => state.to_owned(),
                    (phase, state) => format!("{state} (lab {})", phase_word(phase)),
                };
                let pid = node.process.map(|process| process.pid.to_string()).unwrap_or_default();
                let (kind, netns) = (node.kind.clone(), node.netns.clone());
                rows.push(vec![lab.name.clone(), node.name.clone(), kind, state, pid, netns]);
            }
        }
        print(&columns(&["LAB", "NODE", "KIND", "STATE", "PID", "NETNS"], &rows, &[]))?;
    }
    Ok(if damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Up => "up",
        Phase::Stopping => "stopping",
    }
}

fn lab_json(lab: &LabState) -> serde_json::Value {
    let nodes = lab.nodes.iter().map(|node| {
        json!({
            "name": node.name, "kind": node.kind, "state": node.condition(), "netns": node.netns,
            "pid": node.process.map(|process| process.pid), "ready": node.ready,
        })
    });
    json!({ "name": lab.name, "state": phase_word(lab.phase), "file": lab.file, "nodes": nodes.collect::<Vec<_>>() })
}

fn exec(file: &Path, node: &str, command: &[OsString]) -> Result<ExitCode> {
    let name = load::name_of(file)?;
    let Some(state) = LabState::load(&name)? else {
        bail!("lab {name} is not up; `lanyard lab up` builds it")
    };
    let Some(found) = state.nodes.iter().find(|found| found.name == node) else {
        let names: Vec<&str> = state.nodes.iter().map(|node| node.name.as_str()).collect();
        bail!("no node `{node}` in lab {name}; it has {}", names.join(", "));
    };
    let shell = [std::env::var_os("SHELL").unwrap_or_else(|| "sh".into())];
    let command = if command.is_empty() { &shell } else { command };
    let (mut program, mut arguments) = (command[0].clone(), command[1..].to_vec());
    if program == "lanyard" {
        // Run the program that built the lab, whatever PATH contains. LANYARD_INSTANCE (up::environment) names the
        // node's switch.
        program = program::program()?.into_os_string();
    }
    let frr = frr::folder(&found.netns);
    if program == "vtysh" && frr.exists() {
        arguments.splice(0..0, frr::vtysh_options(&frr));
    }
    let environment = up::environment(&found.netns)?;
    netns::enter(&found.netns)?;
    let error = Command::new(&program).args(&arguments).envs(environment).exec();
    Err(error).with_context(|| format!("can't run {} in {node}", program.to_string_lossy()))
}

fn graph(file: &Path, dot: bool, svg: Option<&Path>) -> Result<ExitCode> {
    let topology = load::topology(file)?;
    match svg {
        Some(path) if path != Path::new("-") => {
            std::fs::write(path, graph::svg(&topology))
                .with_context(|| format!("can't write {}", path.display()))?;
            eprintln!("{}: drawn into {}", topology.name, path.display());
        }
        Some(_) => print(&graph::svg(&topology))?,
        None if dot => print(&graph::dot(&topology))?,
        None => print(&graph::text(&topology, steps::colour_stdout()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints to stdout. A reader that closes the pipe is no error.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
