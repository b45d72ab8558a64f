//! Replays inputs that fuzzing has found: each of `fuzz/regressions/TARGET/*` through the function that
//! TARGET fuzzes.

use std::fs;
use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions").join(target);
    let mut inputs: Vec<_> =
        fs::read_dir(&dir).expect("regressions").flatten().map(|entry| entry.path()).collect();
    inputs.sort();
    assert!(!inputs.is_empty(), "{} holds no input", dir.display());
    for input in inputs {
        println!("{}", input.display());
        run(&fs::read(&input).expect("an input"));
    }
}

#[test]
fn frame() {
    replay("frame", lanyard_pipeline::fuzz);
}

#[test]
fn sdk() {
    replay("sdk", lanyard_asic::sdk::fuzz);
}

#[test]
fn ios() {
    replay("ios", lanyard_cli::fuzz_line);
}

#[test]
fn lab() {
    replay("lab", lanyard_lab::fuzz);
}

#[test]
fn bpdu() {
    replay("bpdu", lanyard_stp::fuzz);
}

#[test]
fn dhcp() {
    replay("dhcp", lanyard_dhcp::fuzz);
}

#[test]
fn dot1x() {
    replay("dot1x", lanyard_dot1x::fuzz);
}

#[test]
fn guard() {
    replay("guard", lanyard_guard::fuzz);
}

#[test]
fn fpm() {
    replay("fpm", lanyard_fpm::fuzz);
}

#[test]
fn lldp() {
    replay("lldp", lanyard_lldp::fuzz);
}

#[test]
fn lacp() {
    replay("lacp", lanyard_lacp::fuzz);
}

#[test]
fn terminal() {
    replay("terminal", lanyard_access::fuzz_terminal);
}

#[test]
fn ssh() {
    replay("ssh", lanyard_access::fuzz_ssh);
}

#[test]
fn tacacs() {
    replay("tacacs", lanyard_access::fuzz_tacacs);
}

#[test]
fn snoop() {
    replay("snoop", lanyard_snoop::fuzz);
}
