//! The `lanyard` program: parses the arguments and calls the crate of the subcommand.
//!
//! Invariant: wrong usage exits with 2, a refused or failed action with 1. The reason is printed on stderr,
//! starts with what was wrong and names the input.

mod asic;
mod batch;
mod completion_menu;
mod config;
mod console;
mod generate;
mod login;
mod pager;
mod plain;
mod version;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lanyard_daemon::paths::{InstanceNameError, check_instance};
use lanyard_daemon::planes::{Chip, Choice};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// A multilayer Ethernet switch for Linux, driven from an IOS-style command line.
#[derive(Debug, Parser)]
#[command(name = "lanyard", version, max_term_width = 100)]
struct Lanyard {
    #[command(subcommand)]
    command: Command,
}

/// The environment variable with the default for `--instance`. A lab sets it in each of its nodes.
const INSTANCE_VARIABLE: &str = "LANYARD_INSTANCE";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the switch daemon, in the foreground, in this network namespace
    Run(RunArgs),
    /// Run a virtual switch chip, in the foreground, in this network namespace
    Asic(asic::AsicArgs),
    /// Enter commands on a running switch
    Cli(CliArgs),
    /// Convert configurations
    #[command(subcommand)]
    Config(config::Config),
    /// Log in to a running switch on this terminal; for getty on a serial line
    Console {
        /// Name of the switch
        #[arg(long, value_name = "NAME", env = INSTANCE_VARIABLE, default_value = "default", value_parser = instance)]
        instance: String,
    },
    /// Verify a login that the daemon writes to the standard input, by PAM
    #[command(hide = true)]
    PamLogin,
    /// Remove a switch's plane and the netdevs it made; ports are left as they were found
    Detach {
        /// Name of the switch
        #[arg(long, value_name = "NAME", env = INSTANCE_VARIABLE, default_value = "default", value_parser = instance)]
        instance: String,
    },
    /// Build hosts and switches in network namespaces from a topology file
    Lab(lanyard_lab::LabArgs),
    /// Measure throughput, latency and resources
    #[command(subcommand)]
    Bench(Box<Bench>),
    /// Run a command of the classic brctl on a switch: addbr, addif, show, showmacs, ...
    Brctl {
        /// Name of the switch
        #[arg(long, value_name = "NAME", env = INSTANCE_VARIABLE, default_value = "default", value_parser = instance)]
        instance: String,
        /// The arguments of brctl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Print the completion of this program's arguments for a shell
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the man pages of this program and its subcommands
    Man {
        /// The directory to write to
        directory: PathBuf,
    },
    /// Print the version, and which planes this machine can run
    Version,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Name of the switch
    #[arg(long, value_name = "NAME", env = INSTANCE_VARIABLE, default_value = "default", value_parser = instance)]
    instance: String,
    /// The startup-config; without it, or if it is empty, defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The plane that forwards frames
    #[arg(long, value_enum, default_value_t = Plane::Auto)]
    plane: Plane,
    /// The platform file of the chip to simulate, for `--plane asic`
    #[arg(long, value_name = "FILE")]
    platform: Option<PathBuf>,
    /// Connect a port of the chip that is started to a netdev of this namespace: swp1=eth0; may be given more than once
    /// [default: swpN is connected to the netdev swpN-wire whenever there is one]
    #[arg(long, value_name = "PORT=NETDEV", requires = "platform")]
    wire: Vec<String>,
    /// Only check a configuration file: print the lines that would be refused
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "platform"])]
    check: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Plane {
    /// `ebpf` where it is available, else `soft`
    Auto,
    /// The kernel forwards, by eBPF programs
    Ebpf,
    /// The daemon forwards; needs no right to load BPF
    Soft,
    /// A virtual switch chip forwards
    Asic,
}

#[derive(Debug, Args)]
struct CliArgs {
    /// Name of the switch
    #[arg(long, value_name = "NAME", env = INSTANCE_VARIABLE, default_value = "default", value_parser = instance)]
    instance: String,
    /// Run this command and exit; may be given more than once
    #[arg(short, value_name = "COMMAND")]
    command: Vec<String>,
    /// Run the commands in this file and exit; `-` reads them from the standard input
    #[arg(short, value_name = "FILE")]
    file: Option<PathBuf>,
}

