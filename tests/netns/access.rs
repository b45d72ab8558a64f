//! Ways in: users of a Unix group, telnet, the console; levels, wrong secrets, many sessions, a flood of logins.

use crate::harness::daemon::{LANYARD, cli};
use crate::harness::net::Net;
use crate::harness::{Bed, Plane, scenarios, wait_for};
use nix::poll::{PollFd, PollFlags, poll};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

scenarios! {
    members_of_a_group: soft;
    a_dialogue_over_telnet: soft;
    the_client_of_debian: soft;
    a_login_on_the_console: soft;
    a_window_that_changes: soft;
    telnet_is_off_unless_configured: soft;
    ssh_by_the_server_of_the_machine: soft;
    two_hundred_sessions: soft;
    a_flood_of_logins: soft;
}

const ACCESS: &str = "banner motd #authorised access only#\n\
    username ann privilege 15 secret tiger\n\
    username bob secret lion\n\
    enable secret level 7 seven\n\
    line vty 0 15\n transport input telnet\n";
const TWO: &str = "interface range p1 - 2\n switchport\n";

/// Runs `lanyard` as a user of the machine; returns its output, as the error if it fails.
pub(crate) fn as_user(user: &str, group: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", group, "--clear-groups", LANYARD]).args(arguments);
    let output = command.env_remove("XDG_RUNTIME_DIR").output().expect("setpriv");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(text) } else { Err(text) }
}

fn members_of_a_group(plane: Plane) {
    let bed = Bed::new(plane, 2, TWO);
    let cli_of = |user: &str, group: &str, commands: &[&str]| {
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        as_user(
            user,
            group,
            &[&["cli", "--instance", &bed.instance][..], &commands.collect::<Vec<_>>()].concat(),
        )
    };
    let refused = cli_of("nobody", "nogroup", &["show version"]).expect_err("no socket");
    assert!(refused.contains("no switch is running") || refused.contains("denied"), "{refused}");
    bed.configure(
        "platform socket group nogroup read-only\nenable secret tiger\nenable secret level 7 seven",
    );
    let shown = cli_of("nobody", "nogroup", &["show privilege", "show users"]).unwrap();
    assert!(shown.contains("level is 1\n") && shown.contains("nobody"), "{shown}");
    for command in ["configure terminal", "show running-config", "enable", "write memory"] {
        let refused = cli_of("nobody", "nogroup", &[command, "tiger"]).expect_err(command);
        assert!(refused.contains('%'), "{command}: {refused}");
    }
    for arguments in [&["detach"][..], &["brctl", "addbr", "br0"]] {
        let arguments = [&arguments[..1], &["--instance", &bed.instance], &arguments[1..]].concat();
        let refused = as_user("nobody", "nogroup", &arguments).expect_err("level 1");
        assert!(refused.contains("needs level 15"), "{arguments:?}: {refused}");
    }
    let refused = cli_of("daemon", "daemon", &["show version"]).expect_err("not in the group");
    assert!(!refused.contains("Lanyard Software"), "{refused}");
    bed.configure("platform socket group nogroup privilege 3");
    let shown = cli_of("nobody", "nogroup", &["enable", "tiger", "configure terminal", "hostname by-nobody"]);
    shown.expect("the secret is right");
    let audit = bed.show("show archive log config all");
    let commands = audit["commands"].as_array().unwrap();
    let last = commands.iter().rfind(|entry| entry["command"] == "hostname by-nobody").expect("logged");
    assert_eq!((&last["user"], &last["host"]), (&"nobody".into(), &"local".into()));
    assert!(!audit.to_string().contains("tiger"), "{audit}");
    let refused =
        cli_of("nobody", "nogroup", &["enable", "wrong", "wrong", "wrong", "enable", "wrong", "wrong"]);
    assert!(refused.expect_err("wrong").contains("Bad secrets"));
    let refused = cli_of("nobody", "nogroup", &["enable", "x", "y"]).expect_err("wrong");
    assert!(refused.contains("Bad secrets"), "{refused}");
    let refused = cli_of("nobody", "nogroup", &["enable", "tiger"]).expect_err("blocked");
    assert!(refused.contains("Too many wrong secrets"), "{refused}");
    bed.configure("no platform socket group");
    cli_of("nobody", "nogroup", &["show version"]).expect_err("no socket");
}

