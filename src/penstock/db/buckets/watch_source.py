"""WatchSource: the messages of a watch, without waiting: first the stored ones, then None, then new ones."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Literal, NamedTuple

from penstock.db.stream import Stream
from penstock.errors import ReadError
from penstock.store.read.message import Message

What = Literal["last", "all", "new"]
TAKE_MAX = 256  # messages per `take`, each read briefly under the stream's lock
_END = 2**63 - 1


class Fed(NamedTuple):
    message: Message
    delta: int  # how many of the initial messages are still to come after it


class WatchSource:
    """The messages that match some filters: initially the newest of each subject ("last"), all from a sequence on
    ("all"), or none ("new"), as of the source's creation; then every later one. Used by one thread at a time."""

    def __init__(self, stream: Stream, filters: list[str], what: What, start_seq: int = 1) -> None:
        self._stream = stream
        self._filters = filters
        self._seqs: deque[int] = deque()
        self._left = 0  # initial messages still to come, if they are not listed
        if what == "new":
            self._stop_seq = stream._fresh(lambda store: store.engine.committed_seq) + 1
        else:
            with stream.locked():
                store = stream._settled()
                self._stop_seq = store.engine.committed_seq + 1
                if what == "last":
                    self._seqs.extend(store.last_seqs(filters))
                else:
                    self._left = store.num_pending(start_seq, filters)
        self._next_seq = min(start_seq, self._stop_seq) if what == "all" else self._stop_seq
        self._is_marker_due = what != "new"

    def take(self) -> list[Fed | None]:
        """The messages that are ready, at most TAKE_MAX; None among them marks the end of the initial ones."""
        if self._seqs:
            return self._listed()
        if self._next_seq < self._stop_seq:
            found = self._run(self._stop_seq)
            if not found:
                self._next_seq = self._stop_seq
            return found or self.take()
        if self._is_marker_due:
            self._is_marker_due = False
            return [None]
        return self._run(_END)

    def _listed(self) -> list[Fed | None]:
        found: list[Fed | None] = []
        while self._seqs and len(found) < TAKE_MAX:
            seq = self._seqs.popleft()
            try:
                message = self._stream.get(seq)
            except ReadError:
                continue  # it was removed meanwhile: its replacement, if there is one, comes later
            found.append(Fed(message, len(self._seqs)))
        return found or self.take()

    def _run(self, stop: int) -> list[Fed | None]:
        reader = self._stream._reader(self._filters, self._next_seq, stop)
        found: list[Fed | None] = []
        for message in islice(self._stream._chunks(reader), TAKE_MAX):
            self._left = max(self._left - 1, 0)
            self._next_seq = message.seq + 1
            found.append(Fed(message, self._left))
        if not found:
            self._next_seq = min(max(self._next_seq, reader.next_seq), stop)
        return found
