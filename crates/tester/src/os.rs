//! The services of the operating system that the bench uses: namespaces, a core of its own, programs inside
//! namespaces, ctrl-C.
//!
//! Invariant: a namespace created here has no name. Only this process's descriptors refer to it, so it
//! disappears with the process, and its devices with it, however the process ends.

pub use lanyard_netdev::Reaped;

use anyhow::{Context, Result, anyhow, bail};
use lanyard_netdev::netns;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Makes ctrl-C and SIGTERM end the measurement in order from now on, so that everything is cleaned up.
///
/// # Errors
/// When the kernel refuses the handler.
#[allow(unsafe_code)]
pub fn catch_interrupts() -> Result<()> {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    extern "C" fn note(_: i32) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler.
        unsafe { sigaction(signal, &action) }.context("catching signals")?;
    }
    Ok(())
}

/// Returns an error after an interrupt. Every loop that can last calls it.
///
/// # Errors
/// After ctrl-C or SIGTERM.
pub fn check_interrupted() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}

/// The signal that interrupts a thread's system call.
const NUDGE: libc::c_int = libc::SIGUSR2;

/// Installs the handler for [`nudge`], which only interrupts a system call.
///
/// # Errors
/// When the kernel refuses the handler.
#[allow(unsafe_code)]
pub fn expect_nudges() -> Result<()> {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    extern "C" fn nothing(_: i32) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR2, &action) }.context("catching signals").map(drop)
}

/// Interrupts the system call of a thread of this process. Has no effect when the thread is in no system
/// call, or has ended.
#[allow(unsafe_code)]
pub fn nudge(thread: i32) {
    // SAFETY: no pointers; the thread is one of this process, or the call is refused.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, NUDGE) };
}

/// Calls `done` repeatedly until it returns true; gives up after `limit`.
///
/// # Errors
/// On timeout (naming `what`), interruption, or an error of `done`.
pub fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !done()? {
        check_interrupted()?;
        if start.elapsed() > limit {
            bail!("{what}: not within {} s", limit.as_secs_f32());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Waits for this time.
///
/// # Errors
/// On interruption.
pub fn pause(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        check_interrupted()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// The reason why this process cannot measure anything, or `None`.
#[must_use]
pub fn cannot_measure() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("needs root (namespaces, veth, BPF)".to_owned());
    }
    if let Err(why) = Netns::new() {
        return Some(format!("{why:#}"));
    }
    crate::bpf::refused().map(str::to_owned)
}

/// Prepares for measuring: checks the rights, excludes other measurements while the returned value
/// exists, and lets ctrl-C end in order.
///
/// # Errors
/// Without the rights, or while another process measures.
pub fn begin() -> Result<impl Drop> {
    if let Some(why) = cannot_measure() {
        bail!("cannot measure here: {why}");
    }
    catch_interrupts()?;
    only_one()
}

/// Runs `talk`, which sends frames, on a thread with priority, and runs `cut` meanwhile. `talk` sets its first flag when
/// frames flow steadily: `cut` begins then. The second flag tells `talk` that `cut` is done; `talk` ends some time later.
///
/// # Errors
/// Those of either function.
pub fn talk_and_cut<T: Send>(
    interval: Duration,
    talk: impl FnOnce(&AtomicBool, &AtomicBool) -> Result<T> + Send,
    cut: impl FnOnce() -> Result<()>,
) -> Result<T> {
    let (calm, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let talker = scope.spawn(|| {
            // Refused without CAP_SYS_NICE; frames are then sent less evenly.
            go_first(Pid::from_raw(0));
            let result = talk(&calm, &done);
            calm.store(true, Ordering::Release);
            result
        });
        while !calm.load(Ordering::Acquire) {
            thread::sleep(interval);
        }
        let cut = cut();
        done.store(true, Ordering::Release);
        let found = talker.join().map_err(|_| anyhow!("the talker died"))?;
        cut?;
        found
    })
}

/// The reason why this process cannot even send and receive through sockets between its own namespaces, or
/// `None`.
#[must_use]
pub fn cannot_measure_by_sockets() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some(
            "needs root, or as much of it as `unshare --user --map-root-user --net` gives (then through sockets, not BPF)"
                .to_owned(),
        );
    }
    Netns::new().err().map(|why| format!("{why:#}"))
}

