"""Publishing to a stream: every header, alone and in pairs; acks and errors, and what is stored.

Most questions stand in tables/stream_questions.py, where the rules' own tests use them without a server.
"""

from __future__ import annotations

from typing import Any

from parity.catalog import add, case
from parity.questions import NS, PUBLISH, stream, stream_of
from parity.script import Connection, Script, header_block

GROUP = "publish_headers"
PAYLOAD_MAX = 8_000_000  # of the servers here; the larger questions are asked of the rules alone


def headers_of(step: dict[str, Any]) -> bytes | None:
    if "headers" not in step and "pad" not in step:
        return None
    lines = [*step.get("headers", []), *(["X-Pad: " + "x" * step["pad"]] if "pad" in step else [])]
    return header_block(lines, step.get("first_line", "NATS/1.0"))


def publishing(question: dict[str, Any]) -> object:
    def run(s: Script) -> None:
        c = s.connect()
        config, name = question["config"], stream_of(question["config"])
        c.api(f"STREAM.CREATE.{name}", config, is_kept=False)
        for step in question["steps"]:
            if "update" in step:
                c.api(f"STREAM.UPDATE.{name}", config | step["update"], is_kept=False)
                continue
            if step.get("payload_size", 0) > PAYLOAD_MAX:
                continue
            payload = b"x" * step.get("payload_size", 2)
            c.request(step["subject"], payload, headers_of(step))
        everything(c, name)

    return run


def everything(c: Connection, name: str = "T") -> None:
    """The stream's state and every message in it."""
    answer = c.api(f"STREAM.INFO.{name}", {"deleted_details": True, "subjects_filter": ">"})
    state = answer.get("state", {"first_seq": 1, "last_seq": 0})
    for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        c.api(f"STREAM.MSG.GET.{name}", {"seq": seq})


TTL = stream(allow_msg_ttl=True)
MARKED = stream(subject_delete_marker_ttl=5 * NS)


def pub(*headers: str, subject: str = "t.a", **more: Any) -> dict[str, Any]:
    return {"subject": subject, **({"headers": list(headers)} if headers else {}), **more}


MORE: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
    (
        "a TTL below the delete markers' is raised",
        MARKED,
        [pub("Nats-TTL: 2s"), pub("Nats-TTL: 7"), pub("Nats-TTL: never"), pub("Nats-TTL: 1m", "A: 1")],
    ),
    (
        "a TTL below the delete markers' with one message per subject",
        MARKED | {"max_msgs_per_subject": 1},
        [pub("Nats-TTL: 2s")],
    ),
    ("a TTL below the delete markers' with other headers", MARKED, [pub("A: 1", "Nats-TTL: 1500ms", "B: 2")]),
    (
        "a duplicate with a TTL",
        TTL,
        [pub("Nats-Msg-Id: 1", "Nats-TTL: 60"), pub("Nats-Msg-Id: 1", "Nats-TTL: x"), pub("Nats-Msg-Id: 1")],
    ),
    (
        "a marker's reason from a client",
        TTL,
        [pub("Nats-Marker-Reason: MaxAge", payload_size=0), pub("Nats-Marker-Reason: Purge")],
    ),
    (
        "KV-Operation headers",
        stream(allow_rollup_hdrs=True),
        [
            pub(),
            pub("KV-Operation: DEL", payload_size=0),
            pub("KV-Operation: PURGE", "Nats-Rollup: sub", payload_size=0),
        ],
    ),
    (
        "expected stream and sequence together",
        stream(),
        [
            pub("Nats-Expected-Stream: T", "Nats-Expected-Last-Sequence: 0"),
            pub("Nats-Expected-Last-Sequence: 1", "Nats-Expected-Stream: T"),
        ],
    ),
    (
        "an expected sequence after deletes",
        stream(max_msgs=1),
        [pub(), pub(), pub("Nats-Expected-Last-Sequence: 2"), pub("Nats-Expected-Last-Subject-Sequence: 3")],
    ),
    (
        "rollup of a subject with others between",
        stream(allow_rollup_hdrs=True),
        [pub(), pub(subject="t.b"), pub(), pub(subject="t.b"), pub("Nats-Rollup: sub"), pub(subject="t.c")],
    ),
    (
        "rollup of everything with an id",
        stream(allow_rollup_hdrs=True),
        [
            pub("Nats-Msg-Id: 1"),
            pub("Nats-Msg-Id: 2", "Nats-Rollup: all"),
            pub("Nats-Msg-Id: 1"),
            pub("Nats-Msg-Id: 2"),
        ],
    ),
    (
        "rollup and an expected sequence",
        stream(allow_rollup_hdrs=True),
        [
            pub(),
            pub("Nats-Rollup: sub", "Nats-Expected-Last-Subject-Sequence: 9"),
            pub("Nats-Rollup: sub", "Nats-Expected-Last-Subject-Sequence: 1"),
        ],
    ),
    ("rollup with deny_delete", stream(allow_rollup_hdrs=True, deny_delete=True), [pub(), pub("Nats-Rollup: sub")]),
    (
        "in memory: ids and rollups",
        stream(storage="memory", allow_rollup_hdrs=True),
        [pub("Nats-Msg-Id: 1"), pub("Nats-Msg-Id: 1"), pub(), pub("Nats-Rollup: sub"), pub("A: 1")],
    ),
    (
        "in memory: TTLs",
        stream(storage="memory", allow_msg_ttl=True),
        [pub("Nats-TTL: 60"), pub("Nats-TTL: x"), pub("Nats-TTL: never")],
    ),
    (
        "in memory: expected headers",
        stream(storage="memory"),
        [
            pub("Nats-Expected-Last-Sequence: 0"),
            pub("Nats-Expected-Last-Subject-Sequence: 0"),
            pub("Nats-Expected-Last-Subject-Sequence: 1"),
            pub("Nats-Expected-Last-Msg-Id: x"),
        ],
    ),
    ("ids that are long", stream(), [pub("Nats-Msg-Id: " + "i" * 3000), pub("Nats-Msg-Id: " + "i" * 3000)]),
    (
        "expected subject's sequence with a transform",
        stream(subject_transform={"src": "t.*", "dest": "u.$1"}),
        [
            pub("Nats-Expected-Last-Subject-Sequence: 0"),
            pub("Nats-Expected-Last-Subject-Sequence: 0"),
            pub("Nats-Expected-Last-Subject-Sequence: 1"),
            pub("Nats-Expected-Last-Subject-Sequence: 2", "Nats-Expected-Last-Subject-Sequence-Subject: u.*"),
            pub("Nats-Expected-Last-Subject-Sequence: 0", "Nats-Expected-Last-Subject-Sequence-Subject: t.*"),
        ],
    ),
    ("no window", stream(duplicate_window=0), [pub("Nats-Msg-Id: 1"), pub("Nats-Msg-Id: 1")]),
]
OWN = {title for title, _, _ in MORE}
for title, question in PUBLISH:
    if title not in OWN:
        add(GROUP, title, publishing(question))
