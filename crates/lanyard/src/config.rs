//! `lanyard config import`: makes a configuration of Lanyard from a Catalyst's.

use crate::Failure;
use clap::{Args, Subcommand};
use lanyard_cli::backend::MAX_CONFIG_BYTES;
use lanyard_cli::import::import;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// `lanyard config ...`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Make a configuration of Lanyard from a Catalyst's: the configuration goes to the standard output, the report on every
    /// line to the standard error
    Import(ImportArgs),
}

/// `lanyard config import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The Catalyst's configuration
    file: PathBuf,
    /// The netdev that takes the place of an interface: GigabitEthernet1/0/1=eth1; may be given more than once
    #[arg(long, value_name = "NAME=NETDEV", value_parser = pair)]
    map: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, netdev) = text.split_once('=').ok_or("not of the form NAME=NETDEV")?;
    Ok((name.to_owned(), netdev.to_owned()))
}

/// Runs the command; the exit code is 1 when lines are unsupported.
///
/// # Errors
/// When the file cannot be read, a pair of `--map` is refused, or the output cannot be written.
pub fn run(command: &Config) -> Result<ExitCode, Failure> {
    let Config::Import(args) = command;
    let text = read(&args.file).map_err(|error| format!("{}: {error}", args.file.display()))?;
    let result = import(&text, &args.map).map_err(|reason| format!("--map: {reason}"))?;
    let mut report = io::BufWriter::new(io::stderr().lock());
    for line in &result.lines {
        writeln!(report, "{line}")?;
    }
    let [taken, differently, without, unsupported] = result.counts();
    writeln!(
        report,
        "{}: {taken} lines taken, {differently} taken differently, {without} without effect, {unsupported} unsupported",
        args.file.display()
    )?;
    report.flush()?;
    io::stdout().write_all(lanyard_cli::text::render(&result.config).as_bytes())?;
    Ok(if unsupported == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a configuration of at most [`MAX_CONFIG_BYTES`]. Bytes that are not UTF-8, which old configurations have in
/// descriptions and banners, become replacement characters.
fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_CONFIG_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_CONFIG_BYTES {
        return Err(io::Error::other(format!("longer than {MAX_CONFIG_BYTES} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
