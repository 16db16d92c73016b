"""ClosedStore: what the core of a closed store asks instead of the store, which has given its memory back."""

from __future__ import annotations

from typing import NoReturn

from penstock.errors import ForkedHandle, StoreClosed


class ClosedStore:
    """Says that the stream is closed. It has the name alone: who keeps a reader or a core keeps no store with it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def refuse_closed(self) -> NoReturn:
        raise StoreClosed(f"stream {self._name} is closed")

    def refuse_forked(self) -> NoReturn:
        raise ForkedHandle(f"stream {self._name}")

    def commit_failed(self, position: int) -> NoReturn:
        """A thread that waited for its commit finds the stream closed, and the commit not made."""
        self.refuse_closed()

    def retry(self) -> NoReturn:
        self.refuse_closed()

    def undo_failed(self, error: BaseException) -> NoReturn:
        raise StoreClosed(f"stream {self._name} is closed") from error