/// A telnet client over plain TCP.
pub(crate) struct Client {
    stream: TcpStream,
    shown: String,
}

impl Client {
    fn connect(bed: &Bed) -> Self {
        Self::connect_from(&bed.net, "127.0.0.1:23")
    }
    fn connect_from(net: &Net, address: &str) -> Self {
        let stream = net.run(|| TcpStream::connect(address)).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        Self { stream, shown: String::new() }
    }
    pub(crate) fn send(&mut self, text: &[u8]) {
        self.stream.write_all(text).expect("sent");
    }
    /// Reads until the text appears; returns everything up to it.
    pub(crate) fn until(&mut self, wanted: &str) -> String {
        let mut piece = [0; 4096];
        loop {
            if let Some(at) = self.shown.find(wanted) {
                let rest = self.shown.split_off(at + wanted.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            let count = match self.stream.read(&mut piece) {
                Ok(count) if count > 0 => count,
                // A signal, such as that of a child's end.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                other => panic!("{wanted:?} has not come: {other:?}: {:?}", self.shown),
            };
            self.shown.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
    }
    /// Reads to the end of the connection.
    fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = self.stream.read_to_end(&mut bytes);
        std::mem::take(&mut self.shown) + &String::from_utf8_lossy(&bytes)
    }
    pub(crate) fn login(bed: &Bed, name: &str, secret: &str) -> Self {
        Self::login_from(&bed.net, "127.0.0.1:23", name, secret)
    }
    pub(crate) fn login_from(net: &Net, address: &str, name: &str, secret: &str) -> Self {
        let mut client = Self::connect_from(net, address);
        client.until("Username: ");
        client.send(format!("{name}\r\n").as_bytes());
        client.until("Password: ");
        client.send(format!("{secret}\r\n").as_bytes());
        client
    }
}

fn a_dialogue_over_telnet(plane: Plane) {
    let bed = Bed::new(plane, 2, &format!("{TWO}{ACCESS}"));
    assert!(bed.printed().contains("%SYS-4-TELNET"), "{}", bed.printed());
    let mut client = Client::connect(&bed);
    let greeting = client.until("Username: ");
    assert!(greeting.contains("authorised access only") && greeting.contains("Verification"), "{greeting:?}");
    client.send(b"ann\r\0");
    client.until("Password: ");
    client.send(b"wrong\r\n");
    let refused = client.until("Username: ");
    assert!(refused.contains("Login invalid") && !refused.contains("wrong"), "{refused:?}");
    client.send(b"ann\r\n");
    client.until("Password: ");
    client.send(b"tiger\r\n");
    let shown = client.until("Lanyard#");
    assert!(!shown.contains("tiger"), "{shown:?}");
    // The window has five rows; output comes in pages.
    client.send(&[255, 250, 31, 0, 80, 0, 5, 255, 240]);
    client.send(b"show interfaces\r\n");
    let page = client.until(" --More-- ");
    assert!(page.lines().count() <= 6, "{page:?}");
    client.send(b" ");
    client.until(" --More-- ");
    client.send(b"q");
    client.until("Lanyard#");
    client.send(b"show us?");
    assert!(client.until("Lanyard#show us").contains("users"));
    client.send(b"\t\r\n");
    let users = client.until("Lanyard#");
    assert!(users.contains("ann") && users.contains("127.0.0.1"), "{users:?}");
    client.send(b"monitor events link\r\n");
    wait_for("the events", || {
        client.send(b"\x03");
        client.stream.set_read_timeout(Some(Duration::from_millis(500))).expect("set");
        let mut piece = [0; 512];
        let count = client.stream.read(&mut piece).unwrap_or(0);
        client.shown.push_str(&String::from_utf8_lossy(&piece[..count]));
        client.shown.contains("Lanyard#").then_some(())
    });
    client.stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    client.shown.clear();
    client.send(b"configure terminal\r\nhostname sw9\r\n");
    client.until("sw9(config)#");
    client.send(b"\x1a");
    client.until("sw9#");
    client.send(b"exit\r\n");
    client.rest();
    let log = bed.exec(&["show logging"]);
    assert!(log.contains("SEC_LOGIN-4-LOGIN_FAILED") && log.contains("SEC_LOGIN-5-LOGIN_SUCCESS"), "{log}");
    assert!(log.contains("Configured from vty 0 by ann"), "{log}");
    // A user of level 1, who knows the secret of level 7.
    let mut client = Client::login(&bed, "bob", "lion");
    client.until("sw9>");
    client.send(b"show running-config\r\n");
    assert!(client.until("sw9>").contains("Invalid input"));
    client.send(b"enable 7\r\n");
    client.until("Password: ");
    client.send(b"seven\r\n");
    client.until("sw9#");
    client.send(b"show privilege\r\n");
    client.until("level is 7");
    assert_eq!(bed.exec(&["clear line vty 0"]), "[OK]\n");
    assert!(client.rest().contains("the line was cleared"));
    // A client that disappears leaves no session behind.
    drop(Client::login(&bed, "ann", "tiger").until("sw9#"));
    bed.configure("line vty 0 15\n exec-timeout 0 1");
    let mut client = Client::login(&bed, "ann", "tiger");
    client.until("sw9#");
    assert!(client.rest().contains("it was idle for 1 s"));
    let own = || bed.ask("show users")["users"].as_array().unwrap().len();
    wait_for("the lines to be free", || (own() == 1).then_some(()));
}

/// A terminal and its other end, which the programs of other tests do not inherit.
pub(crate) struct Pty {
    pub(crate) master: OwnedFd,
    pub(crate) slave: OwnedFd,
}

pub(crate) fn terminal(size: Option<&nix::pty::Winsize>) -> Pty {
    use nix::fcntl::{FcntlArg, FdFlag, fcntl};
    let nix::pty::OpenptyResult { master, slave } = nix::pty::openpty(size, None).expect("a pty");
    for end in [&master, &slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("set");
    }
    Pty { master, slave }
}

/// Reads from a terminal until one of the texts has come behind `seen`; returns which one.
///
/// # Panics
/// When nothing comes for 30 s, or the terminal is closed.
pub(crate) fn read_until(
    master: &mut std::fs::File,
    shown: &mut String,
    seen: &mut usize,
    wanted: &[&str],
) -> usize {
    let mut piece = [0; 4096];
    loop {
        let found = wanted.iter().enumerate().find_map(|(n, text)| Some((n, shown[*seen..].find(text)?)));
        if let Some((n, at)) = found {
            *seen += at + wanted[n].len();
            return n;
        }
        let mut ready = [PollFd::new(master.as_fd(), PollFlags::POLLIN)];
        assert!(poll(&mut ready, 30_000u16).expect("polled") > 0, "{wanted:?} has not come: {shown:?}");
        let count = master.read(&mut piece).unwrap_or_else(|error| panic!("{wanted:?}: {error}: {shown:?}"));
        shown.push_str(&String::from_utf8_lossy(&piece[..count]));
    }
}

/// For each step, waits for the first text on a terminal and then types the second one; returns all that the terminal has shown.
pub(crate) fn talk(master: &mut std::fs::File, steps: &[(&str, &str)]) -> String {
    let (mut shown, mut seen) = (String::new(), 0);
    for (wanted, typed) in steps {
        read_until(master, &mut shown, &mut seen, &[wanted]);
        master.write_all(typed.as_bytes()).expect("typed");
    }
    shown
}

fn the_client_of_debian(plane: Plane) {
    if Command::new("telnet").arg("--version").output().is_err() {
        return println!("skipped: no telnet client (package telnet)");
    }
    let bed = Bed::new(plane, 1, ACCESS);
    let pty = terminal(None);
    let end = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
    // The client reads only from its controlling terminal.
    let mut command = Command::new("setsid");
    command
        .args(["--ctty", "--wait", "telnet", "127.0.0.1"])
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .env("TERM", "vt100");
    let mut child = bed.net.run(|| command.spawn()).expect("started");
    drop(command);
    let mut master = std::fs::File::from(pty.master);
    let shown = talk(
        &mut master,
        &[
            ("Username: ", "ann\r"),
            ("Password: ", "tiger\r"),
            ("Lanyard#", "show ver\t| include Lanyard\r"),
            ("Lanyard#", "exit\r"),
            ("Connection closed", ""),
        ],
    );
    child.wait().expect("ended");
    assert!(
        shown.contains("show version | include Lanyard") && shown.contains("Lanyard Software"),
        "{shown:?}"
    );
    assert!(!shown.contains("tiger"), "{shown:?}");
}

fn a_login_on_the_console(plane: Plane) {
    let bed = Bed::new(plane, 1, ACCESS);
    let console = |typed: &[(&str, &str)]| {
        let pty = terminal(None);
        let end = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
        let mut command = Command::new(LANYARD);
        command.args(["console", "--instance", &bed.instance]).stdin(end()).stdout(end()).stderr(end());
        let mut child = command.spawn().expect("started");
        drop(command);
        let mut master = std::fs::File::from(pty.master);
        let shown = talk(&mut master, typed);
        let status = child.wait().expect("ended");
        assert!(status.success(), "{status}: {shown:?}");
        shown
    };
    let shown = console(&[
        ("Username: ", "bob\r"),
        ("Password: ", "lion\r"),
        ("Lanyard>", "show users\r"),
        ("con 0", ""),
        ("Lanyard>", "exit\r"),
    ]);
    assert!(shown.contains("authorised access only") && !shown.contains("lion"), "{shown:?}");
    let shown = console(&[
        ("Username: ", "bob\r"),
        ("Password: ", "a\r"),
        ("Username: ", "bob\r"),
        ("Password: ", "b\r"),
        ("Username: ", "nobody\r"),
        ("Password: ", "lion\r"),
        ("Login invalid", ""),
    ]);
    assert_eq!(shown.matches("Login invalid").count(), 3, "{shown:?}");
    bed.configure("no username ann\nno username bob");
    console(&[("No users are configured", ""), ("lanyard cli", "")]);
    bed.configure("line console 0\n no login");
    console(&[("Lanyard>", "enable\r"), ("No password set", ""), ("Lanyard>", "exit\r")]);
}

/// The pages of a console follow the size of its window, also when it changes.
fn a_window_that_changes(plane: Plane) {
    let bed = Bed::new(plane, 2, &format!("{TWO}{ACCESS}"));
    let size = nix::pty::Winsize { ws_row: 60, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = terminal(Some(&size));
    let end = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
    // The kernel signals a change of the size only to processes that have the terminal as their controlling terminal.
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", LANYARD, "console", "--instance", &bed.instance]);
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("started");
    drop(command);
    let mut master = std::fs::File::from(pty.master.try_clone().expect("a descriptor"));
    let steps = [
        ("Username: ", "bob\r"),
        ("Password: ", "lion\r"),
        ("Lanyard>", "show interfaces\r"),
        ("Lanyard>", ""),
    ];
    let shown = talk(&mut master, &steps);
    assert!(!shown.contains("--More--") && shown.lines().count() > 10, "{shown:?}");
    let resized = Command::new("stty").args(["rows", "10"]).stdin(end()).status().expect("stty");
    assert!(resized.success());
    let (mut shown, mut seen) = (String::new(), 0);
    wait_for("pages of ten lines", || {
        master.write_all(b"show interfaces\r").expect("typed");
        read_until(&mut master, &mut shown, &mut seen, &["interfaces"]);
        let is_page = read_until(&mut master, &mut shown, &mut seen, &["--More--", "Lanyard>"]) == 0;
        is_page.then_some(())
    });
    assert!(shown[..seen].rsplit("show interfaces").next().unwrap().lines().count() <= 11, "{shown:?}");
    // The terminal hangs up, and the line is free.
    drop((master, pty));
    child.wait().expect("ended");
    let users = || bed.ask("show users")["users"].as_array().map_or(0, Vec::len);
    wait_for("the line to be free", || (users() == 1).then_some(()));
}

/// The machine's own SSH server leads users to the switch, with the lines of docs/access.md: with a key, with a wrong one, a single
/// command and a refused command.
fn ssh_by_the_server_of_the_machine(plane: Plane) {
    if !std::path::Path::new("/usr/sbin/sshd").exists() {
        return println!("skipped: no SSH server (package openssh-server)");
    }
    let bed = Bed::new(plane, 1, ACCESS);
    for key in ["host", "user", "other"] {
        let file = bed.file(key).display().to_string();
        let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &file]).status();
        assert!(made.expect("ssh-keygen").success());
    }
    let path = |name: &str| bed.file(name).display().to_string();
    std::fs::copy(path("user.pub"), path("authorized")).expect("copied");
    std::fs::create_dir_all("/run/sshd").expect("made");
    let config = format!(
        "Port 22\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\n\
         ForceCommand {LANYARD} cli --instance {} ${{SSH_ORIGINAL_COMMAND:+-c \"$SSH_ORIGINAL_COMMAND\"}}\n",
        path("host"),
        path("authorized"),
        bed.instance
    );
    std::fs::write(bed.file("sshd_config"), config).expect("written");
    let mut server = Command::new("/usr/sbin/sshd");
    server.args(["-D", "-e", "-f", &path("sshd_config")]).stderr(Stdio::null());
    let mut server = bed.net.spawn(&mut server);
    let ssh = |key: &str, command: &[&str]| {
        let mut client = Command::new("ssh");
        client.args(["-F", "none", "-i", &path(key), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]);
        client.args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]);
        client.arg("root@127.0.0.1").args(command);
        client
    };
    let run = |key: &str, command: &[&str]| {
        let output = bed.net.output(ssh(key, command).stdin(Stdio::null()));
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(text) } else { Err(text) }
    };
    let shown = wait_for("the SSH server", || run("user", &["show", "version"]).ok());
    assert!(shown.contains("Lanyard Software"), "{shown}");
    let refused = run("other", &["show version"]).expect_err("another key");
    assert!(refused.contains("Permission denied"), "{refused}");
    let refused = run("user", &["show version; reboot"]).expect_err("one command, without a shell");
    assert!(refused.contains('%') && !refused.contains("Lanyard Software"), "{refused}");
    server.kill().expect("ended");
    server.wait().expect("ended");
}

