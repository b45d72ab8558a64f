//! A network namespace without a name: it ends with the last descriptor, process or thread that refers to it.

use lanyard_netdev::netns;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::linux::fs::MetadataExt;
use std::process::{Child, Command, Output, Stdio};

/// A namespace.
#[derive(Debug)]
pub struct Net {
    file: File,
}

impl Net {
    /// Makes a namespace whose loopback is up; its netdevs will have no IPv6 unless `ipv6` is true.
    pub fn new(ipv6: bool) -> Self {
        let file = netns::run_in_new(|| {
            if !ipv6 {
                std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("IPv6 off");
            }
            netns::current().expect("a namespace")
        });
        let net = Self { file: file.expect("a namespace (root?)") };
        net.ip("link set lo up");
        net
    }
    /// A path to the namespace that is valid as long as this process runs.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
    /// Its inode number, with which the kernel identifies it.
    pub fn inode(&self) -> u64 {
        self.file.metadata().expect("a live descriptor").st_ino()
    }
    /// Runs `f` in the namespace.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        netns::run_in(&self.file, f).expect("the namespace can be entered")
    }
    /// Starts a program in the namespace.
    pub fn spawn(&self, command: &mut Command) -> Child {
        let name = command.get_program().to_string_lossy().into_owned();
        self.run(|| command.stdin(Stdio::null()).spawn()).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
    /// Runs a program in the namespace until it ends.
    pub fn output(&self, command: &mut Command) -> Output {
        let name = command.get_program().to_string_lossy().into_owned();
        self.run(|| command.stdin(Stdio::null()).output()).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
    /// Runs `ip` commands in the namespace, one per line; they must succeed.
    pub fn ip(&self, batch: &str) {
        let result = self.try_ip(batch);
        assert!(result.is_ok(), "ip -batch:\n{batch}\n{}", result.unwrap_err());
    }
    /// Like [`Self::ip`], but returns the error.
    pub fn try_ip(&self, batch: &str) -> Result<(), String> {
        let mut command = Command::new("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.run(|| command.spawn()).expect("ip(8) is installed");
        child.stdin.take().expect("piped").write_all(batch.as_bytes()).expect("ip reads");
        let output = child.wait_with_output().expect("ip ends");
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
    /// The names of its netdevs.
    pub fn links(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .run(|| lanyard_netdev::Netdev::open().expect("netlink").links().expect("links"))
            .into_iter()
            .map(|link| link.name)
            .collect();
        names.sort();
        names
    }
    /// The index of one of its netdevs.
    pub fn index(&self, name: &str) -> u32 {
        self.run(|| lanyard_netdev::Netdev::open().expect("netlink").link(name))
            .expect("the netdev is there")
            .ifindex
    }
    /// The processes in the namespace.
    pub fn processes(&self) -> Vec<u32> {
        let target = format!("net:[{}]", self.inode());
        let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            std::fs::read_link(format!("/proc/{pid}/ns/net"))
                .is_ok_and(|link| link.to_string_lossy() == target)
        })
        .collect()
    }
}
