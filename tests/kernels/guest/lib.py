"""What the guest's checks share: results, hosts in namespaces with raw sockets, the switch, QEMU's monitor."""
import ctypes
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import termios
import time
import tty

LANYARD = "/mnt/cache/bin/lanyard"
SO_PACKET, ADD_MEMBERSHIP, AUXDATA, PROMISCUOUS = 263, 1, 8, 1
BROADCAST = b"\xff" * 6
# A factor for all waits: the guest is emulated, and its host may be busy.
PATIENCE = 4
libc = ctypes.CDLL(None, use_errno=True)


def out(*words):
    print(*words, flush=True)


def check(name, good, why=""):
    """A result: one line."""
    why = " ".join(str(why).split())[:600]
    out(f"check: {'ok' if good else 'FAILED'}: {name}" + ("" if good else f": {why}"))
    return bool(good)


def skip(name, why):
    out(f"check: skipped: {name}: {' '.join(str(why).split())[:300]}")


def sh(command, timeout=60 * PATIENCE):
    """Runs a shell command; answers what it has printed."""
    try:
        done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout, check=False)
    except subprocess.TimeoutExpired as late:
        return f"no end in {timeout} s: {late.stdout or ''}"
    return done.stdout.strip()


def until(condition, seconds):
    """Waits until `condition` holds, `seconds` on an idle machine; answers its last value."""
    end = time.monotonic() + seconds * PATIENCE
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.2)


def kernel():
    """The kernel's version, as two numbers."""
    return tuple(int(number) for number in os.uname().release.split(".")[:2])


