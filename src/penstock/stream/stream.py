"""StreamRules: a store under a stream's rules: which messages it captures, which are duplicates, what a header asks for
(S1 in docs/behaviours.md).

Plain messages, and those with only a message id, are appended as runs of a batch; Python handles a single message only
if a header asks for another rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NoReturn, overload

import msgspec

from penstock.base.subject import Filters, is_valid_filter, is_valid_name, is_valid_subject
from penstock.base.xxh64 import hash_id
from penstock.errors import (
    ApiError,
    BadSubject,
    HeadersTooLarge,
    MaxBytesExceeded,
    MaxMsgsExceeded,
    MaxMsgsPerSubjectExceeded,
    MessageTooLarge,
    PublishRefused,
    RecordTooLarge,
    SequencesExhausted,
    StreamSealed,
    SubjectNotInStream,
)
from penstock.format.constants import REASONS
from penstock.store.base import NEVER, Store
from penstock.store.deletes.delete_markers import Replaced
from penstock.store.file_store import FileStore
from penstock.store.limits import Limits
from penstock.store.write.batch import Batch
from penstock.store.write.dedupe import DedupeWindow
from penstock.stream.block_sizes import block_size
from penstock.stream.config import StreamConfig
from penstock.stream.republisher import Republisher, republisher_of
from penstock.stream.rules import Verdict, judge
from penstock.stream.transform import SubjectTransform
from penstock.wire.headers import find
from penstock.wire.ttl import TTL_NEVER

ROLLUP = REASONS.index("rollup")
# The statuses of store/write/batch.pxd.
BAD_SUBJECT, NO_MATCH, JUDGED = 1, 2, 10
REFUSALS: dict[int, type[ApiError]] = {
    3: MessageTooLarge,
    4: HeadersTooLarge,
    5: MaxMsgsExceeded,
    6: MaxBytesExceeded,
    7: MaxMsgsPerSubjectExceeded,
    8: SequencesExhausted,
    9: RecordTooLarge,
}


def _as_filter(subject: bytes) -> Filters | list[bytes]:
    """The filter that nats-server makes of a subject: a subject with a wildcard token stands for everything that
    matches."""
    return [subject] if is_valid_filter(subject) else Filters([subject], exact=True)


class Ack(msgspec.Struct, frozen=True, gc=False):
    """A stored message: its stream and sequence; `duplicate` if it was stored before."""

    stream: str
    seq: int
    duplicate: bool = False


class Acks(Sequence[Ack | None]):
    """The acks of a batch, created on access; None for a message that was refused."""

    __slots__ = ("_batch", "_duplicates", "_stream")

    def __init__(self, stream: str, batch: Batch, duplicates: dict[int, int]) -> None:
        self._stream, self._batch, self._duplicates = stream, batch, duplicates

    def __len__(self) -> int:
        return self._batch.count

    @overload
    def __getitem__(self, index: int) -> Ack | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[Ack | None]: ...
    def __getitem__(self, index: int | slice) -> Ack | list[Ack | None] | None:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"ack {index} of {len(self)}")
        if index in self._duplicates:
            return Ack(self._stream, self._duplicates[index], True)
        if self._batch.status(index):
            return None
        return Ack(self._stream, self._batch.seq(index))

    def __iter__(self) -> Iterator[Ack | None]:
        return (self[n] for n in range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self)} acks of {self._stream}>"


def raise_only(refused: list[tuple[int, ApiError]]) -> NoReturn:
    """Raise the refusal of a batch's only message.

    An error refers to its frames, and they to their variables. If one of them were the error, the cycle would keep the
    error and the batch alive until the garbage collector runs.
    """
    error = refused.pop()[1]
    try:
        raise error
    finally:
        del error


def acks_of(stream: str, batch: Batch, refused: list[tuple[int, ApiError]], duplicates: dict[int, int]) -> Acks:
    """The acks of a committed batch; raises if messages were refused."""
    acks = Acks(stream, batch, duplicates)
    if refused:
        if batch.count == 1:
            raise_only(refused)
        raise PublishRefused(refused, acks, batch.count, batch.subject(refused[0][0]).decode("utf-8", "replace"))
    return acks


def limits_of(config: StreamConfig) -> Limits:
    """The part of a configuration that the store needs."""
    return Limits(
        # A transform may produce any subject: the rules check the incoming subjects instead of the store.
        subjects=() if config.subject_transform is not None else tuple(config.subjects or ()),
        block_size=block_size(config),
        max_msgs=config.max_msgs,
        max_bytes=config.max_bytes,
        max_age_ns=config.max_age,
        max_msgs_per_subject=config.max_msgs_per_subject,
        max_msg_size=config.max_msg_size,
        discard_new=config.discard == "new",
        discard_new_per_subject=config.discard_new_per_subject,
        first_seq=max(config.first_seq, 1),
        marker_ttl_ns=0 if config.sealed else config.subject_delete_marker_ttl,
    )


class StreamRules:
    """A stream's messages and its message ids. Not thread-safe: its owner holds a lock."""

    def __init__(self, config: StreamConfig, store: Store) -> None:
        self.store = store
        self.dedupe = DedupeWindow(config.duplicate_window)
        self.is_heard = False  # the server calls `republished`; otherwise nothing is kept for it
        self.interest: Filters | None = None  # interest retention: the subjects that consumers want; None: none
        self._republisher: Republisher | None = None
        self._last_id: str | None = None  # not known yet
        self._use(config)
        store.on_rollback.append(self._rolled_back)
        store.on_replaced = self._replaced
        if isinstance(store, FileStore) and config.duplicate_window:
            now, offset = store.clock.now_ns(), store.clock.offset_ns
            since = now + offset - config.duplicate_window
            self.dedupe.load(store.recent_ids_and_expiries(since), since, now, offset)

    def _use(self, config: StreamConfig) -> None:
        """Apply the parts of a configuration that concern subjects."""
        self.config = config
        transform = config.subject_transform
        self._transform = SubjectTransform(transform.src, transform.dest) if transform and transform.dest else None
        self._accepts = Filters(config.subjects)
        self._republisher = republisher_of(config, self._republisher)

    def configure(self, config: StreamConfig) -> None:
        self._use(config)
        self.store.configure(limits_of(config))
        self.dedupe.window_ns = config.duplicate_window
        self.store.enforce_limits()

    def _rolled_back(self, seq: int) -> None:
        self.dedupe.forget_above(seq)
        self._last_id = None
        if self._republisher is not None:
            self._republisher.forget_above(seq)

    # Time.

    @property
    def next_due(self) -> int | None:
        """When `expire` has something to do, in nanoseconds; None if nothing that is stored will ever expire."""
        return None if self.store.next_due == NEVER else self.store.next_due

    def expire(self, now: int) -> int:
        """Delete expired messages and store their markers, without a commit; returns how many were deleted. One call
        does a bounded part: `next_due` then gives the time of the next part, which may be now."""
        return self.store.drop_expired(now)

    def _replaced(self, markers: list[Replaced]) -> None:
        self._last_id = ""
        if self._republisher is not None and self.is_heard:
            for marker in markers:
                self._republisher.note(
                    marker.seq, marker.time, marker.subject, marker.headers, b"", marker.previous_seq
                )

    def republished(self, committed_seq: int) -> list[tuple[bytes, bytes, bytes]]:
        """(subject, headers, payload) of the messages up to a sequence that are to be published again, in order; each
        is returned once. Empty unless `is_heard`."""
        return self._republisher.take(committed_seq) if self._republisher is not None else []

    # What the rules need to know (PublishView).

    @property
    def last_seq(self) -> int:
        return self.store.index.last_seq

    def last_msg_id(self) -> str:
        if self._last_id is None:
            seq = self.store.query.prev_seq((), self.last_seq)
            raw = self.store.load(seq).raw_headers if seq else None
            found = find(raw, b"Nats-Msg-Id") if raw else None
            self._last_id = (found or b"").decode("utf-8", "surrogateescape")
        return self._last_id

    def last_seq_of(self, subject_filter: bytes) -> int:
        try:
            return self.store.query.last_seq(_as_filter(subject_filter))
        except ValueError:  # an invalid subject has no last message
            return 0

    def find_duplicate(self, msg_id: bytes) -> int | None:
        return self.dedupe.lookup(hash_id(msg_id), self.store.clock.now_ns())

    def remember_id(self, id_hash: bytes, seq: int, time: int) -> None:
        """Remember the id of a message that did not pass these rules; a time in the future counts as now."""
        clock = self.store.clock
        self.dedupe.add(id_hash, seq, min(time - clock.offset_ns, clock.now_ns()))

    # Taking messages.

    def take(self, batch: Batch) -> tuple[list[tuple[int, ApiError]], dict[int, int]]:
        """Append a batch in order, without a commit; returns the refused messages, and the duplicates with the
        sequences of their originals."""
        if self.config.sealed:
            for index in range(batch.count):
                batch.refuse(index)
            return [(index, StreamSealed()) for index in range(batch.count)], {}
        if self.store.next_due != NEVER:
            self.store.drop_if_due()  # before a rule looks at the stored messages
        refused: list[tuple[int, ApiError]] = []
        duplicates: dict[int, int] = {}
        drops_unwanted = self.config.retention == "interest" and (self.interest is None or not self.interest.is_all)
        if self._transform is not None or drops_unwanted:
            self._check_subjects(batch, refused)
        if drops_unwanted:
            self._take_wanted(batch, refused, duplicates)
        else:
            self._take_all(batch, refused, duplicates)
        if len(refused) > 1:
            refused.sort(key=itemgetter(0))
        return refused, duplicates

    def _take_all(self, batch: Batch, refused: list[tuple[int, ApiError]], duplicates: dict[int, int]) -> None:
        has_rules = batch.has_rules and batch.sift_rules(self.config.max_msg_size)
        if self._republisher is not None and self.is_heard:
            for at in range(batch.count):
                self._take_republished(batch, at, self._republisher, refused, duplicates)
            return
        if not has_rules:
            self._take_run(batch, 0, batch.count, refused, duplicates)
            return
        start = 0
        while start < batch.count:
            stop = batch.next_rule(start)
            if stop > start:
                self._take_run(batch, start, stop, refused, duplicates)
                start = stop
            else:
                self._take_one(batch, start, refused, duplicates)
                start += 1

    def _check_subjects(self, batch: Batch, refused: list[tuple[int, ApiError]]) -> None:
        """Refuse messages outside the stream's subjects, and give the others the subjects that the transform produces,
        which need not be the stream's."""
        apply = self._transform.apply if self._transform is not None else None
        for at in range(batch.count):
            subject = batch.subject(at)
            is_valid = is_valid_name if batch.takes_names else is_valid_subject
            if not is_valid(subject) or not self._accepts.match(subject):
                batch.refuse(at)
                refused.append((at, self._not_taken(batch, at)))
            elif apply is not None:
                made = apply(subject)
                if made is not None:
                    batch.set_subject(at, made)

    def _not_taken(self, batch: Batch, at: int) -> ApiError:
        subject = batch.subject(at)
        text = subject.decode("utf-8", "backslashreplace")
        if not (is_valid_name if batch.takes_names else is_valid_subject)(subject):
            return BadSubject(text)
        return SubjectNotInStream(text, self.config.name, self.config.subjects or ())

    def _take_republished(
        self,
        batch: Batch,
        at: int,
        republisher: Republisher,
        refused: list[tuple[int, ApiError]],
        duplicates: dict[int, int],
    ) -> None:
        """Append one message that may be published again, with the previous sequence of its subject."""
        subject = batch.subject(at)
        previous = self.last_seq_of(subject) if republisher.wants(subject) else 0
        if batch.asks_rules(at):
            self._take_one(batch, at, refused, duplicates)
        else:
            self._take_run(batch, at, at + 1, refused, duplicates)
        if not batch.status(at):
            headers, payload = batch.headers(at) or b"", batch.payload(at)
            republisher.note(batch.seq(at), self.store.engine.last_time, subject, headers, payload, previous)

    def _take_wanted(self, batch: Batch, refused: list[tuple[int, ApiError]], duplicates: dict[int, int]) -> None:
        """Append a batch under interest retention, where some subjects have no interested consumer."""
        republisher = self._republisher if self.is_heard else None
        if batch.has_rules:
            batch.sift_rules(self.config.max_msg_size)
        for at in range(batch.count):
            if batch.status(at) == JUDGED:
                continue
            if self.interest is None or not self.interest.match(batch.subject(at)):
                self._pass_by(batch, at, refused, duplicates)
            elif republisher is not None:
                self._take_republished(batch, at, republisher, refused, duplicates)
            elif batch.asks_rules(at):
                self._take_one(batch, at, refused, duplicates)
            else:
                self._take_run(batch, at, at + 1, refused, duplicates)

    def _pass_by(self, batch: Batch, at: int, refused: list[tuple[int, ApiError]], duplicates: dict[int, int]) -> None:
        """Interest retention without an interested consumer: the message takes a sequence, but is not stored."""
        verdict = self._verdict(batch, at, refused, duplicates)
        if verdict is None:
            return
        subject, now = batch.subject(at), self.store.clock.now_ns()
        seq = self.store.pass_by()
        batch.pass_by(at, seq)
        self._last_id = (verdict.msg_id or b"").decode("utf-8", "surrogateescape")
        if verdict.msg_id is not None:
            self.dedupe.add(hash_id(verdict.msg_id), seq, now)
        self._roll_up(verdict, subject, seq, now)

    def _take_run(
        self, batch: Batch, start: int, stop: int, refused: list[tuple[int, ApiError]], duplicates: dict[int, int]
    ) -> None:
        """Append messages that need no rule, or only the one for message ids."""
        taken = self.store.append(batch, start, stop, self.dedupe)
        if taken:
            self._last_id = batch.msg_id_before(start, stop).decode("utf-8", "surrogateescape")
        if taken < stop - start:
            duplicates |= batch.duplicates(start, stop)
            refused += self._refusals(batch, start, stop)

    def _verdict(
        self, batch: Batch, at: int, refused: list[tuple[int, ApiError]], duplicates: dict[int, int]
    ) -> Verdict | None:
        """The rules' decision on one message; None if it is not to be stored."""
        if batch.status(at) == JUDGED:
            return None
        subject, headers = batch.subject(at), batch.headers(at) or b""
        try:
            verdict = judge(self, subject, headers, batch.payload_size(at))
        except ApiError as error:
            batch.refuse(at)
            refused.append((at, error.with_traceback(None)))  # its frames refer to this list and the batch
            return None
        if verdict.duplicate_seq is not None:
            batch.mark_duplicate(at, verdict.duplicate_seq)
            duplicates[at] = verdict.duplicate_seq
            return None
        if verdict.headers != headers:
            batch.set_headers(at, verdict.headers)
        return verdict

    def _take_one(self, batch: Batch, at: int, refused: list[tuple[int, ApiError]], duplicates: dict[int, int]) -> None:
        """Append one message whose headers may ask for something."""
        verdict = self._verdict(batch, at, refused, duplicates)
        if verdict is None:
            return
        batch.mark(at, verdict.ttl_ns != 0, verdict.msg_id is not None, verdict.rollup is not None)
        if not self.store.append(batch, at, at + 1):
            refused += self._refusals(batch, at, at + 1)
            return
        engine, msg_id = self.store.engine, verdict.msg_id
        seq, time, now = batch.seq(at), engine.last_time, engine.append_ns
        self._last_id = (msg_id or b"").decode("utf-8", "surrogateescape")
        if msg_id is not None or verdict.ttl_ns:
            hashed = hash_id(msg_id) if msg_id is not None else None
            expiry = NEVER if verdict.ttl_ns == TTL_NEVER else time + verdict.ttl_ns if verdict.ttl_ns else 0
            self.store.note_id_and_expiry(seq, time, hashed, expiry, now)
            if hashed is not None:
                self.dedupe.add(hashed, seq, now)
        self._roll_up(verdict, batch.subject(at), seq, now)

    def _roll_up(self, verdict: Verdict, subject: bytes, seq: int, now: int) -> None:
        """Delete the messages before `seq` that the message's rollup header covers."""
        if verdict.rollup == "sub":
            self.store.engine.delete_matching(_as_filter(subject), 1, seq, 0, 2**63 - 1, ROLLUP, now)
        elif verdict.rollup == "all":
            self.store.raise_floor(seq, ROLLUP, now)

    def _refusals(self, batch: Batch, start: int, stop: int) -> list[tuple[int, ApiError]]:
        return [
            (at, self._not_taken(batch, at) if status in (BAD_SUBJECT, NO_MATCH) else REFUSALS[status]())
            for at, status in batch.refused(start, stop)
        ]