fn telnet_is_off_unless_configured(plane: Plane) {
    let bed = Bed::new(plane, 1, "username ann secret tiger");
    let connects = || bed.net.run(|| TcpStream::connect("127.0.0.1:23").is_ok());
    assert!(!connects());
    let printed = bed.try_configure("line vty 0 4\n transport input telnet").expect("taken");
    assert!(printed.contains("plain text"), "{printed}");
    assert!(connects());
    bed.configure("line vty 0 4\n transport input none");
    wait_for("the port to close", || (!connects()).then_some(()));
    let used = bed.net.run(|| std::net::TcpListener::bind("0.0.0.0:23")).expect("bound");
    let refused = bed.try_configure("line vty 0 4\n transport input telnet").expect_err("in use");
    assert!(refused.contains("port 23"), "{refused}");
    drop(used);
}

/// 200 sessions at the same time, of which 50 ask for output and never read it. The switch answers another session at once, and
/// refuses a session beyond the 200.
fn two_hundred_sessions(plane: Plane) {
    let bed = Bed::new(plane, 2, &format!("{TWO}{ACCESS}"));
    let socket = format!("/run/lanyard/{}/cli.sock", bed.instance);
    let hello = b"{\"hello\":{\"user\":\"x\",\"interactive\":false}}\n";
    let mut sessions = Vec::new();
    for n in 0..198 {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("connected");
        stream.write_all(hello).expect("sent");
        if n % 4 == 0 {
            // The answers fill the socket's buffers. Then the switch waits for this reader and reads no further requests, so that
            // a write fails in the end.
            stream.set_nonblocking(true).expect("set");
            let mut requests =
                (0..4000).map(|_| stream.write(b"{\"exec\":{\"line\":\"show interfaces\"}}\n"));
            assert!(requests.any(|result| result.is_err()), "the switch has read everything");
        }
        sessions.push(stream);
    }
    let users = || bed.ask("show users")["users"].as_array().map_or(0, Vec::len);
    wait_for("all of them", || (users() == 199).then_some(()));
    let begin = Instant::now();
    let shown = bed.exec(&["show version"]);
    assert!(shown.contains("Lanyard Software"));
    let took = begin.elapsed();
    println!("200 sessions: a command of another session took {took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    for _ in 0..2 {
        let mut last = std::os::unix::net::UnixStream::connect(&socket).expect("connected");
        last.write_all(hello).expect("sent");
        sessions.push(last);
    }
    wait_for("the 200th session", || cli(&bed.instance, &["show version"]).is_err().then_some(()));
    let refused = cli(&bed.instance, &["show version"]).expect_err("full");
    assert!(refused.contains("200 sessions are open already"), "{refused}");
    drop(sessions);
    wait_for("a free line", || cli(&bed.instance, &["show version"]).ok());
    wait_for("the lines to be free", || (users() == 1).then_some(()));
}

