"""Peer credentials: which users may send requests to the writer of a store, and which users a caller accepts as that
writer.

The kernel tells which user is at the other end of a Unix socket, as a uid of our own user namespace. Users without a
uid there (those outside a container) all appear as the overflow uid, usually 65534, and so does the owner of a
directory: other users would pass for the owner. Where that can happen, the overflow uid is never trusted.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from dataclasses import dataclass

ROOT = 0
OVERFLOW_UID = 65534  # the kernel's default
UIDS = 2**32 - 1  # how many uids the initial user namespace maps
_CREDENTIALS = struct.Struct("=iII")


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a Unix socket: who connected, or who listens."""

    pid: int
    uid: int

    def __str__(self) -> str:
        return f"user {self.uid} (pid {self.pid})"


def peer_of(connected: socket.socket) -> Peer:
    """The process at the other end, as the kernel reports it."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)


def may_ask(root: str, unclear: frozenset[int]) -> frozenset[int]:
    """The users whose requests the writer of the store at `root` serves: its own user, the directory's owner, and
    root."""
    return frozenset({ROOT, os.geteuid(), os.stat(root).st_uid}) - unclear


def may_write(root: str, unclear: frozenset[int]) -> frozenset[int]:
    """The users that a caller accepts as the writer of the store at `root`: its own user, root, and the owners of the
    directory and of LOCK."""
    found = {ROOT, os.geteuid(), os.stat(root).st_uid}
    with contextlib.suppress(FileNotFoundError):
        found.add(os.stat(os.path.join(root, "LOCK")).st_uid)
    return frozenset(found) - unclear


def unclear_uids(proc: str = "/proc") -> frozenset[int]:
    """The uids that may stand for several users: the overflow uid, unless our user namespace maps every user."""
    try:
        with open(f"{proc}/self/uid_map", encoding="ascii") as file:
            mapped = sum(int(line.split()[2]) for line in file)
    except FileNotFoundError:
        return frozenset()  # a kernel without user namespaces: every user has a uid of its own
    if mapped >= UIDS:
        return frozenset()
    try:
        with open(f"{proc}/sys/kernel/overflowuid", encoding="ascii") as file:
            return frozenset({int(file.read())})
    except FileNotFoundError:
        return frozenset({OVERFLOW_UID})