class Host:
    """A host: netdev eth0 in a namespace of its own."""

    def __init__(self, number, netdev):
        self.number, self.namespace, self.socket = number, f"h{number}", None
        sh(f"ip netns add {self.namespace}; ip link set {netdev} down; "
           f"ip link set {netdev} netns {self.namespace} name eth0; ip -n {self.namespace} link set lo up")
        self.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1; ip link set eth0 up")

    def run(self, command, **options):
        return sh(f"ip netns exec {self.namespace} sh -c '{command}'", **options)

    def start(self, command):
        return subprocess.Popen(["ip", "netns", "exec", self.namespace, *command.split()], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def ping(self, address, count=5, options=""):
        """How many of `count` echo requests were answered."""
        text = self.run(f"ping -n -c {count} -i 0.2 -W 2 {options} {address}", timeout=(count + 20) * PATIENCE)
        found = re.search(r"(\d+) received", text)
        return int(found[1]) if found else 0

    def reaches(self, address, seconds=20):
        """True when an address answers before long: the first packets may wait for ARP."""
        return until(lambda: self.ping(address, 2) == 2, seconds)

    def open(self):
        """A raw socket on eth0, which sees the tags that the kernel has taken out."""
        before, there = os.open("/proc/self/ns/net", 0), os.open(f"/run/netns/{self.namespace}", 0)
        libc.setns(there, 0)
        try:
            raw = self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            raw.bind(("eth0", 3))
            raw.setsockopt(SO_PACKET, AUXDATA, 1)
            membership = struct.pack("iHH8s", socket.if_nametoindex("eth0"), PROMISCUOUS, 0, b"")
            raw.setsockopt(SO_PACKET, ADD_MEMBERSHIP, membership)
            raw.setblocking(False)
        finally:
            libc.setns(before, 0)
            os.close(before)
            os.close(there)
        return self

    def frames(self, mark):
        """What has come in and has `mark`, its outermost tag in place."""
        got = []
        while True:
            try:
                data, extra, _, address = self.socket.recvmsg(20000, 256)
            except BlockingIOError:
                return got
            if address[2] == socket.PACKET_OUTGOING:
                continue
            for level, kind, value in extra:
                if (level, kind) == (SO_PACKET, AUXDATA):
                    status, _, _, _, _, tci, tpid = struct.unpack("IIIHHHH", value[:20])
                    if status & 16:
                        data = data[:12] + struct.pack(">HH", tpid or 0x8100, tci) + data[12:]
            if mark in data:
                got.append(data)


def mac(number):
    return bytes([2, 0, 0, 0, 0x77, number])


def frame(destination, source, tags=(), mark=b"", size=60):
    """A frame of `size` bytes; a tag is a VLAN, or EtherType and tag control information."""
    tags = b"".join(struct.pack(">HH", *(tag if isinstance(tag, tuple) else (0x8100, tag))) for tag in tags)
    body = struct.pack(">H", 0x88b5) + b"LYTEST" + mark
    return destination + source + tags + body + b"\xa5" * max(0, size - 12 - len(tags) - len(body))


def tags_of(data):
    """The tags of a frame as text, and the frame without them."""
    tags, at = [], 12
    while data[at:at + 2] in (b"\x81\x00", b"\x88\xa8", b"\x91\x00"):
        tpid, tci = struct.unpack(">HH", data[at:at + 4])
        at += 4
        name = str(tci & 0xfff) if tpid == 0x8100 else f"{tpid:x}.{tci & 0xfff}"
        tags.append(name + (f"p{tci >> 13}" if tci >> 13 else ""))
    return "+".join(tags) or "u", data[:12] + data[at:]


def shot(hosts, sender, destination, source, tags=(), size=60, wait=0.4):
    """Sends one frame; answers which hosts got it, how tagged, and whether its bytes are as sent."""
    shot.number += 1
    mark = b"#%06d#" % shot.number
    for host in hosts.values():
        host.frames(b"\0none")
    data = frame(destination, source, tags, mark, size)
    _, plain = tags_of(data)
    hosts[sender].socket.send(data)
    got, end = {}, time.monotonic() + wait
    while time.monotonic() < end:
        ready, _, _ = select.select([host.socket for host in hosts.values()], [], [], max(0, end - time.monotonic()))
        for number, host in hosts.items():
            if host.socket not in ready:
                continue
            for arrived in host.frames(mark):
                how, rest = tags_of(arrived)
                same = rest[:len(plain)] == plain and not rest[len(plain):].strip(b"\0")
                got.setdefault(number, []).append(how if same else f"{how}!bytes({len(rest)}/{len(plain)})")
                end = max(end, time.monotonic() + 0.15)
    return " ".join(f"h{number}:{','.join(sorted(how))}" for number, how in sorted(got.items())) or "-"


shot.number = 0


class Switch:
    """The switch under test, in the guest's first namespace."""

    def __init__(self, configuration, plane="ebpf"):
        self.plane, self.process = plane, None
        with open("/tmp/switch.cfg", "w", encoding="ascii") as file:
            file.write(configuration)

    def start(self, seconds=300):
        """Starts it and waits; answers what it has printed."""
        began = time.monotonic()
        with open("/tmp/switch.log", "w", encoding="ascii") as log:
            self.process = subprocess.Popen([LANYARD, "run", "--config", "/tmp/switch.cfg", "--plane", self.plane],
                                            stdout=log, stderr=log, env={**os.environ, "RUST_BACKTRACE": "1"})
        until(lambda: "ready:" in self.log() or self.process.poll() is not None, seconds)
        self.took_s = round(time.monotonic() - began, 1)
        return self.log()

    @staticmethod
    def log():
        with open("/tmp/switch.log", encoding="utf-8") as file:
            return file.read()

    @staticmethod
    def cli(*commands):
        return sh(LANYARD + " cli " + " ".join(f"-c '{command}'" for command in commands))

    def configure(self, *lines):
        """Configures; answers the refusal, or nothing."""
        text = self.cli("configure terminal", *lines, "end")
        return text if "%" in text else ""

    def show(self, what):
        text = self.cli(f"show {what} | json")
        try:
            return json.loads(text)
        except ValueError:
            return {"error": text}

    def hooks(self):
        return {each["interface"]: each.get("hook") for each in self.show("interfaces status").get("interfaces", [])}

    def kill9(self):
        self.process.kill()
        self.process.wait()

    def detach(self):
        text = sh(LANYARD + " detach")
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return text


class Run:
    """Checks of one variant of the switch (a hook, a mode); `failed` has the names of those that did not pass."""

    def __init__(self, hosts, switch, variant):
        self.hosts, self.switch, self.variant, self.failed = hosts, switch, variant, []

    def check(self, name, good, why=""):
        if not check(f"{name} ({self.variant})", good, why):
            self.failed.append(name)


def tcp(client, server, address, options=""):
    """TCP for two seconds; answers Mbit/s."""
    serving = server.start("iperf3 -s -1")
    time.sleep(2)
    text = client.run(f"iperf3 -c {address} -t 2 -J {options}", timeout=40)
    serving.kill()
    try:
        return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 1e6
    except (ValueError, KeyError):
        return 0


def settings(netdev):
    """What the switch may change at a port, and has to give back."""
    return sh(f"ethtool -k {netdev} | grep -v Features; ip -d link show {netdev} | sed s/^[0-9]*://; tc qdisc show dev {netdev}; "
              f"tc filter show dev {netdev} ingress; sysctl -e net.ipv4.conf.{netdev}.arp_ignore net.ipv6.conf.{netdev}.disable_ipv6")


def differences(before, after):
    return sorted(set(before.split("\n")) ^ set(after.split("\n")))


def kernel_complaints():
    """Lines of the kernel's log that no switch may cause."""
    bad = r"WARNING:|BUG:|Oops|Call Trace|hung task|Reset adapter|rcu.*stall"
    return [line for line in sh("dmesg").split("\n") if re.search(bad, line) and "9p" not in line][:4]


def wires(count, hosts=True):
    """Hosts 1..count, if there are any, and ports p1..pcount, on the interfaces that QEMU has made (machine.py)."""
    def links():
        return {address: name for name, address in re.findall(r"^\d+: ([^:@]+).*?link/ether (\S+)", sh("ip -o link"), re.M)}
    ends = ("01", "02") if hosts else ("02",)
    until(lambda: all(f"02:00:00:00:0{count}:{end}" in links() for end in ends), 20)
    found, made = links(), {}
    for number in range(1, count + 1):
        port, host = found.get(f"02:00:00:00:0{number}:02"), found.get(f"02:00:00:00:0{number}:01")
        if port and port != f"p{number}":
            sh(f"ip link set {port} down; ip link set {port} name p{number}")
        if host:
            made[number] = Host(number, host)
    return made


def monitor(command):
    """A command for QEMU's monitor, which is on ttyS1."""
    fd = os.open("/dev/ttyS1", os.O_RDWR | os.O_NOCTTY)
    tty.setraw(fd, termios.TCSANOW)
    text = b""
    # The line contains what the console printed before it was in raw mode; end it.
    for line in (b"\r", command.encode() + b"\r"):
        os.write(fd, line)
        time.sleep(0.5)
        if line == b"\r":
            while select.select([fd], [], [], 0.3)[0]:
                os.read(fd, 4096)
    while select.select([fd], [], [], 0.3)[0]:
        text += os.read(fd, 4096)
    os.close(fd)
    return text.decode(errors="replace")


def arguments():
    return sys.argv[1:]
