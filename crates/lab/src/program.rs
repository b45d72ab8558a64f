//! The `lanyard` executable that a lab's switches run.

use anyhow::{Context, Result};
use std::path::PathBuf;

/// The executable whose `run`, `detach` and `cli` the lab uses: `$LANYARD_BIN`, or the running one.
///
/// # Errors
/// When the variable is not set and the path of the running executable cannot be read.
pub fn program() -> Result<PathBuf> {
    match std::env::var_os("LANYARD_BIN") {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => std::env::current_exe().context("can't find the `lanyard` program; set LANYARD_BIN"),
    }
}
