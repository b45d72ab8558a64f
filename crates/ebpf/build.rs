//! Compiles ../../bpf/*.bpf.c to objects in `OUT_DIR`, strips and compresses them; `src/embedded.rs` embeds the result.

use miniz_oxide::deflate::compress_to_vec;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The programs of the plane, the one that prepares frames for test runs, those that test whether a port takes frames from XDP, and
/// those of a chip's CPU port.
const SOURCES: [&str; 4] = ["lanyard", "present", "xdp_probe", "cpuport"];
const FLAGS: [&str; 7] = ["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"];

fn main() {
    println!("cargo:rerun-if-changed=../../bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-env-changed=LLVM_STRIP");
    println!("cargo:rerun-if-env-changed=LANYARD_BPF_FLAGS");
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
    // For experiments, such as `-DLY_WITHOUT_ACL`: programs without the access lists.
    command.args(env::var("LANYARD_BPF_FLAGS").unwrap_or_default().split_whitespace());
    // Paths in the debug information would make equal programs differ from one checkout to the next.
    command.arg("-ffile-prefix-map=../../=").arg("-c").arg(format!("../../bpf/{name}.bpf.c"));
    let object = out.join(format!("{name}.bpf.o"));
    command.arg("-o").arg(&object);
    run(&mut command, "clang", "clang", name)?;
    // Remove DWARF; keep BTF, which the verifier and its messages use.
    let strip = env::var("LLVM_STRIP").unwrap_or_else(|_| "llvm-strip".to_owned());
    run(Command::new(strip).arg("-g").arg(&object), "llvm-strip", "llvm", name)?;
    compress(&object).map_err(|error| format!("{}: {error}", object.display()))
}

/// Runs a tool, which is part of a package of Debian, for one of the sources.
fn run(command: &mut Command, tool: &str, package: &str, name: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("{tool} refused bpf/{name}.bpf.c; its reason is above")),
        Err(error) => Err(format!(
            "the eBPF programs need {tool}, and {:?} cannot be run ({error}): on Debian, apt-get install {package}",
            command.get_program()
        )),
    }
}

/// Writes the compressed file beside the object: its size in bytes (u64, little endian), then the object by DEFLATE.
fn compress(object: &Path) -> io::Result<()> {
    const BEST: u8 = 10;
    let plain = fs::read(object)?;
    let mut file = (plain.len() as u64).to_le_bytes().to_vec();
    file.extend(compress_to_vec(&plain, BEST));
    fs::write(object.with_extension("o.deflate"), file)
}