/// While clients try wrong secrets, more than 1,000 a second, spanning tree sends its hellos in time, and another session is
/// served.
fn a_flood_of_logins(plane: Plane) {
    const ATTEMPTS: u32 = 9_000;
    const CLIENTS: u32 = 4;
    /// The number of connections that a client keeps open, so that the switch has the time to read their attempts.
    const OPEN: usize = 40;
    let bed = Bed::new(plane, 2, &format!("{TWO}spanning-tree mode rstp\n{ACCESS}"));
    let is_bpdu = |frame: &[u8]| frame.starts_with(&[0x01, 0x80, 0xc2, 0, 0, 0]);
    let begin = Instant::now();
    // The number of logins that the clients have made; 0 until they have ended.
    let made = AtomicU32::new(0);
    let is_over = || made.load(Ordering::Relaxed) > 0;
    let (mut gaps, mut slowest, mut took) = (Vec::new(), Duration::ZERO, Duration::ZERO);
    std::thread::scope(|scope| {
        let client = || {
            let (mut open, mut made) = (VecDeque::new(), 0);
            for _ in 0..ATTEMPTS / CLIENTS {
                let connected = bed.net.run(|| TcpStream::connect("127.0.0.1:23"));
                let Ok(mut stream) = connected else { continue };
                let _ = stream.write_all(b"ann\r\nwrong\r\n");
                open.push_back(stream);
                made += 1;
                if open.len() > OPEN {
                    open.pop_front();
                }
            }
            made
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        scope.spawn(|| {
            let sum = clients.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u32>();
            made.store(sum, Ordering::Relaxed);
        });
        let mut last = None;
        // The loop lasts for at least four hellos, however fast the clients are.
        while !is_over() || begin.elapsed() < Duration::from_secs(9) {
            if !is_over() {
                took = begin.elapsed();
            }
            let asked = Instant::now();
            bed.exec(&["show clock"]);
            slowest = slowest.max(asked.elapsed());
            while let Some(frame) = bed.host(1).next() {
                if is_bpdu(&frame.0) {
                    let now = Instant::now();
                    gaps.extend(last.replace(now).map(|before| now - before));
                }
            }
        }
    });
    let longest = gaps.iter().max().copied().expect("hellos");
    println!(
        "{made:?} logins in {took:?}; longest gap between hellos {longest:?}, slowest command {slowest:?}"
    );
    // RSTP gives a neighbour up after three hellos (IEEE 802.1Q, 13.25.34).
    assert!(longest < Duration::from_secs(6), "{longest:?}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    let per_s = f64::from(made.load(Ordering::Relaxed)) / took.as_secs_f64();
    assert!(per_s >= 1000.0, "only {per_s} logins a second");
    assert!(bed.exec(&["show logging"]).contains("QUIET_MODE_ON"));
}
