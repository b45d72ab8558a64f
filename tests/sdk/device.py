#!/usr/bin/env python3
"""A device that speaks the SDK protocol of docs/sdk.md, written from that page alone.

It forwards nothing. It stores the entries that it receives, has room for 512 routes, and answers a frame for a port by "plugging in a
cable" there and sending the frame back. It proves that a driver works with a device in another language.

Usage: device.py SOCKET
"""
import os
import socket
import struct
import sys

ROOM = 512
PAGE = 200
VERSION = 2


class Malformed(Exception):
    pass


class Refused(Exception):
    def __init__(self, code, at=0, table="", shortage=0, units=(0, 0), text=""):
        super().__init__(text)
        self.fields = (code, at, table, shortage, units, text)


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if self.at + count > len(self.data):
            raise Malformed("ends too early")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(">" + form)))[0]

    def text(self):
        return self.take(self.number("H"))

    def address(self):
        family = self.number("B")
        return self.take({0: 0, 4: 4, 6: 16}[family])


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(value)) + value


def operation(reader):
    """Reads one operation; answers the key of what it sets, whether it removes it, and its bytes."""
    start = reader.at
    kind = reader.number("B")
    if kind == 1:  # global
        key, gone = b"", not reader.text()
    elif kind in (2, 3, 6):  # port, VLAN, router interface
        key, gone = reader.take(2), not reader.text()
    elif kind == 4:  # spanning-tree state; 2 is forwarding, the default
        key, gone = reader.take(3), reader.number("B") == 2
    elif kind == 5:  # FDB entry
        key, gone = reader.take(8), reader.number("B") == 0
        reader.take(2)
    elif kind == 7:  # adjacency
        key, gone = reader.take(4), reader.number("H") == 0
        reader.take(7)
    elif kind == 8:  # next-hop group
        key, count = reader.take(4), reader.number("H")
        gone = count == 0
        reader.take(4 * count)
    elif kind == 9:  # route
        begin = reader.at
        reader.take(1)
        reader.address()
        reader.take(1)
        key, gone = reader.data[begin : reader.at], reader.number("B") == 0
        reader.take(4)
    elif kind == 10:  # rule
        gone, key = reader.number("B") == 0, reader.take(8)
        reader.take(9)
    elif kind == 11:  # multicast group
        gone, begin = reader.number("B") == 0, reader.at
        reader.take(2)
        reader.address()
        reader.address()
        key = reader.data[begin : reader.at]
        if not gone:
            reader.take(2 * reader.number("H"))
    elif kind == 14:  # ports of multicast routers
        key, count = reader.take(3), reader.number("H")
        gone = count == 0
        reader.take(2 * count)
    elif kind == 15:  # which groups are flooded; 0 is none, the default
        key, gone = reader.take(3), reader.number("B") == 0
    elif kind == 16:  # members in use of a port-channel
        key, collecting = reader.take(1), reader.number("H")
        reader.take(2 * collecting)
        buckets = reader.number("H")
        reader.take(2 * buckets)
        gone = collecting == buckets == 0
    elif kind == 17:  # whether the watchdog of spanning tree blocks a port
        key, gone = reader.take(3), reader.number("B") == 0
    else:
        raise Malformed("no operation %d" % kind)
    return (kind, bytes(key)), gone, bytes(reader.data[start : reader.at])


