//! The SSH server with OpenSSH's client: keys, secrets, commands, a dialogue, hostile clients; and what each way in permits.

use crate::access::{Client, Pty, as_user, read_until, talk, terminal};
use crate::harness::daemon::{LANYARD, cli};
use crate::harness::{Bed, Plane, scenarios, wait_for};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

scenarios! {
    keys_and_commands: soft;
    a_dialogue_over_ssh: soft;
    a_connection_that_is_cut: soft;
    clients_that_send_anything: soft;
    clients_that_break_the_protocol: soft;
    a_client_that_opens_many_channels: soft;
    ssh_is_off_unless_configured: soft;
    every_way_in_permits_the_same: soft;
}

const SSH: &str = "banner motd #authorised access only#\n\
    username ann privilege 15 secret tiger\n\
    username bob secret lion\n\
    enable secret level 7 seven\n\
    line vty 0 15\n transport input ssh\n";
const TWO: &str = "interface range p1 - 2\n switchport\n";

/// A switch with an SSH server; `None`, after printing the reason, if a program is missing.
pub(crate) fn bed(plane: Plane, config: &str) -> Option<Bed> {
    if !Path::new(LANYARD).with_file_name("lanyard-sshd").exists() {
        println!("skipped: lanyard-sshd is not built (cargo build -p lanyard-ssh)");
        return None;
    }
    if Command::new("ssh").arg("-V").stderr(Stdio::null()).status().is_err() {
        println!("skipped: no SSH client (package openssh-client)");
        return None;
    }
    Some(Bed::new(plane, 2, &format!("{TWO}{config}")))
}

/// Makes a key pair in a file of the bed; returns the line of its public key.
pub(crate) fn make_key(bed: &Bed, name: &str, kind: &str) -> String {
    let file = bed.file(name);
    let mut command = Command::new("ssh-keygen");
    let made = command.args(["-q", "-t", kind, "-N", "", "-f"]).arg(&file).status().expect("ssh-keygen");
    assert!(made.success());
    let line = std::fs::read_to_string(file.with_extension("pub")).expect("a public key");
    line.trim().to_owned()
}

pub(crate) fn permit_key(bed: &Bed, user: &str, line: &str) {
    bed.configure(&format!("ip ssh pubkey-chain\n username {user}\n  key-string {line}"));
}

