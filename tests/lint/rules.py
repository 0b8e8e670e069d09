"""The rules: each takes a Tree and yields (file, line, why)."""
import posixpath
import re
from pathlib import PurePath

# Folders, each with those it may include, and third-party headers with their places (style 4).
MAY_INCLUDE = {
    "base": "",
    "policy": "base",
    "audit": "base policy",
    "vault": "base policy",
    "nft": "base policy",
    "dns": "base policy audit nft",
    "proxy": "base policy audit vault nft dns",
    "control": "base policy audit vault nft dns proxy",
    "ctl": "base policy audit proxy control",
}
THIRD_PARTY = [
    (r"idn2\.h", "base/hostname"),
    (r"jansson\.h", "policy/policy_json vault/vault_json vault/vault_json_ control/ ctl/"),
    (r"event2/event(_struct)?\.h", "audit/sink nft/guard_client dns/ proxy/ control/ ctl/"),
    (r"event2/.*", "audit/sink nft/guard_client dns/ control/ ctl/"),
    (r"openssl/.*", "audit/ring proxy/"),
    (r"ares\.h", "dns/"),
    (r"yaml\.h", "control/settings_yaml"),
    (r"nghttp2/.*", "proxy/h2_"),
    (r"zlib\.h", "proxy/keyed_answer"),
    (r"(libnftnl|libmnl)/.*", "nft/"),
    (r"cmocka\.h", ""),
    (r"ldns/.*", ""),
]
SYSTEM = re.compile(r"((sys|linux|net|netinet|netpacket|arpa|asm|sanitizer)/[a-z0-9_/.-]+|"
                    r"(arpa|assert|ctype|dirent|elf|endian|err|errno|fcntl|ftw|getopt|glob|grp|"
                    r"ifaddrs|inttypes|libgen|limits|malloc|math|mntent|netdb|poll|pthread|pwd|sched|"
                    r"search|setjmp|signal|spawn|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|"
                    r"stdio|stdlib|stdnoreturn|string|strings|syscall|sysexits|syslog|termios|"
                    r"time|ucontext|unistd|wait|wchar)\.h)")