class Device:
    def __init__(self):
        self.entries, self.high_water, self.refused = {}, 0, 0
        self.pages, self.up, self.wants = [], set(), 0

    def routes(self, entries):
        return sum(1 for kind, _ in entries if kind == 9)

    def commit(self, reader):
        entries = dict(self.entries)
        count = reader.number("I")
        for at in range(count):
            key, gone, data = operation(reader)
            if gone:
                entries.pop(key, None)
                continue
            if key[0] == 9 and key not in entries and self.routes(entries) == ROOM:
                self.refused += 1
                raise Refused(1, at, "trampoline/routes", 1, (ROOM, ROOM), "table trampoline/routes has no room")
            entries[key] = data
        self.entries = entries
        self.high_water = max(self.high_water, self.routes(entries))
        return count

    def usage(self):
        body = struct.pack(">H", 1) + text("trampoline/routes")
        body += struct.pack(">IIIQ", ROOM, self.routes(self.entries), self.high_water, self.refused)
        # The table holds IPv4 prefixes and both kinds of IPv6 prefixes (5, 6, 7), one unit each.
        return body + bytes([3, 5, 1, 6, 1, 7, 1])

    def page(self, anew):
        if anew:
            self.pages = list(self.entries.values())
        page, self.pages = self.pages[:PAGE], self.pages[PAGE:]
        return struct.pack(">BI", bool(self.pages), len(page)) + b"".join(page)

    def notices(self, reader):
        """A frame out of a port: its cable is plugged in, and the frame comes back."""
        reader.take(6)
        port, frame = reader.number("H"), reader.take(len(reader.data) - reader.at)
        if port not in self.up:
            self.up.add(port)
            yield 0xC001, struct.pack(">BHB", 4, port, 1)
        yield 0xC002, struct.pack(">BBBBHH", 1, 0, 1, 0, port, 0) + frame


def answer(device, kind, reader):
    """The answer's kind and body."""
    done = lambda number: (0x8002, struct.pack(">Q", number))
    if kind == 1:
        magic, version = reader.number("I"), reader.number("H")
        reader.text()
        if magic != 0x4C595344 or version != VERSION:
            raise Refused(4, text="this device speaks version %d" % VERSION)
        body = struct.pack(">H", VERSION) + text("trampoline") + struct.pack(">QQIII", os.getpid(), 0, 0, 0, 64)
        return 0x8001, body
    if kind == 2:
        return done(device.commit(reader))
    if kind == 3:
        return 0x8003, device.usage()
    if kind == 4:
        return 0x8004, device.page(reader.number("B"))
    if kind == 5:
        return 0x8005, struct.pack(">BH", 0, 0)
    if kind == 6:
        return 0x8006, struct.pack(">QQQQQQQQH", 0, 0, 0, 0, 0, 0, 0, 0, 0)
    if kind == 7:
        return 0x8007, struct.pack(">H", 0)
    if kind == 8:
        device.wants = reader.number("I")
        return done(device.wants)
    if kind in (*range(10, 18), 20, 21, 22):
        raise Refused(2, text="the trampoline cannot do that")
    raise Malformed("no request %d" % kind)


def message(kind, number, body):
    return struct.pack(">IHHI", 12 + len(body), kind, 0, number) + body


def receive(stream, count):
    data = b""
    while len(data) < count:
        part = stream.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def serve(device, stream):
    while True:
        header = receive(stream, 12)
        length, kind, zero, number = struct.unpack(">IHHI", header)
        if not 12 <= length <= 1 << 20 or zero:
            return
        reader = Reader(receive(stream, length - 12))
        if kind == 9:  # a frame for a port has no answer
            for notice, body in device.notices(reader):
                stream.sendall(message(notice, 0, body))
            continue
        if kind in (18, 19):  # nor have a frame that was diverted and one for the ports of a VLAN: none is sent here
            continue
        try:
            stream.sendall(reply(device, kind, number, reader))
        except Malformed:
            return


def reply(device, kind, number, reader):
    try:
        code, body = answer(device, kind, reader)
    except Refused as refused:
        code, at, table, shortage, units, why = refused.fields
        body = struct.pack(">BI", code, at) + text(table) + struct.pack(">BII", shortage, *units) + text(why)
        code = 0x8008
    return message(code, number, body)


def main():
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    os.umask(0o177)
    listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    device = Device()
    while True:
        stream, _ = listener.accept()
        try:
            serve(device, stream)
        except (EOFError, OSError):
            pass


main()
