"""Looks for keys where none may be: memory of processes outside the locked areas, files, answers.

casebed.py and bed.sh call it for every egress that has a vault, before they stop it (memory) and
after (files); leak.py does so in the middle of crashes, and shows that a planted copy is found. By
hand:

    leakscan.py note KEYS VAULT      adds the keys of the vault file VAULT to the file KEYS
    leakscan.py memory KEYS PID      searches egress PID and its children
    leakscan.py files KEYS PATH...   searches files and folders

A key is looked for in every spelling, letter case ignored, whole and in pieces that spell eight
bytes of it. Keys of tests are random, so that no piece of one is anywhere by chance.
"""
import base64
import html
import json
import mmap
import os
import re
import sys
from urllib.parse import quote

PIECE = 8
CHUNK = 16 << 20
# Not memory but room for notes about it: AddressSanitizer's shadow.
MAPPING_MAX = 1 << 36
# The secret areas: by memfd_secret, else by a locked memfd with these names.
SECRET_NAMES = ("/secretmem", "/memfd:secmem", "/memfd:egress-secret", "/memfd:egress-vault")
PRESENT = 0xC0  # of the last byte of a pagemap entry: in memory, or swapped out


def base64_at(key, shift, altchars=None):
    """The characters all of whose bits come from the key, which stands behind `shift` bytes."""
    text = base64.b64encode(b"\0" * shift + key, altchars).rstrip(b"=")
    first = (8 * shift + 5) // 6
    return text[first:8 * (shift + len(key)) // 6]


def spellings(key):
    """{name: text} of a key; several may be the same."""
    text = key.decode("latin1")
    out = {"raw": key, "hex": key.hex().encode()}
    for shift in range(3):
        out[f"base64 at {shift}"] = base64_at(key, shift)
        out[f"base64url at {shift}"] = base64_at(key, shift, b"-_")
    out["percent"] = b"".join(b"%%%02x" % c for c in key)
    out["percent where needed"] = quote(key, safe="").encode()
    out["json"] = b"".join(b"\\u%04x" % c for c in key)
    out["json where needed"] = json.dumps(text).encode()[1:-1]
    out["html decimal"] = b"".join(b"&#%d;" % c for c in key)
    out["html hexadecimal"] = b"".join(b"&#x%x;" % c for c in key)
    out["html where needed"] = html.escape(text).encode("latin1")
    return out


class Needles:
    """What is looked for. whole: only complete spellings, no pieces."""

    def __init__(self, keys, whole=False):
        self.forms = []  # (name, text, bytes that make a find)
        self.words = {}  # four bytes as a number: [(form, offset)]
        known = set()
        for n, key in enumerate(keys):
            for name, text in spellings(key).items():
                low = text.lower()
                if len(low) < PIECE or low in known:
                    continue
                known.add(low)
                # Eight bytes of the key take more where each is escaped.
                least = len(low) if whole else PIECE * max(1, len(low) // len(key))
                self.add(f"key {n}, {name}", low, least)

    def add(self, name, low, least):
        form = len(self.forms)
        self.forms.append((name, low, least))
        for at in range(len(low) - 3):
            word = int.from_bytes(low[at:at + 4], sys.byteorder)
            self.words.setdefault(word, []).append((form, at))

    def find(self, data):
        """[(offset, what)]. Every piece of eight bytes holds four that begin at a multiple of four,
        wherever it lies: so only those are compared with the table."""
        low = bytes(data).lower()
        low += b"\0" * (-len(low) % 4)
        found, last = [], -1
        for word in set(memoryview(low).cast("I")) & self.words.keys():
            text = word.to_bytes(4, sys.byteorder)
            at = low.find(text)
            while at >= 0:
                if at % 4 == 0:
                    found += self.around(low, at, self.words[word])
                at = low.find(text, at + 1)
        out = []
        for start, end, name in sorted(found):
            if end > last:
                out.append((start, f"{end - start} bytes of {name}"))
                last = end
        return out

    def around(self, low, at, places):
        """[(from, to, name)] of the matches that are long enough around four equal bytes."""
        for form, offset in places:
            name, text, least = self.forms[form]
            start, end = at, at + 4
            back = offset
            while back > 0 and start > 0 and low[start - 1] == text[back - 1]:
                start, back = start - 1, back - 1
            ahead = offset + 4
            while ahead < len(text) and end < len(low) and low[end] == text[ahead]:
                end, ahead = end + 1, ahead + 1
            if end - start >= least:
                yield start, end, name


# --- processes ---

class Mapping:
    def __init__(self, line):
        span, self.rights, _, _, inode, *rest = line.split(None, 5)
        self.start, self.end = (int(x, 16) for x in span.split("-"))
        self.inode = int(inode)
        self.name = rest[0].strip() if rest else ""
        self.flags, self.anonymous, self.resident = (), 0, 0

    @property
    def is_secret(self):
        """One of the secret areas, and left out of core dumps."""
        return self.name.startswith(SECRET_NAMES) and "dd" in self.flags

    @property
    def is_locked(self):
        return "lo" in self.flags

    @property
    def has_own_bytes(self):
        """Not: unreadable, the kernel's, or the unchanged bytes of a file."""
        if "r" not in self.rights or self.name.startswith(("[v", "/dev/zero")):
            return False
        if self.end - self.start > MAPPING_MAX:
            return False
        return self.anonymous > 0 or "s" in self.rights or not self.inode


def mappings(pid):
    out = []
    with open(f"/proc/{pid}/smaps") as f:
        for line in f:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                out.append(Mapping(line))
            elif line.startswith("Anonymous:"):
                out[-1].anonymous = int(line.split()[1])
            elif line.startswith("VmFlags:"):
                out[-1].flags = tuple(line.split()[1:])
    return out


def shared_parts(pid, m):
    """(address, bytes) of a shared mapping: also pages that only a process before it touched."""
    fd = os.open(f"/proc/{pid}/map_files/{m.start:x}-{m.end:x}", os.O_RDONLY)
    try:
        at, end = 0, os.fstat(fd).st_size
        while at < end:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:  # no more of it
                break
            stop = min(os.lseek(fd, at, os.SEEK_HOLE), at + CHUNK)
            yield m.start + at, os.pread(fd, stop - at, at)
            at = stop
    finally:
        os.close(fd)


def private_parts(pid, m):
    """(address, bytes) of the pages that the process has touched."""
    page = mmap.PAGESIZE
    with open(f"/proc/{pid}/pagemap", "rb", 0) as f:
        entries = os.pread(f.fileno(), (m.end - m.start) // page * 8, m.start // page * 8)
    marks = bytes(1 if b & PRESENT else 0 for b in entries[7::8])
    with open(f"/proc/{pid}/mem", "rb", 0) as mem:
        at = marks.find(1)
        while at >= 0:
            end = marks.find(0, at)
            end = min(end if end >= 0 else len(marks), at + CHUNK // page)
            yield m.start + at * page, os.pread(mem.fileno(), (end - at) * page,
                                                m.start + at * page)
            at = marks.find(1, end)


class Seen:
    """What a search went through."""

    def __init__(self):
        self.found, self.secret, self.unlocked, self.bytes = [], 0, 0, 0

    def note(self, what, hits):
        for at, text in hits:
            self.found.append(f"{what}+{at:#x}: {text}")


def search_process(pid, needles, seen):
    """Every byte that is its own, but the secret areas."""
    for m in mappings(pid):
        if m.is_secret:
            seen.secret += 1
            seen.unlocked += not m.is_locked
            continue
        if not m.has_own_bytes:
            continue
        shared = "s" in m.rights and m.inode
        tail, behind = b"", None
        for address, part in (shared_parts if shared else private_parts)(pid, m):
            seen.bytes += len(part)
            join = tail if address == behind else b""
            seen.note(f"memory of {pid} {m.name or 'anonymous'} {address - len(join):#x}",
                      needles.find(join + part))
            tail, behind = part[-512:], address + len(part)


def family(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [pid, *(int(x) for x in f.read().split())]


def search_memory(pid, keys, seen=None):
    """Of egress, supervisor and worker."""
    seen = seen or Seen()
    needles = Needles(keys)
    for one in family(pid):
        try:
            search_process(one, needles, seen)
        except (FileNotFoundError, ProcessLookupError):
            if one == pid or os.path.exists(f"/proc/{one}"):
                raise  # else it was the child that reads a vault file: its memory is gone with it
    return seen


# --- files ---

def search_files(paths, keys, seen=None):
    seen = seen or Seen()
    needles = Needles(keys)
    for path in paths:
        for folder, _, names in os.walk(path) if os.path.isdir(path) else [("", (), [path])]:
            for name in names:
                search_file(os.path.join(folder, name), needles, seen)
    return seen


def search_file(path, needles, seen):
    if os.path.islink(path) or not os.path.isfile(path):
        return
    with open(path, "rb") as f:
        tail = b""
        while part := f.read(CHUNK):
            seen.bytes += len(part)
            seen.note(path, needles.find(tail + part))
            tail = part[-512:]


# --- keys ---

VALUE = re.compile(r"""(?:^|[\s{,"'])["']?(value|path)["']?\s*:\s*
                       ("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,}\]]+)""", re.X)


def keys_of(path):
    """The credentials of a vault file, JSON or the plain YAML that tests write. Not those of which
    a part stands elsewhere in it, as in a placeholder: that part is no secret."""
    out = []
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            text = f.read(1 << 20)
    except OSError:
        return out
    public = VALUE.sub(" ", text).lower()
    for kind, value in VALUE.findall(text):
        try:
            value = json.loads(value) if value[0] == '"' else value.strip("'")
        except ValueError:
            continue
        if kind == "path" and value.startswith("/") and os.path.isfile(value):
            with open(value, errors="replace") as f:
                value = f.read(1 << 16).rstrip("\r\n")
        elif kind == "path":
            continue
        pieces = {value[i:i + PIECE].lower() for i in range(len(value) - PIECE + 1)}
        if pieces and not any(p in public for p in pieces):
            out.append(value.encode())
    return out


class Watch:
    """What the bed of an egress asks. vault: its vault file, or None: then there is nothing to look
    for. Keys that a client has sent are not looked for: the proxy has them from there."""

    def __init__(self, vault):
        self.vault, self.keys, self.known, self.seen = vault, [], set(), Seen()
        self.whole, self.done = None, set()

    def note(self):
        """The keys that are in the file now; it may have others later."""
        for key in keys_of(self.vault) if self.vault else ():
            if key not in self.keys:
                self.keys.append(key)
                self.whole = None

    def secret(self):
        self.note()
        return [k for k in self.keys if k not in self.known]

    def sent(self, data):
        if self.keys:
            self.known.update(k for k in self.keys if k in data)

    def got(self, request, data):
        """An answer: no whole spelling may be in it. A part may, where an origin sent just that;
        also a key that is in force no longer, or one that comes from a host without a binding:
        clients know it from here on."""
        if not self.secret():
            return
        self.whole = self.whole or Needles(self.keys, whole=True)
        if self.whole.find(data):
            now = keys_of(self.vault) if binds(self.vault, request) else ()
            self.known.update(k for k in self.secret() if k not in now)
            self.seen.note("answer", Needles(self.secret(), whole=True).find(data))

    def memory(self, pid):
        if self.secret():
            search_memory(pid, self.secret(), self.seen)
            self.done.add("memory")

    def files(self, *paths):
        if self.secret():
            search_files(paths, self.secret(), self.seen)
            self.done.add("files")

    def __str__(self):
        return (f"{len(self.secret())} keys, {len(self.known)} known to clients, "
                f"{self.seen.bytes >> 10} KiB, {self.seen.secret} secret areas left out, {self.seen.unlocked} not locked")


def binds(path, request):
    """Does the vault file bind a host that stands in the request's Host field?"""
    field = re.search(rb"(?im)^host:[ \t]*([^\r\n:]*)", request)
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            lists = re.findall(r"""["']?hosts["']?\s*:\s*\[([^]]*)""", f.read())
    except OSError:
        return True
    names = [n.strip(" \t\n\"'").lower() for x in lists for n in x.split(",")]
    host = field[1].decode("latin1").lower() if field else ""
    return any(host == n or (n.startswith("*.") and host.endswith(n[1:])) for n in names)


def noted(path):
    try:
        with open(path) as f:
            return [bytes.fromhex(x) for x in f.read().split()]
    except FileNotFoundError:
        return []


def main(argv):
    if len(argv) < 3 or argv[0] not in ("note", "memory", "files"):
        print(__doc__, file=sys.stderr)
        return 2
    what, store, *rest = argv
    keys = noted(store)
    if what == "note":
        with open(store, "a") as f:
            for path in rest:
                f.writelines(k.hex() + "\n" for k in keys_of(path) if k not in keys)
        return 0
    if not keys:
        return 0
    seen = search_memory(int(rest[0]), keys) if what == "memory" else search_files(rest, keys)
    print("\n".join(seen.found[:20]) or
          f"# leak {what}: {len(keys)} keys, {seen.bytes >> 10} KiB, {seen.secret} secret areas"
          f" ({seen.unlocked} not locked) left out")
    return 1 if seen.found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
