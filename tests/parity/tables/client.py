"""The connection over which the tables' questions are asked, and what is kept of an answer about a configuration."""

from __future__ import annotations

import json
import socket
from typing import Any

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
