"""How nats-server judges stream configurations and publishes, and what its streams hold after a script.

The questions are in stream_questions.py and stream_scripts.py; tests/stream replays the answers against the rules and
against the library.

Each case runs in an account of its own, since cases share the stream name `T`: where a file stream is created at once
after one of that name was deleted, nats-server 2.15.1 may find the old messages in it (159 of 1,500 tries; none with
20 ms between, none in memory). Recordings that reused the name differed from run to run.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

from parity.tables.client import Client, answer
from parity.tables.stream_questions import AGAIN, CHECK, CREATE, PUBLISH, UPDATE
from parity.tables.stream_scripts import SCRIPTS
from support.servers import BASE, JETSTREAM, ServerProcess


def stream_of(request: dict[str, Any] | str) -> str:
    """The name for the API subject; requests that cannot say it use `T`."""
    name = request.get("name") if isinstance(request, dict) else None
    is_token = isinstance(name, str) and name and not set(name) & set(" \t\r\n.*>")
    return name if is_token and name else "T"


def as_text(request: dict[str, Any] | str) -> str:
    return request if isinstance(request, str) else json.dumps(request)


def create(client: Client, request: dict[str, Any] | str) -> dict[str, Any]:
    """Create the stream that a case begins with, and see that it is new and empty."""
    reply = client.api(f"STREAM.CREATE.{stream_of(request)}", request)
    assert "error" not in reply, (request, reply)
    assert reply["state"]["messages"] == 0, (request, reply)
    return reply


def record_create(clients: Iterator[Client]) -> list[dict[str, Any]]:
    cases = []
    for (title, request), client in zip(CREATE, clients, strict=False):
        reply = answer(client.api(f"STREAM.CREATE.{stream_of(request)}", request))
        cases.append({"case": title, "request": as_text(request), "reply": reply})
    return cases


def record_check(clients: Iterator[Client]) -> list[dict[str, Any]]:
    """UPDATE of a stream that does not exist: it judges the configuration before it looks the stream up."""
    return [
        {"case": title, "request": as_text(request), "reply": answer(client.api("STREAM.UPDATE.NOSUCH", request))}
        for (title, request), client in zip(CHECK, clients, strict=False)
    ]


def record_pairs(clients: Iterator[Client], verb: str, questions: list[tuple[str, Any, Any]]) -> list[dict[str, Any]]:
    """Create a stream, then CREATE or UPDATE it with a second request."""
    cases = []
    for (title, first, second), client in zip(questions, clients, strict=False):
        create(client, first)
        reply = answer(client.api(f"STREAM.{verb}.{stream_of(first)}", second))
        cases.append({"case": title, "created": as_text(first), "request": as_text(second), "reply": reply})
    return cases


def headers_of(step: dict[str, Any]) -> bytes:
    """The header block of one step: its lines, and `pad` bytes of filling."""
    if "headers" not in step and "pad" not in step:
        return b""
    lines: list[str] = step.get("headers", [])
    block = step.get("first_line", "NATS/1.0") + "\r\n" + "".join(f"{line}\r\n" for line in lines)
    if "pad" in step:
        block += "X-Pad: " + "x" * step["pad"] + "\r\n"
    text: str = block + "\r\n"
    return text.encode("latin-1")


def record_publish(clients: Iterator[Client]) -> list[dict[str, Any]]:
    cases = []
    for (title, question), client in zip(PUBLISH, clients, strict=False):
        name = stream_of(question["config"])
        create(client, question["config"])
        steps = [record_step(client, name, question["config"], step) for step in question["steps"]]
        cases.append({"case": title, "config": question["config"], "steps": steps})
    return cases


def record_step(client: Client, name: str, config: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    """The step with the reply to its publish and the headers that were stored; an update is only carried out."""
    if "update" in step:
        updated = client.api(f"STREAM.UPDATE.{name}", config | step["update"])
        assert "error" not in updated, (step, updated)
        return step
    payload = b"x" * step.get("payload_size", 2)
    reply = json.loads(client.request(step["subject"], payload, headers_of(step)))
    kept = {k: v for k, v in reply.items() if k in ("seq", "duplicate", "error")}
    if "error" not in reply and "duplicate" not in reply and "pad" not in step:
        stored = client.api(f"STREAM.MSG.GET.{name}", {"seq": reply["seq"]})["message"]
        kept["stored_headers"] = base64.b64decode(stored.get("hdrs", "")).decode("latin-1")
    return step | {"reply": kept}


def record_scripts(clients: Iterator[Client]) -> list[dict[str, Any]]:
    """Streams that are used for a while, time included."""
    cases = []
    for (title, question), client in zip(SCRIPTS, clients, strict=False):
        create(client, question["config"])
        config = question["config"]
        steps = []
        for step in question["steps"]:
            reply, config = record_action(client, config, step)
            steps.append(step | ({"reply": reply} if reply is not None else {}))
        cases.append({"case": title, "config": question["config"], "steps": steps})
    return cases


def record_action(client: Client, config: dict[str, Any], step: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What the server answers to a step of a script, and the configuration that it has then."""
    if "wait" in step:
        time.sleep(step["wait"])
        return None, config
    if "update" in step:
        changed = {key: value for key, value in config.items() if key != "subject_transform"} | step["update"]
        reply = client.api("STREAM.UPDATE.T", changed)
        return ({"error": reply["error"]}, config) if "error" in reply else ({}, changed)
    if "state" in step:
        return record_state(client), config
    if "purge" in step:
        reply = client.api("STREAM.PURGE.T", step["purge"])
    elif "delete" in step:
        reply = client.api("STREAM.MSG.DELETE.T", {"seq": step["delete"]})
    else:
        payload = b"x" * step.get("payload_size", 2)
        reply = json.loads(client.request(step["subject"], payload, headers_of(step)))
    return {k: v for k, v in reply.items() if k in ("seq", "duplicate", "error", "purged", "success")}, config


