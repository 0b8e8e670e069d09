#!/usr/bin/env python3
"""A small authoritative DNS server for tests: UDP and TCP, answers from a zone file.

    dnsd.py --listen 127.0.0.1 --port 5300 --zone zone.json --log questions.log [--pid FILE]

Several --listen are allowed; port 0 takes a free one. When all sockets are open it prints one
line for each, `listening ADDRESS PORT`, and answers from then on. SIGHUP reads the zone anew (a
bad one is reported and the old one kept); SIGTERM and SIGINT end it.

The zone is JSON, name -> entry. Names are compared without case and without the last dot;
`*.x` answers for all names below x that have no entry of their own, the longest one first, and `*`
for all that is left. Every other name is NXDOMAIN. An answer without records carries an SOA.
Fields of an entry, all optional:

    {"read.test":   {"a": ["11.22.0.10"], "aaaa": ["2001:db8::1"], "ttl": 60},
     "www.test":    {"cname": "read.test"},
     "*.wild.test": {"a": "11.22.0.11", "delay_ms": 100},
     "slow.test":   {"a": "11.22.0.12", "drop": ["aaaa"]},
     "odd.test":    {"a": "11.22.0.13", "aaaa_rcode": "NXDOMAIN"},
     "fail.test":   {"rcode": "SERVFAIL"},
     "big.test":    {"a": ["..."], "truncate": true},
     "turn.test":   {"a": ["11.22.0.10", "10.77.0.3"], "rotate": 1},
     "text.test":   {"txt": ["hello"]}}

a, aaaa, txt   one value or a list           cname       followed inside the zone
ttl            seconds, 60 if missing        rcode       NOERROR, FORMERR, SERVFAIL, NXDOMAIN,
a_rcode, ...   rcode for one type only                   NOTIMP, REFUSED or a number
delay_ms       wait before the answer        a_delay_ms, ... for one type only
drop           true, or a list of types      truncate    true: UDP gets TC and no records
rotate         N: only N of the values, the next N with the next question

A file that does not begin with `{` is read as lines `name [a=ADDR[,ADDR]] [aaaa=...] [ttl=N] ...`
with the same fields; `#` begins a comment.

The log has one line a question: `TIME PROTOCOL CLIENT PORT TYPE NAME ACTION`, where ACTION is the
rcode, `DROP`, or `BAD` for what is no question. NAME is as it was asked, so that a test sees case.
"""

import argparse
import asyncio
import ipaddress
import json
import os
import signal
import socket
import struct
import sys
import time

TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28,
         "SRV": 33, "SVCB": 64, "HTTPS": 65, "ANY": 255, "CAA": 257}
TYPE_NAMES = {number: name for name, number in TYPES.items()}
RCODES = {"NOERROR": 0, "FORMERR": 1, "SERVFAIL": 2, "NXDOMAIN": 3, "NOTIMP": 4, "REFUSED": 5}
RCODE_NAMES = {number: name for name, number in RCODES.items()}
FIELDS = {"a", "aaaa", "txt", "cname", "ttl", "rcode", "delay_ms", "drop", "truncate", "rotate"}
CNAMES_MAX = 16  # a chain in the zone that is longer is a loop
TYPE_OPT = 41


class ZoneError(Exception):
    """The zone file is wrong; the text says where."""


def as_list(value):
    return value if isinstance(value, list) else [value]


def fold(name):
    return name.rstrip(".").lower()


def rcode_number(value):
    if isinstance(value, int):
        return value
    if str(value).isdigit():
        return int(value)
    if str(value).upper() not in RCODES:
        raise ZoneError(f"unknown rcode {value!r}")
    return RCODES[str(value).upper()]


def field_known(field):
    kind, _, rest = field.partition("_")
    return field in FIELDS or (kind.upper() in TYPES and rest in ("rcode", "delay_ms"))


