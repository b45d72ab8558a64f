//! Passes options that make the program smaller to the linker of a release build, if the linker supports them.

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Folds functions of equal code into one, as LLD can: many instances of generic functions differ only in their types.
/// Packs the relocations of a program that may be loaded anywhere (DT_RELR), which glibc reads from version 2.36 on, that of
/// Debian 12.
const OPTIONS: [&str; 2] = ["-Wl,--icf=all", "-Wl,-z,pack-relative-relocs"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    for option in OPTIONS.into_iter().filter(|option| knows(option)) {
        println!("cargo:rustc-link-arg-bins={option}");
    }
}

/// True if the linker accepts the option.
fn knows(option: &str) -> bool {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--crate-type=bin", "--crate-name=probe", "--target", &variable("TARGET")]);
    rustc
        .arg(format!("-Clink-arg={option}"))
        .arg("-o")
        .arg(Path::new(&variable("OUT_DIR")).join("probe"))
        .arg("-");
    let linker = variable("RUSTC_LINKER");
    if !linker.is_empty() {
        rustc.arg(format!("-Clinker={linker}"));
    }
    let flags = variable("CARGO_ENCODED_RUSTFLAGS");
    rustc.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    let child = rustc.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    child.is_ok_and(|mut child| {
        let written = child.stdin.take().is_some_and(|mut stdin| stdin.write_all(b"fn main() {}\n").is_ok());
        child.wait().is_ok_and(|status| written && status.success())
    })
}
