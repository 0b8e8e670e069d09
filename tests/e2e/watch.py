#!/usr/bin/env python3
"""`egressctl watch` over the stand-in platform: trails that come home once and whole, what is wanted
and stays in force, alarms. Lies of a server are watch_lies.py's. Protocol: docs/development.md.

# one compiler: it mostly waits for the next second.
"""
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager

import apibed
import standin
import watchbed
from apibed import main
from casebed import Failed, until as until_5, want, want_in, want_out
from standin import Lie

POLICY = {"defaultAction": "deny", "egress": [
    {"action": "allow", "target": "docs.test"}, {"action": "allow", "target": "api.model.test"}]}
KEY = "sk-" + os.urandom(16).hex()
VAULT = {"credentials": [{"name": "m", "source": {"type": "inline", "value": KEY}}],
         "bindings": [{"name": "m", "match": {"hosts": ["api.model.test"]},
                       "auth": {"type": "bearer", "credential": "m"}}]}
LIST = "(?:/v1)?/sandboxes"
REVIEWER = {"metadata": {"agent": "reviewer"}}


def until(check, what):
    until_5(check, what, 25)


@contextmanager
def platform(*args, version="1.1.1", tls=False, **env):
    """A stand-in and a watch that does not run yet."""
    top = tempfile.mkdtemp(dir=apibed.TOP[0])
    world = standin.World(top, version=version)
    env = dict(env, OPENSANDBOX_CA_FILE=world.ca) if tls else env
    watch = watchbed.Watch(top, world.url_tls if tls else world.url, world.key, *args, **env)
    try:
        yield world, watch
    finally:
        watch.kill()
        world.stop()


def vault(watch, doc=None, mode=0o600):
    path = os.path.join(watch.dir, "wanted", "keys.json")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
        json.dump(doc or VAULT, f)
    os.chmod(path, mode)
    return "keys.json"


def alarms(text):
    """(alarm, sandbox) of each."""
    return re.findall(r"alarm ([a-z-]+): (\S+):", text)


def until_alarm(watch, name, id="sbx-1", since=0):
    until(lambda: (name, id) in alarms(watch.text()[since:]) or watch.ended(), f"the alarm {name}")


def files(top):
    return [os.path.join(d, n) for d, _, names in os.walk(top) for n in names]


def case_once_takes_each_line_home_once():
    with platform(tls=True) as (world, watch):
        boxes = [world.create(f"sbx-{i}") for i in range(3)]
        for i, box in enumerate(boxes):
            box.sidecar.write(1200 * i)
        watch.once()
        for box in boxes:
            want(watch.trail(box.id), box.sidecar.trail(), f"trail of {box.id}")
        boxes[1].sidecar.write(3)
        watch.once()
        want(watch.trail("sbx-1"), boxes[1].sidecar.trail(), "trail after the second round")
        want(watch.trail("sbx-0"), boxes[0].sidecar.trail(), "trail without new lines")


def case_once_ends_whatever_the_interval():
    with platform("--interval", "1") as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"]).sidecar
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY)
        watch.once()
        want(box.policy, POLICY, "policy")


def case_all_pages_and_filters():
    with platform("--metadata", "task=T & 7=%", "--state", "Running") as (world, watch):
        for i in range(230):
            world.create(f"sbx-{i}", {"task": "T & 7=%"})
        world.create("other", {"task": "T"})
        world.create("still", {"task": "T & 7=%"}, state="Paused")
        watch.once()
        got = [f for f in watch.files() if f.startswith("audit/")]
        want(got, sorted(f"audit/sbx-{i}.jsonl" for i in range(230)), "trails")


def case_killed_at_any_time_it_goes_on_where_it_was():
    with platform() as (world, watch):
        box = world.create("sbx-1").sidecar
        for i in range(5):
            box.write(700)
            watch.run()
            until(lambda n=i: len(watch.trail("sbx-1")) > n * 200000, "some of the trail")
            watch.kill()
            # What a kill may leave of a write.
            with open(os.path.join(watch.dir, "audit", "sbx-1.jsonl"), "ab") as f:
                f.write(b'{"v":1,"seq":')
        watch.run()
        until(lambda: watch.trail("sbx-1") == box.trail(), "the whole trail, each line once")
        watch.stop()
        want([f for f in watch.files() if f.startswith("audit/sbx-1~")], [], "other files")
        want(alarms(watch.text()), [], "alarms")


