//! Output for users: refusals, the classic bridge commands, events, a switch without rights.

use crate::access::terminal;
use crate::harness::daemon::{Daemon, LANYARD, lanyard};
use crate::harness::{BROADCAST, Bed, DEADLINE, Plane, frame, mac, scenarios, wait_for, wait_until};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

scenarios! {
    refusals_change_nothing: ebpf soft;
    the_classic_bridge_procedure: ebpf soft;
    a_session_is_committed_or_aborted: ebpf;
    link_events: ebpf soft;
    a_terminal_that_answers_no_query: soft;
    a_terminal_is_shown_banners_and_takes_pasted_text: soft;
    without_the_right_to_load: soft;
}

const TWO: &str = "interface range p1 - 2\n switchport\n";

fn refusals_change_nothing(plane: Plane) {
    let bed = Bed::new(plane, 3, TWO);
    let before = bed.show("show running-config");
    for line in [
        "nonsense",
        "s",
        "vlan 0",
        "vlan 4095",
        "vlan 10-",
        "vlan 20-10",
        "interface nowhere0",
        "interface p1\nswitchport access vlan 4095",
        "interface p1\nswitchport trunk allowed vlan 10,4095",
        "interface p1\nmtu 67",
        "interface p1\nmac address-table limit 0",
        "mac address-table aging-time 9",
        "mac address-table static ffff.ffff.ffff vlan 1 interface p1",
        "mac address-table static 0200.0000 vlan 1 interface p1",
        "no vlan 1",
        "ip route 10.0.0.0 255.0.255.0 10.0.0.1",
    ] {
        let printed = bed.try_configure(line).expect_err(line);
        assert!(printed.lines().any(|line| line.trim_start().starts_with('%')), "{line}: {printed}");
    }
    for command in
        ["show nonsense", "show interfaces p9", "show platform packet-trace interface p3 hex 00", "clear"]
    {
        let printed = crate::harness::daemon::cli(&bed.instance, &[command]).expect_err(command);
        assert!(printed.trim_start().starts_with('%'), "{command}: {printed}");
    }
    assert_eq!(bed.show("show running-config"), before);
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    // The first refusal ends the run: the commands before it are carried out, the following ones are not.
    let printed = crate::harness::daemon::cli(
        &bed.instance,
        &["configure terminal", "hostname a", "nonsense", "hostname b"],
    );
    assert!(printed.is_err() && bed.show("show version")["hostname"] == "a");
    let printed = lanyard(None, &["cli", "--instance", "there-is-none", "-c", "show version"]).unwrap_err();
    assert!(printed.contains("there-is-none"), "{printed}");
}

/// The classic commands of brctl; the instance is the bridge.
fn the_classic_bridge_procedure(plane: Plane) {
    let bed = Bed::new(plane, 3, "");
    let brctl = |line: &str| {
        let words: Vec<&str> =
            ["brctl", "--instance", &bed.instance].into_iter().chain(line.split(' ')).collect();
        lanyard(None, &words)
    };
    let must = |line: &str| brctl(line).unwrap_or_else(|printed| panic!("brctl {line}: {printed}"));
    must("addbr br0");
    must("addif br0 p1");
    must("addif br0 p2 p3");
    for n in 1..=3 {
        wait_for("the link to come up", || {
            bed.ask(&format!("show interfaces p{n}"))["interfaces"][0]["link_up"]
                .as_bool()
                .unwrap()
                .then_some(())
        });
    }
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
    let shown = must("show");
    assert!(shown.contains("br0") && ["p1", "p2", "p3"].iter().all(|port| shown.contains(port)), "{shown}");
    let macs = must("showmacs br0");
    assert!(macs.contains("02:00:00:00:00:01"), "{macs}");
    must("setageing br0 60");
    assert_eq!(bed.ask("show mac address-table aging-time")["ageing_time_s"], 60);
    must("delif br0 p3");
    bed.exact.set(false);
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    assert!(
        brctl("addif br1 p3").is_err() && brctl("addif br0 nowhere0").is_err() && brctl("nonsense").is_err()
    );
    must("delbr br0");
    assert!(!bed.netdev.link("p1").unwrap().promiscuous);
}

fn a_session_is_committed_or_aborted(plane: Plane) {
    let bed = Bed::new(plane, 3, TWO);
    let lines = ["configure session s", "interface p3", "switchport", "show diff", "abort"];
    let printed = bed.exec(&lines);
    assert!(printed.contains("interface p3"), "{printed}");
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2]);
    bed.exec(&["configure session s", "interface p3", "switchport", "commit"]);
    wait_for("the link to come up", || {
        bed.ask("show interfaces p3")["interfaces"][0]["link_up"].as_bool().unwrap().then_some(())
    });
    bed.expect_at(1, &frame(BROADCAST, mac(1)), &[2, 3]);
}

