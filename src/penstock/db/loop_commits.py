"""LoopCommits: the commits of one event loop to one stream, for the async library and the server.

The loop appends under the stream's lock and calls `submit`; commit threads then write and sync. Each commit is
announced on an eventfd; the loop then calls `roll_back` if the commit failed, and `settle`. The loop never waits for
the disk, nor for another thread that holds the lock: it tries again after RETRY_S.
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
    """What one loop has submitted to a stream, and the futures that wait until it is durable. Used only by the loop's
    thread.

    Always true: each future that waits for a position is completed once, when the position is durable or known to be
    lost.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pump: CommitPump, notify_fd: int, *, tidies_in_thread: bool = False
    ) -> None:
        """`notify_fd`: the eventfd on which commits are announced. `tidies_in_thread`: run housekeeping that may take
        long in a thread."""
        self._loop = loop
        self._pump = pump
        self._try_lock, self._unlock = pump.try_lock, pump.unlock
        self._store = pump.rules.store
        self._engine = self._store.engine
        self._notify_fd = notify_fd
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # (position, done when that is durable)
        self.submitted = 0  # the log's position that this loop's last submit reached
        self.commit_began = 0.0  # when the first submit since `end_commit` was made; 0: there was none
        self.commit_s = 0.0  # how long the last commit took
        self._tidies_in_thread = tidies_in_thread
        self._tidy_s = 0.0  # how long the last housekeeping took
        self._tidying: asyncio.Future[None] | None = None
        self._last_warning = "", 0.0  # its text, and when it was logged
        self._engine.log.add_notify(notify_fd)

    @property
    def has_waiters(self) -> bool:
        """Whether any future waits until a position is durable."""
        return bool(self._waiting)

    @property
    def has_failed(self) -> bool:
        """Whether a commit failed: nothing more is committed before `roll_back`."""
        return self._engine.log.failure() is not None

    def is_durable(self, position: int) -> bool:
        """Whether what was appended up to `position` is durable, at the store's durability."""
        return self._engine.log.failure() is None and self._store.committed_position >= position

    def submit(self, begins: bool = False) -> bool:
        """Hand everything appended so far to the commit threads, which sync it once. Returns False if another thread
        holds the lock. `begins`: the loop has nothing else to do, and starts the write itself."""
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
        """Note that everything this loop submitted is committed."""
        self.commit_s = self._loop.time() - self.commit_began
        self.commit_began = 0.0

    def add_waiter(self, position: int) -> asyncio.Future[None]:
        """A future that completes when what was appended up to `position` is durable, and raises the disk's error if it
        was lost."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((position, future))
        return future

    def roll_back(self) -> bool:
        """After a failed commit, forget what was lost, so that its waiters can be told. Returns False if another thread
        holds the lock."""
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
        """After a commit or a roll-back: complete the futures whose position is reached, then `tidy`."""
        if self._waiting:
            self.wake_waiters()
        return self.tidy(then)

    def wake_waiters(self) -> None:
        """Complete the futures whose position is reached."""
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
            except Exception as error:  # noqa: BLE001 - it is passed to the waiting task
                future.set_exception(error)
            else:
                future.set_result(None)
        self._waiting = still

    # Housekeeping.

    def tidy(self, then: Callable[[], None] | None = None) -> bool:
        """Do the housekeeping that a commit makes possible, and call `then` under the same lock. Returns False if
        another thread holds the lock; that thread does the housekeeping when its own commit ends."""
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
        """Do the housekeeping in a thread. The loop runs on, but cannot append meanwhile, except while a checkpoint is
        prepared."""
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
        """Log a failure; the same text at most once a second."""
        now = self._loop.time()
        if text != self._last_warning[0] or now - self._last_warning[1] > WARNING_S:
            self._last_warning = text, now
            log.warning("%s", text)

    # Closing.

    def stop(self) -> None:
        """Stop announcing commits; the caller may then close the eventfd."""
        self._engine.log.remove_notify(self._notify_fd)

    def fail_waiters(self, error: Exception) -> None:
        """Fail all waiting futures: the fate of their positions will not become known."""
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