def case_one_works_in_a_folder():
    with platform() as (world, watch):
        world.create("sbx-1")
        watch.run()
        until(lambda: watch.trail("sbx-1"), "the trail")
        first, watch.p = watch.p, None
        try:
            want_in("another one is at work", watch.once(2), "what the second says")
        finally:
            watch.p = first
        watch.stop()


def case_wanted_is_put_in_force_and_stays():
    with platform() as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"]).sidecar
        other = world.create("sbx-2", {"agent": "writer"}).sidecar
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY, vault=vault(watch))
        watch.run()
        until(lambda: box.vault, "the vault")
        want(box.policy, POLICY, "policy")
        want(box.vault["credentials"], VAULT["credentials"], "credentials")
        want((other.revision, other.vault), (1, None), "what nobody wants anything of")
        watch.stop()
        # A restart of ours sends nothing again.
        seen = len(world.calls("sbx-1"))
        watch.once()
        want([c for c in world.calls("sbx-1")[seen:] if not c.startswith("GET ")], [], "changes")
        # Another vault does.
        doc = json.loads(json.dumps(VAULT))
        doc["credentials"][0]["source"]["value"] = KEY[::-1]
        vault(watch, doc)
        watch.once()
        want(box.vault["credentials"], doc["credentials"], "credentials")
        for path in files(watch.dir) + [watch.log]:
            if not path.endswith("keys.json"):
                with open(path, "rb") as f:
                    text = f.read()
                want_out(KEY[:12].encode(), text, path)
                want_out(world.key.encode(), text, path)
                want_out(box.token.encode(), text, path)


def case_a_vault_in_the_way_of_a_policy_goes_first():
    with platform() as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"],
                           policy={"defaultAction": "allow", "egress": []}).sidecar
        box.vault = {"revision": 1, "credentials": [], "bindings": [
            {"name": "old", "match": {"hosts": ["gone.test"]}, "auth": {"type": "bearer"}}]}
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY, vault=vault(watch))
        watch.once()
        want(box.policy, POLICY, "policy")
        want(box.vault["bindings"], VAULT["bindings"], "bindings")


def case_wanted_is_back_after_a_resume():
    with platform() as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"]).sidecar
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY, vault=vault(watch))
        watch.run()
        until(lambda: box.vault and watch.trail("sbx-1") == box.trail(), "what is wanted")
        world.pause("sbx-1")
        before = watch.trail("sbx-1")
        time.sleep(1.5)  # so that a list has seen it
        world.resume("sbx-1", fresh=True)
        until(lambda: box.policy == POLICY, "the policy")
        until(lambda: box.vault, "the vault")
        until(lambda: watch.trail("sbx-1~2") == box.trail(), "the new trail")
        want(watch.trail("sbx-1"), before, "the old trail")
        watch.stop()
        want(alarms(watch.text()), [], "alarms")


def case_wanted_is_read_again():
    with platform() as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"]).sidecar
        watch.run()
        until(lambda: watch.trail("sbx-1"), "the trail")
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY)
        watch.p.send_signal(1)
        until(lambda: box.policy == POLICY, "the policy")
        size = len(watch.text())
        watch.wanted("reviewer", select=REVIEWER, policy={"defaultAction": "perhaps"})
        watch.p.send_signal(1)
        watch.says("what was wanted stays", since=size)
        watch.stop()
        watch.once(2)


def case_another_vault_does_not_wait_for_the_answer_about_the_one_before():
    with platform() as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"]).sidecar
        path = "/sbx-1/proxy/18080/credential-vault"
        world.http.lie("POST", path, Lie(silent=True), times=1)
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY, vault=vault(watch))
        watch.run()
        until(lambda: world.http.seen("POST", path), "the first vault")
        doc = json.loads(json.dumps(VAULT))
        doc["credentials"][0]["source"]["value"] = KEY[::-1]
        vault(watch, doc)
        watch.p.send_signal(1)
        until(lambda: box.vault and box.vault["credentials"] == doc["credentials"], "the second")
        watch.stop()
        want(alarms(watch.text()), [], "alarms")


