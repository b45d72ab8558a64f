//! The recipes of docs/cookbook, run as the pages show them.
//!
//! Read docs/cookbook/README.md first, which describes the marks of a page, then `page.rs` (a page as steps) and
//! `output.rs` (the comparison of printed output with the page). A page runs in mount, network and process namespaces
//! of its own, with an empty /run and /var/lib/lanyard, so that it can neither meet a switch of the machine nor leave
//! anything behind: when the first process of the namespace ends, the kernel ends all others.

#![allow(clippy::unwrap_used, clippy::panic)]

mod output;
mod page;

use page::{Page, Step};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The program under test.
const LANYARD: &str = env!("CARGO_BIN_EXE_lanyard");
/// The longest time that one command may take.
const LIMIT: Duration = Duration::from_secs(120);
/// The time for which a command that only reads is repeated.
const DEADLINE: Duration = Duration::from_secs(60);
/// The time between two repetitions.
const PAUSE: Duration = Duration::from_millis(200);

#[test]
fn appliance() {
    run("appliance.md");
}

#[test]
fn containers() {
    run("containers.md");
}

#[test]
fn guests() {
    run("guests.md");
}

#[test]
fn classroom() {
    run("classroom.md");
}

#[test]
fn routing() {
    run("routing.md");
}

/// Every page of the folder is a test of this file, and is in the list of README.md.
#[test]
fn no_page_is_missing() {
    let source = include_str!("main.rs");
    let list = std::fs::read_to_string(root().join("docs/cookbook/README.md")).unwrap();
    for entry in std::fs::read_dir(root().join("docs/cookbook")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name != "README.md" {
            assert!(source.contains(&format!("run(\"{name}\")")), "docs/cookbook/{name} has no test here");
            assert!(list.contains(&format!("({name})")), "docs/cookbook/README.md does not list {name}");
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the steps of a page in order; the first one that has another result is the failure.
fn run(name: &str) {
    let text = std::fs::read_to_string(root().join("docs/cookbook").join(name)).unwrap();
    let page = Page::parse(&text).unwrap_or_else(|error| panic!("docs/cookbook/{name}: {error}"));
    for (path, shown) in &page.files {
        let file =
            std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{name} shows {path}: {e}"));
        assert_eq!(&file, shown, "docs/cookbook/{name} shows another content of {path}");
    }
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: namespaces need root");
    }
    let absent: Vec<&str> =
        page.needs.iter().map(String::as_str).filter(|program| !installed(program)).collect();
    if !absent.is_empty() {
        return println!("skipped: not installed: {}", absent.join(", "));
    }
    let mut shell = Shell::start();
    for step in &page.steps {
        perform(&mut shell, step).unwrap_or_else(|why| panic!("docs/cookbook/{name}:{}: {why}", step.line));
    }
    let left = shell.run("ls /run/netns 2>/dev/null; ls /run/lanyard/labs 2>/dev/null").expect("a list");
    assert_eq!(left.trim(), "", "docs/cookbook/{name} leaves namespaces or labs behind");
}

fn installed(program: &str) -> bool {
    program.starts_with('/') && Path::new(program).exists()
        || ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists())
}

/// Runs a command; one that only reads is repeated until it prints what the page shows.
fn perform(shell: &mut Shell, step: &Step) -> Result<(), String> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let printed = shell.run(&step.command)?;
        let Err(why) = output::compare(&step.expected, &printed) else { return Ok(()) };
        if !step.repeatable || Instant::now() >= deadline {
            return Err(format!("`{}`: {why}\nIt printed:\n{printed}", step.command));
        }
        std::thread::sleep(PAUSE);
    }
}

/// One shell in namespaces of its own, in the repository's directory, with `lanyard` in its path.
struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    count: u32,
}

impl Shell {
    fn start() -> Self {
        let bin = Path::new(LANYARD).parent().unwrap().display().to_string();
        let path = format!("{bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        let mut child = Command::new("unshare")
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"])
            .current_dir(root())
            .env("PATH", path)
            .env("LANYARD_BIN", LANYARD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take().unwrap();
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in output.split(b'\n') {
                let Ok(line) = line else { return };
                if send.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let mut shell = Self { child, input, lines, count: 0 };
        let ready = shell.run(
            "mount -t sysfs lanyard /sys && mount -t tmpfs -o mode=755 lanyard /run && mkdir -p /var/lib/lanyard && \
             mount -t tmpfs -o mode=700 lanyard /var/lib/lanyard && mkdir /run/netns && ip link set lo up && echo ready",
        );
        assert_eq!(ready.expect("a shell").trim(), "ready");
        shell
    }

    /// The text that a command prints on both outputs. Its exit status does not matter: the page shows what it prints.
    fn run(&mut self, command: &str) -> Result<String, String> {
        self.count += 1;
        let mark = format!("--- end of command {}", self.count);
        write!(self.input, "{{ {command}\n}} </dev/null 2>&1\nprintf '\\n%s\\n' '{mark}'\n")
            .and_then(|()| self.input.flush())
            .map_err(|error| format!("`{command}`: the shell has ended: {error}"))?;
        let deadline = Instant::now() + LIMIT;
        let mut printed = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                return Err(format!("`{command}` did not end within {LIMIT:?}; it printed:\n{printed}"));
            };
            if line == mark {
                return Ok(printed);
            }
            printed.push_str(&line);
            printed.push('\n');
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
