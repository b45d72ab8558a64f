//! FRR in a scenario's namespace: daemons with files and sockets of their own, which are killed by their
//! process numbers.

use crate::harness::{Net, wait_until};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The directory of the daemons in Debian's package.
const DAEMONS: &str = "/usr/lib/frr";
/// The longest wait for a protocol on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Why FRR cannot be used here.
pub fn missing() -> Option<String> {
    let here = Path::new(DAEMONS).join("zebra").exists()
        && nix::unistd::User::from_name("frr").ok().flatten().is_some();
    (!here).then(|| "FRR is not installed (package frr)".into())
}

/// FRR in a namespace. Its daemons are killed when this is dropped.
pub struct Frr<'a> {
    net: &'a Net,
    daemons: Vec<(&'static str, Child)>,
    directory: tempfile::TempDir,
}

impl<'a> Frr<'a> {
    /// Starts zebra with the FPM module, staticd and `daemons`, and loads `configuration`.
    pub fn start(net: &'a Net, daemons: &[&'static str], configuration: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777))
            .expect("everybody's");
        for file in ["vtysh.conf", "none.conf"] {
            std::fs::write(directory.path().join(file), "").expect("written");
        }
        let mut frr = Self { net, daemons: Vec::new(), directory };
        frr.run("zebra");
        frr.await_file("zserv.api");
        for daemon in std::iter::once(&"staticd").chain(daemons) {
            frr.run(daemon);
        }
        frr.load(configuration);
        frr
    }
    /// Loads configuration lines.
    pub fn load(&self, configuration: &str) {
        let file = self.file("lines.conf");
        std::fs::write(&file, configuration).expect("written");
        let printed = self.vtysh(&["-f".as_ref(), file.as_os_str()]);
        assert!(!printed.contains("% "), "FRR refuses: {printed}");
    }
    /// The output of a `show` command.
    pub fn show(&self, command: &str) -> String {
        self.vtysh(&["-c".as_ref(), command.as_ref()])
    }
    /// Kills a daemon and starts it again without its configuration.
    pub fn restart(&mut self, daemon: &'static str) {
        self.kill(daemon);
        self.run(daemon);
        self.await_file(&format!("{daemon}.vty"));
    }
    /// Kills a daemon.
    pub fn kill(&mut self, daemon: &str) {
        for (_, child) in self.daemons.iter_mut().filter(|(name, _)| *name == daemon) {
            child.kill().expect("killed");
            child.wait().expect("its end");
        }
        self.daemons.retain(|(name, _)| *name != daemon);
        for file in [format!("{daemon}.vty"), format!("{daemon}.pid")] {
            let _ = std::fs::remove_file(self.file(&file));
        }
    }

    fn run(&mut self, daemon: &'static str) {
        let mut command = Command::new(Path::new(DAEMONS).join(daemon));
        command.args(["-P", "0", "-i"]).arg(self.file(&format!("{daemon}.pid")));
        command.arg("-z").arg(self.file("zserv.api")).arg("--vty_socket").arg(self.directory.path());
        command.arg("-f").arg(self.file("none.conf"));
        if daemon == "zebra" {
            command.args(["-M", "dplane_fpm_nl"]);
        }
        let log = std::fs::File::create(self.file(&format!("{daemon}.log"))).expect("a log");
        command.stdout(log.try_clone().expect("a log")).stderr(log);
        self.daemons.push((daemon, self.net.spawn(&mut command)));
        if daemon != "zebra" {
            self.await_file(&format!("{daemon}.vty"));
        }
    }
    fn await_file(&self, name: &str) {
        let there = wait_until(PATIENCE, || self.file(name).exists().then_some(()));
        assert!(there.is_some(), "{name} does not come: {}", self.printed());
    }
    fn printed(&self) -> String {
        let read = |(name, _): &(&str, Child)| {
            std::fs::read_to_string(self.file(&format!("{name}.log"))).unwrap_or_default()
        };
        self.daemons.iter().map(read).collect()
    }
    fn vtysh(&self, arguments: &[&std::ffi::OsStr]) -> String {
        let mut command = Command::new("vtysh");
        command.arg("--vty_socket").arg(self.directory.path()).arg("--config_dir").arg(self.directory.path());
        let output = self.net.output(command.args(arguments).stdin(Stdio::null()));
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    }
    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Frr<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("FRR: {}\n{}", self.printed(), self.show("show ip route"));
        }
        for (_, child) in &mut self.daemons {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Several beds. All switches are taken down before the first wire is.
pub struct Beds(pub Vec<crate::harness::Bed>);

impl Deref for Beds {
    type Target = [crate::harness::Bed];
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Beds {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            for bed in &self.0 {
                bed.detach().unwrap();
            }
        }
    }
}