def case_the_examples_are_good():
    """docs/examples: the wanted policy is put in force, and systemd has nothing to say."""
    docs = os.path.join(apibed.SRC, "docs", "examples")
    with platform() as (world, watch):
        box = world.create("sbx-1", {"engagement": "acme", "task": "T-1"}).sidecar
        shutil.copy(os.path.join(docs, "wanted-sites.yaml"), os.path.join(watch.dir, "wanted"))
        binding = {**VAULT["bindings"][0], "match": {"hosts": ["api.model.example"]}}
        os.rename(os.path.join(watch.dir, "wanted", vault(watch, {**VAULT, "bindings": [binding]})),
                  os.path.join(watch.dir, "wanted", "acme-vault.json"))
        watch.run()
        until(lambda: box.vault, "the vault")
        want([r["target"] for r in box.policy["egress"]][-2:], ["acme.example", "*.acme.example"],
             "sites")
        with open(os.path.join(docs, "egress-watch.service")) as f:
            unit = f.read()
        command = re.search(r"^ExecStart=(\S+) (.*)$", unit, re.M)
        options = subprocess.run([apibed.CTL, "watch", "--help"], capture_output=True, text=True,
                                 check=True).stdout
        for option in re.findall(r"--[a-z-]+", command[2]):
            want_in(option, options, "options")
        if shutil.which("systemd-analyze"):
            path = os.path.join(watch.top, "egress-watch.service")
            with open(path, "w") as f:
                f.write(unit.replace(command[1], apibed.CTL))
            p = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True,
                               check=False)
            want((p.returncode, p.stderr), (0, ""), "systemd-analyze")


def case_wrong_wanted_files_end_the_start():
    with platform() as (world, watch):
        world.create("sbx-1", REVIEWER["metadata"])
        for doc, part in (
                ({"select": REVIEWER, "policy": POLICY, "polcy": {}}, "polcy"),
                ({"select": {}, "policy": POLICY}, "expected `select"),
                ({"select": {"metadata": {"n": 7}}, "policy": POLICY}, "in quotes"),
                ({"select": REVIEWER, "policy": {"egress": [{"action": "log", "target": "x.test"}]}},
                 "log")):
            watch.wanted("a", **doc)
            want_in(part, watch.once(2), "what it says")
        watch.wanted("a", select=REVIEWER, policy=POLICY, vault=vault(watch, mode=0o640))
        want_in("expected mode 0600", watch.once(1), "what it says")
        want(world.boxes["sbx-1"].sidecar.vault, None, "vault")


@contextmanager
def webhook():
    got = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if len(got) == 1 else 204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/alarm", got
    server.shutdown()
    server.server_close()


def case_alarm_chain_and_webhook():
    with webhook() as (url, got), platform("--webhook", url) as (world, watch):
        box = world.create("sbx-1").sidecar
        box.write(10)
        watch.run()
        until(lambda: watch.trail("sbx-1") == box.trail(), "the trail")
        # Somebody writes the past anew.
        box.lines[5] = box.lines[5].replace(b"docs.test", b"evil.test")
        box.prev = "a" * 64
        box.write(2)
        until_alarm(watch, "chain")
        # The first try was refused.
        until(lambda: len(got) == 2, "the webhook")
        want((got[1]["alarm"], got[1]["sandbox"]), ("chain", "sbx-1"), "what it got")
        watch.stop()
        want(alarms(watch.text()).count(("chain", "sbx-1")) >= 1, True, "alarm")


def new_trail(lines):
    """A sidecar that begins anew without a pause, with so many lines more than the one before."""
    with platform("--interval", "1") as (world, watch):
        box = world.create("sbx-1").sidecar
        box.write(10)
        watch.run()
        until(lambda: watch.trail("sbx-1") == box.trail(), "the trail")
        box.start()
        box.write(10 + lines)
        until(lambda: watch.trail("sbx-1~2") == box.trail(), "the new trail")
        watch.stop()
        want(alarms(watch.text()), [], "alarms")


def case_a_new_trail_of_as_many_lines_is_noticed():
    new_trail(0)


def case_a_new_trail_that_is_longer_is_no_alarm():
    new_trail(5)


def case_alarm_chain_of_a_copy_that_was_changed_meanwhile():
    with platform("--interval", "1") as (world, watch):
        box = world.create("sbx-1").sidecar
        box.write(10)
        watch.run()
        until(lambda: watch.trail("sbx-1") == box.trail(), "the trail")
        watch.stop()
        path = os.path.join(watch.dir, "audit", "sbx-1.jsonl")
        with open(path, "rb") as f:
            lines = f.read().splitlines(True)
        lines[-1] = lines[-1].replace(b"docs.test", b"evil.test")
        with open(path, "wb") as f:
            f.writelines(lines)
        box.write(1)
        watch.run()
        until_alarm(watch, "chain")
        until(lambda: watch.trail("sbx-1~2") == box.trail(), "the whole trail beside it")


