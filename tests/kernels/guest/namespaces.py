"""Tests of the machine's own build, run on this kernel: those that need what the machine's kernel lacks, or that a kernel decides.

`run` gives the directory of the build, whose `lanyard` the tests start; in its place stands the copy without debug information.
"""
import re
import subprocess

from lib import LANYARD, arguments, check, kernel, kernel_complaints, out, sh, skip

BINARIES = "/mnt/cache/bin"
# Binary, filter, the first kernel with what the tests need (TCX: 6.6, XDP on veth ports: 6.8).
TESTS = [
    ("netns", "packet_filter::connection_tracking_and_flowtables", (0, 0)),
    ("netns", "packet_filter::masquerade", (0, 0)),
    ("netns", "overlay::", (0, 0)),
    ("netns", "hooks::", (6, 8)),
    ("netns", "packet_filter::packet_filter", (0, 0)),
    ("netns", "packet_filter::legacy_iptables", (0, 0)),
    ("netns", "vlans::", (6, 6)),
    ("stp", "watchdog::a_daemon_that_was_killed", (0, 0)),
    ("stp", "watchdog::the_kernels_bridge_takes_over", (0, 0)),
]
# The tests that must not be skipped on this kernel: they are the reason for this run.
WANTED = {"packet_filter::connection_tracking_and_flowtables", "overlay::"}


def run(binary, chosen):
    """The tests of one filter, each a result."""
    command = [f"{BINARIES}/{binary}", chosen, "--nocapture", "--test-threads=1"]
    name, ended, reasons, last = None, 0, [], []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        for line in process.stdout:
            line = line.rstrip()
            out("  " + line[:300])
            last = [*last, line][-12:]
            # What a test prints is between its name and its result.
            begun = re.match(r"test (\S+) \.\.\. ?(.*)$", line)
            if begun:
                name, line, reasons = begun[1], begun[2], []
            reasons += re.findall(r"skipped: (.*)$", line)
            if name is None or line not in ("ok", "FAILED"):
                continue
            ended += 1
            if reasons and line == "ok" and chosen not in WANTED:
                skip(f"{binary} {name}", "; ".join(reasons))
            else:
                check(f"{binary} {name}", line == "ok" and not reasons, "; ".join(reasons) or " | ".join(last))
            name = None
    if not ended:
        check(f"{binary} {chosen} runs", False, " | ".join(last))


def main():
    built = arguments()[0]
    sh(f"mount --bind {LANYARD} {built}/lanyard")
    same = sh(f"cmp {LANYARD} {built}/lanyard") == ""
    check("the tests start the binary without debug information", same)
    for binary, chosen, since in TESTS:
        if kernel() < since:
            skip(f"{binary} {chosen}", "for kernels from %d.%d on" % since)
        else:
            run(binary, chosen)
    bad = kernel_complaints()
    check("the kernel's log has no warning", not bad, bad)


main()
