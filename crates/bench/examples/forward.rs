//! `lanyard bench forward` without the rest of Lanyard around it.

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: lanyard_bench::forward::Args,
}

fn main() -> ExitCode {
    match lanyard_bench::forward::main(&Cli::parse().args) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("lanyard bench forward: {why:#}");
            ExitCode::FAILURE
        }
    }
}