def case_alarm_lost_lines():
    with platform() as (world, watch):
        box = world.create("sbx-1").sidecar
        box.write(10)
        watch.once()
        box.write(10)
        box.lose(15)
        watch.once(1)
        want(alarms(watch.text()), [("lost-lines", "sbx-1")], "alarms")
        want(watch.trail("sbx-1~2"), b"".join(box.lines[14:]), "what is left")
        watch.once()


def case_alarm_lost_lines_at_the_end():
    with platform("--interval", "2") as (world, watch):
        quiet, box = world.create("sbx-0").sidecar, world.create("sbx-1").sidecar
        watch.run()
        until(lambda: watch.trail("sbx-1") == box.trail() and
              watch.trail("sbx-0") == quiet.trail(), "the trails")
        until(lambda: world.calls("sbx-0")[-2:] == ["GET /audit"] * 2, "a look without lines")
        box.write(5000)
        until(lambda: len(watch.trail("sbx-1")) > 100000, "some of it")
        world.delete("sbx-1")
        world.delete("sbx-0")
        until_alarm(watch, "lost-lines")
        watch.says("sbx-0: it has ended; its trail is here up to line 1")
        watch.stop()
        want(alarms(watch.text()), [("lost-lines", "sbx-1")], "alarms")


def case_alarm_lost_lines_of_one_that_stopped_before_its_end():
    """Its way is gone first, then the server says that it failed, then nothing."""
    with platform() as (world, watch):
        box = world.create("sbx-1")
        box.sidecar.write(5)
        watch.run()
        until(lambda: watch.trail("sbx-1") == box.sidecar.trail(), "the trail")
        world.http.lie("*", "/sbx-1/.*", Lie(status=502, doc={}))
        asked = len(world.calls("sbx-1"))
        until(lambda: len(world.calls("sbx-1")) > asked, "a failure")
        box.move("Failed")
        lists = len(world.list_times)
        until(lambda: len(world.list_times) > lists, "a list with it")
        world.delete("sbx-1")
        until(lambda: "it has ended" in watch.text(), "its end")
        watch.stop()
        want(alarms(watch.text()), [("lost-lines", "sbx-1")], "alarms")


def case_one_more_look_when_it_is_not_listed_any_more():
    with platform("--interval", "600", "--metadata", "agent=reviewer") as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"])
        watch.run()
        until(lambda: world.calls("sbx-1")[-2:] == ["GET /audit"] * 2, "a look without lines")
        box.sidecar.write(1500)
        box.metadata = {}
        until(lambda: watch.trail("sbx-1") == box.sidecar.trail(), "the trail")
        watch.says("sbx-1: it has ended; its trail is here up to line 1501")
        until(lambda: not [x for x in watch.files() if "state/" in x], "the end of its state")
        watch.stop()
        want(alarms(watch.text()), [], "alarms")


def case_alarm_foreign_sidecar():
    with platform() as (world, watch):
        world.create("old", version="0.0.9")
        world.create("new", version="0.10.0-rc.1")
        world.create("sbx-1", REVIEWER["metadata"]).sidecar.id = "somebody-else"
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY, vault=vault(watch))
        world.http.lie("GET", "/none/proxy/18080/status", Lie(status=404, doc={}))
        world.create("none")
        text = watch.once(1)
        want(sorted(alarms(text)), [("foreign-sidecar", x) for x in ("none", "old", "sbx-1")],
             "alarms")
        want(world.calls("sbx-1"), ["GET /status"], "what was asked of somebody else's")


def case_alarm_policy_differs():
    with platform("--interval", "1") as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"]).sidecar
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY)
        watch.run()
        until(lambda: world.calls("sbx-1").count("GET /policy") == 2, "the look after it was sent")
        box.policy = {"defaultAction": "allow", "egress": []}
        until_alarm(watch, "policy-differs")
        until(lambda: box.policy == POLICY, "the policy")
        watch.says("policy-differs is over", seconds=40)
        watch.stop()
        want(alarms(watch.text()), [("policy-differs", "sbx-1")], "alarms")
        world.http.lie("PUT", "/sbx-1/proxy/18080/policy", Lie(status=400, doc={
            "code": "above_ceiling", "message": "docs.test"}))
        box.policy = {"defaultAction": "allow", "egress": []}
        want_in("above_ceiling: docs.test", watch.once(1), "what it says")