// Commands without a comment here have their help text at their argument structs.
#[derive(Debug, Subcommand)]
enum Bench {
    /// Forwarding rates beside the kernel bridge, bare redirects and Open vSwitch
    Forward(lanyard_bench::rows::forward::Args),
    /// How long a ring of switches is interrupted when a link fails
    Failover(lanyard_bench::rows::failover::Args),
    /// Processor time that spanning tree takes from the daemon
    Trees(lanyard_bench::rows::trees::Args),
    /// The processor time of a frame, by part
    Profile(lanyard_bench::profile::Args),
    /// How fast the plane follows the kernel's routing tables
    Routes(lanyard_bench::rows::routes::Args),
    /// What each strategy of the resource manager costs those who ask, and the traffic
    Resources(lanyard_bench::rows::resources::Args),
    /// TCP to and from a switch on a chip, by both paths of its CPU port
    ControlPath(lanyard_bench::rows::control_path::Args),
    /// Check the tester on wires that lose, duplicate, corrupt, delay and reorder known numbers of frames
    Selftest(lanyard_bench::selftest::Args),
    Rfc2544(lanyard_bench::method::command::Rfc2544Args),
    Rfc2889(lanyard_bench::method::command::Rfc2889Args),
    Overload(lanyard_bench::method::command::OverloadArgs),
    Compare(lanyard_bench::report::compare::Args),
}

/// The reason why a subcommand failed; `main` prints its text.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn instance(name: &str) -> Result<String, InstanceNameError> {
    check_instance(name).map(|()| name.to_owned())
}

fn main() -> ExitCode {
    let result: Result<ExitCode, Failure> = match Lanyard::parse().command {
        Command::Run(args) => run(args),
        Command::Asic(args) => asic::run(&args).map_err(Failure::from),
        Command::Cli(args) => cli(args),
        Command::Console { instance } => login::run(&instance),
        Command::PamLogin => lanyard_daemon::pam_login().map(|()| ExitCode::SUCCESS).map_err(Failure::from),
        Command::Config(command) => config::run(&command),
        Command::Detach { instance } => {
            lanyard_daemon::detach(&instance).map(|()| ExitCode::SUCCESS).map_err(Failure::from)
        }
        Command::Lab(args) => lanyard_lab::run(args).map_err(|error| format!("{error:#}").into()),
        Command::Bench(bench) => match *bench {
            Bench::Forward(args) => lanyard_bench::rows::forward::main(&args),
            Bench::Failover(args) => lanyard_bench::rows::failover::main(&args),
            Bench::Trees(args) => lanyard_bench::rows::trees::main(&args),
            Bench::Profile(args) => lanyard_bench::profile::main(&args),
            Bench::Routes(args) => lanyard_bench::rows::routes::main(&args),
            Bench::Resources(args) => lanyard_bench::rows::resources::main(&args),
            Bench::ControlPath(args) => lanyard_bench::rows::control_path::main(&args),
            Bench::Selftest(args) => lanyard_bench::selftest::main(&args),
            Bench::Rfc2544(args) => lanyard_bench::method::command::rfc2544(&args),
            Bench::Rfc2889(args) => lanyard_bench::method::command::rfc2889(&args),
            Bench::Overload(args) => lanyard_bench::method::command::overload(&args),
            Bench::Compare(args) => lanyard_bench::report::compare::main(&args),
        }
        .map_err(|error| format!("{error:#}").into()),
        Command::Brctl { instance, arguments } => batch::brctl(&instance, &arguments).map_err(Failure::from),
        Command::Completion { shell } => generate::completion(shell),
        Command::Man { directory } => generate::man(&directory),
        Command::Version => version::print().map_err(Failure::from),
    };
    result.unwrap_or_else(|reason| {
        // If stderr is closed, the reason cannot be printed.
        let _ = writeln!(std::io::stderr(), "lanyard: {reason}");
        ExitCode::FAILURE
    })
}

fn run(args: RunArgs) -> Result<ExitCode, Failure> {
    if let Some(file) = &args.check {
        let refused = lanyard_daemon::check_file(file)?;
        for error in &refused {
            let _ = writeln!(std::io::stderr(), "{}: {error}", file.display());
        }
        return Ok(if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let plane = match args.plane {
        Plane::Auto => Choice::Auto,
        Plane::Ebpf => Choice::Ebpf,
        Plane::Soft => Choice::Soft,
        Plane::Asic => Choice::Asic,
    };
    if let Some(platform) = &args.platform
        && plane != Choice::Asic
    {
        return Err(format!("--platform {}: only plane asic has a platform", platform.display()).into());
    }
    let wires = args.wire;
    let chip = args.platform.map(|platform| Chip { platform, wires });
    let options = lanyard_daemon::Options { instance: args.instance, config: args.config, plane, chip };
    lanyard_daemon::run(&options)?;
    Ok(ExitCode::SUCCESS)
}

fn cli(args: CliArgs) -> Result<ExitCode, Failure> {
    use std::io::IsTerminal;
    let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let mut commands = args.command;
    let typed = commands.len();
    match &args.file {
        Some(file) => commands.extend(batch::read(file)?),
        None if commands.is_empty() && has_terminal => return console::run(&args.instance),
        None if commands.is_empty() => commands = batch::read("-".as_ref())?,
        None => {}
    }
    Ok(batch::run(&args.instance, &commands, typed)?)
}