FORBIDDEN = {
    "strcpy strcat stpcpy sprintf vsprintf gets": "has no bound",
    "strtok strtok_r": "changes its input",
    "atoi atol atoll atof": "cannot fail",
    "alloca": "has no limit",
    "assert": "REQUIRE is always on",
    "system popen": "starts a shell",
    "tmpnam mktemp": "can be raced",
}
FORBIDDEN_OUTSIDE_TESTS = {
    "getaddrinfo gethostbyname getnameinfo": "blocks the loop",
    "getenv secure_getenv": "only control/settings reads the environment",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
SIZE_MAX = 800


class File:
    def __init__(self, name, text):
        self.name = name
        self.text = text
        self.lines = text.splitlines()
        self.is_c = name.endswith((".c", ".h"))
        self.path = PurePath(name)
        self.folder = self.path.parts[0] if len(self.path.parts) > 1 else ""

    def line(self, n):
        return self.lines[n - 1] if 0 < n <= len(self.lines) else ""

    def code(self):
        """The lines without comments and texts, at their places."""
        def blank(m):
            return re.sub(r"[^\n]", " ", m[0])
        return TOKEN.sub(blank, self.text).splitlines()

    def includes(self):
        for i, line in enumerate(self.lines, 1):
            m = INCLUDE.match(line)
            if m:
                yield i, m[1] == "<", m[2]


class Tree:
    def __init__(self, texts):
        self.files = {name: File(name, text) for name, text in texts.items()}

    def c_files(self):
        return [f for f in self.files.values() if f.is_c]


def load(root, names):
    texts = {}
    for name in names:
        raw = (root / name).read_bytes()
        if b"\0" not in raw:
            texts[name] = raw.decode("utf-8", "surrogateescape")
    return Tree(texts)


def at_place(name, places):
    """base/hostname means hostname.c and .h, proxy/ all of it, proxy/h2_ what begins so."""
    stem = str(PurePath(name).with_suffix(""))
    return any(stem == p or (p[-1] in "/_" and stem.startswith(p)) for p in places.split())


def third_party_fault(f, header):
    for pattern, places in THIRD_PARTY:
        if re.fullmatch(pattern, header):
            if at_place(f.name, places) or f.folder == "tests":
                return None
            return f"<{header}> belongs to {places or 'tests'}"
    if not SYSTEM.fullmatch(header):
        return f"<{header}> is no system header and not in the table"
    return None


def own_fault(tree, f, header):
    path = PurePath(header)
    if header not in tree.files:
        return f'"{header}" is not a path from the root'
    to = path.parts[0]
    if f.folder == "tests" or to == f.folder:
        return None
    if to not in MAY_INCLUDE.get(f.folder, "").split():
        return f"{f.folder}/ may not include {to}/"
    if path.stem.endswith("_int"):
        return f'"{header}" is private to {to}/'
    return None


def check_includes(tree):
    """Who may include whom."""
    for f in tree.c_files():
        for line, system, header in f.includes():
            fault = third_party_fault(f, header) if system else own_fault(tree, f, header)
            if fault:
                yield f.name, line, fault


def include_kind(system, header):
    if not system:
        return 2
    return 1 if any(re.fullmatch(p, header) for p, _ in THIRD_PARTY) else 0


def check_order(tree):
    """Own header first, then system, libraries, ours, each group sorted and once."""
    for f in tree.c_files():
        rows = list(f.includes())
        own = str(f.path.with_suffix(".h"))
        if f.name.endswith(".c") and own in tree.files:
            if not rows or rows[0][2] != own:
                yield f.name, rows[0][0] if rows else 1, f'"{own}" comes first'
                continue
            rows = rows[1:]
        last_kind, last, last_line = -1, "", 0
        for line, system, header in rows:
            kind = include_kind(system, header)
            if kind < last_kind:
                yield f.name, line, "groups are system, libraries, ours"
            elif kind == last_kind and header <= last:
                yield f.name, line, f"{header} is not sorted after {last}"
            elif kind > last_kind >= 0 and line == last_line + 1:
                yield f.name, line, "an empty line between groups"
            last_kind, last, last_line = kind, header, line


def check_headers(tree):
    """#pragma once is the first line of a header that is no comment; every file opens with one."""
    for f in tree.c_files():
        if not f.text.startswith("/*"):
            yield f.name, 1, "a file opens with a comment: its job, what comes before and after"
        if f.name.endswith(".h"):
            code = [(i, x.strip()) for i, x in enumerate(f.code(), 1) if x.strip()]
            if not code or code[0][1] != "#pragma once":
                yield f.name, code[0][0] if code else 1, "#pragma once comes first"


def forbidden_words(f):
    words = dict(FORBIDDEN)
    if f.folder != "tests":
        words.update(FORBIDDEN_OUTSIDE_TESTS)
    for names, why in words.items():
        for name in names.split():
            if "getenv" in name and f.folder == "control" and f.path.stem.startswith("settings"):
                continue
            yield re.compile(rf"(?<![\w.>]){name}\s*\("), f"{name}: {why}"
    yield re.compile(r"\btypedef\s+(struct|enum|union)\b"), "no typedef for structs and enums"
    if f.folder == "proxy":
        yield re.compile(r"\b(bufferevent|evbuffer)_"), "libevent's buffers are not used in proxy/"


def check_forbidden(tree):
    """Calls that we never make."""
    for f in tree.c_files():
        words = list(forbidden_words(f))
        for i, line in enumerate(f.code(), 1):
            for pattern, why in words:
                if pattern.search(line):
                    yield f.name, i, why


def check_size(tree):
    """The hard limit of a file; functions are clang-tidy's."""
    for f in tree.c_files():
        if len(f.lines) > SIZE_MAX:
            yield f.name, 1, f"{len(f.lines)} lines, more than {SIZE_MAX}"


def check_words(tree):
    """Nothing is left for later."""
    pattern = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|\bfor now\b|\bnot (yet )?implemented\b", re.I)
    for f in tree.files.values():
        for i, line in enumerate(f.lines, 1):
            m = pattern.search(line)
            if m and (m[1] is None or m[1].isupper()):
                yield f.name, i, f"says {m[0]}"


def check_ascii(tree):
    """C sources are ASCII; tests write other bytes as escapes."""
    for f in tree.c_files():
        for i, line in enumerate(f.lines, 1):
            if not line.isascii():
                yield f.name, i, "is not ASCII"


def check_paths(tree):
    """No path of one developer's machine."""
    pattern = re.compile(r"(?<![\w.:/-])/(work|root|home|Users)/\w")
    for f in tree.files.values():
        for i, line in enumerate(f.lines, 1):
            m = pattern.search(line)
            if m:
                yield f.name, i, f"an absolute path of some machine: {m[0]}..."


def check_listed(tree):
    """A source that no meson.build names is neither built nor run."""
    for f in tree.c_files():
        if f.path.suffix != ".c":
            continue
        build = tree.files.get(str(f.path.parent / "meson.build"))
        stem = re.sub(r"^(test|fuzz|loop)_", "", f.path.stem) if f.folder == "tests" else f.path.stem
        text = build.text if build else ""
        if f"'{stem}'" not in text and f"'{f.path.name}'" not in text:
            yield f.name, 1, f"{f.path.parent}/meson.build does not name it"


# A test as docs/compatibility.md writes it: a script or a unit test's file, and a case of it; another
# case of the same file may follow it after a comma.
NAMED_TEST = re.compile(r"`((?:e2e|netns|long|clients)/[\w.-]+|(?:base|policy|audit|vault|nft|dns|proxy|"
                        r"control|ctl)/\w+|fuzz-\w+)(?:: ([\w.-]+))?`((?:, `(?!fuzz-)[\w.-]+`)*)")
STATE_WORDS = (("same", "the same"), ("better", "better on purpose"), ("absent", "absent"),
               ("API", "wait"))


def named_tests(line):
    """(file, case or None) of each test that a line names."""
    for m in NAMED_TEST.finditer(line):
        yield m[1], m[2]
        for more in re.findall(r"`([\w.-]+)`", m[3]):
            yield m[1], more


def named_file(tree, where):
    if where.startswith("fuzz-"):
        return tree.files.get(f"tests/fuzz/fuzz_{where[5:]}.c")
    if "." in where:
        return tree.files.get(f"tests/{where}")
    folder, _, name = where.partition("/")
    return tree.files.get(f"tests/unit/{folder}/test_{name}.c") or \
        tree.files.get(f"tests/unit/{folder}/loop_{name}.c")


def has_case(text, case):
    """The name as it is printed, or that of the function; scripts may put a word in front of all."""
    first, _, rest = case.partition("-")
    if f'f"{first}-{{' in text:
        case = rest
    return re.search(rf"(?<![\w-]){re.escape(case)}(?![\w-])|"
                     rf"(?<![a-zA-Z0-9]){re.escape(case.replace('-', '_'))}\b", text)


def check_compat(tree):
    """docs/compatibility.md names tests that are there, and counts its rows right."""
    f = tree.files.get("docs/compatibility.md")
    counts, total = dict.fromkeys((s for s, _ in STATE_WORDS), 0), None
    for i, line in enumerate(f.lines if f else (), 1):
        cells = [c.strip() for c in line.split(" | ")]
        if line.startswith("| ") and len(cells) > 2 and cells[1] in counts:
            counts[cells[1]] += 1
        if re.match(r"Of \d+ rows ", line):
            total = i, line
        for where, case in named_tests(line) if line.startswith("|") else ():
            test = named_file(tree, where)
            if test is None:
                yield f.name, i, f"there is no {where}"
            elif case and not has_case(test.text, case):
                yield f.name, i, f"{where} has no {case}"
    if total:
        told = [int(re.search(rf"(\d+) (?:are )?{words}|$", total[1])[1] or 0)
                for _, words in STATE_WORDS]
        if [int(total[1].split()[1]), *told] != [sum(counts.values()), *counts.values()]:
            yield f.name, total[0], f"there are {sum(counts.values())} rows, {counts}"


LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGE_TEST = re.compile(r"`(?:tests/)?((?:e2e|netns|long|unit|tools|harness)/[\w/.-]*\.(?:py|sh|c))(?:: ([\w.-]+))?`")
VARIABLE = re.compile(r"\b(?:EGRESS|AGENTIC|OPENSANDBOX_EGRESS)_[A-Z0-9_]*[A-Z0-9]\b")


def anchors(f):
    """Of a page's headings, as they are linked to."""
    heads = (m[1] for m in re.finditer(r"^#+ (.*)$", f.text, re.M))
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in heads}