def record_state(client: Client) -> dict[str, Any]:
    """The counters of the stream, and what it holds: [sequence, subject, headers, size of the payload]."""
    state = client.api("STREAM.INFO.T")["state"]
    messages = []
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        found = client.api("STREAM.MSG.GET.T", {"seq": seq}).get("message")
        if found is not None:
            headers = base64.b64decode(found.get("hdrs", "")).decode("latin-1")
            messages.append([seq, found["subject"], headers, len(base64.b64decode(found.get("data", "")))])
    names = ("messages", "bytes", "first_seq", "last_seq", "num_subjects", "num_deleted")
    return {name: state.get(name, 0) for name in names} | {"holds": messages}


def each_account(port: int, count: int) -> Iterator[Client]:
    """A client for each account in turn; the one before is closed."""
    for index in range(count):
        client = Client(port, f"u{index}")
        yield client
        client.close()


def record() -> dict[str, Any]:
    groups = (CREATE, CHECK, UPDATE, AGAIN, PUBLISH, SCRIPTS)
    count = sum(map(len, groups)) + len(groups)  # zip takes one client more for each group
    accounts = "\n".join(
        f"A{index} {{ jetstream: enabled, users: [{{user: u{index}, password: u{index}}}] }}" for index in range(count)
    )
    config = f"{BASE}max_payload: 40MB\nmax_pending: 80MB\n{JETSTREAM}accounts {{\n{accounts}\n}}\n"
    with ServerProcess("real", config) as server:
        clients = each_account(server.port, count)
        answers = {
            "server": Client(server.port, "u0").info["version"],
            "create": record_create(clients),
            "check": record_check(clients),
            "update": record_pairs(clients, "UPDATE", UPDATE),
            "again": record_pairs(clients, "CREATE", AGAIN),
            "publish": record_publish(clients),
            "scripts": record_scripts(clients),
        }
    counts = [len(cases) for group, cases in answers.items() if group != "server"]
    assert counts == [len(group) for group in groups], counts
    return answers
