//! Compiles ../../bpf/*.bpf.c to objects in `OUT_DIR`, which `src/object.rs`, `src/present.rs` and `src/cpuport.rs` embed.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The programs of the plane, the one that prepares frames for test runs, and those of a chip's CPU port.
const SOURCES: [&str; 3] = ["lanyard", "present", "cpuport"];
const FLAGS: [&str; 7] = ["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"];

fn main() {
    println!("cargo:rerun-if-changed=../../bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    // For the test that compares the headers with their mirrors.
    println!(
        "cargo:rustc-env=LIBBPF_INCLUDE={}",
        env::var("DEP_BPF_INCLUDE").unwrap_or_else(|_| "/usr/include".into())
    );
    for name in SOURCES {
        if let Err(why) = compile(name) {
            eprintln!("lanyard-ebpf: {why}");
            std::process::exit(1);
        }
    }
}

fn compile(name: &str) -> Result<(), String> {
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|e| format!("OUT_DIR: {e}"))?);
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    // <linux/types.h> includes <asm/types.h> for every target, and Debian keeps that in a directory per
    // architecture.
    let (define, include) = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => ("-D__TARGET_ARCH_arm64", "-I/usr/include/aarch64-linux-gnu"),
        Ok("riscv64") => ("-D__TARGET_ARCH_riscv", "-I/usr/include/riscv64-linux-gnu"),
        _ => ("-D__TARGET_ARCH_x86", "-I/usr/include/x86_64-linux-gnu"),
    };
    let mut command = Command::new(&clang);
    command.args(FLAGS).args([define, include]);
    if let Ok(libbpf) = env::var("DEP_BPF_INCLUDE") {
        command.arg("-I").arg(libbpf);
    }
    // Paths in the debug information would make equal programs differ from one checkout to the next.
    command.arg("-ffile-prefix-map=../../=").arg("-c").arg(format!("../../bpf/{name}.bpf.c"));
    command.arg("-o").arg(out.join(format!("{name}.bpf.o")));
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("{clang} refused bpf/{name}.bpf.c; its reason is above")),
        Err(error) => Err(format!(
            "the eBPF programs need clang, and `{clang}` cannot be run ({error}): on Debian, apt-get install clang"
        )),
    }
}
