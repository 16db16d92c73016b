"""Peer credentials: which users may ask the writer of a store, and whom an asker takes for that writer.

The kernel says which user is at the other end of a Unix socket, in the numbers of our own user namespace. Users without
a number there (those outside a container) all appear as the overflow uid, usually 65534, and so does the owner of a
directory: strangers would pass for the owner. Where that can happen the overflow uid is trusted by nobody.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from dataclasses import dataclass

ROOT = 0
OVERFLOW_UID = 65534  # the kernel's default
UIDS = 2**32 - 1  # as many numbers as the initial user namespace maps
_CREDENTIALS = struct.Struct("=iII")


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a Unix socket: who connected, or who listens."""

    pid: int
    uid: int

    def __str__(self) -> str:
        return f"user {self.uid} (pid {self.pid})"


def peer_of(connected: socket.socket) -> Peer:
    """Who is at the other end, by the kernel's word."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)


def may_ask(root: str, unclear: frozenset[int]) -> frozenset[int]:
    """The users whose requests the writer of the store at `root` serves: its own, the directory's owner, and root."""
    return frozenset({ROOT, os.geteuid(), os.stat(root).st_uid}) - unclear


def may_write(root: str, unclear: frozenset[int]) -> frozenset[int]:
    """The users as whom the writer of the store at `root` may run, for those who ask it; LOCK's owner was one."""
    found = {ROOT, os.geteuid(), os.stat(root).st_uid}
    with contextlib.suppress(FileNotFoundError):
        found.add(os.stat(os.path.join(root, "LOCK")).st_uid)
    return frozenset(found) - unclear


def unclear_uids(proc: str = "/proc") -> frozenset[int]:
    """The uids that stand for several users: the overflow uid, unless every user has a number in our namespace."""
    try:
        with open(f"{proc}/self/uid_map", encoding="ascii") as file:
            mapped = sum(int(line.split()[2]) for line in file)
    except FileNotFoundError:
        return frozenset()  # a kernel without user namespaces: every user has its own number
    if mapped >= UIDS:
        return frozenset()
    try:
        with open(f"{proc}/sys/kernel/overflowuid", encoding="ascii") as file:
            return frozenset({int(file.read())})
    except FileNotFoundError:
        return frozenset({OVERFLOW_UID})