def case_alarm_policy_differs_by_its_vault():
    with platform("--interval", "1") as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"]).sidecar
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY, vault=vault(watch))
        watch.run()
        until(lambda: "GET /credential-vault" in world.calls("sbx-1"), "a look at the vault")
        box.vault = None
        until_alarm(watch, "policy-differs")
        until(lambda: box.vault, "the vault")
        watch.says("policy-differs is over")
        # One that is refused is an alarm once, however often the policy is looked at.
        world.http.lie("POST", "/sbx-1/proxy/18080/credential-vault", Lie(status=400, doc={
            "code": "invalid_vault", "message": "no"}))
        size, box.vault = len(watch.text()), None
        until_alarm(watch, "policy-differs", since=size)
        seen = world.calls("sbx-1").count("GET /policy")
        until(lambda: world.calls("sbx-1").count("GET /policy") > seen + 1, "looks at the policy")
        watch.stop()
        want_out("is over", watch.text()[size:], "what it says")
        want(len(alarms(watch.text()[size:])), 1, "alarms")


def somebody_changes_the_vault(box):
    box.vault = {**box.vault, "revision": 2, "bindings": []}


def vault_is_ours(box):
    return bool(box.vault) and box.vault["bindings"] == VAULT["bindings"]


def case_alarm_policy_differs_by_a_change_of_its_vault():
    with platform("--interval", "1") as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"]).sidecar
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY, vault=vault(watch))
        watch.run()
        until(lambda: world.calls("sbx-1").count("GET /credential-vault") > 1, "looks at the vault")
        want(alarms(watch.text()), [], "alarms of our own vault")
        somebody_changes_the_vault(box)
        until_alarm(watch, "policy-differs")
        watch.says("somebody else changed the vault: sent again")
        until(lambda: vault_is_ours(box), "the vault")
        watch.says("policy-differs is over")
        watch.stop()
        want(len(alarms(watch.text())), 1, "alarms")


def case_alarm_policy_differs_by_a_change_meanwhile():
    """Of the vault, while watch did not run; or before it noticed such a thing at all."""
    with platform("--interval", "1") as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"]).sidecar
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY, vault=vault(watch))
        watch.once()
        somebody_changes_the_vault(box)
        want(alarms(watch.once(1)), [("policy-differs", "sbx-1")], "alarms")
        want(vault_is_ours(box), True, "the vault is ours again")
        # A state without it: the vault may be anybody's, which nobody has to be told.
        path = os.path.join(watch.dir, "state", "sbx-1")
        with open(path, encoding="ascii") as f:
            words = f.read().split()
        with open(path, "w", encoding="ascii") as f:
            f.write(" ".join(words[:2]))
        somebody_changes_the_vault(box)
        watch.once()
        want(vault_is_ours(box), True, "the vault is sent anew")
        seen = len(world.calls("sbx-1"))
        watch.once()
        want([c for c in world.calls("sbx-1")[seen:] if not c.startswith("GET ")], [], "changes")


def nearly_full(watch, box):
    """The first of its lines, as if they had been collected: less than a page below a MiB."""
    box.write(280, user_agent="x" * 4000)
    kept = b"".join(box.lines[:200])
    for name, text in (("audit/sbx-1.jsonl", kept), ("state/sbx-1~trail", box.instance.encode())):
        path = os.path.join(watch.dir, name)
        os.mkdir(os.path.dirname(path))
        with open(path, "wb") as f:
            f.write(text)
    return kept


