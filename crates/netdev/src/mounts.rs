//! Mounts that have to outlive a process with a mount namespace of its own, as `ip netns exec` and systemd's `ProtectSystem`
//! give it: such a namespace ends with the process, and its mounts with it.
//!
//! Read mount_namespaces(7) first, on propagation. Invariant: only a fresh thread changes its mount namespace.

use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::thread;

/// True when mounts that other processes make below `path` appear in this process's mount namespace, but not the reverse: the
/// mount that contains `path` is a slave in proc_pid_mountinfo(5).
pub(crate) fn only_receives(path: &Path) -> bool {
    let own = fs::read_link("/proc/self/ns/mnt");
    let is_init = own.is_ok_and(|own| fs::read_link("/proc/1/ns/mnt").is_ok_and(|init| own == init));
    !is_init && fs::read_to_string("/proc/self/mountinfo").is_ok_and(|table| is_slave(&table, path))
}

/// [`only_receives`] in the text of a mountinfo file: fields before a lone `-` are optional, and `master:N` marks a slave. Of
/// mounts at the same place the last one counts.
fn is_slave(table: &str, path: &Path) -> bool {
    let mount = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let at = Path::new(*fields.get(4)?);
        let is_slave =
            fields.iter().skip(6).take_while(|field| **field != "-").any(|f| f.starts_with("master:"));
        path.starts_with(at).then(|| (at.components().count(), is_slave))
    };
    // `max_by_key` returns the last of several with the greatest depth.
    table.lines().filter_map(mount).max_by_key(|(depth, _)| *depth).is_some_and(|(_, is_slave)| is_slave)
}

/// Runs `work` on a fresh thread in PID 1's mount namespace. A panic in `work` continues in the caller.
///
/// # Errors
/// When that namespace cannot be entered (`work` has then not run), and the error of `work`.
pub fn in_init<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let init = File::open("/proc/1/ns/mnt")?;
    thread::scope(|scope| {
        let enter = move || {
            // A thread that shares its root and working directory with others may not change its mount namespace.
            unshare(CloneFlags::CLONE_FS)?;
            setns(init, CloneFlags::CLONE_NEWNS)?;
            work()
        };
        let handle = thread::Builder::new().name("mount".into()).spawn_scoped(scope, enter)?;
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slave_is_recognised() {
        let shared = "22 1 0:2 / / rw,relatime shared:1 - ext4 /dev/vda rw";
        let slave = "22 1 0:2 / / rw,relatime shared:70 master:1 - ext4 /dev/vda rw";
        let private = "30 22 0:9 / /run rw,nosuid - tmpfs master:7 rw";
        let over = "31 30 0:9 /netns /run/netns rw master:3 - tmpfs tmpfs rw";
        let check = |lines: &[&str], want| {
            assert_eq!(is_slave(&lines.join("\n"), Path::new("/run/netns")), want, "{lines:?}");
        };
        check(&[shared], false);
        check(&[slave], true);
        check(&[slave, private], false);
        check(&[slave, private, over], true);
        check(&[slave, "40 22 0:9 / /run/netnsx rw - tmpfs tmpfs rw"], true);
        check(&[over, "32 31 0:9 / /run/netns rw - tmpfs tmpfs rw"], false);
        check(&["", "1 2 3", "a b c d"], false);
    }
}
