//! `lanyard cli -c`, `-f`, and commands from a pipe: one session runs the commands in order until
//! the first one that is refused.

use lanyard_daemon::client::{Client, ClientError, Piece};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;

/// The longest file of commands, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// Reads the commands from a file; `-` is the standard input.
pub fn read(path: &Path) -> Result<Vec<String>, String> {
    let wrong = |error: io::Error| format!("{}: {error}", path.display());
    let mut text = String::new();
    let count = if path == Path::new("-") {
        io::stdin().take(MAX_FILE + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).map_err(wrong)?.take(MAX_FILE + 1).read_to_string(&mut text)
    };
    if count.map_err(wrong)? as u64 > MAX_FILE {
        return Err(format!("{}: longer than {MAX_FILE} bytes", path.display()));
    }
    Ok(text.lines().map(str::to_owned).collect())
}

/// Runs `commands`. The first `typed` of them were given as `-c` options, the others are lines of a text. The exit code
/// is 1 when one was refused.
pub fn run(instance: &str, commands: &[String], typed: usize) -> Result<ExitCode, ClientError> {
    let mut client = Client::connect(instance)?;
    client.hello(&user(), false)?;
    let (mut is_asked, mut in_banner) = (false, false);
    for (at, command) in commands.iter().enumerate() {
        let done =
            if at < typed { client.exec(command, &mut show)? } else { client.paste(command, &mut show)? };
        if done.refused {
            return Ok(ExitCode::FAILURE);
        }
        is_asked = done.hidden;
        // Only while the text of a banner is entered there is no prompt.
        in_banner = done.prompt.is_empty() && !done.close;
        if done.close {
            break;
        }
    }
    if is_asked {
        // If stderr is closed, the reason cannot be printed.
        let _ = writeln!(io::stderr(), "% The secret is missing: give it as the command after enable");
        return Ok(ExitCode::FAILURE);
    }
    if in_banner {
        let _ = writeln!(io::stderr(), "% The text of the banner has no end: enter its delimiter behind it");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `lanyard brctl`.
pub fn brctl(instance: &str, words: &[String]) -> Result<ExitCode, ClientError> {
    let done = Client::connect(instance)?.brctl(words, &mut show)?;
    Ok(if done.refused { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints output to stdout and refusals to stderr, so that a script can tell them apart.
fn show(piece: Piece<'_>) -> io::Result<()> {
    match piece {
        Piece::Output(text) => {
            let mut out = io::stdout().lock();
            match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                // The reader, such as `| head`, has closed the pipe.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
                result => result,
            }
        }
        Piece::Bytes(bytes) => {
            let mut out = io::stdout().lock();
            match out.write_all(bytes).and_then(|()| out.flush()) {
                // The reader of the bytes, such as a program that shows a packet capture, has closed the pipe.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
                result => result,
            }
        }
        Piece::Refusal(text) => io::stderr().lock().write_all(text.as_bytes()),
    }
}

/// The user's name, for `show users` and the log.
pub fn user() -> String {
    let uid = nix::unistd::getuid();
    let known = nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
    known.unwrap_or_else(|| format!("uid {uid}"))
}