fn link_events(plane: Plane) {
    let bed = Bed::new(plane, 2, TWO);
    let mut command = Command::new(LANYARD);
    command.args(["cli", "--instance", &bed.instance, "-c", "monitor events link"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, events) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let flap = |state: &str| {
        bed.host(2).net.ip(&format!("link set eth0 {state}"));
        wait_for("the link to follow", || {
            let up = bed.ask("show interfaces p2")["interfaces"][0]["link_up"].as_bool().unwrap();
            (up == (state == "up")).then_some(())
        });
    };
    let mut seen = Vec::new();
    // Changes before the session watches are not reported.
    let watched = wait_until(DEADLINE, || {
        flap("down");
        flap("up");
        seen.extend(events.try_iter());
        (seen.len() >= 2).then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(watched.is_some(), "{seen:?}");
    for line in seen {
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&event["type"], &event["interface"]), (&"link".into(), &"p2".into()), "{event}");
        assert!(event["link_up"].is_boolean() && event["action"] == "change", "{event}");
    }
}

/// expect and Netmiko have terminals that do not answer cursor queries: no command waits for an answer, and no part of
/// an escape sequence in the input is read as text.
fn a_terminal_that_answers_no_query(plane: Plane) {
    let bed = Bed::new(plane, 2, TWO);
    for (term, queries) in [("vt100", 0), ("dumb", 0), ("xterm", 1)] {
        let pty = terminal(None);
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let mut command = Command::new(LANYARD);
        command.args(["cli", "--instance", &bed.instance]).env("TERM", term);
        let begin = std::time::Instant::now();
        let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        drop(command);
        let mut master = std::fs::File::from(pty.master);
        for line in [
            "terminal length 0",
            "show clock",
            "show ver\t",
            "show us?",
            "ers",
            "\x1b[31mshow clock\x1b[0m",
            "exit",
        ] {
            master.write_all(line.as_bytes()).unwrap();
            master.write_all(if line.ends_with('?') { b"" } else { b"\r" }).unwrap();
        }
        assert!(child.wait().unwrap().success());
        let waited = begin.elapsed();
        drop(pty.slave);
        let mut bytes = Vec::new();
        // On Linux, reading from a terminal whose other end is closed fails with an error.
        let _ = master.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        assert_eq!(text.matches("\x1b[6n").count(), queries, "{term}: {text:?}");
        assert!(!text.contains("Invalid input"), "{term}: {text:?}");
        assert_eq!(text.matches("#show clock\r\n").count(), 2, "{term}: {text:?}");
        assert!(text.contains("Lanyard Software") && text.contains("Line   User"), "{term}: {text:?}");
        // Earlier versions waited 2 s for an answer at each of seven lines.
        assert!(waited < std::time::Duration::from_secs(8), "{term}: {waited:?}");
    }
}

/// The output of a session on a terminal when its whole input is pasted at once.
fn pasted(bed: &Bed, text: &str) -> String {
    let pty = terminal(None);
    let end = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut command = Command::new(LANYARD);
    command.args(["cli", "--instance", &bed.instance]).env("TERM", "dumb");
    let mut master = std::fs::File::from(pty.master);
    master.write_all(text.replace('\n', "\r").as_bytes()).unwrap();
    let mut child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    drop(command);
    assert!(child.wait().unwrap().success());
    drop(pty.slave);
    let mut bytes = Vec::new();
    // On Linux, reading from a terminal whose other end is closed fails with an error.
    let _ = master.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The banner precedes the first prompt. A pasted interface without the line that protects it is left shut down, and
/// lines for an interface that does not exist are not run.
fn a_terminal_is_shown_banners_and_takes_pasted_text(plane: Plane) {
    let bed = Bed::new(plane, 2, &format!("{TWO}banner motd #authorised access only#\n"));
    let text = "configure terminal\ninterface p1\naccess-session port-control auto\nno shutdown\n\
                interface nowhere0\naccess-session port-control auto\nshutdown\nend\nexit\n";
    let shown = pasted(&bed, text);
    let at = |what: &str| shown.find(what).unwrap_or_else(|| panic!("{what}: {shown:?}"));
    assert!(at("authorised access only") < at("Lanyard#"), "{shown:?}");
    assert_eq!(shown.matches("is left shut down").count(), 1, "{shown:?}");
    let shut =
        |port: &str| bed.exec(&[&format!("show running-config interface {port}")]).contains(" shutdown");
    assert!(shut("p1") && !shut("p2"), "{shown:?}");
}

/// In a user namespace root cannot load BPF. The switch reports this and forwards on the soft plane.
fn without_the_right_to_load(plane: Plane) {
    assert_eq!(plane, Plane::soft);
    if !Command::new("unshare").args(["-Urn", "true"]).output().is_ok_and(|output| output.status.success()) {
        return println!("skipped: no user namespaces");
    }
    let bed = Bed::without_switch(plane, 2, 1500);
    let script = "ip link add p1 type veth peer name q1 && ip link set q1 up && exec \"$0\" \"$@\"";
    let config = bed.config_file().display().to_string();
    std::fs::write(bed.config_file(), "interface p1\n switchport\n").unwrap();
    let run = |plane: &str, log: &str| {
        let mut command = Command::new("unshare");
        let words = [
            "-Urn",
            "sh",
            "-c",
            script,
            LANYARD,
            "run",
            "--instance",
            &bed.instance,
            "--plane",
            plane,
            "--config",
            &config,
        ];
        Daemon::spawn_command(&bed.net, command.args(words), &bed.file(log))
    };
    let printed = run("ebpf", "refused").ready().unwrap_err();
    assert!(printed.contains("plane ebpf is not available"), "{printed}");
    let mut daemon = run("auto", "rootless");
    let ready = daemon.ready().unwrap();
    assert!(ready.contains("1 ports, plane soft"), "{ready}");
    assert!(daemon.printed().contains("ebpf is not available"), "{}", daemon.printed());
    assert_eq!(bed.show("show version")["plane"], "soft");
    lanyard(None, &["detach", "--instance", &bed.instance]).unwrap();
    daemon.end();
}