for title, config, steps in MORE:
    add(GROUP, title, publishing({"config": config, "steps": steps}))


@case(GROUP, "no reply, no ack; the message is stored")
def no_reply(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    c.pub("t.a", "x")
    c.pub("t.a", "y", "", ["Nats-Expected-Last-Sequence: 9"])
    c.pub("t.a", "z", "", ["Nats-Msg-Id: 1"])
    c.request("t.a", "w", ["Nats-Msg-Id: 1"])
    everything(c)


@case(GROUP, "acks in the order of the messages")
def in_order(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    c.sub("acks.*", "acks")
    for n in range(30):
        headers = ["Nats-Expected-Last-Sequence: 0"] if n % 7 == 3 else None
        c.pub("t.a", f"m{n}", f"acks.{n}", headers)
    c.read(30)


@case(GROUP, "subscribers hear what a stream takes, and what it refuses")
def also_heard(s: Script) -> None:
    c, listener = s.connect(), s.connect("b")
    listener.sub("t.>", "1")
    listener.flush()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    c.request("t.a", "x", ["Nats-Msg-Id: 1"])
    c.request("t.a", "x", ["Nats-Msg-Id: 1"])
    c.request("t.a", "x", ["Nats-Expected-Stream: NO"])
    listener.flush("what was heard")


@case(GROUP, "no_ack: neither acks nor errors")
def no_ack(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(no_ack=True), is_kept=False)
    c.sub("acks", "acks")
    c.pub("t.a", "x", "acks")
    c.pub("t.a", "x", "acks", ["Nats-Expected-Stream: NO"])
    c.pub("t.a", "y", "acks")
    c.until("STREAM.INFO.T", "", lambda answer: answer["state"]["messages"] == 2)
    everything(c)


@case(GROUP, "no_ack and no responders")
def no_ack_request(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(no_ack=True), is_kept=False)
    c.sub("acks", "acks")
    for n in range(3):
        c.pub(f"t.{n}", "x", "acks")
    c.until("STREAM.INFO.T", "", lambda answer: answer["state"]["messages"] == 3)
    c.flush("nothing on acks")


@case(GROUP, "a publish from a client without headers")
def plain_client(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    b = s.connect("b", headers=False, no_responders=False)
    b.request("t.a", "x")
    b.request("$JS.API.STREAM.INFO.T")
    b.request("t.a", "")


@case(GROUP, "publishing to a subject that is not valid")
def odd_subject(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    for subject in ("t.*", "t.>", "t..a", "t.a.", "t.a*b", "t.é"):
        c.request(subject, subject)
    everything(c)


FAST = [
    "fast.B1.10.ok.1.0.$FI",
    "fast.B1.10.fail.1.2.$FI",
    "fast.B1.10.ok.1.4.$FI",
    "fast.B1.10.what.1.0.$FI",
    "fast.B1.x.ok.1.0.$FI",
    "fast.B1.10.ok.x.0.$FI",
    "fast.B1.10.ok.1.9.$FI",
    "fast.B1.$FI",
    "fast.$FI",
    "fast.B1.10.ok.1.0.$FI.more",
    "fast.B1.10.ok.1.0.FI",
]


@case(GROUP, "replies of fast batches, without fast batches")
def fast_batches(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    c.sub("fast.>", "fast")
    for reply in FAST:
        c.pub("t.a", "x", reply)
        c.read(1, f"a publish with the reply {reply}")
    everything(c)
