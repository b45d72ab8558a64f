//! Compiles `bpf/*.bpf.c` to objects in `OUT_DIR`, which `src/bpf.rs` includes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const FLAGS: [&str; 7] = ["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"];

fn main() {
    println!("cargo:rerun-if-changed=bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    if let Err(why) = build() {
        eprintln!("lanyard-tester: {why}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|e| format!("OUT_DIR: {e}"))?);
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let mut sources: Vec<PathBuf> = fs::read_dir("bpf")
        .map_err(|e| format!("bpf/: {e}"))?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.to_string_lossy().ends_with(".bpf.c"))
        .collect();
    sources.sort();
    sources.iter().try_for_each(|source| compile(&clang, source, &out))
}

fn compile(clang: &str, source: &Path, out: &Path) -> Result<(), String> {
    let object = out.join(source.with_extension("o").file_name().unwrap_or_default());
    // The directory in which Debian keeps <asm/types.h>, which <linux/types.h> includes on every target.
    let (define, include) = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => ("-D__TARGET_ARCH_arm64", "-I/usr/include/aarch64-linux-gnu"),
        _ => ("-D__TARGET_ARCH_x86", "-I/usr/include/x86_64-linux-gnu"),
    };
    let status = Command::new(clang)
        .args(FLAGS)
        .args([define, include, "-c"])
        .arg(source)
        .arg("-o")
        .arg(&object)
        .status()
        .map_err(|e| {
            format!(
                "cannot run `{clang}`: {e}. Debian: apt-get install clang libbpf-dev libelf-dev zlib1g-dev"
            )
        })?;
    if status.success() {
        return Ok(());
    }
    Err(format!(
        "{clang} refused {}: see above (missing <bpf/bpf_helpers.h>? apt-get install libbpf-dev)",
        source.display()
    ))
}
