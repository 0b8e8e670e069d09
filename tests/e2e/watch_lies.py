#!/usr/bin/env python3
"""`egressctl watch` and a server that is dead, slow, lying or half upgraded. Protocol:
docs/development.md."""
import sys

import apibed
import standin
from apibed import main, running, until
from casebed import Failed, want


def shape(doc):
    """Names and types of a document, two levels deep, without what a setting adds."""
    if not isinstance(doc, dict):
        return type(doc).__name__
    return {k: sorted(v) if isinstance(v, dict) else type(v).__name__ for k, v in doc.items()}


def case_the_sidecars_are_like_egress():
    """What the others rely on: the stand-in answers as the program does."""
    box = standin.Sidecar("sbx-1")

    def ask(method, target, body=b""):
        head = f"{method} {target} HTTP/1.1\r\nOPENSANDBOX-EGRESS-AUTH: {box.token}"
        request = standin.Request(0, head, body)
        return box.handle(request, request.path)
    with running(OPENSANDBOX_EGRESS_SANDBOX_ID="sbx-1", AGENTIC_WRITE_HOSTS="api.model.test",
                 EGRESS_READ_ONLY="1") as e:
        for method, target, body in (
                ("GET", "/policy", b""), ("PUT", "/policy", b'{"egress":[]}'),
                ("GET", "/status", b""), ("GET", "/audit/context", b""),
                ("PUT", "/audit/context", b'{"labels":{"run":"r-1"}}'),
                ("GET", "/credential-vault", b""), ("GET", "/no-such", b""),
                ("GET", "/audit?after=99", b""), ("GET", "/audit?limit=0", b"")):
            real, own = e.raw(e.request(method, target, body))[0][0], ask(method, target, body)
            want((own.status, own.doc.get("code")), (real.status, real.doc.get("code")),
                 f"{method} {target}")
            missing = {k: v for k, v in shape(real.doc).items() if shape(own.doc).get(k) != v}
            if missing and real.status == 200:
                raise Failed(f"{method} {target}: {missing} is not {shape(own.doc)}")
            for name in ("X-Egress-Instance", "X-Egress-Audit-Last", "X-Egress-Audit-Oldest"):
                want(name in dict(own.fields), real.field(name.lower()) is not None,
                     f"{method} {target}: field {name}")
        until(e.audit, "a line in the file")
        line = e.audit()[0]
        want([k for k in line if k not in ("v", "seq", "prev")], list(standin.FIELDS), "fields")
        want(line["kind"], "start", "the first line")


if __name__ == "__main__":
    sys.exit(main(globals()))
