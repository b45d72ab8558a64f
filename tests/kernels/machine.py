"""A guest: QEMU without KVM, one of Debian's kernels, and the machine's own file system, read-only, below an overlay in memory.

The guest's console is QEMU's standard output: lines that begin with `check: ` and `table: ` are its results.
"""
import os
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
QEMU = "qemu-system-x86_64"
# The modules that mount the guest's root, in this order; modules that others depend on come first.
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
MEMORY_MB = 2048
CPUS = 2
# The oldest QEMU whose emulated NICs can be judged by: 7.2 replaces a tag of the frame when e1000e or
# vmxnet3 inserts one, and has no igb.
NIC_QEMU = 10
# The drivers of the ports, and QEMU's names of the devices. igb emulates an 82576.
MODELS = {"e1000e": "e1000e", "igb": "igb", "vmxnet3": "vmxnet3", "virtio": "virtio-net-pci", "virtio-mq": "virtio-net-pci"}
MANY_QUEUES, QUEUES = "virtio-mq", 4


class Guest:
    """One boot."""

    def __init__(self, cache, version, log):
        self.cache, self.version, self.log = cache, version, log

    def initrd(self):
        """Makes the initial RAM disk: busybox and the modules that mount the root."""
        # The kernel's version is a part of the file's name, so each kernel has a file of its own.
        path = os.path.join(self.cache, "boot", f"initrd-{self.version}")
        script = os.path.join(HERE, "guest", "initrd.sh")
        if os.path.exists(path) and os.path.getmtime(path) > os.path.getmtime(script):
            return path
        with tempfile.TemporaryDirectory() as root:
            for folder in ("bin", "modules"):
                os.mkdir(os.path.join(root, folder))
            shutil.copy("/bin/busybox", os.path.join(root, "bin/busybox"))
            os.symlink("busybox", os.path.join(root, "bin/sh"))
            shutil.copy(script, os.path.join(root, "init"))
            os.chmod(os.path.join(root, "init"), stat.S_IRWXU)
            for number, module in enumerate(self._modules()):
                name = re.sub(r"\.ko.*", ".ko", os.path.basename(module))
                with open(os.path.join(root, "modules", f"{number:03}-{name}"), "wb") as file:
                    file.write(self._module(module))
            pack = "find . | /bin/busybox cpio -o -H newc 2>/dev/null | gzip -1"
            with open(path + ".new", "wb") as file:
                subprocess.run(["sh", "-c", pack], cwd=root, stdout=file, check=True)
        os.rename(path + ".new", path)
        return path

    def _modules(self):
        folder = os.path.join(self.cache, "modules", self.version)
        with open(os.path.join(folder, "modules.dep"), encoding="ascii") as file:
            depends = dict(line.strip().split(":", 1) for line in file)
        ordered = []

        def add(path):
            for other in reversed(depends[path].split()):
                add(other)
            if path not in ordered:
                ordered.append(path)

        for module in MODULES:
            name = module.replace("_", "[-_]")
            # A module without a file is built into the kernel.
            for path in depends:
                if re.search(rf"/{name}\.ko(\.xz|\.zst)?$", path):
                    add(path)
        return ordered

    def _module(self, path):
        path = os.path.join(self.cache, "modules", self.version, path)
        tool = {".xz": ["xz", "-dc"], ".zst": ["zstd", "-qdc"]}.get(os.path.splitext(path)[1])
        if tool is None:
            with open(path, "rb") as file:
                return file.read()
        return subprocess.run([*tool, path], stdout=subprocess.PIPE, check=True).stdout

    def run(self, script, arguments, silence_s, take, nic=None, wires=0, load=None, options=""):
        """Boots and runs `script`; gives each line of the console to `take` as it comes. Returns whether the guest has ended
        by itself: a guest that prints nothing for `silence_s` is stopped. How long it takes altogether depends on what else the
        machine does, so there is no limit for that. With `load`, which receives each line, the wires have no host's ends.
        `options` are added to the kernel's command line."""
        folder = tempfile.mkdtemp(prefix="lanyard-kernels-")
        namespace = os.path.basename(folder) if nic == MANY_QUEUES else None
        try:
            command = self._command(script, arguments, folder, nic, wires, "p" if load else "hp", options)
            if namespace:
                make_taps(namespace, wires)
                command = ["ip", "netns", "exec", namespace, *command]
            if load:
                load.start(namespace)
            return self._watch(command, silence_s, take, load)
        finally:
            if load:
                load.stop()
            if namespace:
                subprocess.run(["ip", "netns", "del", namespace], check=False)
            shutil.rmtree(folder, ignore_errors=True)

    def _command(self, script, arguments, folder, nic, wires, ends, options):
        kernel = os.path.join(self.cache, "boot", f"vmlinuz-{self.version}")
        line = ("console=ttyS0 quiet panic=-1 no_timer_check mitigations=off nokaslr audit=0 apparmor=0 net.ifnames=0 "
                f"ly.run={script} ly.arguments={','.join(arguments)} {options}")
        monitor = os.path.join(folder, "monitor")
        command = [QEMU, "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(CPUS),
                   "-m", str(MEMORY_MB), "-nodefaults", "-no-reboot", "-display", "none",
                   "-kernel", kernel, "-initrd", self.initrd(), "-append", line,
                   "-chardev", "stdio,id=console,signal=off", "-device", "isa-serial,chardev=console,index=0",
                   "-chardev", f"socket,id=monitor,path={monitor},server=on,wait=off",
                   "-mon", "chardev=monitor,mode=readline",
                   "-chardev", f"socket,id=serial,path={monitor}", "-device", "isa-serial,chardev=serial,index=1",
                   "-device", "virtio-rng-pci"]
        for tag, path in (("root", "/"), ("kernels", HERE), ("cache", self.cache)):
            command += ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none,readonly=on,multidevs=remap"]
        return command + self._wires(folder, nic, wires, ends)

    def _wires(self, folder, nic, wires, given):
        """Wires between a host's interface (02:00:00:00:0N:01) and a port (..:02), each a pair of datagram sockets: unlike a
        hub they drop, and do not block, while the other end is down. Several queues are to be had with TAP netdevs only. Each
        port is on a root port: it can be unplugged."""
        options = []
        many = nic == MANY_QUEUES
        queues = f",mq=on,vectors={2 * QUEUES + 2}" if many else ""
        for wire in range(1, wires + 1):
            ends = {end: os.path.join(folder, f"{end}{wire}") for end in "ab"}
            for end, other, name, model in (("a", "b", "h", "virtio-net-pci"), ("b", "a", "p", MODELS[nic])):
                if name not in given:
                    continue
                mac = f"02:00:00:00:0{wire}:0{1 if name == 'h' else 2}"
                place = f"bus=pcie.0,addr={7 + wire}" if name == "h" else f"bus=r{wire}"
                if name == "p":
                    options += ["-device", f"pcie-root-port,id=r{wire},chassis={wire},bus=pcie.0,addr={15 + wire}"]
                end_of = (f"dgram,id={end}{wire},local.type=unix,local.path={ends[end]},"
                          f"remote.type=unix,remote.path={ends[other]}")
                if many:
                    end_of = f"tap,id={end}{wire},ifname={end}{wire},script=no,downscript=no"
                    end_of += f",queues={QUEUES}" if name == "p" else ""
                options += ["-netdev", end_of, "-device", f"{model},romfile=,id={name}{wire},netdev={end}{wire},mac={mac},{place}"
                            + (queues if name == "p" else "")]
        return options

    def _watch(self, command, silence_s, take, load):
        began = heard = time.monotonic()
        ended, silent = threading.Event(), threading.Event()
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace") as process:
            if load:
                # `ip netns exec` becomes QEMU.
                load.guest = process.pid

            def watch():
                while not ended.wait(1):
                    if time.monotonic() - heard > silence_s:
                        silent.set()
                        process.kill()
                        return

            watcher = threading.Thread(target=watch, daemon=True)
            watcher.start()
            try:
                for line in process.stdout:
                    heard = time.monotonic()
                    line = line.rstrip("\r\n")
                    self.log.write(f"{self.version} {heard - began:6.1f} {line}\n")
                    self.log.flush()
                    take(line)
            finally:
                ended.set()
                process.kill()
        return not silent.is_set()


def make_taps(namespace, wires):
    """For each wire two TAP netdevs and a bridge between them, in a namespace that is removed afterwards."""
    subprocess.run(["ip", "netns", "add", namespace], check=True)
    for wire in range(1, wires + 1):
        commands = [f"link add w{wire} type bridge ageing_time 0", f"link set w{wire} mtu 9216 up",
                    f"tuntap add a{wire} mode tap vnet_hdr", f"tuntap add b{wire} mode tap vnet_hdr multi_queue"]
        commands += [f"link set {end}{wire} mtu 9216 master w{wire} up" for end in "ab"]
        for command in commands:
            subprocess.run(["ip", "-n", namespace, *command.split()], check=True)


def has_model(nic):
    """Whether this QEMU has the device."""
    listed = subprocess.run([QEMU, "-device", "help"], stdout=subprocess.PIPE, text=True, check=False).stdout
    return f'name "{MODELS[nic]}"' in listed


def qemu_version():
    """The version of QEMU as numbers, such as (10, 0, 2); empty when QEMU does not report it."""
    listed = subprocess.run([QEMU, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
    found = re.search(r"version (\d+(?:\.\d+)*)", listed)
    return tuple(int(part) for part in found[1].split(".")) if found else ()