def case_alarm_lost_lines_of_a_trail_that_is_full():
    """Nothing more of it is kept, by the next process neither; all else goes on, and other trails."""
    with platform("--trail-max", "1", "--interval", "1") as (world, watch):
        box, other = (world.create(i, REVIEWER["metadata"]).sidecar for i in ("sbx-1", "sbx-2"))
        kept, rest = nearly_full(watch, box), len(box.lines)
        box.lose(210)  # so that the alarm is on already
        watch.run()
        until_alarm(watch, "lost-lines")
        watch.says("its trail has reached --trail-max (1 MiB): nothing more is kept")
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY)
        watch.p.send_signal(1)
        until(lambda: box.policy == POLICY, "the policy")
        until(lambda: watch.trail("sbx-2") == other.trail(), "the trail of the other")
        # What begins anew is no other file, and no alarm after a restart.
        box.start()
        box.write(rest)
        watch.says("sbx-1: a new trail begins")
        pages = world.calls("sbx-1").count("GET /audit")
        until(lambda: box.policy == POLICY and
              world.calls("sbx-1").count("GET /audit") > pages + 1, "two pages")
        watch.stop()
        want(alarms(watch.text()), [("lost-lines", "sbx-1")] * 2, "alarms")
        want_out("lost-lines is over", watch.text(), "what it says")
        want(alarms(watch.once(1)), [("lost-lines", "sbx-1")], "alarms of the next process")
        want(watch.trails("sbx-1"), [kept], "what is here")
        watch.args[watch.args.index("--trail-max") + 1] = "4"
        watch.once()
        want(watch.trails("sbx-1"), [kept, box.trail()], "what is here with a larger limit")
        watch.args[watch.args.index("--trail-max") + 1] = "0"
        want_in('--trail-max "0": expected 1 to', watch.once(2), "what it says")


def case_the_end_of_a_trail_that_is_full_is_not_here():
    with platform("--trail-max", "1", "--metadata", "agent=reviewer") as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"])
        nearly_full(watch, box.sidecar)
        watch.run()
        until_alarm(watch, "lost-lines")
        box.metadata = {}
        until(lambda: not [x for x in watch.files() if "state/" in x], "the end of its state")
        watch.stop()
        want_out("sbx-1: it has ended", watch.text(), "what it says")


def case_alarm_traffic_while_paused():
    with platform("--interval", "1", version="0.2.3") as (world, watch):
        box = world.create("sbx-1").sidecar
        watch.run()
        until(lambda: watch.trail("sbx-1") == box.trail(), "the trail")
        world.pause("sbx-1")
        time.sleep(2)  # so that lists have seen it
        box.write(kind="lifecycle")
        until(lambda: watch.trail("sbx-1") == box.trail(), "the trail")
        lists = world.figures()["lists"]
        until(lambda: world.figures()["lists"] > lists + 2, "lists after it")
        want(alarms(watch.text()), [], "alarms of a line that is no traffic")
        line = json.loads(box.write())
        until_alarm(watch, "traffic-while-paused")
        world.resume("sbx-1")
        box.write()
        until(lambda: watch.trail("sbx-1") == box.trail(), "the trail")
        watch.says(f"line {line['seq']} of its trail")
        watch.says("traffic-while-paused is over")
        watch.stop()
        want(alarms(watch.text()), [("traffic-while-paused", "sbx-1")], "alarms")


def case_a_key_that_is_refused_is_not_sent_again_and_again():
    with platform() as (world, watch):
        world.create("sbx-1")
        key, world.key = world.key, "another"
        watch.run()
        watch.says("INVALID_API_KEY")
        world.figures_clear()
        time.sleep(5)
        asked = world.figures()["lists"]
        if asked > 3:
            raise Failed(f"asked {asked} times in five seconds")
        world.key = key
        until(lambda: watch.trail("sbx-1"), "the trail")
        watch.stop()
        watch.p = None
        world.key = "another"
        want_in("INVALID_API_KEY", watch.once(2), "what --once says")


def case_another_key_counts_after_sighup():
    """At once, also where the server wanted to be left alone, or is just being asked."""
    with platform() as (world, watch):
        box = world.create("sbx-1").sidecar
        world.http.lie("GET", LIST, Lie(
            status=429, doc={"code": "X", "message": "slow"}, fields=[("Retry-After", "300")]))
        watch.run()
        watch.says("429 X: slow")
        world.http.forget()
        world.http.lie("GET", LIST, Lie(silent=True))
        watch.key("a-third")
        asked = len(world.http.requests)
        watch.p.send_signal(1)
        until(lambda: len(world.http.requests) > asked, "a list with the new key")
        want(world.http.requests[-1].field("OPEN-SANDBOX-API-KEY"), "a-third", "the key")
        world.http.forget()
        right, world.key = world.key, "a-fourth"
        watch.key("a-fourth")
        watch.p.send_signal(1)
        until(lambda: watch.trail("sbx-1") == box.trail(), "the trail")
        for text in ("k-two\nk-lines", "", None):
            size, asked = len(watch.text()), len(world.list_times)
            watch.key(text)
            watch.p.send_signal(1)
            watch.says("the key before counts", since=size)
            until(lambda n=asked: len(world.list_times) > n + 1, "lists with it")
        want_out("k-lines", watch.text(), "the log")
        box.write(3)
        until(lambda: watch.trail("sbx-1") == box.trail(), "the trail")
        watch.stop()
        want(alarms(watch.text()), [], "alarms")
        want_in("expected the API's key", watch.once(2), "what a start says without it")
        for key in (right, "a-third", "a-fourth"):
            want_out(key, watch.text(), "the log")


