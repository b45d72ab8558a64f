//! Shows the progress of building a lab: one line for each step, on stderr.
//!
//! Invariant: lines are redrawn only on a terminal.

use std::io::{IsTerminal, Write};
use std::time::Instant;

/// A step in progress.
pub struct Step {
    name: &'static str,
    started: Instant,
    live: bool,
    quiet: bool,
}

impl Step {
    /// Begins a step; nothing is printed if `quiet`.
    #[must_use]
    pub fn begin(name: &'static str, quiet: bool) -> Self {
        let step = Self { name, started: Instant::now(), live: std::io::stderr().is_terminal(), quiet };
        step.progress("");
        step
    }

    /// Shows progress, on a terminal.
    pub fn progress(&self, text: &str) {
        if self.live && !self.quiet {
            eprint!("\r\x1b[K  {:<11} {text}", self.name);
            let _ = std::io::stderr().flush();
        }
    }

    /// Ends the step with a line that stays.
    pub fn done(self, text: &str) {
        if self.quiet {
            return;
        }
        let ms = self.started.elapsed().as_millis();
        let took = if ms < 1_000 { format!("{ms} ms") } else { format!("{:.1} s", ms as f64 / 1e3) };
        let clear = if self.live { "\r\x1b[K" } else { "" };
        let (dim, plain) = if self.live { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        eprintln!("{clear}  {:<11} {text}  {dim}{took}{plain}", self.name);
    }
}

impl Drop for Step {
    /// Clears the step's line, so that the error message of a failed step can take it.
    fn drop(&mut self) {
        if self.live && !self.quiet {
            eprint!("\r\x1b[K");
        }
    }
}

/// True if stdout may be coloured: it is a terminal, and NO_COLOR is not set.
#[must_use]
pub fn colour_stdout() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}
