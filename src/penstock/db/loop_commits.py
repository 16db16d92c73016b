"""LoopCommits: the commits of one event loop to one stream: the async library's and the server's.

The loop appends under the stream's lock and calls `submit`: commit threads write and sync. Each commit is announced on
an eventfd; the loop then calls `roll_back` where one failed, and `settle`. The loop waits neither for the disk nor for
another thread that holds the lock: it tries again after RETRY_S.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from penstock.db.commit_pump import CommitPump
from penstock.errors import StoreError

SUBMIT_BYTES = 1 << 18  # an append this large is worth a sync of its own: the disk works while the loop appends more
RETRY_S = 0.001  # until the next attempt to take a lock that another thread holds
SLOW_DISK_S = 0.03  # a disk that takes longer than this is not waited for in the loop
WARNING_S = 1.0  # between two warnings with the same text
log = logging.getLogger("penstock")


class LoopCommits:
    """What one loop has submitted to a stream, and who waits there until it is durable. Belongs to the loop's thread.

    Always true: whoever waits for a position is told once, when that is durable or known to be lost.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pump: CommitPump, notify_fd: int, *, tidies_in_thread: bool = False
    ) -> None:
        """`notify_fd`: the eventfd on which commits are announced. `tidies_in_thread`: housekeeping that may take long
        is left to a thread."""
        self._loop = loop
        self._pump = pump
        self._try_lock, self._unlock = pump.try_lock, pump.unlock
        self._store = pump.rules.store
        self._engine = self._store.engine
        self._notify_fd = notify_fd
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # (position, done when that is durable)
        self.submitted = 0  # the log's position up to which this loop's last submit went
        self.commit_began = 0.0  # when the first submit since `end_commit` was made; 0: there was none
        self.commit_s = 0.0  # how long the last commit took
        self._tidies_in_thread = tidies_in_thread
        self._tidy_s = 0.0  # how long the last housekeeping took
        self._tidying: asyncio.Future[None] | None = None
        self._last_warning = "", 0.0  # and when that was
        self._engine.log.add_notify(notify_fd)

    @property
    def has_waiters(self) -> bool:
        """Somebody waits until a position is durable."""
        return bool(self._waiting)

    @property
    def has_failed(self) -> bool:
        """A commit failed: nothing more is committed before `roll_back`."""
        return self._engine.log.failure() is not None

    def is_durable(self, position: int) -> bool:
        """Whether what was appended up to `position` is durable, at the store's durability."""
        return self._engine.log.failure() is None and self._store.committed_position >= position

    def submit(self, begins: bool = False) -> bool:
        """Hand all that was appended to the commit threads: one sync for all of it. False: another thread holds the
        lock. `begins`: the loop has nothing else to do, and begins with the writing itself."""
        if not self._try_lock():
            return False
        try:
            if not self._engine.is_closed:
                self.submitted = self._store.submit(begins)
                self.commit_began = self.commit_began or self._loop.time()
        finally:
            self._unlock()
        return True

    def end_commit(self) -> None:
        """All that this loop submitted is committed."""
        self.commit_s = self._loop.time() - self.commit_began
        self.commit_began = 0.0

    def add_waiter(self, position: int) -> asyncio.Future[None]:
        """A future that is done when what was appended up to `position` is durable, and raises the disk's error when it
        was lost."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((position, future))
        return future

    def roll_back(self) -> bool:
        """After a failed commit: forget what was not kept, so that those who wait for it can be told. False: another
        thread holds the lock."""
        if not self._try_lock():
            return False
        try:
            self._store.retry()
        except StoreError as error:
            self.warn(f"stream {self._store.name}: {error}")  # the next publish is refused with it
        finally:
            self._unlock()
        return True

    def settle(self, then: Callable[[], None] | None = None) -> bool:
        """A commit has ended, or was rolled back: tell those whose position is reached, then `tidy`."""
        if self._waiting:
            self.wake_waiters()
        return self.tidy(then)

    def wake_waiters(self) -> None:
        """Tell those whose position is reached."""
        position = self._store.committed_position
        still: list[tuple[int, asyncio.Future[None]]] = []
        for wanted, future in self._waiting:
            if future.done():
                continue
            if wanted > position:
                still.append((wanted, future))
                continue
            try:
                self._store.check_position(wanted)
            except Exception as error:  # noqa: BLE001 - it is handed to the one who waits
                future.set_exception(error)
            else:
                future.set_result(None)
        self._waiting = still

    # Housekeeping.

    def tidy(self, then: Callable[[], None] | None = None) -> bool:
        """Do the housekeeping that a commit makes possible, and call `then` under the same lock. False: another thread
        holds the lock; it does the housekeeping when its own commit ends."""
        if not self._try_lock():
            return False
        try:
            if not self._engine.is_closed:
                self._engine.note_committed()
                if self._store.needs_cleanup:
                    self._tidy_store()
                if then is not None:
                    then()
        finally:
            self._unlock()
        return True

    def _tidy_store(self) -> None:
        is_quick = max(self.commit_s, self._tidy_s) < SLOW_DISK_S and not self._store.is_checkpoint_due
        if is_quick or not self._tidies_in_thread:
            began = self._loop.time()
            self._store.after_commit()
            self._tidy_s = self._loop.time() - began
        elif self._tidying is None:
            self._tidying = self._loop.run_in_executor(None, self._tidy_in_thread)
            self._tidying.add_done_callback(self._tidied)

    def _tidy_in_thread(self) -> None:
        """The same while the loop serves others. It cannot append meanwhile, except while a checkpoint is prepared."""
        if self._store.is_checkpoint_due:
            self._store.prepare_checkpoint()
        with self._pump.lock:
            if not self._engine.is_closed:
                is_long = self._store.is_checkpoint_due
                began = time.monotonic()
                self._store.after_commit()
                self._tidy_s = 0.0 if is_long else time.monotonic() - began

    def _tidied(self, done: asyncio.Future[None]) -> None:
        self._tidying = None
        if not done.cancelled() and done.exception() is not None:
            self.warn(f"stream {self._store.name}: {done.exception()}")

    def warn(self, text: str) -> None:
        """Log a failure; one with the same text at most once a second."""
        now = self._loop.time()
        if text != self._last_warning[0] or now - self._last_warning[1] > WARNING_S:
            self._last_warning = text, now
            log.warning("%s", text)

    # The end.

    def stop(self) -> None:
        """Have no more commits announced: the caller may close the eventfd then."""
        self._engine.log.remove_notify(self._notify_fd)

    def fail_waiters(self, error: Exception) -> None:
        """Nobody will know any more what became of the positions that are waited for."""
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
