"""Door: where other processes ask the writer of a store for what only a writer may do.

A socket without a file (Linux's abstract names), so that a store that is in use can be copied like any folder, and so
that nothing of a killed writer is left. Its name is chance and stands in LOCK, which only the store's owner may read.
One line of JSON each way. Requests are few and short; they are served one at a time, in a thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.db.lock import holder_of
from penstock.errors import PenstockError, StoreError

if TYPE_CHECKING:
    from penstock.db.root import Root

REQUEST_MAX = 64 << 20
TIMEOUT_S = 600.0  # a batch of many blocks is verified while the other side waits
READ_TIMEOUT_S = 10.0  # somebody who connects and says nothing


class Door:
    """Serves a store until `close`."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self.name = f"penstock-{os.urandom(16).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind("\0" + self.name)
        self._socket.listen(16)
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="penstock-door", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                if self._is_closed:
                    return
                raise
            with peer:
                self._answer(peer)

    def _answer(self, peer: socket.socket) -> None:
        peer.settimeout(READ_TIMEOUT_S)
        try:
            request = _read_line(peer)
            if request is None:
                return
            try:
                answer: dict[str, Any] = {"ok": self._do(json.loads(request))}
            except PenstockError as error:
                answer = {"error": type(error).__name__, "text": str(error)}
            except (OSError, ValueError, KeyError, TypeError) as error:
                answer = {"error": "StoreError", "text": f"{type(error).__name__}: {error}"}
            peer.settimeout(READ_TIMEOUT_S)
            peer.sendall(json.dumps(answer).encode() + b"\n")
        except (OSError, ValueError):
            return  # they have gone; what was done is done, and they can ask again

    def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        database, op = self._root.database(request["account"]), request["op"]
        if op == "adopt":
            stream = database.get_stream(request["stream"])
            adopted = stream.adopt(request["job"], request["tasks"], query=request["query"], batch=request["batch"])
            return asdict(adopted)
        if op == "create":
            name = request["stream"]
            stream = database.get_stream(name) if name in database else database.stream(name, **request["config"])
            return {"name": stream.name}
        raise StoreError(f"no request {op!r} here: adopt, create")

    def close(self) -> None:
        """Return when no request is half done."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the accept
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._socket.close()

    def forget(self) -> None:
        """In a forked child: the door is the parent's."""
        self._is_closed = True
        self._socket.close()


def ask(path: str | os.PathLike[str], request: dict[str, Any]) -> dict[str, Any]:
    """What the writer of the store at `path` answers; its errors are raised here. ConnectionError: nobody is there."""
    root = os.path.abspath(os.fspath(path))
    name = (holder_of(root) or {}).get("door")
    if not isinstance(name, str):
        raise ConnectionRefusedError(f"{root}: its writer takes no requests")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(TIMEOUT_S)
        peer.connect("\0" + name)
        peer.sendall(json.dumps(request).encode() + b"\n")
        line = _read_line(peer)
    if line is None:
        raise ConnectionResetError(f"{root}: its writer went away before it answered")
    answer: dict[str, Any] = json.loads(line)
    if "ok" in answer:
        result: dict[str, Any] = answer["ok"]
        return result
    raise _error(answer["error"], answer["text"])


def _error(name: str, text: str) -> PenstockError:
    """An error of ours as the other process raised it, or one with its text."""
    kind: Callable[[str], PenstockError] | None = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.ApiError):
        error = errors.ApiError.__new__(kind)
        errors.ApiError.__init__(error, text)
        return error
    return StoreError(text)


def _read_line(peer: socket.socket) -> bytes | None:
    """One line; None when the other side goes before its end."""
    parts: list[bytes] = []
    size = 0
    while True:
        part = peer.recv(1 << 16)
        if not part:
            return None
        parts.append(part)
        size += len(part)
        if part.endswith(b"\n"):
            return b"".join(parts)
        if size > REQUEST_MAX:
            raise ValueError("the request is too long")
