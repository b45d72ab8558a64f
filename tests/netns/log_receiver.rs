//! `logging host ... transport tls` with a receiver of Python's module ssl: certificates that are right and wrong, a receiver that
//! dies and returns, and the count of what is lost meanwhile.

use crate::harness::daemon::{Daemon, LANYARD};
use crate::harness::{Bed, Plane, scenarios, wait_for};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

scenarios! {
    a_receiver_over_tls: soft;
}

const PORT: u16 = 6514;

/// A receiver, which ends with this value.
struct Receiver {
    program: Child,
    output: std::path::PathBuf,
}

impl Receiver {
    /// Starts it with a certificate of the bed's directory; waits until it listens.
    fn start(bed: &Bed, name: &str, certificate: &str) -> Self {
        let output = bed.file(name);
        let file = File::create(&output).expect("made");
        let mut command = Command::new("python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/netns/log_receiver.py"));
        command.arg(PORT.to_string()).arg(bed.file(certificate)).arg(bed.file("key.pem"));
        command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
        let program = bed.net.spawn(&mut command);
        let ports = || fs::read_to_string(format!("/proc/{}/net/tcp", program.id())).unwrap_or_default();
        let listening = format!("0100007F:{PORT:04X} 00000000:0000 0A");
        wait_for("the receiver", || ports().contains(&listening).then_some(()));
        Self { program, output }
    }
    /// The messages that have come: each has its length in octets before it (RFC 5425, 4.3).
    fn messages(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.output).expect("read");
        let (mut rest, mut list) = (text.as_str(), Vec::new());
        while let Some((length, behind)) = rest.split_once(' ') {
            let length: usize =
                length.parse().unwrap_or_else(|_| panic!("{length:?} is no length in {text:?}"));
            let Some(message) = behind.get(..length) else { break };
            list.push(message.to_owned());
            rest = &behind[length..];
        }
        list
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Makes a certificate that signs itself, with the common key.
fn certificate(bed: &Bed, name: &str, names: &str) {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-days", "2", "-subj", "/CN=log", "-addext", names, "-key"]);
    command.arg(bed.file("key.pem")).arg("-out").arg(bed.file(name));
    let output = command.output().expect("openssl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A switch that trusts `ca.pem` in the bed's directory, in a mount namespace of its own.
fn switch(bed: &Bed, plane: Plane) {
    let config = bed.file("startup-config");
    fs::write(&config, "interface p1\n switchport\nlogging trap debugging\n").expect("written");
    let mut command = Command::new("unshare");
    let script = "mkdir -p /etc/lanyard && mount -t tmpfs tmpfs /etc/lanyard && cp \"$1\" /etc/lanyard/log-ca.pem && \
                  shift && exec \"$@\"";
    command.args(["-m", "sh", "-c", script, "sh"]).arg(bed.file("ca.pem")).arg(LANYARD);
    command.args(["run", "--instance", &bed.instance, "--plane", plane.name(), "--config"]).arg(&config);
    bed.adopt(Daemon::spawn_command(&bed.net, &mut command, &bed.file("log")));
}

/// Makes the switch log this many messages.
fn log(bed: &Bed, count: usize) {
    let descriptions: Vec<String> = (0..count).map(|n| format!("description {n}")).collect();
    for lines in descriptions.chunks(100) {
        let commands: Vec<&str> =
            lines.iter().flat_map(|line| ["configure terminal", "interface p1", line, "end"]).collect();
        bed.exec(&commands);
    }
}

/// True while the daemon runs a client program (`openssl`) for a receiver.
fn has_client(bed: &Bed) -> bool {
    let is_client = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        // A client that has ended, and for which the daemon has not waited yet, has no memory.
        let memory = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
        name.is_ok_and(|name| name.trim() == "openssl") && !memory.starts_with("0 ")
    };
    bed.net.processes().iter().any(is_client)
}

fn a_receiver_over_tls(plane: Plane) {
    if !Path::new("/usr/bin/openssl").exists() {
        return println!("skipped: no openssl (package openssl)");
    }
    let has_tls = Command::new("python3").args(["-c", "import ssl"]).stderr(Stdio::null()).status();
    if !has_tls.is_ok_and(|status| status.success()) {
        return println!("skipped: no TLS server (package python3)");
    }
    let bed = Bed::without_switch(plane, 1, 1500);
    let mut key = Command::new("openssl");
    let made = key.args(["genrsa", "-out"]).arg(bed.file("key.pem")).stderr(Stdio::null()).status();
    assert!(made.expect("openssl runs").success());
    certificate(&bed, "ca.pem", "subjectAltName=IP:127.0.0.1");
    certificate(&bed, "other-name.pem", "subjectAltName=IP:192.0.2.1,DNS:other.example");
    switch(&bed, plane);
    // The number of all messages that were logged: those in the buffer, and those that the buffer no longer holds.
    let logged = || {
        let view = bed.show("show logging");
        let held = view["messages"].as_array().map_or(0, Vec::len) as u64;
        held + view["overwritten"].as_u64().expect("a number")
    };
    let counters = || {
        let receiver = bed.show("show logging")["receivers"][0].clone();
        let of = |name: &str| receiver[name].as_u64().unwrap_or_else(|| panic!("{name} in {receiver}"));
        (of("sent"), of("dropped"), of("rate_limited"), receiver["error"].as_str().unwrap_or("").to_owned())
    };
    let first = Receiver::start(&bed, "first", "ca.pem");
    let before = logged();
    // The message about this change is the first one for the receiver.
    bed.exec(&["configure terminal", &format!("logging host 127.0.0.1 transport tls port {PORT}"), "end"]);
    log(&bed, 19);
    wait_for("the messages", || (first.messages().len() == 20).then_some(()));
    assert!(
        first.messages().iter().all(|text| text.starts_with("<189>1 ") && text.contains(" SYS-CONFIG_I "))
    );
    assert_eq!(counters(), (20, 0, 0, String::new()));
    // The receiver dies; messages that are logged from now on wait in the queue.
    drop(first);
    wait_for("the end of the connection", || (!has_client(&bed)).then_some(()));
    log(&bed, 15);
    wait_for("the refusal", || counters().3.contains("refused").then_some(()));
    // A receiver whose certificate has another name gets nothing, and the reason is shown.
    let wrong = Receiver::start(&bed, "wrong", "other-name.pem");
    wait_for("the refused certificate", || {
        let error = counters().3;
        (error.contains("verif") || error.contains("certificate")).then_some(())
    });
    assert!(bed.exec(&["show logging"]).contains("(tls port 6514, not connected: "));
    assert_eq!(wrong.messages(), Vec::<String>::new());
    drop(wrong);
    let second = Receiver::start(&bed, "second", "ca.pem");
    wait_for("what has waited", || (second.messages().len() == 15).then_some(()));
    assert_eq!(counters(), (35, 0, 0, String::new()));
    // More messages are logged than the queue holds: the lost ones are counted, and each of the others arrives once.
    drop(second);
    wait_for("the end of the connection", || (!has_client(&bed)).then_some(()));
    log(&bed, 1400);
    let third = Receiver::start(&bed, "third", "ca.pem");
    let total = logged() - before;
    let (sent, dropped, limited, _) = wait_for("all messages to be sent or counted", || {
        let counters = counters();
        (counters.0 + counters.1 + counters.2 == total).then_some(counters)
    });
    assert!(dropped + limited > 0, "1400 messages are more than a queue holds");
    assert!(sent > 35 + 1000, "{sent} of them were sent");
    wait_for("the messages", || (third.messages().len() as u64 == sent - 35).then_some(()));
    println!("{total} messages: {sent} sent, {dropped} dropped, {limited} rate-limited");
    // /etc/lanyard is a directory of the machine: it is removed only if it is empty.
    let _ = fs::remove_dir("/etc/lanyard");
}
