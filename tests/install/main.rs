//! Runs `make install` twice from a tree without a build, into a package's directory, with a substitute for cargo that
//! itself runs make, as the build of libbpf-sys does.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The substitute for cargo. The make that it runs has variables with the names of those of `make install`, and takes them from
/// its environment.
const CARGO: &str = r#"#!/bin/sh
set -eu
mkdir -p target/release
printf 'out: ; touch $(DESTDIR)$(PREFIX)/libbpf.a\n' > inner.mk
mkdir -p built/lib
DESTDIR=$PWD/built PREFIX=/lib make -s -f inner.mk out
[ -e built/lib/libbpf.a ]
for program in lanyard lanyard-sshd; do
    echo '#!/bin/sh' > target/release/$program
done
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
        for program in ["bin/lanyard", "lib/lanyard/lanyard-sshd"] {
            let meta = fs::metadata(root.join("opt/lanyard").join(program));
            assert_eq!(meta.expect(program).permissions().mode() & 0o777, 0o755, "{program}");
        }
        assert!(root.join("etc/lanyard").is_dir());
    }
}

/// The substitute for `lanyard`: prints and writes the files that the package takes from the program.
const PROGRAM: &str = r##"#!/bin/sh
case $1 in
completion) echo "# completion for $2" ;;
man) echo '.TH lanyard 1' >"$2/lanyard.1" ;;
esac
"##;

/// Makes a package of an installed tree, and looks at what dpkg-deb lists.
#[test]
fn a_debian_package() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return println!("skipped: dpkg-deb is not installed");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("usr/bin")).expect("made");
    executable(&root.join("usr/bin/lanyard"), PROGRAM);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/deb.sh");
    let output =
        Command::new("sh").arg(script).arg(&root).arg("1.2.3").arg(dir.path()).output().expect("sh runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut entries = fs::read_dir(dir.path()).expect("listed").map(|entry| entry.expect("an entry").path());
    let package = entries.find(|path| path.extension().is_some_and(|end| end == "deb")).expect("a package");
    let ask = |option: &str| {
        let output = Command::new("dpkg-deb").arg(option).arg(&package).output().expect("dpkg-deb runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let about = ask("--field");
    assert!(about.contains("Package: lanyard") && about.contains("Version: 1.2.3"), "{about}");
    let list = ask("--contents");
    for file in [
        "./usr/bin/lanyard",
        "./usr/share/bash-completion/completions/lanyard",
        "./usr/share/zsh/vendor-completions/_lanyard",
        "./usr/share/fish/vendor_completions.d/lanyard.fish",
        "./usr/share/man/man1/lanyard.1.gz",
        "./usr/share/doc/lanyard/copyright",
    ] {
        let line = list.lines().find(|line| line.ends_with(file)).unwrap_or_else(|| panic!("{file}: {list}"));
        assert!(line.contains(" root/root "), "{line}");
    }
    for script in ["postinst", "prerm", "postrm"] {
        let output = Command::new("dpkg-deb")
            .args(["--info"])
            .arg(&package)
            .arg(script)
            .output()
            .expect("dpkg-deb runs");
        assert!(output.stdout.starts_with(b"#!/bin/sh\n"), "{script}");
    }
}
