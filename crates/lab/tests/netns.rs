//! Labs in the kernel, from `up` to complete removal.
//!
//! Every case is a shell script in a mount namespace of its own with a private /run, so that namespaces, logs and state
//! are removed with it, whatever happens. `$LAB` is `lanyard lab`; `$LANYARD_BIN` is a script that replaces `lanyard`: its `run`
//! prints the ready line and stays; its `detach` records that it was called. Without rights the test prints `skipped: reason`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The beginning of every script.
const PREFIX: &str = r#"
mount -t tmpfs lanyard /run
cd "$SCRATCH"
export LANYARD_BIN=$SCRATCH/switch
cat > switch <<'STANDIN'
#!/bin/sh
case $1 in
    run) echo "starting $*" >&2; [ ! -e refused ] || cat refused >&2; [ -e broken ] && { echo "no such luck" >&2; exit 3; }
         echo "lanyard: $3 ready: $(cat ports 2>/dev/null || echo 1) ports, plane soft" >&2; exec sleep 1000;;
    detach) echo "$*, $(ls /sys/class/net | wc -l)" >> detached;;
    *) echo "$* as ${LANYARD_INSTANCE}";;
esac
STANDIN
chmod +x switch
lab() { "$LAB" "$@"; }
fail() { echo "FAILED: $*"; exit 1; }
nothing_left() {
    [ -z "$(ls /run/netns 2>/dev/null)" ] || fail "namespaces left: $(ls /run/netns)"
    [ ! -e /run/lanyard ] || fail "state left: $(find /run/lanyard)"
}
two_hosts() { cat > two.yml <<LAB
name: t
topology:
  defaults: { kind: host }
  nodes:
    a: { exec: ["ip address add 10.0.0.1/24 dev eth0", "ip address add fd00::1/64 dev eth0"] }
    b: { exec: ["ip address add 10.0.0.2/24 dev eth0", "ip address add fd00::2/64 dev eth0" $1] }
  links:
    - endpoints: ["a:eth0", "b:eth0"]
LAB
}
one_switch() { cat > sw.yml <<LAB
name: s
topology:
  nodes:
    sw: { kind: lanyard, startup-config: "hostname x\n" }
    h: { kind: host }
  links:
    - endpoints: ["sw:eth1", "h:eth0"]
LAB
}
"#;

/// Runs a script. It passes if it exits with 0; otherwise its output is shown.
fn check(name: &str, script: &str) {
    let Some(lab) = program() else {
        return println!("skipped: examples/lab is not built (cargo test builds it)");
    };
    let root = nix::unistd::geteuid().is_root();
    let flags: &[&str] = if root { &["-m"] } else { &["-Urnm"] };
    let unshare = |rest: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(flags).args(rest).stdin(Stdio::null());
        command
    };
    match unshare(&["sh", "-c", "mount -t tmpfs lanyard /run && ip netns add t"]).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            return println!("skipped: no rights: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Err(error) => return println!("skipped: no unshare: {error}"),
    }
    let scratch = tempfile::tempdir().expect("a folder");
    let text = format!("set -eu\n{PREFIX}\n{script}");
    let output = unshare(&["sh", "-c", &text])
        .env("LAB", lab)
        .env("SCRATCH", scratch.path())
        .env("TESTS", concat!(env!("CARGO_MANIFEST_DIR"), "/tests"))
        .output();
    let output = output.expect("unshare runs");
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    printed.lines().filter(|line| line.starts_with("skipped: ")).for_each(|line| println!("{name}: {line}"));
    assert!(output.status.success(), "{name}: {}\n{printed}", output.status);
}

fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let path = own.parent().and_then(Path::parent)?.join("examples/lab");
    path.exists().then_some(path)
}

