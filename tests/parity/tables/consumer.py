"""How nats-server judges consumers, pull requests and acks.

The questions are in consumer_questions.py and pull_questions.py; tests/consumer replays the answers against the rules.
Every question about a consumer has the stream `T` to itself, in memory; pull requests and acks are sent all at once,
each to its own consumer.
"""

from __future__ import annotations

import hashlib
import json
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from parity.tables.client import SERVER_METADATA, Client, answer
from parity.tables.consumer_questions import CREATE, Question, subject_of
from parity.tables.pull_questions import ACK_PAYLOADS, ACK_SUBJECTS, LIMITS, PULLS, REQUESTS
from support.servers import BASE, ServerProcess

STREAM = {"name": "T", "subjects": ["t.>"], "storage": "memory"}
MESSAGES = 3
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Frame(NamedTuple):
    """A message as it came: where to, its reply subject, its headers and payload."""

    subject: str
    sid: str
    reply: str
    headers: bytes
    payload: bytes

    @property
    def summary(self) -> str:
        """The status line, or "message"."""
        line = self.headers.split(b"\r\n", 1)[0].removeprefix(b"NATS/1.0").strip()
        return line.decode("utf-8", "replace") or "message"


class Listener:
    """A connection whose messages are collected until nothing comes any more."""

    def __init__(self, port: int, user: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._buffer = b""
        options = {"verbose": False, "headers": True, "no_responders": True, "user": user, "pass": user}
        self.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def publish(self, subject: str, payload: str | bytes, reply: str = "", headers: bytes = b"") -> None:
        body = payload.encode() if isinstance(payload, str) else payload
        verb, sizes = (b"HPUB", f"{len(headers)} {len(headers) + len(body)}") if headers else (b"PUB", f"{len(body)}")
        self.send(verb + f" {subject} {reply} {sizes}\r\n".encode() + headers + body + b"\r\n")

    def collect(self, silence: float) -> list[Frame]:
        """What comes until there was nothing for `silence` seconds."""
        found = []
        while select.select([self._socket], [], [], silence)[0]:
            self._buffer += self._socket.recv(1 << 20)
            found += self._parse()
        return found

    def _parse(self) -> Iterator[Frame]:
        while b"\r\n" in self._buffer:
            line, rest = self._buffer.split(b"\r\n", 1)
            verb, *words = line.decode().split()
            if verb == "PING":
                self.send(b"PONG\r\n")
            if verb not in ("MSG", "HMSG"):
                self._buffer = rest
                continue
            total = int(words[-1])
            if len(rest) < total + 2:
                return
            head = int(words[-2]) if verb == "HMSG" else 0
            names = words[: -2 if verb == "HMSG" else -1]
            self._buffer = rest[total + 2 :]
            yield Frame(names[0], names[1], names[2] if len(names) > 2 else "", rest[:head], rest[head:total])


@contextmanager
def running(server: dict[str, Any], accounts: list[dict[str, Any]]) -> Iterator[int]:
    """A server with these limits, its accounts `u0`, `u1`… with theirs; gives the port."""
    shares = [json.dumps(limits) if limits else "enabled" for limits in accounts]
    lines = [
        f"A{n} {{ jetstream: {share}, users: [{{user: u{n}, password: u{n}}}] }}" for n, share in enumerate(shares)
    ]
    limits = f"limits: {json.dumps(server)}" if server else ""
    config = f'{BASE}jetstream {{ store_dir: "$DIR", {limits} }}\naccounts {{\n' + "\n".join(lines) + "\n}\n"
    with ServerProcess("real", config) as process:
        yield process.port


def record_create() -> tuple[str, list[dict[str, Any]]]:
    found: dict[str, dict[str, Any]] = {}
    version = ""
    for server in unique([question.server for question in CREATE]):
        questions = [question for question in CREATE if question.server == server]
        accounts = unique([question.account for question in questions])
        with running(server, accounts) as port:
            clients = [Client(port, f"u{index}") for index in range(len(accounts))]
            version = clients[0].info["version"]
            for question in questions:
                found[question.case] = ask(clients[accounts.index(question.account)], question)
    assert len(found) == len(CREATE), "two questions with one title"
    return version, [found[question.case] for question in CREATE]


def ask(client: Client, question: Question) -> dict[str, Any]:
    made = client.api("STREAM.CREATE.T", STREAM | question.stream)
    assert "error" not in made, (question, made)
    for config in question.before:
        made = client.api(subject_of(config), body_of(config))
        assert "error" not in made, (question.case, made)
    for index, subject in enumerate(question.bound):
        client._send(f"SUB {subject} {index + 10}\r\n".encode())
    request = question.request if isinstance(question.request, str) else json.dumps(question.request)
    reply = client.api(question.subject, request)
    for index, _ in enumerate(question.bound):
        client._send(f"UNSUB {index + 10}\r\n".encode())
    client.api("STREAM.DELETE.T")
    kept = answer(reply)
    if "name" in reply:
        kept["name"] = known_name(reply["name"], question)
        if kept["config"].get("name") == reply["name"]:
            kept["config"]["name"] = kept["name"]
    case = {
        "case": question.case,
        "stream": STREAM | question.stream,
        "before": list(question.before),
        "bound": list(question.bound),
        "account": question.account,
        "server": question.server,
        "subject": question.subject,
        "request": request,
        "reply": kept,
    }
    return {key: value for key, value in case.items() if value or key == "request"}


def known_name(name: str, question: Question) -> str:
    """The consumer's name, with "MADE_UP" for what the server made up of it: that is another every time."""
    given = f"{question.subject} {question.request}"
    if name in given:
        return name
    start, dash, _ = name.rpartition("-")
    return f"{start}-MADE_UP" if dash and start in given else "MADE_UP"


def unique(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [value for index, value in enumerate(values) if value not in values[:index]]


def record_pulls(port: int) -> list[dict[str, Any]]:
    """What each request is answered with at once; a request that waits has no answers."""
    client, listener = Client(port, "u0"), Listener(port, "u0")
    fill(client)
    listener.send(b"SUB pull.* 1\r\n")
    for index, (_, config, _, _) in enumerate(PULLS):
        make(client, {"durable_name": f"P{index}", "ack_policy": "explicit", "mem_storage": True, **config})
    for index, (_, _, payload, level) in enumerate(PULLS):
        headers = f"NATS/1.0\r\nNats-Required-Api-Level: {level}\r\n\r\n".encode() if level else b""
        listener.publish(f"$JS.API.CONSUMER.MSG.NEXT.T.P{index}", payload, f"pull.{index}", headers)
    answers: dict[str, list[str]] = {}
    for frame in listener.collect(0.8):
        key = f"pull.{index_of(frame)}"
        answers.setdefault(key, []).append(frame.summary)
    client.api("STREAM.DELETE.T")
    cases = []
    for index, (title, config, payload, level) in enumerate(PULLS):
        case = {"case": title, "config": config, "payload": payload, "frames": answers.get(f"pull.{index}", [])}
        cases.append(case | ({"level": level} if level else {}))
    return cases


def index_of(frame: Frame) -> int:
    """The question that a frame answers: a message comes under its own subject, so its consumer tells."""
    if frame.subject.startswith("pull."):
        return int(frame.subject.removeprefix("pull."))
    return int(frame.reply.split(".")[3].removeprefix("P"))


def record_acks(port: int, questions: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Take the first message, ack it in some form, see what that did: (subject, payload) → effects."""
    client, listener = Client(port, "u0"), Listener(port, "u0")
    fill(client)
    listener.send(b"SUB first.* 1\r\nSUB done.* 2\r\nSUB second.* 3\r\nSUB $JS.EVENT.ADVISORY.CONSUMER.*.T.* 4\r\n")
    for index in range(len(questions)):
        make(client, {"durable_name": f"P{index}", "ack_policy": "explicit", "mem_storage": True})
    listener.collect(0.3)
    for index in range(len(questions)):
        listener.publish(f"$JS.API.CONSUMER.MSG.NEXT.T.P{index}", "1", f"first.{index}")
    replies = {index_of(frame): frame.reply for frame in listener.collect(0.5)}
    for index, (subject, payload) in enumerate(questions):
        ts, pending = replies[index].split(".")[7:]
        where = subject.format(c=f"P{index}", ts=ts, p=pending, hash=hash_of("A0"))
        listener.publish(where, payload, f"done.{index}")
    effects: list[dict[str, Any]] = [{} for _ in questions]
    for frame in listener.collect(0.8):
        note(effects, frame)
    for index, effect in enumerate(effects):
        info = client.api(f"CONSUMER.INFO.T.P{index}")
        effect["pending"] = info["num_ack_pending"]
        listener.publish(f"$JS.API.CONSUMER.MSG.NEXT.T.P{index}", '{"no_wait":true}', f"second.{index}")
    for frame in listener.collect(0.5):
        if frame.sid == "3" and frame.reply:
            effects[index_of(frame)]["next"] = [int(part) for part in frame.reply.split(".")[4:6]]
    client.api("STREAM.DELETE.T")
    return [
        {"subject": subject, "payload": payload, **effect}
        for (subject, payload), effect in zip(questions, effects, strict=True)
    ]


def record_requests(port: int) -> list[dict[str, Any]]:
    """What PAUSE, UNPIN and RESET answer, and the configuration after them."""
    client = Client(port, "u0")
    fill(client)
    cases = []
    for index, (config, endpoint, payload) in enumerate(REQUESTS):
        name = f"P{index}"
        make(client, {"durable_name": name, "ack_policy": "explicit", "mem_storage": True, **config})
        reply = client.api(f"CONSUMER.{endpoint}.T.{name}", payload)
        kept = {key: reply[key] for key in ("error", "paused", "pause_until", "reset_seq") if key in reply}
        after = client.api(f"CONSUMER.INFO.T.{name}")["config"]
        kept["config"] = {key: after.get(key) for key in ("pause_until", "metadata")}
        kept["config"]["metadata"] = {k: v for k, v in after["metadata"].items() if k not in SERVER_METADATA}
        cases.append({"endpoint": endpoint, "config": config, "payload": payload, "reply": kept})
    client.api("STREAM.DELETE.T")
    return cases


def record_limits(port: int) -> list[dict[str, Any]]:
    """Whether a stream's consumer limits may change beside its consumers."""
    client = Client(port, "u0")
    cases = []
    for before, after, consumers in LIMITS:
        made = client.api("STREAM.CREATE.T", STREAM | {"consumer_limits": before})
        assert "error" not in made, made
        wanted = [config for config in consumers if "error" not in client.api(subject_of(config), body_of(config))]
        reply = client.api("STREAM.UPDATE.T", STREAM | {"consumer_limits": after})
        cases.append({"before": before, "after": after, "consumers": wanted, "error": reply.get("error")})
        client.api("STREAM.DELETE.T")
    return cases


def body_of(config: dict[str, Any]) -> dict[str, Any]:
    return {"stream_name": "T", "config": config}


def note(effects: list[dict[str, Any]], frame: Frame) -> None:
    if frame.sid == "4":
        told = json.loads(frame.payload)
        effect = effects[int(told["consumer"].removeprefix("P"))]
        effect["advisory"] = told["type"].rsplit(".", 1)[1] + (f": {told['reason']}" if told.get("reason") else "")
    elif frame.sid == "2":
        in_subject = frame.subject.startswith("done.")
        index = int(frame.subject.removeprefix("done.")) if in_subject else index_of(frame)
        effects[index].setdefault("answers", []).append(
            "empty" if frame.summary == "message" and in_subject else frame.summary
        )


def hash_of(account: str) -> str:
    """What the reference puts in place of an account's name."""
    return "".join(DIGITS[byte % len(DIGITS)] for byte in hashlib.sha256(account.encode()).digest()[:8])


def fill(client: Client) -> None:
    assert "error" not in client.api("STREAM.CREATE.T", STREAM)
    for _ in range(MESSAGES):
        client.request("t.a", b"xx")


def make(client: Client, config: dict[str, Any]) -> None:
    reply = client.api(f"CONSUMER.CREATE.T.{config['durable_name']}", body_of(config))
    assert "error" not in reply, reply


def record() -> dict[str, Any]:
    version, create = record_create()
    with running({}, [{}]) as port:
        return {
            "server": version,
            "create": create,
            "pull": record_pulls(port),
            "ack_payload": record_acks(port, [(ACK_SUBJECTS[0], payload) for payload in ACK_PAYLOADS]),
            "ack_subject": record_acks(port, [(subject, "+ACK") for subject in ACK_SUBJECTS]),
            "request": record_requests(port),
            "limits": record_limits(port),
        }
