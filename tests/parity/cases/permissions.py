"""What a user may publish and subscribe to; replies that are allowed; what a wide subscription does not hear."""

from __future__ import annotations

from parity.catalog import add, case
from parity.questions import stream
from parity.script import Connection, Script
from support.servers import BASE, JETSTREAM

GROUP = "permissions"


SETS_OF_ALL: list[str] = []  # every set of permissions that a case needs: the server has a user for each


def user_of(permissions: str) -> str:
    """The user that has exactly these permissions; password is the name."""
    if permissions not in SETS_OF_ALL:
        SETS_OF_ALL.append(permissions)
    return f"u{SETS_OF_ALL.index(permissions):02d}"


def server() -> str:
    users = [f"{{user: {user_of(p)}, password: {user_of(p)}, permissions: {{ {p} }} }}" for p in SETS_OF_ALL]
    lines = ",\n".join([*users, "{user: root, password: r}"])
    return BASE + JETSTREAM + f"authorization {{ users: [ {lines} ] }}\n"


def user(s: Script, permissions: str, label: str = "a") -> Connection:
    name = user_of(permissions)
    return s.connect(label, user=name, **{"pass": name})


def root(s: Script, name: str = "r") -> Connection:
    return s.connect(name, user="root", **{"pass": "r"})


NAMES_ONLY = 'publish: "$JS.API.STREAM.NAMES", subscribe: "_INBOX.>"'
PA_ONLY = 'publish: "pa.>", subscribe: "_INBOX.>"'
PUBLISH_ONE = 'publish: "p.a"'
BOTH = 'publish: "p.a", subscribe: "s.a"'
TOLD = 'publish: { allow: "$SYS.>", deny: "p.x" }, subscribe: { allow: "_INBOX.>" }, allow_responses: true'
for needed in (NAMES_ONLY, PA_ONLY, PUBLISH_ONE, BOTH, TOLD):
    user_of(needed)
PUBLISH = ["p.a", "p.b", "p.a.b", "p.*", "q", "$JS.API.INFO", "_INBOX.x"]
SUBSCRIBE = ["s.a", "s.b", "s.*", "s.>", ">", "*", "s.a.b", "q", "_INBOX.x"]
SETS = [
    ("publish a list", 'publish: ["p.a", "p.b"]'),
    ("publish one", 'publish: "p.a"'),
    ("publish a wildcard", 'publish: "p.*"'),
    ("publish with a tail", 'publish: "p.>"'),
    ("publish allow and deny", 'publish: { allow: ["p.>"], deny: ["p.b", "p.*.b"] }'),
    ("publish deny alone", 'publish: { deny: "p.b" }'),
    ("publish deny everything", 'publish: { deny: ">" }'),
    ("publish allow nothing", "publish: { allow: [] }"),
    ("subscribe a list", 'subscribe: ["s.a", "s.b"]'),
    ("subscribe a wildcard", 'subscribe: "s.*"'),
    ("subscribe with a tail", 'subscribe: "s.>"'),
    ("subscribe allow and deny", 'subscribe: { allow: ["s.>"], deny: ["s.b"] }'),
    ("subscribe deny alone", 'subscribe: { deny: ["s.b", "s.a.>"] }'),
    ("subscribe deny a wildcard", 'subscribe: { deny: "s.*" }'),
    ("subscribe deny everything", 'subscribe: { deny: ">" }'),
    ("both", 'publish: "p.a", subscribe: "s.a"'),
    ("import and export", 'import: "s.a", export: "p.a"'),
]


def using(permissions: str) -> object:
    user_of(permissions)

    def run(s: Script) -> None:
        c = user(s, permissions)
        for subject in PUBLISH:
            c.pub(subject, "x")
            c.flush(f"PUB {subject}")
        c.pub("p.b", "x", "", ["A: 1"])
        c.flush("HPUB p.b")
        for n, subject in enumerate(SUBSCRIBE):
            c.sub(subject, str(n))
            c.flush(f"SUB {subject}")
        r = root(s)
        for subject in ("s.a", "s.b", "s.a.b", "other"):
            r.pub(subject, subject)
        r.flush()
        c.flush("what is heard", is_sorted=True)

    return run


for title, permissions in SETS:
    add(GROUP, title, using(permissions), config=server)

QUEUES = [
    ("a queue", 'subscribe: "s.a q1"'),
    ("a queue and none", 'subscribe: ["s.a", "s.b q1"]'),
    ("queues with wildcards", 'subscribe: ["s.> q.*"]'),
    ("a queue is denied", 'subscribe: { allow: "s.>", deny: "s.a q1" }'),
    ("all queues are denied", 'subscribe: { deny: "s.> *" }'),
    ("a queue that is allowed, the subject denied", 'subscribe: { allow: "s.a q1", deny: "s.a" }'),
]


