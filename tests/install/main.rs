//! Runs `make install` twice from a tree without a build, into a package's directory, with a substitute for cargo that
//! itself runs make, as the build of libbpf-sys does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The substitute for cargo. Its make uses variables of the same names, which it takes from the environment.
const CARGO: &str = r#"#!/bin/sh
set -eu
mkdir -p target/release
printf 'out: ; touch $(DESTDIR)$(PREFIX)/libbpf.a\n' > inner.mk
mkdir -p built/lib
DESTDIR=$PWD/built PREFIX=/lib make -s -f inner.mk out
[ -e built/lib/libbpf.a ]
echo '#!/bin/sh' > target/release/lanyard
"#;

fn copy(name: &str, to: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::copy(&from, to.join(name)).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("made executable");
}

#[test]
fn below_another_root_and_prefix_twice() {
    if Command::new("make").arg("--version").output().is_err() {
        return println!("skipped: make is not installed");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let tree = dir.path();
    fs::create_dir_all(tree.join("dist")).expect("made");
    fs::create_dir_all(tree.join("tools")).expect("made");
    copy("Makefile", tree);
    copy("dist/lanyard@.service.in", tree);
    executable(&tree.join("tools/need"), "#!/bin/sh\n");
    executable(&tree.join("cargo"), CARGO);
    let root = tree.join("package");
    for turn in 1..=2 {
        let output = Command::new("make")
            .args(["install", "PREFIX=/opt/lanyard", "CARGO=./cargo"])
            .arg(format!("DESTDIR={}", root.display()))
            .current_dir(tree)
            .env_remove("MAKEFLAGS")
            .output()
            .expect("make runs");
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "turn {turn}: {printed}");
        assert!(!root.join("opt/lanyard/libbpf.a").exists(), "libbpf went into the package");
        let unit = fs::read_to_string(root.join("opt/lanyard/lib/systemd/system/lanyard@.service"));
        let unit = unit.expect("the unit");
        assert!(unit.contains("ExecStart=/opt/lanyard/bin/lanyard run "), "{unit}");
        assert!(!unit.contains("@BINDIR@"), "{unit}");
        let mode =
            fs::metadata(root.join("opt/lanyard/bin/lanyard")).expect("the program").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert!(root.join("etc/lanyard").is_dir());
    }
}