#[test]
fn two_hosts_and_no_switch() {
    let script = r#"
        two_hosts ""
        lab up two.yml
        lab exec t a -- ping -c 1 -W 5 10.0.0.2
        lab exec two.yml b ping -c 1 -W 5 fd00::1
        ip netns exec t-a ip link show eth0
        lab exec t a -- sh -c 'exit 7' && fail "the status is lost"
        [ "$(lab list | tail -n +2 | awk '{print $2, $4, $5}')" = "a up t-a
b up t-b" ] || fail "list: $(lab list)"
        lab list --json | grep -q '"state": "up"'
        ! lab up two.yml 2> printed || fail "built twice"
        grep -q 'lab t is already up' printed
        # What runs in the lab goes with it.
        lab exec t b -- sleep 1000 &
        until ip netns pids t-b | grep -q .; do :; done
        lab down two.yml 2> printed
        grep -q '1 process ended, 2 namespaces deleted' printed || fail "$(cat printed)"
        nothing_left
        lab down two.yml 2> printed
        grep -q 'is not up; nothing to do' printed
        nothing_left
    "#;
    check("two hosts", script);
}

#[test]
fn a_failure_undoes_the_lab() {
    let script = r#"
        two_hosts ', "echo before; false"'
        ! lab up two.yml 2> printed || fail "accepted"
        grep -q 'b: `echo before; false` failed: exit status: 1' printed || fail "$(cat printed)"
        grep -q '| before' printed
        nothing_left
        # A namespace that is somebody else's stays.
        mkdir -p /run/netns; ip netns add t-b
        ! lab up two.yml 2> printed || fail "accepted"
        grep -q 'the network namespace t-b exists already' printed || fail "$(cat printed)"
        [ "$(ls /run/netns)" = t-b ] || fail "$(ls /run/netns)"
        ip netns delete t-b
        nothing_left
        # Ctrl-C.
        two_hosts ', "kill -INT $PPID", "true"'
        ! lab up two.yml 2> printed || fail "accepted"
        grep -q '^interrupted' printed || fail "$(cat printed)"
        nothing_left
    "#;
    check("a failure", script);
}

#[test]
fn lab_down_removes_the_remains_of_a_crash() {
    let script = r#"
        two_hosts ', "kill -9 $PPID"'
        lab up two.yml && fail "not killed"
        [ "$(ls /run/netns | wc -l)" = 2 ] || fail "not half built"
        lab list | grep -q 'lab starting' || fail "$(lab list)"
        ! lab up two.yml 2> printed || fail "built over it"
        grep -q 'lab t is half built; `lanyard lab down t` clears it away' printed || fail "$(cat printed)"
        lab down t
        nothing_left
        # The state is lost: the topology knows what to take down.
        two_hosts ""
        lab up two.yml; rm -r /run/lanyard
        lab down two.yml 2> printed
        grep -q '2 namespaces deleted' printed || fail "$(cat printed)"
        nothing_left
        # The file is lost: the name is enough. And so is the file when it has changed for the worse.
        lab up two.yml; rm two.yml; lab down t; nothing_left
        two_hosts ""; lab up two.yml; echo '}' > two.yml; lab down two.yml; nothing_left
        # A state file that is damaged, and one that is not there.
        two_hosts ""; lab up two.yml; echo '{' > /run/lanyard/labs/t.json
        ! lab list 2> printed || fail "no error"
        grep -q 't.json is damaged' printed || fail "$(cat printed)"
        lab down two.yml; nothing_left
    "#;
    check("a crash", script);
}

#[test]
fn a_switch_lives_until_down() {
    let script = r#"
        one_switch
        lab up sw.yml 2> printed
        grep -q 'ready: sw: 1 ports, plane soft' printed || fail "$(cat printed)"
        pid=$(lab list | awk '$2 == "sw" {print $(NF - 1)}')
        kill -0 "$pid"
        [ "$(ip netns identify "$pid")" = s-sw ] || fail "in the wrong namespace"
        grep -q 'starting run --instance s-sw --config /run/lanyard/s-sw/lab.cfg' /run/lanyard/s-sw/log
        grep -q 'hostname x' /run/lanyard/s-sw/lab.cfg
        [ "$(lab exec s sw -- lanyard cli)" = 'cli as s-sw' ] || fail "exec cli"
        [ "$(lab exec s sw -- lanyard cli --instance=x)" = 'cli --instance=x as s-sw' ] || fail "exec cli x"
        [ "$(lab exec s h -- lanyard cli)" = 'cli as s-h' ] || fail "exec on a host"
        kill -9 "$pid"
        while kill -0 "$pid" 2>/dev/null && ! grep -q 'State:.Z' /proc/$pid/status; do :; done
        lab list | grep -q 'dead' || fail "$(lab list)"
        lab down s
        nothing_left
        grep -q 'detach --instance s-sw' detached || fail "not detached"
        # An instance of that name that is no lab's.
        mkdir -p /run/lanyard/s-sw
        ! lab up sw.yml 2> printed || fail "accepted"
        grep -q 'a switch instance s-sw is there already' printed || fail "$(cat printed)"
        rm -r /run/lanyard
        # A switch that does not start: why, and nothing is left.
        touch broken
        ! lab up sw.yml 2> printed || fail "accepted"
        grep -q 'switch sw ended at once: exit status: 3' printed || fail "$(cat printed)"
        grep -q '| no such luck' printed
        nothing_left
        # A pid that is somebody else's by now is not ended.
        rm broken; lab up sw.yml; sleep 1000 & other=$!
        pid=$(lab list | awk '$2 == "sw" {print $(NF - 1)}')
        sed -i "s/\"pid\": $pid/\"pid\": $other/; s/\"started_ticks\": .*/\"started_ticks\": 1/" /run/lanyard/labs/s.json
        lab down s; nothing_left
        kill -0 $other || fail "a stranger was ended"
        kill $other
    "#;
    check("a switch", script);
}

#[test]
fn refused_lines_and_missing_ports_are_printed_as_warnings() {
    let script = r#"
        one_switch
        lab up sw.yml --strict 2> printed || fail "$(cat printed)"
        ! grep -q warning printed || fail "$(cat printed)"
        lab down s
        cat > refused <<'LOG'
lanyard: %SYS-3-STARTUP: line 2, column 9: Invalid VLAN: vlan 5000
lanyard: %SYS-3-STARTUP: line 7, column 1: no such command: nonsense
lanyard: %SYS-3-STARTUP: /run/lanyard/s-sw/lab.cfg: 2 lines refused, the rest is applied
LOG
        echo 0 > ports
        lab up sw.yml --quiet 2> printed || fail "$(cat printed)"
        cat > wanted <<'SAID'
warning: sw: startup-config line 2, column 9: Invalid VLAN: vlan 5000
warning: sw: startup-config line 7, column 1: no such command: nonsense
SAID
        head -n 2 printed | diff wanted - || fail "$(cat printed)"
        grep -q 'warning: sw (sw.yml:4): the switch has no port' printed || fail "$(cat printed)"
        [ "$(wc -l < printed)" = 3 ] || fail "$(cat printed)"
        lab down s
        ! lab up sw.yml --strict 2> printed || fail "accepted"
        grep -q '3 warnings, which --strict treats as errors' printed || fail "$(cat printed)"
        nothing_left
    "#;
    check("warnings", script);
}

/// The demo over switches made of kernel bridges: it passes, and fails when VLANs are joined.
#[test]
fn the_demo_fails_only_when_vlans_are_joined() {
    let script = r#"
        ip netns add probe
        ip -n probe link add x type vxlan id 1 dstport 4789 || { echo "skipped: no vxlan"; exit 0; }
        ip netns delete probe
        export LANYARD_BIN=$TESTS/kernel-switch
        lab demo --seconds 1 > printed 2>&1 || fail "$(cat printed)"
        grep -q 'As it should be' printed || fail "$(cat printed)"
        grep -q 'h3v1  B     -       ·     ·     ·       ·     ·     ·' printed || fail "$(cat printed)"
        grep -q 'h2v2  ·     ·       B     -     B       R     R     R' printed || fail "$(cat printed)"
        grep -q 'output of show mac address-table' printed
        nothing_left
        export LEAK=1
        ! lab demo --seconds 1 > printed 2>&1 || fail "a leak passed: $(cat printed)"
        grep -q '24 answers are not as they should be' printed || fail "$(cat printed)"
        grep -q 'h2v1 to h1v2 IPv4: bridged instead of no answer' printed || fail "$(cat printed)"
        nothing_left
    "#;
    check("the demo", script);
}