/// A network namespace without a name.
#[derive(Debug)]
pub struct Netns {
    file: File,
}

impl Netns {
    /// A new namespace with loopback up and without IPv6, so that only the bench's own frames move
    /// in it.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN.
    pub fn new() -> Result<Self> {
        let netns = Self { file: netns::unnamed().context("making a network namespace")? };
        let _inside = netns.enter()?;
        for which in ["all", "default"] {
            // The file is missing if the kernel has no IPv6.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
            // Devices with IPv6 need not wait for duplicates of their addresses: there are none.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/accept_dad"), "0");
        }
        for what in ["iptables", "ip6tables", "arptables"] {
            // The file is missing if the bridge does not call netfilter.
            let _ = std::fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{what}"), "0");
        }
        drop(_inside);
        netns.ip("link set lo up\n")?;
        Ok(netns)
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// Without /proc.
    pub fn current() -> Result<Self> {
        Ok(Self { file: netns::current()? })
    }

    /// A second handle on the same namespace.
    ///
    /// # Errors
    /// When descriptors run out.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Self { file: self.file.try_clone()? })
    }

    /// Moves the calling thread into the namespace until the guard is dropped. Processes that it
    /// starts meanwhile run inside as well.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN.
    pub fn enter(&self) -> Result<netns::Visit> {
        netns::visit(&self.file).context("entering a network namespace")
    }

    /// Writes a sysctl of the namespace.
    ///
    /// # Errors
    /// When the kernel has none of that name, or refuses the value.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let _inside = self.enter()?;
        std::fs::write(format!("/proc/sys/{name}"), value).with_context(|| format!("{name} = {value}"))
    }

    /// A path by which another process can open the namespace while this process lives.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Runs a batch of `ip` commands inside, one a line.
    ///
    /// # Errors
    /// The first one that is refused.
    pub fn ip(&self, batch: &str) -> Result<String> {
        self.run("ip", &["-batch", "-"], batch)
    }

    /// Runs a program inside, `input` on its stdin, and returns its stdout.
    ///
    /// # Errors
    /// When it cannot be started or fails; the error carries its stderr.
    pub fn run(&self, program: &str, args: &[&str], input: &str) -> Result<String> {
        let mut command = Command::new(program);
        command.args(args);
        self.output(&mut command, input)
    }

    /// As [`Self::run`], for a prepared command.
    ///
    /// # Errors
    /// When it cannot be started or fails; the error contains its stderr.
    pub fn output(&self, command: &mut Command, input: &str) -> Result<String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let what = std::iter::once(name.clone())
            .chain(command.get_args().map(|a| a.to_string_lossy().into_owned()))
            .collect::<Vec<_>>()
            .join(" ");
        let mut child = self
            .spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()))
            .with_context(|| format!("cannot run `{name}`{}", package_hint(&name)))?;
        if let Some(mut stdin) = child.stdin.take() {
            // If the program does not read its input, its own error message explains the failure better.
            let _ = stdin.write_all(input.as_bytes());
        }
        let out = child.wait_with_output()?;
        if !out.status.success() {
            bail!("`{what}`: {}: {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// Starts a program inside, in a session of its own, so that ctrl-C reaches only this process, which then
    /// ends the program in order. The program is killed if this process is killed.
    ///
    /// # Errors
    /// When it cannot be started.
    #[allow(unsafe_code)]
    pub fn spawn(&self, command: &mut Command) -> Result<Child> {
        use std::os::unix::process::CommandExt as _;
        let detach = || {
            nix::unistd::setsid()?;
            nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
            Ok(())
        };
        // SAFETY: two system calls, allowed between fork and exec.
        unsafe { command.pre_exec(detach) };
        let _inside = self.enter()?;
        let child = command.spawn()?;
        // Gives its session priority, like this process. (With SCHED_FIFO a polling thread could
        // starve other threads of the same program.) The file is missing on a kernel without
        // autogroup.
        let _ = std::fs::write(format!("/proc/{}/autogroup", child.id()), "-20");
        Ok(child)
    }

    /// The index of a device inside.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn ifindex(&self, device: &str) -> Result<u32> {
        let _inside = self.enter()?;
        nix::net::if_::if_nametoindex(device).with_context(|| format!("no device {device}"))
    }
}

