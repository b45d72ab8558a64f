//! `lanyard lab` as a program of its own: for topologies of hosts, and with LANYARD_BIN also for switches.

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    lab: lanyard_lab::LabArgs,
}

fn main() -> ExitCode {
    match lanyard_lab::run(Cli::parse().lab) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
