"""Store: the interface of every store, and all of it that touches no files (docs/behaviours.md, F2, F3, F6, F7).

A message enters by `append` and is durable after `commit` (or once `committed_position` has reached the position that
`submit` returned). Everything else here is built on those two, the index and the reader. FileStore and MemoryStore keep
the blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from penstock.base.clock import Clock
from penstock.base.seq_set import SeqSet
from penstock.base.subject import Filters, covers
from penstock.base.timing_wheel import TimingWheel
from penstock.errors import (
    CorruptBlock,
    EndOfStream,
    ForkedHandle,
    MessageDeleted,
    MessageNotFound,
    StoreClosed,
    StoreError,
    WriteFailed,
)
from penstock.format.constants import REASONS
from penstock.store.ages import Ages
from penstock.store.closed import ClosedStore
from penstock.store.deletes.delete_markers import Replaced, replace_expired
from penstock.store.index.ids_and_expiries import IdsAndExpiries
from penstock.store.index.index import Index
from penstock.store.limits import Limits
from penstock.store.open.report import Report
from penstock.store.read.message import Message
from penstock.store.read.reader import Query, Reader
from penstock.store.state import StoreState, SubjectState
from penstock.store.write import engine_blocks
from penstock.store.write.batch import Batch
from penstock.store.write.dedupe import DedupeWindow
from penstock.store.write.engine import DELETED, EOF, StreamEngine
from penstock.wire.headers import find
from penstock.wire.ttl import parse_ttl

USER, PURGE, ROLLUP, MAX_AGE, TTL, LOST, COMPACT, SKIPPED = (
    REASONS.index(reason) for reason in ("user", "purge", "rollup", "max_age", "ttl", "lost", "compact", "skipped")
)
MAX_MSGS_PER_SUBJECT = REASONS.index("max_msgs_per_subject")
ALONE_MAX = 256  # up to this many subjects over their limit are trimmed one by one; more are trimmed in one pass
PART = 8192  # sequences that are searched at once; other threads run between two parts
EXPIRE_MAX = 16384  # messages that expire in one step on a server, which serves others in between
SWEEP_MAX = 1024  # up to this many expiries are checked after every delete
NEVER = 2**63 - 1
EXPIRE_AGAIN_NS = 1_000_000_000  # after a failure
LONG_AGO = -(2**63)
EVERYTHING: tuple[str, ...] = ()
log = logging.getLogger("penstock")


class Store:
    """One stream's messages.

    Always true: messages are kept once `commit` has returned; a refused message leaves no trace.
    """

    type = "none"
    is_writable = True

    def __init__(self, name: str, clock: Clock, engine: StreamEngine, limits: Limits) -> None:
        self.name = name
        self.clock = clock
        self.use_engine(engine)
        self.limits = limits
        self.report = Report()
        self.ages = Ages(clock.offset_ns)
        self.skips = SeqSet()
        self.lost = SeqSet()
        self.wheel = TimingWheel()
        self.exempt = SeqSet()  # messages that never expire, not even by age
        self.next_due = 0
        self.expiry_waits = True  # an expiry waits for the disk; a server serves others meanwhile instead
        self.active_ids: IdsAndExpiries | None = None  # those of the active block, if a summary will list them
        self.on_replaced: Callable[[list[Replaced]], None] | None = None
        self.on_rollback: list[Callable[[int], None]] = []
        self.failures: list[tuple[int, int, StoreError]] = []

    def use_engine(self, engine: StreamEngine) -> None:
        """Switch to another engine, which is empty."""
        self.engine = engine
        engine.clock = self.clock
        engine.lead_ns = self.clock.offset_ns
        self.query = Query(engine)

    @property
    def index(self) -> Index:
        return self.engine.index

    @property
    def has_deferred_writes(self) -> bool:
        """Whether something that the open has to write could not be written yet."""
        return False

    # Writing.

    def append(self, batch: Batch, start: int = 0, stop: int | None = None, ids: DedupeWindow | None = None) -> int:
        """Append batch[start:stop] without waiting; each message gets its sequence or its status.

        Returns how many were taken. With `ids`, a message whose id is in the window is a duplicate, and the ids of the
        others are added.
        """
        now = self.drop_if_due()
        return self.engine.append(batch, start, batch.count if stop is None else stop, now, ids, self.active_ids)

    def commit(self) -> None:
        """Return when everything appended is durable; if that fails, roll it back and raise."""
        self.engine.commit()

    @property
    def needs_cleanup(self) -> bool:
        """Whether `after_commit` has something to do."""
        return bool(self.index.emptied)

    def after_commit(self) -> None:
        """Housekeeping that a commit makes possible. Does nothing on a closed store."""

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether `after_commit` will write a checkpoint, which may take long."""
        return False

    def prepare_checkpoint(self) -> None:
        """Prepare the next checkpoint without the stream's lock: most of the waiting for the disk."""

    def submit(self, begins: bool = False) -> int:
        """Hand everything appended to the commit threads. Returns the position at which it is durable.

        With `begins` this thread begins the commit itself, for a caller that has nothing else to do.
        """
        return self.engine.submit(begins)

    @property
    def committed_position(self) -> int:
        return self.engine.committed_position

    def check_position(self, position: int) -> None:
        """Raise if the messages submitted at `position` were not kept."""
        for low, high, error in self.failures:
            if low < position <= high:
                raise error.with_traceback(None)  # the same error is raised to several callers: drop earlier frames

    def note_id_and_expiry(
        self, seq: int, time: int, id_hash: bytes | None, expiry: int, now: int | None = None
    ) -> None:
        """Remember a message's id and expiry (0: none; NEVER: also exempt from max age).

        `time` and `expiry` are by the clock that stamped the message. A `time` in the future counts as `now`, the time
        at which the message is taken.
        """
        if expiry == NEVER:
            self.exempt.add(seq)
        elif expiry:
            taken = min(time - self.clock.offset_ns, self.clock.now_ns() if now is None else now)
            self._wait_for_expiry(seq, taken + expiry - time)

    def _wait_for_expiry(self, seq: int, due: int) -> None:
        self.wheel.add(seq, due)
        self.next_due = min(self.next_due, due)

    def store(self, subject: str | bytes, payload: bytes, headers: bytes | None = None) -> int:
        """Store one message durably; returns its sequence."""
        return self._store_one(Batch.one(subject, payload, headers))

    def store_raw(self, seq: int, time_ns: int, subject: str | bytes, headers: bytes | None, payload: bytes) -> None:
        """Store one message with the given time and sequence, which must be the next one."""
        self._store_one(Batch.raw([(seq, time_ns, subject, headers, payload)]))

    def _store_one(self, batch: Batch) -> int:
        self.append(batch)
        if batch.status(0):
            raise ValueError(f"{batch.subject(0)!r} was refused: status {batch.status(0)}")
        self.commit()
        return batch.seq(0)

    def skip(self, count: int = 1) -> int:
        """Reserve `count` sequences that will never hold a message; returns the last of them."""
        last = self.pass_by(count)
        self.commit()
        return last

    def pass_by(self, count: int = 1) -> int:
        """Like `skip`, without a commit."""
        first = self.index.last_seq + 1
        self.engine.skip(first, count, USER, self.clock.now_ns())
        self.skips.add_range(first, first + count - 1)
        return first + count - 1

    # Reading.

    def load(self, seq: int) -> Message:
        """The message at `seq`. Raises EndOfStream, MessageNotFound or MessageDeleted when there is none."""
        self.expire_if_due()
        found = self.engine.load(seq)
        if isinstance(found, Message):
            return found
        if found == EOF:
            raise EndOfStream(seq, self.engine.committed_seq)
        if found == DELETED:
            raise MessageDeleted(seq)
        raise MessageNotFound(seq)

    def read(
        self, filters: Sequence[str] = EVERYTHING, start_seq: int = 1, stop_seq: int = 2**63 - 1
    ) -> Iterator[Message]:
        """The live messages in [start_seq, stop_seq) that match, up to what is committed."""
        self.expire_if_due()
        return Reader(self.engine, filters, start_seq, stop_seq)

    def load_next(self, filters: Sequence[str], start_seq: int) -> Message | None:
        """The first match at or after `start_seq`."""
        return next(self.read(filters, start_seq), None)

    def load_prev(self, filters: Sequence[str], start_seq: int) -> Message | None:
        """The last match at or before `start_seq`."""
        self.expire_if_due()
        seq = self.query.prev_seq(filters, min(start_seq, self.engine.committed_seq))
        return self.load(seq) if seq else None

    def load_last(self, subject: str = ">") -> Message | None:
        """The newest message that matches."""
        return self.load_prev([subject], 2**63 - 1)

    # Deleting.

    def remove(self, seq: int, reason: int = USER) -> bool:
        """Delete one message; False when there is none."""
        if not 0 < seq < 2**63:
            return False
        self.expire_if_due()
        found = self.engine.delete(seq, reason, self.clock.now_ns())
        self.commit()
        self.sweep_expiries()
        return found

    def remove_many(self, seqs: Iterable[int], reason: int = USER) -> int:
        """Delete many messages in one commit; returns how many there were."""
        self.expire_if_due()
        found = self.engine.delete_all(seqs, reason, self.clock.now_ns())
        self.commit()
        self.sweep_expiries()
        return found

    def erase(self, seq: int) -> bool:
        """Delete one message and overwrite its contents on disk; False when there is none."""
        raise NotImplementedError

    def purge(self) -> int:
        """Delete all messages; sequences continue after the last one."""
        return self.compact(self.index.last_seq + 1, PURGE)

    def purge_ex(self, subject: str = "", seq: int = 0, keep: int = 0) -> int:
        """Delete the matching messages below `seq` (0: all), or all but the newest `keep`; returns how many."""
        if seq and keep:
            raise ValueError("purge takes either a sequence or a number to keep, not both")
        if seq == 1:
            return 0
        if subject in ("", ">"):
            if not seq and not keep:
                return self.purge()
            if seq:
                return self.compact(seq, PURGE)
        self.expire_if_due()
        filters = [subject] if subject else EVERYTHING
        stop = seq if seq else self.index.last_seq + 1
        purged = self.engine.delete_matching(filters, 1, stop, keep, 2**63 - 1, PURGE, self.clock.now_ns())
        self.commit()
        self.sweep_expiries()
        return purged

    def compact(self, seq: int, reason: int = COMPACT) -> int:
        """Delete everything below `seq`. With `seq` above the end the stream becomes empty and continues at `seq`."""
        if not 0 <= seq < 2**63:
            raise ValueError(f"sequence {seq}: sequences are below 2^63")
        last_seq = self.index.last_seq
        purged = self.raise_floor(seq, reason, self.clock.now_ns()) if seq > 1 else 0
        if seq > last_seq + 1:
            self.skips.add_range(last_seq + 1, seq - 1)
        self.commit()
        self.sweep_expiries()
        return purged

    def raise_floor(self, seq: int, reason: int, now: int) -> int:
        """Delete everything below `seq`, without a commit; returns how many."""
        return self.engine.set_floor(seq, reason, now)

    def sweep_expiries(self) -> None:
        """Remove the expiries of deleted messages; with many expiries only when they outnumber the messages."""
        count = self.wheel.count
        if count and (count <= SWEEP_MAX or count > 2 * self.index.messages + SWEEP_MAX):
            for seq, expiry in self.wheel.entries():
                if not self.query.next_seq(EVERYTHING, seq, seq + 1):
                    self.wheel.remove(seq, expiry)

    def forget_above(self, seq: int) -> None:
        """After a truncation: the sequences above `seq` will be given to other messages."""
        self.forget_leads_above(seq)
        for name in ("skips", "exempt"):
            kept = SeqSet()
            for first, last in getattr(self, name).ranges():
                if first <= seq:
                    kept.add_range(first, min(last, seq))
            setattr(self, name, kept)
        for one, expiry in self.wheel.entries():
            if one > seq:
                self.wheel.remove(one, expiry)

    # Time. `now`, `next_due` and the times in the wheel are by the monotonic clock.

    def note_lead(self, first_seq: int, lead_ns: int, now: int, is_late: bool) -> int:
        """From `first_seq` on, message times are `lead_ns` ahead of `now`.

        Returns by how much the lead may shrink before the engine calls again.
        """
        return self.ages.note_lead(first_seq, lead_ns, now, is_late)

    def forget_leads_above(self, seq: int) -> None:
        self.ages.forget_above(seq)
        self.engine.lead_ns = LONG_AGO  # no lead is known: the next message sets it

    def count_ages(self) -> None:
        """Restart the ages after messages were read from files; those with a time in the future count as taken now."""
        now, offset = self.clock.now_ns(), self.clock.offset_ns
        self.ages = Ages(offset)
        self.ages.configure(self.limits.max_age_ns)
        self.engine.lead_ns = offset
        self.end_future(now)

    def end_future(self, now: int) -> None:
        """All stored messages count as taken by now, even if their times are in the future."""
        lead = self.engine.last_time - now
        if lead > self.clock.offset_ns:
            self.ages.note_lead(self.index.last_seq + 1, lead, now, True)
            self.engine.lead_ns = LONG_AGO

    def load_expiries(self, expiries: Iterable[tuple[int, int]]) -> None:
        """Take the (sequence, expiry by the machine's clock) of messages that were read from files."""
        now, offset = self.clock.now_ns(), self.clock.offset_ns
        wall = now + offset
        # The clock went back, so messages from here on have times in the future: they live as long as a new message.
        future = self.engine.seq_from_time(wall + 1) if self.engine.last_time > wall else NEVER
        for seq, expiry in expiries:
            if expiry == NEVER:
                self.exempt.add(seq)
            elif seq >= self.index.first_seq:
                self.wheel.add(seq, (expiry if seq < future else min(expiry, wall + self._ttl_of(seq))) - offset)

    def _ttl_of(self, seq: int) -> int:
        """A message's TTL; 0: it has none, it does not exist, or its record is damaged (which the load reports)."""
        try:
            message = self.engine.load(seq)
        except CorruptBlock:
            return 0
        if not isinstance(message, Message):
            return 0
        return parse_ttl(find(message.raw_headers or b"", b"Nats-TTL") or b"") or 0

    def drop_if_due(self) -> int:
        """Delete expired messages, without a commit; returns the current time."""
        now = self.clock.now_ns()
        if now >= self.next_due:
            self.drop_expired(now)
        return now

    def expire_if_due(self) -> None:
        """Expire before a read. While the disk refuses deletes, expired messages can still be read."""
        if self.next_due != NEVER and self.clock.now_ns() >= self.next_due:
            try:
                self.expire(self.clock.now_ns())
            except WriteFailed:
                self.next_due = self.clock.now_ns() + EXPIRE_AGAIN_NS

    def expire(self, now: int) -> int:
        """Delete expired messages and commit; returns how many."""
        count = total = self.drop_expired(now)
        while count and self.next_due <= now and self.expiry_waits:  # one step may leave some for the next
            count = self.drop_expired(now)
            total += count
        if total and self.expiry_waits:
            self.commit()
        elif total:
            self.submit()
        return total

    def drop_expired(self, now: int) -> int:
        """Delete expired messages, without a commit; returns how many. The cost is proportional to their number.

        On a server (`expiry_waits` is False) one call deletes only a part, and sets `next_due` so that the rest is due.
        """
        if self.limits.marker_ttl_ns:
            return replace_expired(self, now)
        before, is_more = self.index.messages, False
        max_age = self.limits.max_age_ns
        if max_age and self.index.messages:
            floor = self.ages.first_after(self.engine, now - max_age)
            if floor > self.index.first_seq:
                most = (self._first_mortal(self.index.first_seq) or floor) + EXPIRE_MAX
                is_more = floor > most and not self.expiry_waits
                self._expire_below(most if is_more else floor, now)
        expired = self.wheel.expire(now, 1 << 20 if self.expiry_waits else EXPIRE_MAX // 4)
        if expired:
            try:
                self.engine.delete_all([seq for seq, _ in expired], TTL, now)
            except WriteFailed:
                for seq, expiry in expired:
                    self.wheel.add(seq, expiry)
                raise
            is_more = is_more or len(expired) == EXPIRE_MAX // 4
        self.next_due = now if is_more else self.due_after(now)
        return before - self.index.messages

    def due_after(self, now: int) -> int:
        """When the next message expires, after those that are due at `now`; NEVER if none does."""
        max_age, due = self.limits.max_age_ns, NEVER
        if max_age and self.index.messages:
            first = self._first_mortal(self.index.first_seq)
            time = self.engine.time_of(first) if first else None
            due = self.ages.taken(first, time) + max_age if time is not None else now + max_age
        wheel_due = self.wheel.next_expiry()
        if wheel_due is not None:
            due = min(due, wheel_due)
        # A message stored from now on is not due before its age; a TTL shortens this when it is noted.
        return min(due, now + max_age) if max_age else due

    def _first_mortal(self, seq: int) -> int:
        """The first message from `seq` on that may expire by age; 0: none."""
        while seq:
            seq = self.query.next_seq(EVERYTHING, self.exempt.absent_from(seq) or seq)
            if seq not in self.exempt:
                break
        return seq

    def _expire_below(self, floor: int, now: int) -> None:
        """Max age: delete everything below `floor`, except exempt messages."""
        lowest = self.exempt.present_from(self.index.first_seq)
        if lowest is None or lowest >= floor:
            self.engine.set_floor(floor, MAX_AGE, now)
            return
        if lowest > self.index.first_seq:
            self.engine.set_floor(lowest, MAX_AGE, now)
        doomed = []
        seq = self._first_mortal(lowest)
        while 0 < seq < floor:
            doomed.append(seq)
            seq = self._first_mortal(seq + 1)
        self.engine.delete_all(doomed, MAX_AGE, now)

    def seq_from_time(self, time_ns: int) -> int:
        """The first sequence stored at or after `time_ns`; the next sequence when there is none."""
        self.expire_if_due()
        return self.engine.seq_from_time(time_ns)

    # State.

    def fast_state(self) -> StoreState:
        """Counts, first and last; no message is visited."""
        self.expire_if_due()
        return self._state(None, None)

    def state(self) -> StoreState:
        """The fast state, and the sets of deleted and lost sequences."""
        self.expire_if_due()
        return self._state(self.query.deleted(), self.lost)

    def _state(self, deleted: SeqSet | None, lost: SeqSet | None) -> StoreState:
        index = self.index
        span = index.last_seq + 1 - index.first_seq
        return StoreState(
            messages=index.messages,
            bytes=index.bytes,
            first_seq=index.first_seq,
            last_seq=index.last_seq,
            first_time=(self.engine.time_of(index.first_seq) or 0) if index.messages else 0,
            last_time=self.engine.last_time,
            num_subjects=index.subject_count,
            num_deleted=span - index.messages,
            deleted=deleted,
            lost=lost,
            disk_bytes=self.query.disk_bytes(),
        )

    def filtered_state(self, filters: Sequence[str], start_seq: int = 1, with_last: bool = True) -> SubjectState:
        self.expire_if_due()
        return SubjectState(*self.query.filtered_state(filters, start_seq, with_last))

    def subjects_state(self, subject: str = ">") -> dict[str, SubjectState]:
        self.expire_if_due()
        return {name: SubjectState(*state) for name, state in self.query.subjects_state([subject]).items()}

    def subjects_totals(self, subject: str = ">") -> dict[str, int]:
        self.expire_if_due()
        return self.query.totals([subject])

    def all_last_seqs(self) -> list[int]:
        """The last sequence of every subject, ascending."""
        return self.last_seqs(EVERYTHING)

    def last_seqs(self, filters: Sequence[str], upto_seq: int = 0, limit: int = 0) -> list[int]:
        """Every matching subject's last sequence at or below `upto_seq`; more than `limit` of them is an error."""
        self.expire_if_due()
        found = self.query.last_seqs(filters, upto_seq, limit)
        if found is None:
            raise ValueError(f"more than {limit} subjects match")
        return found

    def num_pending(self, start_seq: int, filters: Sequence[str] = EVERYTHING, last_per_subject: bool = False) -> int:
        """The number of matches from `start_seq` on; with last_per_subject only the last of each subject counts."""
        self.expire_if_due()
        return self.query.pending(filters, start_seq, last_per_subject)

    def filter_is_all(self, filters: Sequence[str]) -> bool:
        """Whether these filters match every message: none, `>`, or filters that cover all subjects of the stream."""
        if not filters or ">" in filters:
            return True
        return bool(self.limits.subjects) and all(
            any(covers(one, subject) for one in filters) for subject in self.limits.subjects
        )

    # The end.

    def release(self) -> None:
        """Close for good: free the memory at once, and drop all references to objects that refer to the store.

        Remaining readers and consumers keep a few kilobytes, and get StoreClosed.
        """
        self.engine.release(ClosedStore(self.name))
        self.on_rollback.clear()
        self.on_replaced = None
        self.wheel.clear()
        self.exempt.clear()
        self.active_ids = None

    # Callbacks of the engine: `OpenEngineHost` in write/engine.pyi.

    def new_block(self, first_seq: int, time: int) -> tuple[int, bytes, bytes, int]:
        """Begin a new block; returns its id, its path, the bytes before its records, and its salt."""
        raise NotImplementedError

    def block_sealed(self, block_id: int, spans: list[tuple[int, int]]) -> None:
        """The active block is full."""
        raise NotImplementedError

    def commit_failed(self, position: int) -> None:
        """A commit failed: roll back what was not committed, and raise if that includes `position`."""
        raise NotImplementedError

    def retry(self) -> None:
        """Handle a failed commit before the next append."""

    def refuse_forked(self) -> None:
        raise ForkedHandle(f"stream {self.name}")

    def refuse_closed(self) -> None:
        raise StoreClosed(f"stream {self.name} is closed")

    def undo_failed(self, error: BaseException) -> None:
        """An append or a delete failed half way: undo it."""
        self.engine.undo()

    def was_skipped(self, seq: int) -> bool:
        return seq in self.skips

    def note_damage(self, block_id: int, offset: int, seq: int) -> None:
        """A read met a damaged record: report it once and count it as lost; the read continues."""
        if seq not in self.lost:
            self.lost.add(seq)
            path = self.block_path(block_id)
            self.report.add("damaged records", path, f"message {seq} is damaged", offset=offset, seqs=((seq, seq + 1),))
            log.warning("%s at byte %d: message %d is damaged and was left out", path, offset, seq)

    def damaged_record(self, block_id: int, offset: int, seq: int) -> None:
        self.note_damage(block_id, offset, seq)
        raise CorruptBlock(self.block_path(block_id), offset, f"message {seq}: the checksum differs")

    def close_idle(self) -> None:
        """Too many block files are open: close all but those of the newest blocks, half as many."""
        engine_blocks.idle_descriptors(self.engine, self.engine.open_max // 2)

    def block_path(self, block_id: int) -> str:
        return f"{self.name}/{block_id}"

    def configure(self, limits: Limits) -> None:
        """Set the limits. `enforce_limits` then deletes what exceeds them."""
        self.limits = limits
        self.ages.configure(limits.max_age_ns)
        self.engine.configure(limits)
        self.next_due = 0

    def enforce_limits(self) -> None:
        """Bring the stream within its limits: after they changed, or after a crash between a publish and its delete."""
        now = self.clock.now_ns()
        self.engine.append(Batch(), 0, 0, now)
        if self.limits.max_msgs_per_subject > 0:
            self.trim_subjects(self.limits.max_msgs_per_subject, now)
        self.expire(now)
        self.commit()

    def trim_subjects(self, limit: int, now: int) -> None:
        """Delete the oldest messages of each subject that has more than `limit`, without a commit."""
        subjects = self.engine.subjects_over(limit, ALONE_MAX)
        if subjects is None:
            start = self.index.first_seq
            while start := self.query.next_seq(EVERYTHING, start):
                self.engine.trim_subjects(start, start + PART, limit, MAX_MSGS_PER_SUBJECT, now)
                start += PART
            return
        for subject in subjects:
            alone = Filters([subject], exact=True)
            self.engine.delete_matching(alone, 1, NEVER, limit, NEVER, MAX_MSGS_PER_SUBJECT, now)


def forget_block_memory(engine: StreamEngine) -> None:
    """Free the images and close the descriptors of sealed blocks that are no longer needed."""
    engine_blocks.drop_images(engine)
    engine_blocks.idle_descriptors(engine, 64)