fn package_hint(program: &str) -> &'static str {
    match program {
        "ip" => " (Debian: apt-get install iproute2)",
        "ethtool" => " (Debian: apt-get install ethtool)",
        "iperf3" => " (Debian: apt-get install iperf3)",
        _ => "",
    }
}

/// While this exists, the calling thread runs on one core.
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Pins the calling thread to `core`, with priority over other threads there.
    ///
    /// # Errors
    /// When the machine has no such core.
    pub fn to(core: usize) -> Result<Self> {
        let pinned = Self::pin(core)?;
        go_first(Pid::from_raw(0));
        Ok(pinned)
    }

    /// Pins the calling thread to `core`, as an ordinary thread: for a paced generator, which waits actively between its frames.
    /// With priority it would keep all other threads off the core, as no NIC does that receives the same frames.
    ///
    /// # Errors
    /// When the machine has no such core.
    pub fn ordinary(core: usize) -> Result<Self> {
        Self::pin(core)
    }

    fn pin(core: usize) -> Result<Self> {
        let this = Pid::from_raw(0);
        let before = sched_getaffinity(this)?;
        let mut only = CpuSet::new();
        only.set(core)?;
        sched_setaffinity(this, &only).with_context(|| format!("core {core} is not available"))?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        set_scheduler(Pid::from_raw(0), libc::SCHED_OTHER, 0);
        // Restoring the affinity that was allowed before does not fail.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.before);
    }
}

/// While this exists, the calling thread stays off certain cores, on which other threads poll. On a machine
/// without another core it has no effect.
pub struct Elsewhere {
    before: CpuSet,
}

impl Elsewhere {
    /// Moves the calling thread off `cores`.
    ///
    /// # Errors
    /// When the kernel does not report the thread's affinity.
    pub fn than(cores: &[usize]) -> Result<Self> {
        let this = Pid::from_raw(0);
        let before = sched_getaffinity(this)?;
        let mut others = before;
        for core in cores {
            others.unset(*core)?;
        }
        // The kernel refuses an empty set of cores; the thread then stays where it is.
        let _ = sched_setaffinity(this, &others);
        Ok(Self { before })
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // This affinity was allowed before.
        let _ = sched_setaffinity(Pid::from_raw(0), &self.before);
    }
}

/// Gives a thread priority on its core by SCHED_FIFO, because nice values count only within a
/// session where the kernel groups tasks by session (autogroup). Without CAP_SYS_NICE this has no
/// effect.
pub fn go_first(thread: Pid) {
    set_scheduler(thread, libc::SCHED_FIFO, 1);
}

#[allow(unsafe_code)]
fn set_scheduler(thread: Pid, policy: i32, priority: i32) {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter outlives the call; thread 0 is the calling one.
    unsafe { libc::sched_setscheduler(thread.as_raw(), policy, &raw const parameter) };
}

/// Excludes other measurements while the returned value exists.
///
/// # Errors
/// While another process measures.
pub fn only_one() -> Result<impl Drop> {
    use nix::fcntl::{Flock, FlockArg};
    let path = "/run/lanyard-bench.lock";
    let file = match File::create(path) {
        // Root of a user namespace may not write to /run. Lock a file that such users can create.
        Err(why) if why.kind() == std::io::ErrorKind::PermissionDenied => {
            let path = std::env::temp_dir().join("lanyard-bench.lock");
            File::create(&path).with_context(|| path.display().to_string())?
        }
        other => other.context(path)?,
    };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((_, why)) => bail!("another lanyard bench is running ({path}: {why})"),
    }
}

/// The processor time that a thread has used; `None` where the kernel does not report it.
#[must_use]
pub fn thread_time(thread: Pid) -> Option<Duration> {
    // The first figure is the time on a core in nanoseconds (Documentation/scheduler/sched-stats.rst).
    let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// The number of cores that this process may run on.
#[must_use]
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Nanoseconds of the clock that `bpf_ktime_get_ns()` reads.
///
/// # Errors
/// Only on a kernel without a monotonic clock, which does not exist.
pub fn monotonic_ns() -> Result<u64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