def case_retry_after_is_obeyed():
    with platform() as (world, watch):
        world.create("sbx-1")
        world.http.lie("GET", LIST, Lie(
            status=429, doc={"code": "X", "message": "slow"}, fields=[("Retry-After", "5")]),
            times=1)
        watch.run()
        watch.says("429 X: slow")
        world.figures_clear()
        time.sleep(4)
        want(world.figures()["lists"], 0, "lists within four seconds")
        until(lambda: watch.trail("sbx-1"), "the trail")
        watch.stop()


def case_an_endpoint_elsewhere_is_named_first():
    with platform() as (world, watch):
        box = world.create("sbx-1", REVIEWER["metadata"])
        watch.wanted("reviewer", select=REVIEWER, policy=POLICY, vault=vault(watch))
        box.endpoint = f"world.test:{world.shared.number}/sbx-1/proxy/18080"
        want_in("--endpoint-host", watch.once(1), "what it says")
        want(world.calls("sbx-1"), [], "what was sent to it")
        # The control: with that host it would have been sent.
        watch.args += ["--endpoint-host", "world.test"]
        with open("/etc/hosts", encoding="ascii") as f:
            if "world.test" not in f.read():
                return
        watch.once()
        want(box.sidecar.policy, POLICY, "policy")


def ctl(watch, *args, code=0):
    """egressctl with the settings of that watch in the environment."""
    env = dict(watch.env, OPENSANDBOX_URL=watch.args[4], OPENSANDBOX_API_KEY_FILE=watch.key_file)
    p = subprocess.run([watchbed.CTL, *args], env=env, capture_output=True, text=True, timeout=60)
    want(p.returncode, code, f"exit code of {args}; {p.stdout[-400:]} {p.stderr[-800:]}")
    return p.stdout, p.stderr


def case_sandboxes_and_one_in_full():
    with platform() as (world, watch):
        for i in range(40):
            world.create(f"sbx-{i}", REVIEWER["metadata"], seconds=3600).sidecar.write(2)
        world.create("still", {"agent": "writer\x1b[31m"}, state="Paused")
        out = ctl(watch, "sandboxes")[0].splitlines()
        want(out[0].split(), "ID STATE EXPIRES POLICY WRITE HOSTS VAULT READS REFUSED LAST".split(),
             "head of the table")
        rows = {line.split()[0]: line.split() for line in out[1:]}
        want(len(rows), 41, "rows")
        want((rows["sbx-7"][1], rows["sbx-7"][3:6]),
             ("Running", ["deny_all", "api.model.test", "-"]), "a row")
        want(rows["still"][1:], ["Paused"] + ["-"] * 7, "one that stands still")
        out = ctl(watch, "sandbox", "still")[0]
        want_in("metadata    agent=writer\\u001b[31m", out, "one in full")
        out = ctl(watch, "sandbox", "sbx-7")[0]
        for part in ("id          sbx-7", "state       Running", "mode        dns+nft"):
            want_in(part, out, "one in full")
        doc = json.loads(ctl(watch, "sandbox", "sbx-7", "--json")[0])
        want((doc["sandbox"]["id"], doc["status"]["sandbox"]), ("sbx-7", "sbx-7"), "JSON")
        docs = [json.loads(x) for x in ctl(watch, "sandboxes", "--json")[0].splitlines()]
        want(len(docs), 41, "lines of JSON")
        ctl(watch, "sandbox", "none", code=1)
        ctl(watch, "sandbox", "../x", code=2)
        ctl(watch, "sandbox", code=2)
        world.boxes["sbx-7"].endpoint = "127.0.0.1:9/proxy/18080"
        out = ctl(watch, "sandboxes", code=1)[0]
        want_in("connection refused", next(x for x in out.splitlines() if "sbx-7 " in x), "row")
        world.key = "another"
        want_in("INVALID_API_KEY", ctl(watch, "sandboxes", code=2)[1], "what it says")


if __name__ == "__main__":
    sys.exit(main(globals(), beside=6))
