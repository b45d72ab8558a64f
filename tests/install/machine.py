"""A Debian root with a first process such as systemd, in namespaces of its own: it shares this machine's kernel and nothing else.

The root is made once by debootstrap from the mirror that apt is configured with, and kept in a cache; each run gets an overlay.
"""
import os
import shutil
import subprocess
import time

PACKAGES = "systemd,systemd-sysv,dbus,iproute2,iputils-ping,procps,radvd,keepalived,rsyslog,man-db,systemd-timesyncd"
SYSTEMD = ["/lib/systemd/systemd", "--system", "--unit=multi-user.target"]
# Its arguments are the root directory, and the first process with its arguments.
BOOT = r"""
set -e
mount --make-rprivate /
cd "$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for directory in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs $directory; done
chmod 1777 tmp
mkdir -p dev/net dev/pts dev/shm old
for device in null zero full random urandom tty net/tun; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs tmpfs dev/shm
hostname installed
ip link set lo up
pivot_root . old
umount -l /old
mount --make-rshared /
export container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin
shift
exec "$@" </dev/null
"""


class Missing(Exception):
    """Something that the checks need cannot be had; the reason."""


def run(*command, check=True, timeout=120, **options):
    """Runs a command; answers its output. Its failure is an error with that output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=timeout,
                          **options)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {done.stdout.strip()[-2000:]}")
    return done.stdout


def base_root(cache, suite):
    """The root of a suite in the cache; makes it at the first use."""
    root = os.path.join(cache, suite)
    complete = os.path.join(root, "complete")
    if os.path.exists(complete) and run("cat", complete).strip() == PACKAGES:
        return os.path.join(root, "root")
    if not shutil.which("debootstrap"):
        run("apt-get", "install", "-y", "--no-install-recommends", "debootstrap", check=False, timeout=300)
    if not shutil.which("debootstrap"):
        raise Missing("debootstrap is not installed, and apt cannot install it")
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root)
    try:
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, os.path.join(root, "root"), mirror(), timeout=900)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        raise Missing(f"debootstrap cannot make a root of {suite}: {str(error)[-300:]}") from error
    # The file is empty, so that systemd makes an identifier for each machine.
    with open(os.path.join(root, "root/etc/machine-id"), "w", encoding="ascii"):
        pass
    with open(complete, "w", encoding="ascii") as file:
        file.write(PACKAGES)
    return os.path.join(root, "root")


def mirror():
    """The first mirror of Debian that apt is configured with."""
    for line in run("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages").splitlines():
        if "security" not in line:
            return line
    raise Missing("apt is configured with no mirror")


class Machine:
    """One root and its first process. It ends, with all its processes, when the `with` statement does."""

    def __init__(self, base, directory, first=None, ready=("systemctl", "is-system-running")):
        self.first, self.ready = first or SYSTEMD, ready
        self.output = os.path.join(directory, "output")
        self.root = os.path.join(directory, "root")
        self.cgroups = os.path.join(directory, "cgroups")
        for part in ("upper", "work", "root", "cgroups"):
            os.makedirs(os.path.join(directory, part))
        layers = f"lowerdir={base},upperdir={directory}/upper,workdir={directory}/work"
        run("mount", "-t", "overlay", "-o", layers, "overlay", self.root)
        self.group = os.path.join(self.cgroups, f"lanyard-install-{os.getpid()}")
        self.process = None

    def __enter__(self):
        try:
            self._boot()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _boot(self):
        run("mount", "-t", "cgroup2", "none", self.cgroups)
        os.mkdir(self.group)
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc", "--cgroup",
                   "bash", "-c", BOOT, "boot", self.root, *self.first]

        def join():
            with open(os.path.join(self.group, "cgroup.procs"), "w", encoding="ascii") as file:
                file.write("0")
        with open(self.output, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(command, preexec_fn=join, start_new_session=True,  # pylint: disable=subprocess-popen-preexec-fn
                                            stdout=output, stderr=output)
        self.wait("the first process to be ready", self._is_ready)

    def _is_ready(self):
        # A unit that fails, such as a console that the machine lacks, makes systemd report `degraded`.
        done = subprocess.run([*self.enter(), *self.ready], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode == 0 or done.stdout.strip() == "degraded"

    def __exit__(self, *_):
        if self.process:
            # The first process of a PID namespace takes all others of the namespace with it.
            for pid in run("pgrep", "-P", str(self.process.pid), check=False).split():
                os.kill(int(pid), 9)
            self.process.wait()
        self.wait("the processes to end", self._leave)

    def _leave(self):
        for mount in (self.root, self.cgroups):
            if os.path.ismount(mount):
                if mount == self.cgroups and os.path.isdir(self.group):
                    for folder, _, _ in os.walk(self.group, topdown=False):
                        try:
                            os.rmdir(folder)
                        except OSError:
                            return False
                run("umount", mount, check=False)
        return not os.path.ismount(self.root) and not os.path.ismount(self.cgroups)

    def pid(self):
        """The number of the first process."""
        return run("pgrep", "-P", str(self.process.pid)).split()[0]

    def enter(self):
        """The command that runs others inside."""
        return ["nsenter", "-t", self.pid(), "-m", "-p", "-n", "-u", "-i", "-C", "-r", "-w", "env", "-i",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"]

    def inside(self, *command, check=True, timeout=120):
        """Runs a command inside; answers its output."""
        return run(*self.enter(), *command, check=check, timeout=timeout)

    def in_network(self, name):
        """The command that runs others of this machine in a named network namespace inside."""
        return ["nsenter", f"--net=/proc/{self.pid()}/root/run/netns/{name}"]

    @staticmethod
    def wait(what, condition, limit_s=60):
        """Waits until a condition is true."""
        until = time.monotonic() + limit_s
        while True:
            try:
                if condition():
                    return
            except (RuntimeError, IndexError, OSError):
                pass
            if time.monotonic() > until:
                raise RuntimeError(f"waited {limit_s} s for {what}")
            time.sleep(0.1)
