"""Sinks: where log lines go. No sink ever blocks: a line that does not fit now is dropped and counted.

A server that waits for the reader of its log stands still. So pipes and terminals are written without blocking, through
a file description of their own, because O_NONBLOCK affects every process that shares the file description.
"""

from __future__ import annotations

import os
import re
import select
import socket
import stat
import time
from collections.abc import Callable
from typing import Protocol

from penstock.errors import PenstockError

PIPE_BUF = 4096  # writes of up to this size to a pipe are atomic
BACKUP = re.compile(r"\.\d{4}(\.\d{2}){5}\.\d{9}")


class LogError(PenstockError):
    """The log cannot be opened."""


class Sink(Protocol):
    """Writes whole lines; `write` returns False if it dropped the line."""

    def write(self, level: str, line: bytes) -> bool: ...

    def close(self) -> None: ...


class FdSink:
    """Writes lines to a file descriptor: standard error, whatever that is.

    Always true: a line that has begun is finished before the next one starts.
    """

    def __init__(self, fd: int) -> None:
        mode = os.fstat(fd).st_mode
        self.is_terminal = stat.S_ISCHR(mode)
        self._rest = b""  # the rest of a line that was written in part
        self._send: Callable[[bytes], int]
        self._own: int | None = None
        self._journal: socket.socket | None = None
        if stat.S_ISSOCK(mode):  # a journal
            journal = self._journal = socket.socket(fileno=os.dup(fd))
            self._send = lambda data: journal.send(data, socket.MSG_DONTWAIT)
        elif stat.S_ISFIFO(mode) or self.is_terminal:
            self._open_own(fd)
        else:
            self._send = lambda data: os.write(fd, data)

    def _open_own(self, fd: int) -> None:
        try:
            self._own = own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:  # another user's pipe, or no /proc: poll before each piece
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            self._send = lambda data: os.write(fd, data[:PIPE_BUF]) if poll.poll(0) else 0
        else:
            self._send = lambda data: os.write(own, data)

    def write(self, level: str, line: bytes) -> bool:
        if self._rest:
            self._rest = self._push(self._rest)
            if self._rest:
                return False
        rest = self._push(line)
        if len(rest) == len(line):
            return False
        self._rest = rest
        return True

    def _push(self, data: bytes) -> bytes:
        """Write `data`; returns what did not fit."""
        try:
            while data:
                count = self._send(data)
                if not count:
                    break
                data = data[count:]
        except BlockingIOError:
            pass  # full: `data` is the rest
        except OSError:
            return data  # the reader is gone or the disk is full: lines are lost, the server runs on
        return data

    def close(self) -> None:
        if self._rest:
            self._rest = self._push(self._rest)
        if self._own is not None:
            os.close(self._own)
            self._own = None
        if self._journal is not None:
            self._journal.close()


class FileSink:
    """Writes lines to a file. Beyond `size_max` the file is renamed with a time stamp, and a new one is begun."""

    def __init__(self, path: str, size_max: int = 0, count_max: int = 0) -> None:
        self.path = path
        self.size_max = size_max
        self.count_max = count_max
        self._size_next = size_max
        self._open()

    def _open(self) -> None:
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise LogError(f"error opening file: open {self.path}: {reason}") from error
        self._size = os.fstat(self._fd).st_size

    def write(self, level: str, line: bytes) -> bool:
        try:
            self._size += os.write(self._fd, line)
        except OSError:
            return False  # the disk is full: the line is counted, and reported later
        if self.size_max and self._size > self._size_next:
            self._rotate(line)
        return True

    def _rotate(self, line: bytes) -> None:
        now_ns = time.time_ns()
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.localtime(now_ns // 10**9))
        backup = f"{self.path}.{stamp}.{now_ns % 10**9:09d}"
        # The new file begins with the line's prefix: process id, and time if lines have one.
        prefix = line[: line.index(b"[", 1)] if b"[" in line[1:] else b""
        try:
            os.rename(self.path, backup)
            old = self._fd
            self._open()
            os.close(old)
        except (OSError, LogError) as error:
            self._size_next *= 2
            text = f"Unable to rotate the log file ({error}), the next attempt is at {self._size_next} bytes"
            self._note(prefix, "ERR", text)
            return
        self._size_next = self.size_max
        self._note(prefix, "INF", f'Rotated log, backup saved as "{backup}"')
        if self.count_max > 0:
            self._purge(prefix)

    def _purge(self, prefix: bytes) -> None:
        folder, name = os.path.split(self.path)
        backups = sorted(
            other
            for other in os.listdir(folder or ".")
            if other.startswith(name) and BACKUP.fullmatch(other[len(name) :])
        )
        for other in backups[: max(0, len(backups) - (self.count_max - 1))]:
            try:
                os.remove(os.path.join(folder, other))
            except OSError as error:
                text = f'Unable to remove backup log file "{other}" ({error}), will attempt next rotation'
                self._note(prefix, "ERR", text)
                return
            self._note(prefix, "INF", f'Purged log file "{other}"')

    def _note(self, prefix: bytes, label: str, text: str) -> None:
        try:
            self._size += os.write(self._fd, prefix + f"[{label}] {text}\n".encode("utf-8", "replace"))
        except OSError:
            self._size_next = max(self._size_next, self._size * 2)  # not even this can be written: try again later

    def close(self) -> None:
        os.close(self._fd)


class SyslogSink:
    """Writes lines to the local syslog, or to a remote one: udp://host:port, tcp://host:port, unix:///path."""

    SEVERITIES = {"FTL": 2, "ERR": 3, "WRN": 4, "INF": 5, "TRC": 5, "DBG": 7}

    def __init__(self, address: str = "", tag: str = "nats-server") -> None:
        self.is_remote = bool(address)
        self.tag = tag
        self.facility = 0 if self.is_remote else 3 << 3  # the local one knows us as a daemon
        try:
            self._socket = self._connect(address)
        except (OSError, ValueError) as error:
            raise LogError(f'error connecting to syslog: "{error}"') from error
        self._socket.setblocking(False)

    def _connect(self, address: str) -> socket.socket:
        from urllib.parse import urlsplit  # imported only if syslog is used

        url = urlsplit(address or "unix:///dev/log")
        if url.scheme not in ("udp", "tcp", "unix"):
            raise LogError(f'error invalid network type: "{url.scheme}"')
        family, where = socket.AF_UNIX, url.path
        kind = socket.SOCK_STREAM if url.scheme == "tcp" else socket.SOCK_DGRAM
        if url.scheme != "unix":
            family, _, _, _, where = socket.getaddrinfo(url.hostname, url.port or 514, type=kind)[0]  # type: ignore[assignment]
        made = socket.socket(family, kind)
        made.settimeout(5)
        try:
            made.connect(where)
        except OSError:
            made.close()
            raise
        return made

    def write(self, level: str, line: bytes) -> bool:
        priority = self.facility | self.SEVERITIES[level]
        if self.is_remote:
            head = f"<{priority}>{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {socket.gethostname()} "
        else:
            head = f"<{priority}>{time.strftime('%b %e %H:%M:%S')} "
        try:
            self._socket.send(f"{head}{self.tag}[{os.getpid()}]: ".encode() + line)
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()
