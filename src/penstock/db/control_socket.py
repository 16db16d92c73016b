"""ControlSocket: where other processes of the store's owner send requests that only the writer of the store can carry
out.

The socket has an abstract name (Linux) instead of a file: a store in use can be copied like any folder, its path may be
long, its file system need not support sockets, and a killed writer leaves nothing behind. An abstract name has no
permissions and is no secret (/proc/net/unix lists it), so both ends get the other's user from the kernel
(peer_credentials.py) before they read a byte.

A request and its answer are one line of JSON each. A thread serves each request; the number, time and memory of
requests are bounded.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import errors
from penstock.db.lock import holder_of
from penstock.db.peer_credentials import Peer, may_ask, may_write, peer_of, unclear_uids
from penstock.errors import PenstockError, StoreError

if TYPE_CHECKING:
    from penstock.db.write_session import WriteSession

log = logging.getLogger("penstock")
REQUESTS_MAX = 16  # served at the same time; others wait in the socket's queue
REQUEST_MAX = 32 << 20  # bytes: a job of some 160,000 tasks
LARGE = 1 << 20  # requests above this are read and served one at a time
READ_S = 10.0  # a request must have arrived completely within this time
ANSWER_S = 600.0  # verifying a batch of many blocks takes long
CONNECT_S = 60.0  # how long a caller waits for a place in the queue
CONNECT_RETRY_S = 0.01
REFUSED_S = 0.001  # pause after refusing another user's process, which so cannot keep the interpreter busy
WARNING_S = 10.0  # between two log lines about refused users
FAILED_S = 1.0  # pause after a failed accept: too many open files, for example


class Adopt(msgspec.Struct, tag_field="op", tag="adopt"):
    """Adopt what the tasks of a job have staged. Names are checked where they become paths: adopt.py."""

    account: str
    stream: str
    job: str
    tasks: list[dict[str, Any]]
    query: str = ""
    batch: int = 0


class Create(msgspec.Struct, tag_field="op", tag="create"):
    """Create a stream; an existing one stays as it is."""

    account: str
    stream: str
    config: dict[str, Any]


_REQUEST = msgspec.json.Decoder(Adopt | Create)


class ControlSocket:
    """Serves a store until `close`.

    Always true: nothing is read from a process of another user, and no request ends the thread that accepts them.
    """

    def __init__(self, root: WriteSession) -> None:
        self._root = root
        self.name = f"penstock-{os.urandom(16).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind("\0" + self.name)
        self._socket.listen(128)
        self._unclear = unclear_uids()  # read now: later there may be no free file descriptor
        self._is_closed = False
        self._closing = threading.Event()
        self._slots = threading.BoundedSemaphore(REQUESTS_MAX)
        self._large = threading.Lock()
        self._guard = threading.Lock()
        self._handlers: dict[threading.Thread, socket.socket] = {}
        self._warned_at = -WARNING_S
        self._thread = threading.Thread(target=self._serve, name="penstock-door", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._is_closed:
            self._slots.acquire()
            is_taken = False
            try:
                is_taken = self._take_next()
            except Exception:
                if not self._is_closed:
                    log.exception("%s: its control socket could not take a request", self._root.path)
                    self._closing.wait(FAILED_S)
            finally:
                if not is_taken:
                    self._slots.release()

    def _take_next(self) -> bool:
        """Accept the next request and start its thread, which releases the slot; returns whether a thread was
        started."""
        peer, _ = self._socket.accept()
        try:
            if self._is_closed or not self._is_welcome(peer):
                peer.close()
                return False
            handler = threading.Thread(target=self._handle, args=(peer,), name="penstock-request", daemon=True)
            with self._guard:
                self._handlers[handler] = peer
            try:
                handler.start()
            except BaseException:
                with self._guard:
                    del self._handlers[handler]
                raise
        except BaseException:
            peer.close()
            raise
        return True

    def _is_welcome(self, peer: socket.socket) -> bool:
        """Whether the process at the other end may send requests; if not, it gets an error."""
        who, path = peer_of(peer), self._root.path
        if who.uid in may_ask(path, self._unclear):
            return True
        if time.monotonic() - self._warned_at >= WARNING_S:
            self._warned_at = time.monotonic()
            log.warning("%s: a request of %s was refused: it is not the store's owner", path, who)
        text = f"the writer of this store takes requests of its owner only, not of user {who.uid}; run as the owner"
        peer.settimeout(0.0)
        with contextlib.suppress(OSError):  # the process is gone, or does not read
            peer.send(_encode({"error": "StoreError", "text": text}))
        self._closing.wait(REFUSED_S)
        return False

    def _handle(self, peer: socket.socket) -> None:
        try:
            with peer:
                answer = _encode(self._answer(peer))
                peer.settimeout(READ_S)
                peer.sendall(answer)
        except OSError:
            return  # the caller is gone; a completed request stays done, and the caller can repeat it
        finally:
            with self._guard:
                self._handlers.pop(threading.current_thread(), None)
            self._slots.release()

    def _answer(self, peer: socket.socket) -> dict[str, Any]:
        """Read a request and carry it out; every error becomes part of the answer."""
        try:
            with contextlib.ExitStack() as held:
                line = _read_line(peer, READ_S, lambda: held.enter_context(self._large))
                return {"ok": self._do(_decode(line))}
        except PenstockError as error:
            return {"error": type(error).__name__, "text": str(error)}
        except (ConnectionError, TimeoutError) as error:
            return {"error": "StoreError", "text": f"the request did not arrive: {error}"}
        except OSError as error:
            return {"error": "StoreError", "text": f"{type(error).__name__}: {error}"}
        except Exception as error:
            log.exception("%s: a request to its control socket failed", self._root.path)
            return {"error": "StoreError", "text": f"{type(error).__name__}: {error}"}

    def _do(self, request: Adopt | Create) -> dict[str, Any]:
        database = self._root.database(request.account)
        if isinstance(request, Adopt):
            stream = database.get_stream(request.stream)
            return asdict(stream.adopt(request.job, request.tasks, query=request.query, batch=request.batch))
        name = request.stream
        try:
            stream = database.get_stream(name)
        except errors.StreamNotFound:
            _check_fields(request.config)
            stream = database.stream(name, **request.config)
        return {"name": stream.name}

    def close(self) -> None:
        """Stop accepting, and return when no request is being served."""
        if self._is_closed:
            return
        self._is_closed = True
        self._closing.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
        self._end_reading()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._end_reading()
        with self._guard:
            handlers = [one for one in self._handlers if one is not threading.current_thread()]
        for handler in handlers:
            handler.join()
        self._socket.close()

    def _end_reading(self) -> None:
        """Give up requests that have not arrived completely; the others are still answered."""
        with self._guard:
            for peer in self._handlers.values():
                with contextlib.suppress(OSError):
                    peer.shutdown(socket.SHUT_RD)

    def forget(self) -> None:
        """In a forked child: the socket and the requests being served belong to the parent."""
        self._is_closed = True
        self._socket.close()
        for peer in self._handlers.values():
            peer.close()


def _check_fields(config: dict[str, Any]) -> None:
    """Refuse fields that would clash with parameters, since the fields become keyword arguments."""
    for field in ("self", "name"):
        if field in config:
            raise StoreError(f"the configuration of a stream has no field {field!r} here")


def _decode(line: bytes) -> Adopt | Create:
    try:
        found: Adopt | Create = _REQUEST.decode(line)
    except RecursionError:
        raise StoreError("the request is nested too deeply") from None
    except ValueError as error:  # msgspec's errors are ValueErrors
        raise StoreError(f"a request to the writer of a store is adopt or create: {error}") from None
    return found


def _encode(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def ask(path: str | os.PathLike[str], request: dict[str, Any]) -> dict[str, Any]:
    """Send a request to the writer of the store at `path` and return its answer; its errors are raised here. Raises
    ConnectionError if there is no writer."""
    root = os.path.abspath(os.fspath(path))
    name = (holder_of(root) or {}).get("door")
    if not isinstance(name, str):
        raise ConnectionRefusedError(f"{root}: its writer takes no requests")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        _connect(peer, name, root)
        _check_writer(peer_of(peer), root)
        with contextlib.suppress(
            BrokenPipeError, ConnectionResetError
        ):  # refused before it was read: the answer gives the reason
            peer.settimeout(ANSWER_S)
            peer.sendall(json.dumps(request).encode() + b"\n")
        try:
            line = _read_line(peer, ANSWER_S)
        except ConnectionResetError as error:
            raise ConnectionResetError(f"{root}: its writer went away before it answered") from error
    answer: dict[str, Any] = json.loads(line)
    if "ok" in answer:
        result: dict[str, Any] = answer["ok"]
        return result
    raise _error(answer["error"], answer["text"])


def _connect(peer: socket.socket, name: str, root: str) -> None:
    """Connect to the writer; if its queue is full, which refuses at once, try again for CONNECT_S."""
    until = time.monotonic() + CONNECT_S
    peer.settimeout(CONNECT_S)
    while True:
        try:
            peer.connect("\0" + name)
        except BlockingIOError:
            if time.monotonic() > until:
                raise ConnectionRefusedError(f"{root}: its writer has taken no request for {CONNECT_S:g} s") from None
            time.sleep(CONNECT_RETRY_S)
        else:
            return


def _check_writer(writer: Peer, root: str) -> None:
    """Refuse a listener of another user: once its owner is gone, anybody can bind an abstract name."""
    if writer.uid not in may_write(root, unclear_uids()):
        raise StoreError(
            f"{root}: {writer} listens at the control socket of its writer, and is not the store's owner: "
            "what it answers is not trusted. Run this as the user that the writer runs as"
        )


def _error(name: str, text: str) -> PenstockError:
    """The Penstock error that the other process raised, or a StoreError with its text."""
    kind: Callable[[str], PenstockError] | None = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.ApiError):
        error = errors.ApiError.__new__(kind)
        errors.ApiError.__init__(error, text)
        return error
    return StoreError(text)


def _read_line(peer: socket.socket, seconds: float, begin_large: Callable[[], object] | None = None) -> bytes:
    """Read one line, which must arrive completely within `seconds`. `begin_large` is called before a line takes much
    memory; the time it waits does not count."""
    until = time.monotonic() + seconds
    line = bytearray()
    while not line.endswith(b"\n"):
        peer.settimeout(max(until - time.monotonic(), 0.001))
        part = peer.recv(1 << 16)
        if not part:
            raise ConnectionResetError("the other side went before the end of the line")
        line += part
        if len(line) > REQUEST_MAX:
            raise StoreError(f"more than {REQUEST_MAX >> 20} MiB in one request: write with fewer tasks (coalesce)")
        if len(line) > LARGE and begin_large is not None:
            began = time.monotonic()
            begin_large()
            until += time.monotonic() - began
            begin_large = None
    return bytes(line)
