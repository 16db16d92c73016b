"""What the caller of the library is told about reads, fetches, pull requests and batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors.api import ApiError
from penstock.errors.base import PenstockError

__all__ = [
    "EndOfStream",
    "FetchRefused",
    "MessageDeleted",
    "MessageNotFound",
    "PublishRefused",
    "PullRefused",
    "ReadError",
]


class ReadError(PenstockError):
    """A read found no message. The subclasses say why: past the end, deleted, never stored."""


class EndOfStream(ReadError):
    """The sequence lies above the last one."""

    def __init__(self, seq: int, last_seq: int) -> None:
        self.seq, self.last_seq = seq, last_seq
        super().__init__(f"sequence {seq} is past the end: the last one is {last_seq}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.seq, self.last_seq)


class MessageDeleted(ReadError):
    """The sequence held a message that was deleted, erased, purged or has expired."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        super().__init__(f"message {seq} was deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.seq,)


class MessageNotFound(ReadError):
    """No message has this sequence, or matches this subject."""

    def __init__(self, what: int | str) -> None:
        self.what = what
        super().__init__(f"no message {what}" if isinstance(what, int) else f"no message matches {what}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what,)


class PullRefused(PenstockError):
    """A pull request was answered with a status instead of messages; `str()` gives the status line."""

    def __init__(self, code: int, text: str) -> None:
        self.code, self.text = code, text
        super().__init__(code, text)

    def __str__(self) -> str:
        return f"{self.code} {self.text}"


class FetchRefused(PenstockError):
    """The library cannot fetch from this consumer, or not this many messages at once."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"nothing can be fetched from {what}: {why}")


class PublishRefused(PenstockError):
    """Some messages of a batch were refused; the others are stored.

    `refused` lists (index, error) in the order of the batch; `acks` is indexed like the batch and holds None where a
    message was refused. `count` messages were given.
    """

    def __init__(
        self,
        refused: Sequence[tuple[int, ApiError]],
        acks: Sequence[Any],
        count: int,
        first_subject: str = "",
    ) -> None:
        self.refused, self.acks, self.count, self.first_subject = list(refused), acks, count, first_subject
        index, why = self.refused[0]
        place = f"#{index} {first_subject}" if first_subject else f"#{index}"
        super().__init__(f"{len(self.refused)} of {count} messages refused; first: {place}: {why}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.refused, self.acks, self.count, self.first_subject)
