"""The bed of scripts in this folder: casebed.py's, spread over two network namespaces.

`box` is a sandbox: clients and egress, one device and a default route through it. nft rules send
every TCP connection there to egress, whatever its port, but those of the worker's uid. `net` is
everything behind the router: the resolver and the recorders, with all addresses. There, rules of
its own note the destination of each SYN, so that a connection which no recorder answers is seen.

The namespaces have no names and no way to the machine's network; they end with the script. Sockets
belong to the namespace in which they were made, so the recorders are opened in `net` and serve from
threads of this process. Cases, `--list` and the report are casebed's.
"""
import ctypes
import json
import os
import socket
import subprocess
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "e2e"))
import casebed  # noqa: E402
from casebed import MARK, PORT, WORKER_UID, Failed  # noqa: E402

CLONE_NEWNET = 0x40000000
BOX = {4: "198.18.77.2", 6: "fd00:198:18::2"}
ROUTER = {4: "198.18.77.1", 6: "fd00:198:18::1"}
# (writable by an address rule, the same on a public address, a neighbour without a rule) by family
PRIVATE = {4: "10.77.0.2", 6: "fd00:77::2"}
PUBLIC = {4: "11.22.0.30", 6: "2a0e:77::30"}
NEIGHBOUR = {4: "10.77.0.3", 6: "fd00:77::3"}
casebed.MORE_ADDRESSES += (PRIVATE[6], NEIGHBOUR[6])
casebed.POLICY += [("allow", PRIVATE[6], None), ("allow", PUBLIC[4], None),
                   ("allow", PUBLIC[6], None)]
# Connections with one of these marks go to the egress of that name.
SIDECARS = {"main": (0, PORT), "rule-off": (0x81, PORT + 1), "no-open": (0x82, PORT + 2)}
SETTINGS = {"main": {}, "rule-off": {"EGRESS_READ_ONLY": "off"},
            "no-open": {"EGRESS_INTERCEPT": "off"}}

libc = ctypes.CDLL(None, use_errno=True)


def new_network():
    """Moves this thread into a new namespace, and returns a descriptor of it."""
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY)


class Inside:
    """`with Inside(fd)`: this thread is in that namespace."""

    def __init__(self, fd):
        self.fd, self.back = fd, None

    def __enter__(self):
        self.back = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        if libc.setns(self.fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    def __exit__(self, *_):
        libc.setns(self.back, CLONE_NEWNET)
        os.close(self.back)


class NetBed(casebed.Bed):
    def addresses(self):
        self.net = new_network()
        super().addresses()
        self.note_syns()
        box = new_network()
        self.run("ip", "link", "add", "wan", "type", "veth", "peer", "name", "lan", "netns",
                 f"/proc/{os.getpid()}/fd/{self.net}")
        with Inside(self.net):
            self.wire("lan", ROUTER, None)
        self.wire("wan", BOX, ROUTER)
        os.close(box)

    def wire(self, device, own, way):
        lines = ["link set lo up", f"addr add {own[4]}/30 dev {device}",
                 f"addr add {own[6]}/126 dev {device} nodad", f"link set {device} up"]
        if way:
            lines += [f"route add default via {way[4]}", f"-6 route add default via {way[6]}"]
        for line in lines:
            self.run("ip", *line.split())

    def note_syns(self):
        text = "add table inet seen\n"
        for name, kind in (("v4", "ipv4_addr"), ("v6", "ipv6_addr")):
            text += f"add set inet seen {name} {{ type {kind} . inet_service; flags dynamic; }}\n"
        text += "add chain inet seen in { type filter hook prerouting priority 0 ; }\n"
        for name, ip in (("v4", "ip"), ("v6", "ip6")):
            text += (f"add rule inet seen in tcp flags & (syn | ack) == syn add @{name} "
                     f"{{ {ip} daddr . tcp dport }}\n")
        self.run("nft", "-f", "-", text=text)

    def syns(self, forget=False):
        """{(address, port)} that the router side was asked to connect to."""
        found = set()
        with Inside(self.net):
            for name in ("v4", "v6"):
                out = subprocess.run(["nft", "-j", "list", "set", "inet", "seen", name], check=True,
                                     capture_output=True, text=True).stdout
                for row in json.loads(out)["nftables"]:
                    for element in row.get("set", {}).get("elem", []):
                        found.add(tuple(element["concat"]))
                if forget:
                    self.run("nft", "flush", "set", "inet", "seen", name)
        return found

    def certificates(self):
        super().certificates()
        names = [f"DNS:{n}" for n in casebed.NAMES]
        names += [f"IP:{a[f]}" for a in (PRIVATE, PUBLIC, NEIGHBOUR) for f in (4, 6)]
        with open(self.path("leaf.ext"), "w") as f:
            f.write(f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth\n")
        self.run("openssl", "x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                 "-CAcreateserial", "-days", "20", "-extfile", "leaf.ext", "-out", "leaf.pem")

    def resolver(self):
        with Inside(self.net):
            super().resolver()

    def redirect(self):
        rules = [f"meta skuid {WORKER_UID} return", f"meta mark {MARK} return", "oif lo return"]
        rules += [f"meta l4proto tcp meta mark {mark} redirect to :{port}"
                  for mark, port in SIDECARS.values()]
        text = "".join(f"add table {f} box\nadd chain {f} box output {{ type nat hook output "
                       "priority -100 ; }\n" + "".join(
                           f"add rule {f} box output {r}\n" for r in rules)
                       for f in ("ip", "ip6"))
        self.run("nft", "-f", "-", text=text)

    def start(self):
        self.addresses()
        self.certificates()
        self.resolver()
        with Inside(self.net):
            self.origins = casebed.Origins(self.path("leaf.pem"), self.path("leaf.key"))
        self.redirect()
        self.need("main")

    def sidecar(self, name):
        return self.need(name, port=SIDECARS[name][1], **SETTINGS[name])

    def dial_to(self, sidecar, addr, port):
        """A connection to that address, which the rules hand to that egress; None: to nobody."""
        s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET)
        s.settimeout(casebed.WAIT_S)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, SIDECARS[sidecar][0] if sidecar else MARK)
        s.connect((addr, port))
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s


def may_make_networks():
    if os.geteuid() != 0:
        return False
    pid = os.fork()
    if pid == 0:
        os._exit(0 if libc.unshare(CLONE_NEWNET) == 0 else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def main(scope):
    casebed.Bed, casebed.own_network = NetBed, may_make_networks
    return casebed.main(scope)


__all__ = ["NEIGHBOUR", "PRIVATE", "PUBLIC", "Failed", "Inside", "NetBed", "main"]
