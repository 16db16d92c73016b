"""Consumers: all consumers of one stream. Who there is, what is written down of them, and what nobody needs any more.

Under the stream's lock. A change is made in memory at once; `flush`, at the end of a turn, hands what has changed to
the log and deletes what work-queue and interest streams are done with. Rules: docs/consumers.md.
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

    Always true: `by_name` has every consumer there is; the stream's rules know what they are interested in.
    """

    def __init__(self, rules: StreamRules, log: ConsumerLog | None, entries: Mapping[int, Entry] | None = None) -> None:
        """`log` is None for a stream in memory, and for a reader beside a writer, which has found `entries`."""
        self.rules = rules
        self.store = rules.store
        self.log = log
        self.by_name: dict[str, Consumer] = {}
        self.on_change: list[Listener] = []
        self._unread: dict[int, Entry] = {}  # of consumers that we do not understand
        self.windows = BlockCache()
        self._touched: dict[Consumer, None] = {}
        self._offset_ns = self.store.clock.offset_ns
        self._has_changed = False  # somebody came, went or was changed since the last flush
        self._was_rolled_back = False  # what nobody needs any more may be there again
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
                    self.log.require_fold()  # what changes from now on says nothing of the state that is there
            table.logged = True
            self._add(Consumer(meta, number, self.store, table, self.windows))

    def _found(self, text: str) -> None:
        self.store.report.add("set aside", "consumers", text)

    def _add(self, consumer: Consumer) -> None:
        self.by_name[consumer.name] = consumer
        self._engines.append(consumer.engine)
        consumer.engine.collects = self._retention != "limits"

    def _reconcile(self) -> None:
        """The stream and the log may have been cut off at different moments."""
        if not self.store.is_writable:
            return
        if isinstance(self.store, FileStore):
            # One that was reset, or made to start, far above the end has delivered nothing from up there.
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
        """Delete what nobody needs any more, whoever it was that left it."""
        removed = sweep(
            self.store.engine,
            self._engines,
            self._retention == "workqueue",
            self._reason,
            self.store.clock.now_ns(),
        )
        if removed:
            self.store.commit()

    # Who there is.

    @property
    def configs(self) -> Mapping[str, ConsumerConfig]:
        return {name: consumer.config for name, consumer in self.by_name.items()}

    def __call__(self) -> list[str]:
        """The names of the consumers, sorted: `stream.consumers()`. It needs no lock."""
        return sorted(list(self.by_name))  # the list is made at once, whoever else comes or goes

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(tuple(self.by_name.values()))

    def create(self, admission: Admission) -> Consumer:
        """The consumer that `rules.admit` has let in, new or changed."""
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
        """The first sequence to deliver; where it goes on after the list of each subject's last (0: none); the list."""
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
            # The reference skips ahead to a filter's first message, unless that is the stream's last one.
            firsts = [store.query.next_seq((one,), first) for one in config.filters]
            start = min((seq for seq in firsts if start <= seq < last), default=start)
        elif policy == "last_per_subject" and self.rules.config.max_msgs_per_subject != 1:
            lasts = last_seqs(store, config.filters, last)
            resume = last + 1
            start = lasts[0] if lasts else last
        start = max(start, first, 1)
        return (start if policy == "by_start_sequence" else min(start, last + 1)), resume, lasts

    def set_config(self, consumer: Consumer, config: ConsumerConfig) -> None:
        """Change a consumer's configuration: by an update, a pause."""
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
        self.drop_unneeded()  # what it skips, somebody else may not want either

    def delete(self, name: str, *, lets_go: bool = True) -> Consumer:
        """Remove a consumer; KeyError where there is none. What only it needed goes with it on an interest stream.

        Who does not want to wait for that, as there may be much, calls `let_go` until it is done; then its engine can
        be released.
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
        """Interest retention: delete what only `gone` needed, which was deleted, after a look at `most` messages.

        Where to go on; 0: that was all. What is left undone is done at the next open.
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
        consumer.table.changes()  # the state has them
        self.log.put(consumer.number, encode_meta(consumer.meta), consumer.table.encode())
        self._note_time((consumer,))

    def _tell(self, consumer: Consumer, what: str) -> None:
        for listener in tuple(self.on_change):
            listener(consumer, what)

    # What they are interested in.

    def _use_interest(self) -> None:
        """Tell the stream's rules which subjects somebody wants."""
        if self.rules.config.retention != "interest":
            self.rules.interest = None
            return
        filters = {">"} if self._unread else set()
        for consumer in self.by_name.values():
            filters.update(consumer.config.filters or (">",))
        self.rules.interest = Filters([">"] if ">" in filters else sorted(filters)) if filters else None

    @property
    def _retention(self) -> str:
        """Nobody knows what a consumer needs that cannot be read: where interest decides, nothing is deleted then."""
        retention = self.rules.config.retention
        return "limits" if self._unread and retention == "interest" else retention

    @property
    def _reason(self) -> int:
        return ACK if self._retention == "workqueue" else INTEREST

    def drop_unneeded(self) -> None:
        """Interest retention: delete what no consumer wants (any more)."""
        if (
            self._retention == "interest"
            and not self.store.has_deferred_writes
            and sweep(self.store.engine, self._engines, False, INTEREST, self.store.clock.now_ns())
        ):
            self.store.submit()

    def configured(self) -> None:
        """The stream's configuration has changed."""
        retention = self._retention
        for consumer in self.by_name.values():
            consumer.engine.collects = retention != "limits"
        self._use_interest()
        self.drop_unneeded()

    def purged(self, subject: str = "") -> None:
        """The stream was purged of a subject: those who wanted nothing else go on at its beginning."""
        first = self.store.index.first_seq
        for consumer in self.by_name.values():
            filters = consumer.config.filters or (">",)
            if subject in ("", ">") or all(covers(subject, one) for one in filters):
                consumer.engine.purged(first)
            self.touch(consumer)

    # What is written down.

    def touch(self, consumer: Consumer) -> None:
        """It has delivered, or was told something."""
        self._touched[consumer] = None

    def touch_all(self) -> None:
        """Messages left the stream: whoever had one pending has changed."""
        for consumer in self.by_name.values():
            self._touched[consumer] = None

    def flush(self) -> int:
        """Write down what has changed, delete what nobody needs any more: the log's position after it.

        Nothing waits for a disk.
        """
        touched, self._touched = self._touched, {}
        try:
            if self._retention != "limits" and touched and not self.store.has_deferred_writes and self._retire():
                self.store.submit()
        finally:
            position = self._write_down(touched)
        return position

    def _retire(self) -> int:
        """Delete what consumers are done with and nobody else needs: how many."""
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
        """Hand what has changed to the log: its position after that."""
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
        if self._offset_ns != self.store.clock.offset_ns:  # it was set: what is pending is told anew, in its times
            self._offset_ns = self.store.clock.offset_ns
            if any(consumer.number and consumer.table.pending_count for consumer in self.by_name.values()):
                log.require_fold()
        if log.wants_fold:  # it has grown, or did not hold, or a write has failed: also where nothing has changed now
            self._fold(log)
        elif not has_notes:
            return log.position
        return log.submit()

    def _fold(self, log: ConsumerLog) -> None:
        kept = [consumer for consumer in self.by_name.values() if consumer.number]
        for consumer in kept:
            consumer.table.changes()  # the states have them
        told = [(consumer.number, encode_meta(consumer.meta), consumer.table.encode()) for consumer in kept]
        log.fold(told + [(number, entry.meta, entry.state) for number, entry in self._unread.items()])
        for number, entry in self._unread.items():
            for note in entry.notes:
                log.note(number, note)
        self._note_time(kept)

    def _note_time(self, told: Iterable[Consumer]) -> None:
        """A state says when messages are due again, but not how late it was when that was decided: a note does, so
        that an open sees where the machine's clock went back since."""
        now = self.store.clock.now_ns()
        for consumer in told:
            if self.log is not None and consumer.table.pending_count:
                consumer.table.note_time(now)
                self.log.note(consumer.number, consumer.table.changes())

    def is_durable(self, position: int) -> bool:
        """Whether what `flush` gave this position for is safe at the store's durability."""
        return self.log is None or self.log.committed(position)

    def sync(self, position: int) -> None:
        """Have a commit thread make it so; the log's eventfd is told."""
        if self.log is not None:
            self.log.sync(position)

    def wait(self) -> None:
        """Make all that was flushed so, in this thread; raises when that fails."""
        if self.log is not None:
            self.log.wait()

    def close(self) -> None:
        """Write everything down; nobody delivers any more."""
        if self.log is not None:
            self.touch_all()
            self.log.retry()  # a write that has failed is tried once more
            self.flush()
            self.log.close()
        self._release()

    def abandon(self) -> None:
        """Close without writing."""
        if self.log is not None:
            self.log.abandon()
        self._release()

    def stop_counting(self) -> None:
        """Stay as they are: a picture of the consumers, of a reader that goes on."""
        for engine in self._engines:
            engine.close()
        if self._rolled_back in self.store.on_rollback:
            self.store.on_rollback.remove(self._rolled_back)
        self.windows.clear()

    def _release(self) -> None:
        """Closed for good: what they have pending is written down, or of no use any more."""
        for engine in self._engines:
            engine.release()
        self.windows.clear()
