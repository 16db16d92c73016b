"""DeferredWrites: what the open of a stream has to write, and what of it had to be put off.

Reading makes a stream usable (recovery.py). Then its files are brought into order, step by step: the last block is
synced and sealed, losses are recorded, limits are kept. A step that the disk refuses (it is full, read-only, broken)
keeps nobody from reading: it is put off with all that come after it, writes are refused with what the system said, and
each write tries the rest first.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import WriteFailed
from penstock.store.index import loading

if TYPE_CHECKING:
    from penstock.store.file_store import FileStore

log = logging.getLogger("penstock")


class DeferredWrites:
    """The steps of one store's open, under the store's lock.

    Always true: steps are done in their order, each once; while any is left, the store's log takes no writes.
    """

    def __init__(self, store: FileStore, *, is_strict: bool = False) -> None:
        """`is_strict`: nothing is put off, the first step that fails raises."""
        self.store: FileStore = weakref.proxy(store)  # it owns us, and is freed without the garbage collector
        self._is_strict = is_strict
        self._steps: deque[Callable[[], object]] = deque()
        self._is_running = self._is_held = False
        self._code, self._place = errno.EIO, store.paths.root
        self.loop_thread = 0  # of a server, which leaves what is put off to other threads; 0: there is none
        self.last_seq = 0  # the highest sequence known to be given out, though no record may tell it yet

    @property
    def is_done(self) -> bool:
        return not self._steps

    @property
    def is_waiting(self) -> bool:
        """Something is put off, and nobody is at it."""
        return bool(self._steps) and not self._is_running

    def do(self, step: Callable[[], object]) -> bool:
        """Do a step now, or put it off; whether it is done."""
        if self._is_strict:
            step()
            return True
        self._steps.append(step)
        if len(self._steps) > 1:
            return False
        try:
            self._run()
        except (OSError, WriteFailed) as error:
            path = _path_of(error) or self.store.paths.root
            text = f"{os.strerror(self._code)}: the stream can be read, and takes writes once this can be written"
            self.store.report.add("put off", path, text)
            return False
        return True

    def resume(self) -> None:
        """Do what was put off; WriteFailed when that is still not possible."""
        if self._is_running or threading.get_ident() == self.loop_thread:
            raise self.store.rollback.failure()
        try:
            self._run()
        except OSError as error:
            raise self.store.rollback.failure() from error
        log.info("stream %s: its files are in order again, it takes writes", self.store.name)

    def _run(self) -> None:
        store = self.store
        self._is_running = True
        try:
            if self._is_held:
                store.engine.log.clear_failure()
                store.rollback.cut_files()
            while self._steps:
                self._steps[0]()
                self._steps.popleft()
            self._is_held = False
        except (OSError, WriteFailed) as error:
            self._hold(error)
            raise
        finally:
            self._is_running = False

    def forget(self) -> None:
        """The store is closed: what was put off is for the next open."""
        self._steps.clear()

    def hold_again(self) -> None:
        """The log's failure was dealt with; what is put off still keeps it from taking writes."""
        if self.is_waiting and self.store.engine.log.failure() is None:
            self.store.engine.log.hold(self._code, self._place, is_write=True)

    def _hold(self, error: OSError | WriteFailed) -> None:
        store = self.store
        self._is_held = True
        self._code, self._place = error.errno or errno.EIO, _path_of(error) or store.paths.root
        store.engine.log.hold(self._code, self._place, is_write=True)
        if store.index.last_seq < self.last_seq:
            # A record of those that are lost did not get through: they stay given out.
            loading.set_ends(store.index, store.index.floor, self.last_seq)
            store.engine.log.start_at(self.last_seq)


def _path_of(error: OSError | WriteFailed) -> str:
    return error.path if isinstance(error, WriteFailed) else str(error.filename or "")
