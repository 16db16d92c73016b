"""The root of the tree, and the errors that belong to no larger group."""

from __future__ import annotations

from typing import Any

__all__ = [
    "BadHeader",
    "PenstockError",
    "ProtocolError",
    "UsageError",
]


class PenstockError(Exception):
    """Everything that Penstock raises on purpose."""


class UsageError(PenstockError):
    """The command cannot run with these arguments: one line says why, and what to write instead."""


class ProtocolError(PenstockError):
    """The peer broke the NATS protocol; the server answers -ERR with this text."""


class BadHeader(PenstockError, ValueError):
    """A header that cannot be written: its key or value would break the header block."""


def rebuild(kind: type[PenstockError], state: dict[str, Any]) -> PenstockError:
    """Unpickle an error whose arguments differ from its text. Spark and multiprocessing pickle errors."""
    error = kind.__new__(kind)
    error.args = tuple(state.pop("args", (state.get("description"),)))
    error.__dict__.update(state)
    return error