class Entry:
    """What the zone says about one name."""

    def __init__(self, fields):
        for field in fields:
            if not field_known(field):
                raise ZoneError(f"unknown field {field!r}")
        self.values = {
            "A": [ipaddress.IPv4Address(v).packed for v in as_list(fields.get("a", []))],
            "AAAA": [ipaddress.IPv6Address(v).packed for v in as_list(fields.get("aaaa", []))],
            "TXT": [str(v).encode() for v in as_list(fields.get("txt", []))],
        }
        self.cname = fold(fields["cname"]) if "cname" in fields else None
        self.ttl = int(fields.get("ttl", 60))
        self.rotate = int(fields.get("rotate", 0))
        self.truncate = fields.get("truncate", False) in (True, "true")
        self.rcode = rcode_number(fields.get("rcode", 0))
        self.delay_ms = int(fields.get("delay_ms", 0))
        self.drop = fields.get("drop", False)
        self.fields = fields
        self.turn = {}

    def rcode_of(self, type_name):
        return rcode_number(self.fields.get(type_name.lower() + "_rcode", self.rcode))

    def delay_of(self, type_name):
        return int(self.fields.get(type_name.lower() + "_delay_ms", self.delay_ms)) / 1000

    def drops(self, type_name):
        if self.drop in (True, "true"):
            return True
        if not self.drop:
            return False
        return type_name in [str(t).upper() for t in as_list(self.drop)]

    def values_of(self, type_name):
        values = self.values.get(type_name, [])
        if not self.rotate or not values:
            return values
        turn = self.turn.get(type_name, 0)
        self.turn[type_name] = turn + self.rotate
        return [values[(turn + i) % len(values)] for i in range(min(self.rotate, len(values)))]


def lines_to_fields(text):
    zone = {}
    for line in text.splitlines():
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        fields = zone.setdefault(words[0], {})
        for word in words[1:]:
            field, equals, value = word.partition("=")
            if not equals:
                raise ZoneError(f"{words[0]}: expected field=value, got {word!r}")
            fields[field] = value.split(",") if "," in value else value
    return zone