/// OpenSSH's client for a user, with the key in a file of the bed if there is one.
fn client(bed: &Bed, user: &str, key: Option<&str>) -> Command {
    let mut client = Command::new("ssh");
    client.args(["-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]);
    client.args(["-o", "LogLevel=ERROR", "-o", "IdentityAgent=none"]);
    match key {
        Some(name) => {
            client.args(["-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-i"]).arg(bed.file(name));
        }
        None => {
            client.args(["-o", "PubkeyAuthentication=no"]);
        }
    }
    client.arg(format!("{user}@127.0.0.1"));
    client
}

/// Runs a command over SSH; returns the exit status, the output, and the errors.
pub(crate) fn run(bed: &Bed, user: &str, key: &str, command: &str) -> (Option<i32>, String, String) {
    let output = bed.net.output(client(bed, user, Some(key)).arg(command));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn sessions(bed: &Bed) -> usize {
    // The session of this query itself is not counted.
    bed.ask("show users")["users"].as_array().map_or(0, |users| users.len() - 1)
}

fn keys_and_commands(plane: Plane) {
    let Some(bed) = bed(plane, SSH) else { return };
    for (name, kind) in [("user", "ed25519"), ("elliptic", "ecdsa"), ("old", "rsa")] {
        let line = make_key(&bed, name, kind);
        let (_, _, errors) = run(&bed, "ann", name, "show version");
        assert!(errors.contains("Permission denied"), "{kind}: {errors}");
        // A key that is not permitted counts as no failed login, because the client has not proved that it has the key.
        permit_key(&bed, "ann", &line);
        let (status, shown, errors) = run(&bed, "ann", name, "show version");
        assert!(
            status == Some(0) && shown.contains("Lanyard Software"),
            "{kind}: {status:?} {shown} {errors}"
        );
    }
    let (status, _, errors) = run(&bed, "bob", "user", "show version");
    assert!(status == Some(255) && errors.contains("Permission denied"), "another user's key: {errors}");
    let (status, shown, errors) = run(&bed, "ann", "user", "show nonsense");
    assert!(status == Some(1) && errors.contains('%') && shown.is_empty(), "{status:?} {shown} {errors}");
    let lines = "configure terminal\nhostname by-ssh\nend\nshow nonsense\nwrite memory";
    assert_eq!(run(&bed, "ann", "user", lines).0, Some(1));
    assert!(bed.exec(&["show running-config"]).contains("hostname by-ssh"));
    permit_key(&bed, "bob", std::fs::read_to_string(bed.file("user.pub")).expect("a public key").trim());
    assert_eq!(run(&bed, "bob", "user", "show running-config").0, Some(1), "bob has level 1");
    let (status, _, errors) = run(&bed, "bob", "user", "enable 7");
    assert!(status == Some(1) && errors.contains("needs a terminal"), "{errors}");
    let audit = bed.ask("show archive log config all");
    let commands = audit["commands"].as_array().expect("a list");
    let entry = commands.iter().find(|entry| entry["command"] == "hostname by-ssh").expect("logged");
    assert_eq!((&entry["user"], &entry["host"]), (&"ann".into(), &"127.0.0.1".into()));
    let key = format!("/var/lib/lanyard/{}/ssh_host_ed25519_key", bed.instance);
    assert_eq!(std::fs::metadata(key).expect("the host key").permissions().mode() & 0o777, 0o600);
    // The host key is kept: a client that knows it accepts the server after the server has been turned off and on.
    let known = bed.file("known");
    let strict = |how: &str| {
        let mut client = Command::new("ssh");
        client
            .args(["-F", "none", "-o", "BatchMode=yes", "-o", "IdentityAgent=none", "-i"])
            .arg(bed.file("user"));
        client.args(["-o", &format!("StrictHostKeyChecking={how}")]);
        client.args([
            "-o",
            &format!("UserKnownHostsFile={}", known.display()),
            "ann@127.0.0.1",
            "show clock",
        ]);
        bed.net.output(&mut client).status.success()
    };
    assert!(strict("no"));
    bed.configure("line vty 0 15\n transport input none");
    bed.configure("line vty 0 15\n transport input ssh");
    wait_for("the same key", || strict("yes").then_some(()));
    bed.configure("no ip ssh pubkey-chain");
    assert_eq!(run(&bed, "ann", "user", "show version").0, Some(255));
}

fn a_dialogue_over_ssh(plane: Plane) {
    let Some(bed) = bed(plane, SSH) else { return };
    let size = nix::pty::Winsize { ws_row: 60, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let Pty { master, slave } = terminal(Some(&size));
    let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
    let ssh = client(&bed, "ann", None);
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait", "ssh"]).args(ssh.get_args()).env("TERM", "vt100");
    command.stdin(end()).stdout(end()).stderr(end());
    let mut child = bed.net.run(|| command.spawn()).expect("started");
    drop(command);
    let mut master = std::fs::File::from(master);
    let shown = talk(
        &mut master,
        &[
            ("password: ", "wrong\r"),
            ("password: ", "tiger\r"),
            ("authorised access only", ""),
            ("Lanyard#", "show us\t\r"),
            ("127.0.0.1", ""),
            ("Lanyard#", "show interfaces\r"),
            ("Lanyard#", ""),
        ],
    );
    assert!(!shown.contains("--More--") && !shown.contains("tiger"), "{shown:?}");
    assert!(Command::new("stty").args(["rows", "6"]).stdin(end()).status().expect("stty").success());
    let (mut shown, mut seen) = (String::new(), 0);
    wait_for("pages of six lines", || {
        master.write_all(b"show interfaces\r").expect("typed");
        read_until(&mut master, &mut shown, &mut seen, &["interfaces"]);
        let is_page = read_until(&mut master, &mut shown, &mut seen, &["--More--", "Lanyard#"]) == 0;
        is_page.then_some(())
    });
    let steps = [
        ("", "q"),
        ("Lanyard#", "monitor events link\r"),
        ("monitor events link", "\x03"),
        ("Lanyard#", "exit\r"),
    ];
    talk(&mut master, &steps);
    assert!(child.wait().expect("ended").success());
    let log = bed.exec(&["show logging"]);
    assert!(log.contains("SEC_LOGIN-4-LOGIN_FAILED") && log.contains("SEC_LOGIN-5-LOGIN_SUCCESS"), "{log}");
    wait_for("the line to be free", || (sessions(&bed) == 0).then_some(()));
}

fn a_connection_that_is_cut(plane: Plane) {
    let Some(bed) = bed(plane, SSH) else { return };
    let line = make_key(&bed, "user", "ed25519");
    permit_key(&bed, "ann", &line);
    for way in ["cut", "clear", "interrupt"] {
        let mut command = client(&bed, "ann", Some("user"));
        let command = command.args(if way == "interrupt" { &["monitor events"][..] } else { &["-tt"] });
        let mut child = bed
            .net
            .run(|| command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn())
            .expect("started");
        wait_for("the session", || (sessions(&bed) == 1).then_some(()));
        if way == "clear" {
            let users = bed.ask("show users");
            let of_ann = |user: &&serde_json::Value| user["user"] == "ann";
            let ann = users["users"].as_array().and_then(|users| users.iter().find(of_ann)).expect("ann");
            let line = ann["line"].as_str().expect("a line");
            assert_eq!(bed.exec(&[&format!("clear line {line}")]), "[OK]\n");
        } else {
            child.kill().expect("cut");
        }
        child.wait().expect("ended");
        wait_for("the line to be free", || (sessions(&bed) == 0).then_some(()));
    }
}

/// Clients that send random bytes, at once or after an identification, and clients that send nothing.
fn clients_that_send_anything(plane: Plane) {
    let Some(bed) = bed(plane, SSH) else { return };
    let line = make_key(&bed, "user", "ed25519");
    permit_key(&bed, "ann", &line);
    wait_for("the server", || (run(&bed, "ann", "user", "show clock").0 == Some(0)).then_some(()));
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let connect = || bed.net.run(|| TcpStream::connect("127.0.0.1:22")).expect("connected");
    for n in 0..300u64 {
        let mut stream = connect();
        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
        if n % 3 > 0 {
            let _ = stream.write_all(b"SSH-2.0-fuzz\r\n");
        }
        if n % 3 > 1 {
            // The beginning of a packet: a plausible length, and the message KEXINIT.
            let _ = stream.write_all(&[0, 0, 0, 60, 4, 20]);
        }
        let bytes: Vec<u8> = (0..random() % 400).map(|_| (random() >> 32) as u8).collect();
        let _ = stream.write_all(&bytes);
        if n % 10 == 0 {
            let _ = stream.read(&mut [0; 512]);
        }
    }
    // As many clients as may log in at the same time connect and send nothing; local users are not affected.
    let silent: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    assert!(bed.exec(&["show version"]).contains("Lanyard Software"));
    drop(silent);
    wait_for("the server", || (run(&bed, "ann", "user", "show clock").0 == Some(0)).then_some(()));
    assert!(!bed.exec(&["show logging"]).contains("SSH-3-SERVER"));
}

/// The resident memory of a process in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

/// The SSH server's process in the switch's namespace.
fn server_pid(bed: &Bed) -> u32 {
    let is_server = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "lanyard-sshd")
    };
    bed.net.processes().into_iter().find(is_server).expect("an SSH server")
}

/// A packet without encryption (RFC 4253, 6), with lengths that need not be true.
fn packet(payload: &[u8], length: u32, padding: u8) -> Vec<u8> {
    let mut packet = length.to_be_bytes().to_vec();
    packet.push(padding);
    packet.extend_from_slice(payload);
    packet.extend(std::iter::repeat_n(0, usize::from(padding)));
    packet
}

/// Like [`packet`], with the correct lengths.
fn true_packet(payload: &[u8]) -> Vec<u8> {
    let padding = 4 + (8 - (5 + payload.len() + 4) % 8) % 8;
    packet(payload, (1 + payload.len() + padding) as u32, padding as u8)
}

/// KEXINIT (RFC 4253, 7.1) with one list of names for each kind of algorithm.
fn key_exchange_init(lists: &[&str]) -> Vec<u8> {
    let mut payload = vec![20];
    payload.extend([7; 16]);
    for list in lists {
        payload.extend((list.len() as u32).to_be_bytes());
        payload.extend(list.as_bytes());
    }
    payload.extend([0; 5]);
    payload
}

/// A hostile client sends invalid versions, packets with false or huge lengths, very long name lists, keys that are no points of
/// the curve, and messages out of order. Each input is also sent truncated, altered, or with random bytes behind it. Afterwards
/// OpenSSH's client logs in, neither process has restarted, and neither has grown.
fn clients_that_break_the_protocol(plane: Plane) {
    const VERSION: &[u8] = b"SSH-2.0-hostile\r\n";
    let Some(bed) = bed(plane, SSH) else { return };
    let line = make_key(&bed, "user", "ed25519");
    permit_key(&bed, "ann", &line);
    let logs_in = || run(&bed, "ann", "user", "show clock").0 == Some(0);
    wait_for("the server", || logs_in().then_some(()));
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below
    };
    let names = [
        "curve25519-sha256",
        "ssh-ed25519",
        "aes256-gcm@openssh.com,chacha20-poly1305@openssh.com",
        "aes256-gcm@openssh.com,chacha20-poly1305@openssh.com",
        "hmac-sha2-256",
        "hmac-sha2-256",
        "none",
        "none",
        "",
        "",
    ];
    let good = true_packet(&key_exchange_init(&names));
    let long = "x,".repeat(15_000);
    let long_names: Vec<&str> =
        std::iter::repeat_n(long.as_str(), 2).chain(names.into_iter().skip(2)).collect();
    let exchange = |point: &[u8]| {
        let length = (point.len() as u32).to_be_bytes();
        true_packet(&[&[30][..], &length, point].concat())
    };
    let with_version = |rest: &[u8]| [VERSION, rest].concat();
    let inputs: Vec<Vec<u8>> = vec![
        b"SSH-1.5-old\r\n".to_vec(),
        b"SSH-2.0-".repeat(5000),
        [&b"\0\xff\r"[..], &[b'a'; 300], b"\n"].concat(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![b'\n'; 100_000],
        with_version(&packet(&[20], u32::MAX, 4)),
        with_version(&packet(&[20], i32::MAX as u32, 4)),
        with_version(&packet(&[20; 200], 256 * 1024, 4)),
        with_version(&packet(&[20], 0, 0)),
        with_version(&packet(&[20], 1, 255)),
        with_version(&packet(&[], 12, 200)),
        with_version(&true_packet(&key_exchange_init(&[]))),
        with_version(&true_packet(&key_exchange_init(&long_names))),
        with_version(&true_packet(&key_exchange_init(&["none"; 10]))),
        with_version(&good),
        with_version(&[good.clone(), exchange(&[0; 32])].concat()),
        with_version(&[good.clone(), exchange(&[0xff; 32])].concat()),
        with_version(&[good.clone(), exchange(&[9; 31])].concat()),
        with_version(&[good.clone(), exchange(&[])].concat()),
        with_version(&[good.clone(), true_packet(&[&[30][..], &[0xff; 4]].concat())].concat()),
        // A key exchange that could succeed, and then bytes that are not encrypted.
        with_version(&[good.clone(), exchange(&[9; 32]), true_packet(&[21]), vec![0x5a; 5000]].concat()),
        // Messages of a login and of channels before there are keys.
        with_version(&[good.clone(), true_packet(&[50; 60]), true_packet(&[90; 60])].concat()),
        // One message, repeated many times.
        with_version(&good.repeat(200)),
        with_version(&true_packet(&[2; 100]).repeat(2000)),
    ];
    let connect = || bed.net.run(|| TcpStream::connect("127.0.0.1:22")).expect("connected");
    let daemon = bed.daemon.borrow().as_ref().expect("a daemon").pid();
    let server = server_pid(&bed);
    let before = [daemon, server].map(resident_kib);
    let mut all = 0;
    for round in 0..12 {
        for input in &inputs {
            let mut bytes = input.clone();
            match round {
                0 => {}
                // Depending on the round, truncate the input, change some of its bytes, or append random bytes.
                n if n % 3 == 0 => bytes.truncate(random(bytes.len())),
                n if n % 3 == 1 => {
                    for _ in 0..4 {
                        let at = random(bytes.len());
                        bytes[at] = random(256) as u8;
                    }
                }
                _ => bytes.extend((0..random(3000)).map(|_| random(256) as u8).collect::<Vec<_>>()),
            }
            let mut stream = connect();
            let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
            let _ = stream.set_read_timeout(Some(Duration::from_millis(20)));
            let _ = stream.write_all(&bytes);
            if round % 4 == 0 {
                let _ = stream.read(&mut [0; 4096]);
            }
            all += 1;
        }
        assert!(bed.exec(&["show version"]).contains("Lanyard Software"));
    }
    wait_for("the server after the hostile clients", || logs_in().then_some(()));
    assert!(!bed.exec(&["show logging"]).contains("SSH-3-SERVER"));
    assert_eq!(server_pid(&bed), server, "the server is the same process");
    let after = [daemon, server].map(resident_kib);
    println!("{all} hostile connections; resident KiB of daemon and server {before:?}, then {after:?}");
    for (before, after) in before.into_iter().zip(after) {
        assert!(after < before + 32 * 1024, "{before} KiB grew to {after} KiB");
    }
}

/// A connection has one session: further channels that the client opens are refused, and the session goes on.
fn a_client_that_opens_many_channels(plane: Plane) {
    let Some(bed) = bed(plane, SSH) else { return };
    let line = make_key(&bed, "user", "ed25519");
    permit_key(&bed, "ann", &line);
    wait_for("the server", || (run(&bed, "ann", "user", "show clock").0 == Some(0)).then_some(()));
    let socket = bed.file("control");
    let path = format!("ControlPath={}", socket.display());
    // `-M`: other clients open their channels on this one's connection.
    let mut command = client(&bed, "ann", Some("user"));
    command.args(["-M", "-o", &path, "monitor events"]);
    let started =
        bed.net.run(|| command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn());
    let mut master = started.expect("started");
    wait_for("the session", || (sessions(&bed) == 1 && socket.exists()).then_some(()));
    let other = || {
        // This client has no key: with one, it would open a connection of its own after its channel is refused.
        let mut command = client(&bed, "ann", None);
        command.args(["-o", &path, "-o", "ControlMaster=no", "-o", "BatchMode=yes", "-vv", "show clock"]);
        bed.net
            .run(|| command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn())
            .expect("started")
    };
    // Open several channels at the same time, in several rounds.
    for _ in 0..8 {
        let several: Vec<_> = (0..12).map(|_| other()).collect();
        for child in several {
            let output = child.wait_with_output().expect("ended");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && output.stdout.is_empty(), "{errors}");
            assert!(errors.contains("session request failed"), "{errors}");
        }
        assert_eq!(sessions(&bed), 1, "one session for one connection");
    }
    assert!(master.try_wait().expect("asked").is_none(), "its own session goes on");
    master.kill().expect("killed");
    master.wait().expect("ended");
    wait_for("the line to be free", || (sessions(&bed) == 0).then_some(()));
    assert_eq!(run(&bed, "ann", "user", "show clock").0, Some(0));
}

fn ssh_is_off_unless_configured(plane: Plane) {
    let Some(bed) = bed(plane, "username ann secret tiger\n") else { return };
    let connects = || bed.net.run(|| TcpStream::connect("127.0.0.1:22").is_ok());
    assert!(!connects());
    bed.configure("line vty 0 4\n transport input ssh");
    assert!(connects());
    bed.configure("line vty 0 4\n transport input telnet");
    wait_for("the port to close", || (!connects()).then_some(()));
    let used = bed.net.run(|| std::net::TcpListener::bind("0.0.0.0:22")).expect("bound");
    let refused = bed.try_configure("line vty 0 4\n transport input ssh").expect_err("in use");
    assert!(refused.contains("port 22"), "{refused}");
    drop(used);
}

/// The output of a console for a command of a user with the secret `tiger`.
pub(crate) fn on_console(bed: &Bed, user: &str, level: u8, command: &str) -> String {
    let pty = terminal(None);
    let end = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
    let mut program = Command::new(LANYARD);
    program.args(["console", "--instance", &bed.instance]).stdin(end()).stdout(end()).stderr(end());
    let mut child = program.spawn().expect("started");
    drop(program);
    let mut master = std::fs::File::from(pty.master.try_clone().expect("a descriptor"));
    let prompt = if level > 1 { "Lanyard#" } else { "Lanyard>" };
    // `show privilege` is no configuration line; its answer ends in either case.
    let steps = [
        ("Username: ", format!("{user}\r")),
        ("Password: ", "tiger\r".into()),
        (prompt, "terminal length 0\r".into()),
        (prompt, format!("{command}\r")),
        // Wait for the echo of the command, and not for a prompt: there is one before the echo and one behind the output.
        (command, "do show privilege\rshow privilege\r".into()),
        ("level is", String::new()),
    ];
    let steps: Vec<(&str, &str)> = steps.iter().map(|(wanted, typed)| (*wanted, typed.as_str())).collect();
    let shown = talk(&mut master, &steps);
    drop((master, pty));
    child.wait().expect("ended");
    // Return what follows the command and precedes `do`: exec mode refuses `do`, and that refusal does not concern the command.
    let from = shown.rfind(&format!("{prompt}{command}")).expect("the echo");
    let behind = &shown[from..];
    let to = behind.find("do show privilege").expect("the next line");
    behind[..to].to_owned()
}

/// Authorization: the privilege level of a user decides what the session may enter, and not the way in.
fn every_way_in_permits_the_same(plane: Plane) {
    let Some(bed) =
        bed(plane, "privilege exec level 7 clear counters\nline vty 0 15\n transport input all\n")
    else {
        return;
    };
    let line = make_key(&bed, "user", "ed25519");
    let commands =
        [("show version", 1), ("clear counters", 7), ("show running-config", 15), ("configure terminal", 15)];
    for level in [1, 7, 15] {
        let user = format!("u{level}");
        bed.configure(&format!("username {user} privilege {level} secret tiger"));
        permit_key(&bed, &user, &line);
        bed.configure(&format!("platform socket group nogroup privilege {level}"));
        for (command, needed) in commands {
            let permitted = level >= needed;
            let (status, _, errors) = run(&bed, &user, "user", command);
            assert_eq!(status == Some(0), permitted, "{command} at {level} over SSH: {errors}");
            let arguments = ["cli", "--instance", &bed.instance, "-c", command];
            let result = as_user("nobody", "nogroup", &arguments);
            assert_eq!(result.is_ok(), permitted, "{command} at {level} in the group: {result:?}");
            assert!(cli(&bed.instance, &[command]).is_ok(), "{command} on the owner's socket");
            let shown = on_console(&bed, &user, level, command);
            let may = !shown.contains("Invalid input");
            assert_eq!(may, permitted, "{command} at {level} on the console: {shown}");
            let mut client = Client::login(&bed, &user, "tiger");
            let prompt = if level > 1 { "Lanyard#" } else { "Lanyard>" };
            client.until(prompt);
            client.send(format!("terminal length 0\r\n{command}\r\nshow privilege\r\n").as_bytes());
            let shown =
                client.until(if permitted && command.starts_with("conf") { "config)#" } else { "level is" });
            assert_eq!(
                !shown.contains("Invalid input"),
                permitted,
                "{command} at {level} over telnet: {shown}"
            );
        }
    }
}