def link_fault(tree, f, target):
    to, _, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(str(f.path.parent), to)) if to else f.name
    if path not in tree.files and not any(n.startswith(path + "/") for n in tree.files):
        return f"there is no {path}"
    if anchor and path.endswith(".md") and anchor not in anchors(tree.files[path]):
        return f"{path} has no heading {anchor}"
    return None


def check_mutants(tree):
    """The text that a mutant changes stands once in its file: a stale row proves nothing."""
    f = tree.files.get("tests/mutants/table")
    for i, line in enumerate(f.lines if f else (), 1):
        cells = [c.strip().replace(" \\| ", " | ") for c in re.split(r"(?<=\s)\|(?=\s)", line)]
        if line.startswith("#") or len(cells) < 3:
            continue
        source = tree.files.get(cells[1])
        n = source.text.count(cells[2]) if source else 0
        if n != 1:
            yield f.name, i, f"the text of {cells[0]} stands {n} times in {cells[1]}"


def check_pages(tree):
    """Links of pages lead somewhere; tests and variables that they name are there."""
    settings = tree.files.get("docs/configuration.md")
    known = set(VARIABLE.findall(settings.text)) if settings else set()
    for f in tree.files.values():
        if not f.name.endswith(".md"):
            continue
        for i, line in enumerate(f.lines, 1):
            for target in LINK.findall(line):
                fault = None if re.match(r"\w+:", target) else link_fault(tree, f, target)
                if fault:
                    yield f.name, i, fault
            for where, case in PAGE_TEST.findall(line):
                test = tree.files.get(f"tests/{where}")
                if test is None or (case and not has_case(test.text, case)):
                    yield f.name, i, f"there is no {where} {case}"
            for name in VARIABLE.findall(line):
                # Those of the tests are not settings.
                if name not in known and f.name != "docs/development.md":
                    yield f.name, i, f"docs/configuration.md has no {name}"


RULES = {
    "includes": check_includes,
    "order": check_order,
    "headers": check_headers,
    "forbidden": check_forbidden,
    "size": check_size,
    "words": check_words,
    "ascii": check_ascii,
    "paths": check_paths,
    "listed": check_listed,
    "compat": check_compat,
    "mutants": check_mutants,
    "pages": check_pages,
}
