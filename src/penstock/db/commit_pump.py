"""CommitPump: makes what is appended to a stream durable, for all threads and event loops of this process that share
it.

A thread calls `publish` and waits for the disk itself, without the lock. An event loop never waits: it commits through
a LoopCommits (db/loop_commits.py), which shares this lock. Rules: ARCHITECTURE.md, "Commit".
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from penstock.errors import ApiError, ForkedHandle, StoreClosed
from penstock.store.file_store import FileStore
from penstock.store.write.batch import Batch
from penstock.stream.stream import StreamRules


class CommitPump:
    """The lock of one stream, the commits of its threads, and the listeners that are called after each commit.

    Always true: no thread waits for the disk's sync while it holds the lock, so everything appended meanwhile shares
    the next sync.
    """

    def __init__(self, rules: StreamRules) -> None:
        self.rules = rules
        store = rules.store
        self.waits_for_disk = isinstance(store, FileStore) and store.durability == "disk"
        self.listeners: list[Callable[[], None]] = []  # called after commits, in the thread of whoever committed
        self.is_forked = False  # this process is not the one that opened the stream
        self._make_lock()

    def _make_lock(self) -> None:
        # `try_lock` and `unlock` are the lock's own methods: the server calls them several times in each tick.
        self.lock = threading.RLock()
        self.try_lock: Callable[[], bool] = partial(self.lock.acquire, False)
        self.unlock: Callable[[], None] = self.lock.release

    def after_fork(self) -> None:
        """In a forked child: refuse every later call. A lock that another thread of the parent held would never be
        released."""
        self.is_forked = True
        self._make_lock()

    def check_open(self) -> None:
        """Raise unless the stream is open in this process."""
        if self.rules.store.engine.is_closed:
            raise StoreClosed(f"stream {self.rules.config.name} is closed")
        if self.is_forked:
            raise ForkedHandle(f"stream {self.rules.config.name}")

    def publish(self, batch: Batch) -> tuple[list[tuple[int, ApiError]], dict[int, int]]:
        """Append a batch and return when it is safe at the store's durability. Returns the refused messages with their
        errors, and for each duplicate the sequence of the original. Raises, and forgets the batch, if the disk failed.
        """
        store = self.rules.store
        engine = store.engine
        with self.lock:
            if engine.is_closed or self.is_forked:
                self.check_open()
            taken = self.rules.take(batch)
            token = engine.begin_commit()
            if not self.waits_for_disk:
                engine.end_commit(token, engine.wait())
                store.after_commit()
        if self.waits_for_disk:
            answer = engine.wait()
            with self.lock:
                engine.end_commit(token, answer)
                store.after_commit()
        if self.listeners:
            self.tell_listeners()
        return taken

    def tell_listeners(self) -> None:
        """Wake the threads that wait for new messages, or until a consumer below its max_ack_pending can deliver
        again."""
        for listener in tuple(self.listeners):  # a copy: listeners are added and removed meanwhile
            listener()