def zone_read(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        zone = json.loads(text) if text.lstrip().startswith("{") else lines_to_fields(text)
    except ValueError as error:
        raise ZoneError(f"{path}: {error}") from error
    entries = {}
    for name, fields in zone.items():
        try:
            entries[fold(name)] = Entry(fields)
            for type_name in TYPES:
                entries[fold(name)].rcode_of(type_name)
                entries[fold(name)].delay_of(type_name)
        except (ZoneError, ValueError, TypeError) as error:
            raise ZoneError(f"{path}: {name}: {error}") from error
    return entries


def zone_find(zone, name):
    if name in zone:
        return zone[name]
    labels = name.split(".")
    for i in range(1, len(labels)):
        entry = zone.get("*." + ".".join(labels[i:]))
        if entry:
            return entry
    return zone.get("*")


def question_read(message):
    """(name, type number, end of the question, payload size or None); ValueError if it is none."""
    if len(message) < 12:
        raise ValueError("short")
    flags, questions, _, _, more = struct.unpack("!HHHHH", message[2:12])
    if flags & 0x8000 or questions != 1:
        raise ValueError("no question")
    labels = []
    at = 12
    while True:
        size = message[at]
        at += 1
        if size == 0:
            break
        if size > 63 or at + size > len(message):
            raise ValueError("bad label")
        labels.append(message[at:at + size].decode("latin-1"))
        at += size
    (qtype, _) = struct.unpack("!HH", message[at:at + 4])
    at += 4
    size = None
    if more and len(message) >= at + 11 and message[at] == 0:
        opt, payload = struct.unpack("!HH", message[at + 1:at + 5])
        size = payload if opt == TYPE_OPT else None
    return ".".join(labels), qtype, at, size


def name_wire(name):
    wire = b""
    for label in name.split("."):
        if label:
            wire += bytes([len(label)]) + label.encode("latin-1")
    return wire + b"\0"


def record(owner, type_name, ttl, value):
    if type_name == "TXT":
        value = b"".join(bytes([len(value[i:i + 255])]) + value[i:i + 255]
                         for i in range(0, max(len(value), 1), 255))
    return owner + struct.pack("!HHIH", TYPES[type_name], 1, ttl & 0xffffffff, len(value)) + value


def soa(entry):
    """What an answer without records carries (RFC 2308)."""
    ttl = entry.ttl if entry else 60
    return record(b"\0", "SOA", ttl, b"\0\0" + struct.pack("!IIIII", 1, 3600, 600, 86400, ttl))


class Server:
    def __init__(self, zone_path, log_path):
        self.zone_path = zone_path
        self.zone = zone_read(zone_path)
        self.log = open(log_path, "a", encoding="utf-8", buffering=1) if log_path else None

    def reload(self):
        try:
            self.zone = zone_read(self.zone_path)
        except (ZoneError, OSError) as error:
            print(f"dnsd: zone kept: {error}", file=sys.stderr, flush=True)

    def note(self, protocol, peer, type_name, name, action):
        if self.log:
            self.log.write(f"{time.time():.6f} {protocol} {peer[0]} {peer[1]} {type_name} "
                           f"{ascii(name)[1:-1] or '.'} {action}\n")

    def answers(self, name, type_name):
        """(rcode, records) of a name, along its CNAME chain."""
        records = []
        owner = b"\xc0\x0c"
        entry = zone_find(self.zone, name)
        for _ in range(CNAMES_MAX):
            if entry is None:
                return RCODES["NXDOMAIN"], records
            rcode = entry.rcode_of(type_name)
            if rcode or not entry.cname or type_name == "CNAME":
                break
            records.append(record(owner, "CNAME", entry.ttl, name_wire(entry.cname)))
            owner = name_wire(entry.cname)
            entry = zone_find(self.zone, entry.cname)
        else:
            return RCODES["SERVFAIL"], []
        if rcode:
            return rcode, records
        if type_name == "CNAME" and entry.cname:
            return 0, [record(owner, "CNAME", entry.ttl, name_wire(entry.cname))]
        for value in entry.values_of(type_name):
            records.append(record(owner, type_name, entry.ttl, value))
        return 0, records

    async def reply(self, message, protocol, peer):
        """The reply to a message; None for silence."""
        try:
            name, qtype, end, size = question_read(message)
        except (ValueError, IndexError, struct.error):
            self.note(protocol, peer, "-", "-", "BAD")
            return None
        type_name = TYPE_NAMES.get(qtype, f"TYPE{qtype}")
        entry = zone_find(self.zone, fold(name))
        if entry and entry.drops(type_name):
            self.note(protocol, peer, type_name, name, "DROP")
            return None
        rcode, records = self.answers(fold(name), type_name)
        self.note(protocol, peer, type_name, name, RCODE_NAMES.get(rcode, rcode))
        if entry and entry.delay_of(type_name):
            await asyncio.sleep(entry.delay_of(type_name))
        opt = b"" if size is None else b"\0" + struct.pack("!HHIH", TYPE_OPT, 1232, 0, 0)
        authority = [] if records or rcode not in (0, RCODES["NXDOMAIN"]) else [soa(entry)]
        body = b"".join(records + authority)
        room = 65535 if protocol == "tcp" else max(512, size or 0)
        cut = end + len(body) + len(opt) > room or (
            protocol == "udp" and entry is not None and entry.truncate)
        if cut:
            records, authority, body = [], [], b""
        wanted = struct.unpack("!H", message[2:4])[0]
        flags = 0x8480 | (wanted & 0x7910) | (0x0200 if cut else 0) | (rcode & 15)
        head = message[:2] + struct.pack("!HHHHH", flags, 1, len(records), len(authority),
                                         1 if opt else 0)
        return head + message[12:end] + body + opt

    async def serve_tcp(self, reader, writer):
        peer = writer.get_extra_info("peername")
        try:
            while True:
                (size,) = struct.unpack("!H", await reader.readexactly(2))
                reply = await self.reply(await reader.readexactly(size), "tcp", peer)
                if reply is not None:
                    writer.write(struct.pack("!H", len(reply)) + reply)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class Udp(asyncio.DatagramProtocol):
    def __init__(self, server):
        self.server = server
        self.transport = None
        self.tasks = set()  # asyncio itself holds tasks only weakly

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        task = asyncio.ensure_future(self.answer(data, addr))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def answer(self, data, addr):
        reply = await self.server.reply(data, "udp", addr)
        if reply is not None:
            self.transport.sendto(reply, addr)


def sockets_open(address, port):
    """A UDP and a TCP socket on one port; with port 0 on one that is free for both."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for attempt in range(20):
        tcp = socket.socket(family, socket.SOCK_STREAM)
        udp = socket.socket(family, socket.SOCK_DGRAM)
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            tcp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            tcp.bind((address, port))
            udp.bind((address, tcp.getsockname()[1]))
            return tcp, udp
        except OSError:
            tcp.close()
            udp.close()
            if port != 0 or attempt == 19:
                raise
    raise AssertionError


async def run(options):
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    server = Server(options.zone, options.log)
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    listeners = []
    lines = []
    for address in options.listen or ["127.0.0.1"]:
        tcp, udp = sockets_open(address, options.port)
        listeners.append(await asyncio.start_server(server.serve_tcp, sock=tcp))
        await loop.create_datagram_endpoint(lambda: Udp(server), sock=udp)
        lines.append(f"listening {address} {udp.getsockname()[1]}")
    if options.pid:
        with open(options.pid, "w", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    print("\n".join(lines), flush=True)
    await stop.wait()
    for listener in listeners:
        listener.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--listen", action="append", help="address, 127.0.0.1 if missing")
    parser.add_argument("--port", type=int, default=53)
    parser.add_argument("--zone", required=True, help="zone file")
    parser.add_argument("--log", help="one line for each question is added here")
    parser.add_argument("--pid", help="where the process id is written, once it answers")
    try:
        asyncio.run(run(parser.parse_args()))
    except (ZoneError, OSError) as error:
        print(f"dnsd: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