def queueing(permissions: str) -> object:
    user_of(permissions)

    def run(s: Script) -> None:
        c = user(s, permissions)
        for n, (subject, queue) in enumerate(
            [("s.a", ""), ("s.a", "q1"), ("s.a", "q2"), ("s.b", ""), ("s.b", "q1"), ("s.>", "q.x"), ("s.*", "q1")]
        ):
            c.sub(subject, str(n), queue)
            c.flush(f"SUB {subject} {queue}".rstrip())

    return run


for title, permissions in QUEUES:
    add(GROUP, f"subscribe to {title}", queueing(permissions), config=server)


def responder(permissions: str) -> object:
    """A responder that may answer, and what else it tries."""
    user_of(permissions)

    def run(s: Script) -> None:
        c, r = user(s, permissions), root(s)
        c.sub("svc", "1")
        c.flush()
        r.sub("reply.*", "1")
        for n in (1, 2):
            r.pub("svc", "ask", f"reply.{n}")
        r.flush()
        c.flush("two requests")
        for reply in ("reply.1", "reply.1", "reply.2", "reply.3", "elsewhere"):
            c.pub(reply, f"to {reply}")
            c.flush(f"answer to {reply}")
        r.flush("the answers")

    return run


for title, permissions in [
    ("one answer", 'publish: { deny: ">" }, subscribe: "svc", allow_responses: true'),
    ("two answers", 'publish: { deny: ">" }, subscribe: "svc", allow_responses: { max: 2, expires: "1m" }'),
    ("any number of answers", 'publish: { deny: ">" }, subscribe: "svc", allow_responses: { max: -1 }'),
    ("answers that are late", 'publish: { deny: ">" }, subscribe: "svc", allow_responses: { max: 5, expires: "1ns" }'),
    ("no answers", 'publish: "none", subscribe: "svc"'),
    ("answers without publish permissions", 'subscribe: "svc", allow_responses: true'),
    ("answers and a list", 'publish: ["reply.3"], subscribe: "svc", allow_responses: true'),
]:
    add(GROUP, f"allow_responses: {title}", responder(permissions), config=server)


@case(GROUP, "a reply that may not be published to", config=server)
def reply_denied(s: Script) -> None:
    c, r = user(s, PUBLISH_ONE), root(s)
    r.sub("p.a", "1")
    r.flush()
    c.pub("p.a", "x", "q.reply")
    c.flush()
    r.flush()


@case(GROUP, "verbose, and a violation", config=server)
def verbose(s: Script) -> None:
    c = s.open()
    name = user_of(BOTH)
    c.tell(f'CONNECT {{"verbose":true,"user":"{name}","pass":"{name}"}}\r\n')
    c.tell("PUB q 1\r\nx\r\nSUB q 1\r\nSUB q g 2\r\nPUB p.a 1\r\nx\r\n")


@case(GROUP, "letters in a subject that are quoted", config=server)
def quoted(s: Script) -> None:
    c = user(s, BOTH)
    c.tell('PUB a"b\'c 1\r\nx\r\nSUB a"b\\c 1\r\nPUB é 1\r\nx\r\n')


@case(GROUP, "requests to the API need the permission to publish", config=server)
def api(s: Script) -> None:
    c = user(s, NAMES_ONLY)
    c.request("$JS.API.STREAM.NAMES", {"subject": "nobody.has.it"})
    c.pub("$JS.API.INFO", "", "_INBOX.a.x")
    c.flush("INFO")


@case(GROUP, "acks need the permission to subscribe, not to publish", config=server)
def acks(s: Script) -> None:
    r, c = root(s), user(s, PA_ONLY)
    r.api("STREAM.CREATE.PA", stream(name="PA", subjects=["pa.>"]))
    c.request("pa.x", "x")


@case(
    GROUP,
    "default permissions",
    config=BASE
    + (
        'authorization { default_permissions: { publish: "p.a" }, users: [ {user: u, password: p},'
        ' {user: v, password: q, permissions: { publish: "p.b" } } ] }\n'
    ),
)
def defaults(s: Script) -> None:
    c = s.connect(user="u", **{"pass": "p"})
    c.tell("PUB p.a 1\r\nx\r\nPUB p.b 1\r\nx\r\n")
    v = s.connect("v", user="v", **{"pass": "q"})
    v.tell("PUB p.a 1\r\nx\r\nPUB p.b 1\r\nx\r\n")


@case(
    GROUP,
    "default permissions of an account",
    config=BASE + ('accounts { A { default_permissions: { subscribe: "s.a" }, users: [ {user: u, password: p} ] } }\n'),
)
def account_defaults(s: Script) -> None:
    s.connect(user="u", **{"pass": "p"}).tell("SUB s.a 1\r\nSUB s.b 2\r\n")


@case(
    GROUP,
    "a user's own permissions are told",
    config=server,
)
def told(s: Script) -> None:
    c = user(s, TOLD)
    c.request("$SYS.REQ.USER.INFO")
    c.flush()
