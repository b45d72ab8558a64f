//! What a package contains besides the program, generated from the tree of the arguments: man pages and completion for shells.

use crate::{Failure, Lanyard};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Prints the completion script for a shell.
///
/// # Errors
/// When the output cannot be written.
pub fn completion(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Lanyard::command(), "lanyard", &mut script);
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a man page for the program and one for each subcommand into a directory that exists.
///
/// # Errors
/// When a page cannot be written.
pub fn man(directory: &Path) -> Result<ExitCode, Failure> {
    clap_mangen::generate_to(Lanyard::command(), directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
