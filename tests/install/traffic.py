#!/usr/bin/env python3
"""traffic.py send INTERFACE RATE_PPS DESTINATION SOURCE | receive INTERFACE: numbered test frames, counted exactly.

The sender sends 64-byte frames at a rate until its standard input ends, then prints how many it has sent. The receiver counts the
frames that arrive until its standard input ends: the kernel counts every frame that passes the socket's filter, also those for
which the socket has no room (PACKET_STATISTICS in packet(7)), so a slow reader loses none of the count.
"""
import ctypes
import os
import select
import socket
import struct
import sys
import time

# Local experimental EtherType 1 (IEEE 802), which nothing else sends.
ETHERTYPE = 0x88B5
BATCH = 64
SOL_PACKET, PACKET_STATISTICS, SO_ATTACH_FILTER = 263, 6, 26


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Msghdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("name_length", ctypes.c_uint32), ("iov", ctypes.POINTER(Iovec)),
                ("iov_length", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int)]


class Mmsghdr(ctypes.Structure):
    _fields_ = [("header", Msghdr), ("length", ctypes.c_uint32)]


def has_ended():
    return bool(select.select([sys.stdin], [], [], 0)[0])


def mac(text):
    return bytes(int(part, 16) for part in text.split(":"))


def send(interface, rate_pps, destination, source):
    frame = mac(destination) + mac(source) + struct.pack("!H", ETHERTYPE) + bytes(46)
    buffer = ctypes.create_string_buffer(frame, len(frame))
    iovec = Iovec(ctypes.cast(buffer, ctypes.c_void_p), len(frame))
    messages = (Mmsghdr * BATCH)()
    for message in messages:
        message.header.iov, message.header.iov_length = ctypes.pointer(iovec), 1
    sendmmsg = ctypes.CDLL(None, use_errno=True).sendmmsg
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.bind((interface, 0))
        sent, began, longest_s = 0, time.monotonic(), 0.0
        last = began
        while not has_ended():
            now = time.monotonic()
            longest_s, last = max(longest_s, now - last), now
            if sent > (now - began) * rate_pps:
                time.sleep(0.0002)
                continue
            done = sendmmsg(sock.fileno(), messages, BATCH, 0)
            if done < 0:
                raise OSError(ctypes.get_errno(), "sendmmsg")
            sent += done
        took_s = time.monotonic() - began
    print(f"{sent} {sent / took_s:.0f} {longest_s * 1000:.0f}", flush=True)


def receive(interface):
    # ldh [12]; jeq ETHERTYPE, accept, refuse: only test frames are counted.
    code = [(0x28, 0, 0, 12), (0x15, 0, 1, ETHERTYPE), (0x06, 0, 0, 1), (0x06, 0, 0, 0)]
    text = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
    buffer = ctypes.create_string_buffer(text)
    program = struct.pack("HL", len(code), ctypes.addressof(buffer))
    # Protocol 0 receives nothing until `bind`, when the filter is in place.
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        sock.bind((interface, 0x0003))
        print("ready", flush=True)
        count = 0
        while True:
            ended = select.select([sys.stdin], [], [], 0.2)[0]
            count += struct.unpack("II", sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[0]
            if ended:
                break
    print(count, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
    else:
        receive(sys.argv[2])
    os._exit(0)
