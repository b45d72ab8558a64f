"""Attaches a BPF program, as another tool would, and keeps it attached until it is killed.

`another_program.py tcx-ingress|tcx-egress|xdp NETDEV` passes every frame on.
`another_program.py netfilter PF HOOK PRIORITY VERDICT` returns a verdict for every packet at a hook of netfilter: PF is 2 (IPv4) or
10 (IPv6), HOOK 0 (prerouting) to 4 (postrouting), VERDICT 0 (drop) or 1 (accept).

Prints `attached`; or the reason, with exit code 1, when the kernel refuses it.
"""
import ctypes
import os
import socket
import struct
import sys
import time

# x86-64, and all architectures with the generic table.
SYS_BPF = 321 if os.uname().machine == "x86_64" else 280
PROG_LOAD, LINK_CREATE = 5, 28
# By hook: type of the program, type of the attachment, verdict that passes a frame on.
KINDS = {"tcx-ingress": (3, 46, -1), "tcx-egress": (3, 47, -1), "xdp": (6, 37, 2), "netfilter": (32, 45, 1)}


def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    answer = ctypes.CDLL(None, use_errno=True).syscall(SYS_BPF, command, buffer, len(attributes))
    if answer < 0:
        sys.exit(f"bpf({command}): {os.strerror(ctypes.get_errno())}")
    return answer


kind, *arguments = sys.argv[1:]
program_type, attach_type, verdict = KINDS[kind]
target, special = 0, struct.pack("=16x")
if kind == "netfilter":
    family, hook, priority, verdict = map(int, arguments)
    special = struct.pack("=IIiI", family, hook, priority, 0)
else:
    target = socket.if_nametoindex(arguments[0])
code = ctypes.create_string_buffer(struct.pack("=BBhiBBhi", 0xB7, 0, 0, verdict, 0x95, 0, 0, 0))
license_text = ctypes.create_string_buffer(b"MIT")
expected = attach_type if kind == "netfilter" else 0
program = bpf(PROG_LOAD, struct.pack("=IIQQIIQII16sII", program_type, 2, ctypes.addressof(code), ctypes.addressof(license_text),
                                     0, 0, 0, 0, 0, b"another_tool", 0, expected))
link = bpf(LINK_CREATE, struct.pack("=IIII", program, target, attach_type, 0) + special)
print("attached", flush=True)
while True:
    time.sleep(60)
