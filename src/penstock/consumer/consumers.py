"""Consumers: all consumers of one stream: which exist, what the log stores about them, and which messages no consumer
needs any more.

Used under the stream's lock. A change takes effect in memory at once; `flush`, at the end of a loop iteration, hands
the changes to the log and deletes the messages that work-queue and interest streams no longer need. Rules:
docs/consumers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from penstock.base.subject import Filters, covers
from penstock.consumer.ack_table import AckTable
from penstock.consumer.config import ConsumerConfig
from penstock.consumer.consumer import (
    POLICIES,
    Consumer,
    Meta,
    decode_meta,
    encode_meta,
    last_seqs,
    table_of,
    wait_max_ns,
)
from penstock.consumer.engine import ConsumerEngine, let_go, retire, sweep
from penstock.consumer.rules import Admission
from penstock.format.constants import REASONS
from penstock.store.file_store import FileStore
from penstock.store.read.block_cache import BlockCache

if TYPE_CHECKING:
    from penstock.store.consumer_log.consumer_log import ConsumerLog, Entry
    from penstock.stream.stream import StreamRules

ACK, INTEREST = REASONS.index("ack"), REASONS.index("interest")
EVERYTHING = 2**62
Listener = Callable[[Consumer, str], None]


class Consumers:
    """The consumers of one stream.

    Always true: `by_name` has every consumer; the stream's rules know the subjects that the consumers want.
    """

    def __init__(self, rules: StreamRules, log: ConsumerLog | None, entries: Mapping[int, Entry] | None = None) -> None:
        """`log` is None for a stream in memory, and for a reader beside a writer, which passes the `entries` that it
        found."""
        self.rules = rules
        self.store = rules.store
        self.log = log
        self.by_name: dict[str, Consumer] = {}
        self.on_change: list[Listener] = []
        self._unread: dict[int, Entry] = {}  # consumers whose configuration cannot be read
        self.windows = BlockCache()
        self._touched: dict[Consumer, None] = {}
        self._offset_ns = self.store.clock.offset_ns
        self._has_changed = False  # a consumer was created, changed or deleted since the last flush
        self._was_rolled_back = False  # unneeded messages may have reappeared
        self._engines: list[ConsumerEngine] = []
        if entries is not None:
            self._load(entries)
        elif log is not None:
            self._load(log.entries)
            log.forget_entries()
        for engine in self._engines:
            engine.collects = self._retention != "limits"
        self._use_interest()
        self._reconcile()
        self.store.on_rollback.append(self._rolled_back)

    def _load(self, entries: Mapping[int, Entry]) -> None:
        for number, entry in entries.items():
            try:
                meta = decode_meta(entry.meta)
            except ValueError as error:
                self._unread[number] = entry
                self._found(f"consumer number {number}: its configuration cannot be read; it is kept: {error}")
                continue
            try:
                table = table_of(meta, entry.state, entry.notes, self.rules.last_seq)
                table.follow(self.store.clock, self.store.clock.now_ns(), wait_max_ns(meta.config))
            except ValueError as error:
                table = AckTable(POLICIES[meta.config.ack_policy], self._start(meta.config)[0])
                self._found(f"consumer {meta.name}: its state cannot be read, and it begins anew: {error}")
                if self.log is not None:
                    self.log.require_fold()  # later changes do not apply to the stored state
            table.logged = True
            self._add(Consumer(meta, number, self.store, table, self.windows))

    def _found(self, text: str) -> None:
        self.store.report.add("set aside", "consumers", text)

    def _add(self, consumer: Consumer) -> None:
        self.by_name[consumer.name] = consumer
        self._engines.append(consumer.engine)
        consumer.engine.collects = self._retention != "limits"

    def _reconcile(self) -> None:
        """Bring stream and log together: a crash may have cut them off at different moments."""
        if not self.store.is_writable:
            return
        if isinstance(self.store, FileStore):
            # A consumer that was reset to, or created at, a sequence far above the end has delivered nothing there.
            tables = [one.table for one in self.by_name.values() if one.table.delivered_consumer_seq]
            self.store.lose_up_to(max((table.delivered_stream_seq for table in tables), default=0))
        for consumer in self.by_name.values():
            consumer.engine.reconcile()
            self.touch(consumer)
        retention = self._retention
        if retention == "interest" or (retention == "workqueue" and self.by_name):
            if isinstance(self.store, FileStore):
                self.store.deferred_writes.do(self._sweep)
            else:
                self._sweep()

    def _sweep(self) -> None:
        """Delete all messages that no consumer needs any more, whatever left them behind."""
        removed = sweep(
            self.store.engine,
            self._engines,
            self._retention == "workqueue",
            self._reason,
            self.store.clock.now_ns(),
        )
        if removed:
            self.store.commit()

    # Creating and deleting.

    @property
    def configs(self) -> Mapping[str, ConsumerConfig]:
        return {name: consumer.config for name, consumer in self.by_name.items()}

    def __call__(self) -> list[str]:
        """The names of the consumers, sorted: `stream.consumers()`. It needs no lock."""
        return sorted(list(self.by_name))  # list() is atomic, even while other threads add or delete consumers

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(tuple(self.by_name.values()))

    def create(self, admission: Admission) -> Consumer:
        """Create or change the consumer that `rules.admit` has accepted."""
        consumer = self.by_name.get(admission.name)
        if consumer is not None:
            if consumer.config != admission.config:
                self.set_config(consumer, admission.config)
            return consumer
        now = self.store.clock.now_ns()
        config = admission.config
        start, resume, lasts = self._start(config)
        is_kept = self.log is not None and not config.mem_storage
        number = self.log.next_number if self.log is not None and is_kept else 0
        table = AckTable(POLICIES[config.ack_policy], start)
        table.logged = is_kept
        replay_to = self.rules.last_seq if config.replay_policy == "original" else 0
        meta = Meta(admission.name, now + self.store.clock.offset_ns, config, resume, replay_to)
        consumer = Consumer(meta, number, self.store, table, self.windows, lasts)
        consumer.made_ns = now
        self._add(consumer)
        if is_kept:
            self._put(consumer)
        self._has_changed = True
        self._use_interest()
        self._tell(consumer, "create")
        return consumer

    def _start(self, config: ConsumerConfig) -> tuple[int, int, list[int]]:
        """The first sequence to deliver; with a list of the last sequence of each subject, the sequence to continue
        from after it (0: no list); and the list."""
        store, policy, resume = self.store, config.deliver_policy, 0
        lasts: list[int] = []
        last = self.rules.last_seq
        start = first = store.index.first_seq
        if policy == "last":
            start = store.query.last_seq(config.filters) if config.filters else last
        elif policy == "new":
            start = last + 1
        elif policy == "by_start_sequence":
            start = config.opt_start_seq
        elif policy == "by_start_time":
            start = store.seq_from_time(config.opt_start_ns or 0)
            # nats-server skips ahead to a filter's first message, unless that is the stream's last one.
            firsts = [store.query.next_seq((one,), first) for one in config.filters]
            start = min((seq for seq in firsts if start <= seq < last), default=start)
        elif policy == "last_per_subject" and self.rules.config.max_msgs_per_subject != 1:
            lasts = last_seqs(store, config.filters, last)
            resume = last + 1
            start = lasts[0] if lasts else last
        start = max(start, first, 1)
        return (start if policy == "by_start_sequence" else min(start, last + 1)), resume, lasts

    def set_config(self, consumer: Consumer, config: ConsumerConfig) -> None:
        """Change a consumer's configuration, because of an update or a pause."""
        has_filters = config.filters != consumer.config.filters
        consumer.use(config)
        if consumer.number:
            self._put(consumer)
        self._has_changed = True
        self._use_interest()
        if has_filters:
            self.drop_unneeded()
        self._tell(consumer, "update")

    def reset(self, consumer: Consumer, seq: int) -> None:
        """Deliver from `seq` on again, with consumer sequences from 1."""
        table = AckTable(consumer.table.policy, max(seq, 1))
        table.logged = bool(consumer.number)
        consumer.engine.go_to(table)
        consumer.engine.last_delivered_ns = consumer.engine.last_acked_ns = 0
        if consumer.number:
            self._put(consumer)
        self._has_changed = True
        self.drop_unneeded()  # no other consumer may need the messages that it skips

    def delete(self, name: str, *, lets_go: bool = True) -> Consumer:
        """Delete a consumer; KeyError if there is none. On an interest stream, the messages that only it needed are
        deleted too.

        There may be many. A caller that does not want to wait for that passes lets_go=False, calls `let_go` until it
        returns 0, and then releases the engine.
        """
        consumer = self.by_name.pop(name)
        consumer.is_deleted = True
        consumer.engine.close()
        self._engines.remove(consumer.engine)
        self._touched.pop(consumer, None)
        if consumer.number and self.log is not None:
            self.log.remove(consumer.number)
        self._has_changed = True
        self._use_interest()
        if lets_go:
            self.let_go(consumer, EVERYTHING)
            consumer.engine.release()
        self._tell(consumer, "delete")
        return consumer

    def let_go(self, gone: Consumer, most: int, start: int = 0) -> int:
        """Interest retention: delete messages that only `gone`, a deleted consumer, needed; look at up to `most`
        messages.

        Returns the sequence to continue from; 0: all done. Whatever is left undone is done at the next open.
        """
        if self._retention != "interest":
            return 0
        before = self.store.index.messages
        now = self.store.clock.now_ns()
        start = let_go(self.store.engine, gone.engine, self._engines, start, most, INTEREST, now)
        if self.store.index.messages < before:
            self.store.submit()
        return start

    def _put(self, consumer: Consumer) -> None:
        assert self.log is not None
        consumer.table.changes()  # discarded: the encoded state includes them
        self.log.put(consumer.number, encode_meta(consumer.meta), consumer.table.encode())
        self._note_time((consumer,))

    def _tell(self, consumer: Consumer, what: str) -> None:
        for listener in tuple(self.on_change):
            listener(consumer, what)

    # Interest.

    def _use_interest(self) -> None:
        """Tell the stream's rules which subjects the consumers want."""
        if self.rules.config.retention != "interest":
            self.rules.interest = None
            return
        filters = {">"} if self._unread else set()
        for consumer in self.by_name.values():
            filters.update(consumer.config.filters or (">",))
        self.rules.interest = Filters([">"] if ">" in filters else sorted(filters)) if filters else None

    @property
    def _retention(self) -> str:
        """The stream's retention; "limits" in place of "interest" while a consumer's configuration cannot be read: as
        its interest is unknown, nothing is deleted."""
        retention = self.rules.config.retention
        return "limits" if self._unread and retention == "interest" else retention

    @property
    def _reason(self) -> int:
        return ACK if self._retention == "workqueue" else INTEREST

    def drop_unneeded(self) -> None:
        """Interest retention: delete messages that no consumer wants (any more)."""
        if (
            self._retention == "interest"
            and not self.store.has_deferred_writes
            and sweep(self.store.engine, self._engines, False, INTEREST, self.store.clock.now_ns())
        ):
            self.store.submit()

    def configured(self) -> None:
        """Called when the stream's configuration has changed."""
        retention = self._retention
        for consumer in self.by_name.values():
            consumer.engine.collects = retention != "limits"
        self._use_interest()
        self.drop_unneeded()

    def purged(self, subject: str = "") -> None:
        """The stream was purged of a subject: consumers that want nothing else continue at the stream's beginning."""
        first = self.store.index.first_seq
        for consumer in self.by_name.values():
            filters = consumer.config.filters or (">",)
            if subject in ("", ">") or all(covers(subject, one) for one in filters):
                consumer.engine.purged(first)
            self.touch(consumer)

    # The log.

    def touch(self, consumer: Consumer) -> None:
        """Note that a consumer has delivered a message or received an ack."""
        self._touched[consumer] = None

    def touch_all(self) -> None:
        """Messages left the stream: note that every consumer may have lost pending ones."""
        for consumer in self.by_name.values():
            self._touched[consumer] = None

    def flush(self) -> int:
        """Hand all changes to the log, and delete messages that no consumer needs any more; returns the log's position.

        This does not wait for a disk.
        """
        touched, self._touched = self._touched, {}
        try:
            if self._retention != "limits" and touched and not self.store.has_deferred_writes and self._retire():
                self.store.submit()
        finally:
            position = self._write_down(touched)
        return position

    def _retire(self) -> int:
        """Delete messages that consumers have finished with and no other consumer needs; returns how many."""
        stream_engine, now = self.store.engine, self.store.clock.now_ns()
        removed = retire(stream_engine, self._engines, self._reason, now)
        if self._was_rolled_back and self.store.engine.log.failure() is None:
            self._was_rolled_back = False
            removed += sweep(stream_engine, self._engines, self._retention == "workqueue", self._reason, now)
        return removed

    def _rolled_back(self, seq: int) -> None:
        """A commit has failed: its deletes are undone."""
        self._was_rolled_back = True

    def _write_down(self, touched: Iterable[Consumer]) -> int:
        """Hand all changes to the log; returns the log's position after them."""
        log = self.log
        if log is None:
            return 0
        has_notes, now = self._has_changed, 0
        for consumer in touched:
            if consumer.number and not consumer.is_deleted:
                if consumer.table.has_moved:
                    now = now or self.store.clock.now_ns()
                    consumer.table.note_time(now)
                changes = consumer.table.changes()
                if changes:
                    log.note(consumer.number, changes)
                    has_notes = True
        self._has_changed = False
        if (
            self._offset_ns != self.store.clock.offset_ns
        ):  # the clock was set: store the pending messages with new times
            self._offset_ns = self.store.clock.offset_ns
            if any(consumer.number and consumer.table.pending_count for consumer in self.by_name.values()):
                log.require_fold()
        if log.wants_fold:  # it has grown, was invalid, or a write failed: fold even without changes
            self._fold(log)
        elif not has_notes:
            return log.position
        return log.submit()

    def _fold(self, log: ConsumerLog) -> None:
        kept = [consumer for consumer in self.by_name.values() if consumer.number]
        for consumer in kept:
            consumer.table.changes()  # discarded: the encoded states include them
        told = [(consumer.number, encode_meta(consumer.meta), consumer.table.encode()) for consumer in kept]
        log.fold(told + [(number, entry.meta, entry.state) for number, entry in self._unread.items()])
        for number, entry in self._unread.items():
            for note in entry.notes:
                log.note(number, note)
        self._note_time(kept)

    def _note_time(self, told: Iterable[Consumer]) -> None:
        """A state holds the times at which messages are due again, but not the time at which those were set. A note
        adds it, so that the next open can detect that the machine's clock went back meanwhile."""
        now = self.store.clock.now_ns()
        for consumer in told:
            if self.log is not None and consumer.table.pending_count:
                consumer.table.note_time(now)
                self.log.note(consumer.number, consumer.table.changes())

    def is_durable(self, position: int) -> bool:
        """Whether everything up to `position`, which `flush` returned, is safe at the store's durability."""
        return self.log is None or self.log.committed(position)

    def sync(self, position: int) -> None:
        """Have a commit thread make everything up to `position` durable, and announce it on the log's eventfd."""
        if self.log is not None:
            self.log.sync(position)

    def wait(self) -> None:
        """Make everything flushed durable, in this thread; raises if that fails."""
        if self.log is not None:
            self.log.wait()

    def close(self) -> None:
        """Write everything down; nothing is delivered any more."""
        if self.log is not None:
            self.touch_all()
            self.log.retry()  # a failed write is tried once more
            self.flush()
            self.log.close()
        self._release()

    def abandon(self) -> None:
        """Close without writing."""
        if self.log is not None:
            self.log.abandon()
        self._release()

    def stop_counting(self) -> None:
        """Stop following the stream: the consumers stay a snapshot, for a reader that moves on."""
        for engine in self._engines:
            engine.close()
        if self._rolled_back in self.store.on_rollback:
            self.store.on_rollback.remove(self._rolled_back)
        self.windows.clear()

    def _release(self) -> None:
        """Closed for good: free the pending state, which is written down or no longer of use."""
        for engine in self._engines:
            engine.release()
        self.windows.clear()
