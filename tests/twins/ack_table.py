"""AckTable in plain Python: what a consumer has delivered and not yet seen acknowledged.

The ack floor moves as nats-server reports it:

- explicit: when nothing is pending any more it is what was delivered. Else, when the settled message was first
  delivered right after the floor, it ends just below the next pending message (both of its sequences less one).
- all: it is the acknowledged message with the consumer sequence that the ack names, which is a redelivery's where that
  one was acknowledged; an ack at or below the floor, by either sequence, does nothing.
- none: it is what was delivered.

A message that is given up leaves the pending ones without moving the floor, and stays known as redelivered until it is
acknowledged after all or leaves the stream.

Changes, encoded: varints, each delta beginning with one whose two low bits are its kind and whose rest is `n`.

    ack       := n<<2|0                     one message: n = seq difference
    deliver   := n<<2|1 stride              n messages, each `stride` (≥ 1) above what was delivered before
    ack run   := n<<2|2 seq                 n messages, from seq on, each one above the other
    time      :=  0<<2|3 time wait          of the deliveries that follow: zigzags, differences to the ones before
    redeliver :=  1<<2|3 n seq              n messages, from seq on
    deadline  :=  2<<2|3 seq deadline       the deadline a zigzag, difference to the one before
    ack all   :=  3<<2|3 seq dseq           dseq less the floor's consumer sequence, ≥ 1
    give up   :=  4<<2|3 seq
    drop      :=  5<<2|3 seq more           seq and as many as `more` after it
    purge     :=  6<<2|3 first              plain
    rewind    :=  7<<2|3 last               plain

`seq` is a zigzag, the difference to the last sequence named before (0 at the beginning; a run's is its last).
Differences are modulo 2^64 as signed numbers, times begin at 0, and a run is of 65,536 at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twins import consumer_state
from twins.consumer_state import ConsumerState
from twins.varint import read_varint, unzigzag, write_varint, zigzag

NONE, EXPLICIT, ALL = 0, 1, 2
SEQ_MAX = 2**64 - 1
TIME_MIN, TIME_MAX = -(2**63), 2**63 - 1
RUN_MAX = 65536
COUNT_MAX = 2**32 - 1
ACK, DELIVER, ACK_RUN, OTHER = range(4)
TIME, REDELIVER, DEADLINE, ACK_ALL, GIVE_UP, DROP, PURGE, REWIND = range(8)


def _signed(value: int) -> int:
    value %= 2**64
    return value - 2**64 if value >= 2**63 else value


def _check(*seqs: int, times: tuple[int, ...] = ()) -> None:
    if not all(0 <= seq <= SEQ_MAX for seq in seqs) or not all(TIME_MIN <= time <= TIME_MAX for time in times):
        raise OverflowError("a sequence or time does not fit into 64 bits")


@dataclass(slots=True)
class _Entry:
    dseq: int  # of its first delivery
    last_ns: int
    deadline_ns: int
    deliveries: int
    is_taken: bool = False  # it was due, and is with the caller


@dataclass(slots=True)
class _Log:
    """The changes since they were taken last."""

    data: bytearray = field(default_factory=bytearray)
    run: tuple[int, int, int, int] | None = None  # kind, first, stride, count: still open
    seq: int = 0
    time: int = 0
    wait: int = 0
    deadline: int = 0

    def emit(self, *values: int) -> None:
        for value in values:
            self.data += write_varint(value)

    def difference(self, seq: int) -> int:
        out = zigzag(_signed(seq - self.seq))
        self.seq = seq
        return out

    def close(self) -> None:
        if self.run is None:
            return
        kind, first, stride, count = self.run
        self.run = None
        if kind == DELIVER:
            self.emit(count << 2 | DELIVER, stride)
            return
        difference = self.difference(first)
        if kind == REDELIVER << 2 | OTHER:
            self.emit(kind, count, difference)
        elif count == 1 and difference < 2**62:
            self.emit(difference << 2 | ACK)
        else:
            self.emit(count << 2 | ACK_RUN, difference)
        self.seq = first + count - 1

    def extend(self, kind: int, seq: int, stride: int) -> None:
        if self.run is not None:
            was, first, step, count = self.run
            if (was, step) == (kind, stride) and count < RUN_MAX and (kind == DELIVER or seq == first + count):
                self.run = (kind, first, stride, count + 1)
                return
        self.close()
        self.run = (kind, seq, stride, 1)

    def times(self, now_ns: int, deadline_ns: int) -> None:
        time, wait = now_ns % 2**64, (deadline_ns - now_ns) % 2**64
        if (time, wait) != (self.time, self.wait):
            self.close()
            self.emit(TIME << 2 | OTHER, zigzag(_signed(time - self.time)), zigzag(_signed(wait - self.wait)))
            self.time, self.wait = time, wait

    def one(self, kind: int, seq: int, *values: int) -> None:
        self.close()
        self.emit(kind << 2 | OTHER, self.difference(seq), *values)

    def plain(self, kind: int, value: int) -> None:
        self.close()
        self.emit(kind << 2 | OTHER, value)


class AckTable:
    """The deliveries of one consumer."""

    def __init__(self, policy: int = EXPLICIT, start_seq: int = 1) -> None:
        if policy not in (NONE, EXPLICIT, ALL):
            raise ValueError(f"ack policy {policy}: 0 (none), 1 (explicit) or 2 (all) is needed")
        if start_seq < 1:
            raise ValueError(f"start_seq {start_seq}: sequences begin at 1")
        _check(start_seq)
        self.policy = policy
        self.logged = False
        self.delivered_consumer_seq = 0
        self.delivered_stream_seq = start_seq - 1
        self.ack_floor_consumer_seq = 0
        self.ack_floor_stream_seq = start_seq - 1
        self._pending: dict[int, _Entry] = {}  # by rising sequence, as first deliveries rise
        self._given_up: dict[int, int] = {}  # how often it was delivered
        self._log = _Log()

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    @property
    def redelivered_count(self) -> int:
        return len(self._given_up) + sum(entry.deliveries > 1 for entry in self._pending.values())

    def deliver(self, seq: int, now_ns: int, deadline_ns: int) -> int:
        """The consumer sequence of a first delivery; sequences rise."""
        _check(seq, times=(now_ns, deadline_ns))
        if seq <= self.delivered_stream_seq:
            raise ValueError(f"message {seq}: {self.delivered_stream_seq} was delivered already")
        if self.delivered_consumer_seq == SEQ_MAX:
            raise OverflowError("a consumer sequence passes 2^64 - 1")
        gap = seq - self.delivered_stream_seq
        self.delivered_consumer_seq += 1
        self.delivered_stream_seq = seq
        if self.policy == NONE:
            self._floor_is_delivered()
        else:
            self._pending[seq] = _Entry(self.delivered_consumer_seq, now_ns, deadline_ns, 1)
        if self.logged:
            if self.policy != NONE:
                self._log.times(now_ns, deadline_ns)
            self._log.extend(DELIVER, seq, gap)
        return self.delivered_consumer_seq

    def redeliver(self, seq: int, now_ns: int, deadline_ns: int) -> tuple[int, int]:
        """(consumer sequence of this delivery, deliveries so far); the pending entry keeps that of its first."""
        _check(seq, times=(now_ns, deadline_ns))
        entry = self._pending.get(seq)
        if entry is None:
            raise ValueError(f"message {seq} is not pending")
        if self.delivered_consumer_seq == SEQ_MAX:
            raise OverflowError("a consumer sequence passes 2^64 - 1")
        entry.last_ns, entry.deadline_ns, entry.is_taken = now_ns, deadline_ns, False
        entry.deliveries = min(entry.deliveries + 1, COUNT_MAX)
        self.delivered_consumer_seq += 1
        if self.logged:
            self._log.times(now_ns, deadline_ns)
            self._log.extend(REDELIVER << 2 | OTHER, seq, 1)
        return self.delivered_consumer_seq, entry.deliveries

    def ack(self, seq: int) -> bool:
        """Whether it was pending. One that was given up is no longer known as redelivered."""
        _check(seq)
        if self.policy != EXPLICIT:
            raise ValueError("ack: this consumer's ack policy is not explicit")
        entry = self._pending.pop(seq, None)
        if entry is not None:
            self._settle(entry.dseq, seq)
        elif self._given_up.pop(seq, 0) == 0:
            return False
        if self.logged:
            self._log.extend(ACK_RUN, seq, 1)
        return entry is not None

    def ack_all(self, seq: int, dseq: int = 0) -> int:
        """Acknowledge up to `seq`, as delivered under `dseq` (0: its first delivery); how many were pending."""
        _check(seq, dseq)
        if self.policy != ALL:
            raise ValueError("ack_all: this consumer's ack policy is not all")
        if not self.ack_floor_stream_seq < seq <= self.delivered_stream_seq:
            return 0
        floor, entry = self.ack_floor_consumer_seq, self._pending.get(seq)
        dseq = min(dseq or (floor + 1 if entry is None else entry.dseq), self.delivered_consumer_seq)
        if dseq <= floor:
            return 0
        acked = [each for each in self._pending if each <= seq]
        for each in acked:
            del self._pending[each]
        was_given_up = self._given_up.pop(seq, 0) > 0
        if entry is not None:
            self.ack_floor_consumer_seq, self.ack_floor_stream_seq = dseq, seq
        if self.logged and (acked or was_given_up):
            self._log.one(ACK_ALL, seq, dseq - floor)
        return len(acked)

    def term(self, seq: int, dseq: int = 0) -> bool:
        """As an acknowledgement, as the policy has it: whether that changed what is pending."""
        return self.ack_all(seq, dseq) > 0 if self.policy == ALL else self.ack(seq)

    def set_deadline(self, seq: int, deadline_ns: int) -> bool:
        """In progress, or a nak with delay; whether it is pending."""
        _check(seq, times=(deadline_ns,))
        entry = self._pending.get(seq)
        if entry is None:
            return False
        entry.deadline_ns, entry.is_taken = deadline_ns, False
        if self.logged:
            deadline = deadline_ns % 2**64
            self._log.one(DEADLINE, seq, zigzag(_signed(deadline - self._log.deadline)))
            self._log.deadline = deadline
        return True

    def give_up(self, seq: int) -> bool:
        """It was delivered as often as may be; whether it was pending."""
        _check(seq)
        entry = self._pending.pop(seq, None)
        if entry is None:
            return False
        self._given_up[seq] = entry.deliveries
        if self.logged:
            self._log.one(GIVE_UP, seq)
        return True

    def drop(self, start: int, stop: int) -> int:
        """The stream lost the messages of [start, stop): how many of them were known here."""
        _check(start)
        if stop <= start:
            return 0
        _check(stop - 1)
        dropped = self._drop(start, stop)[0]
        if self.logged and dropped:
            self._log.one(DROP, start, stop - 1 - start)
        return dropped

    def purge(self, first_seq: int) -> int:
        """The stream begins at `first_seq` now, delivered or not; how many of those before were known here."""
        _check(first_seq)
        if first_seq == 0:
            return 0
        dropped, highest = self._drop(0, first_seq)
        self.delivered_stream_seq = max(self.delivered_stream_seq, first_seq - 1)
        if self.ack_floor_stream_seq < first_seq - 1:
            self.ack_floor_stream_seq = first_seq - 1
            self.ack_floor_consumer_seq = max(self.ack_floor_consumer_seq, highest)
        if not self._pending:
            self._floor_is_delivered()
        if self.logged:
            self._log.plain(PURGE, first_seq)
        return dropped

    def rewind(self, last_seq: int) -> bool:
        """The stream ends at `last_seq`, as it lost its end in a crash: what is above was never delivered.

        Consumer sequences go on, and what is acknowledged stays so. Whether anything changed.
        """
        _check(last_seq)
        if self.delivered_stream_seq <= last_seq:
            return False
        self._pending = {seq: entry for seq, entry in self._pending.items() if seq <= last_seq}
        self._given_up = {seq: count for seq, count in self._given_up.items() if seq <= last_seq}
        self.delivered_stream_seq = last_seq
        if not self._pending or self.ack_floor_stream_seq > last_seq:
            self._floor_is_delivered()
        if self.logged:
            self._log.plain(REWIND, last_seq)
        return True

    def get(self, seq: int) -> tuple[int, int, int, int] | None:
        """(consumer sequence of its first delivery, deadline, deliveries, time of the last one), while pending."""
        _check(seq)
        entry = self._pending.get(seq)
        return None if entry is None else (entry.dseq, entry.deadline_ns, entry.deliveries, entry.last_ns)

    def redelivered(self, seq: int) -> int:
        """How often it was delivered again; one given up counts the attempt that was not made."""
        _check(seq)
        entry = self._pending.get(seq)
        return self._given_up.get(seq, 0) if entry is None else entry.deliveries - 1

    def due(self, now_ns: int, limit: int) -> list[int]:
        """The first `limit` whose deadline has passed, by deadline and then sequence.

        Each comes once, until it is delivered again or gets another deadline.
        """
        _check(times=(now_ns,))
        waiting = sorted((entry.deadline_ns, seq) for seq, entry in self._pending.items() if not entry.is_taken)
        due = [seq for deadline_ns, seq in waiting if deadline_ns <= now_ns][: max(limit, 0)]
        for seq in due:
            self._pending[seq].is_taken = True
        return due

    def next_due(self) -> int | None:
        """The next deadline of those that did not come yet."""
        return min((entry.deadline_ns for entry in self._pending.values() if not entry.is_taken), default=None)

    def changes(self) -> bytes:
        """What has changed since this was asked last, while `logged`; `apply` does it again."""
        self._log.close()
        out, self._log = bytes(self._log.data), _Log()
        return out

    def memory(self) -> int:
        return 40 * len(self._pending)

    def state(self) -> ConsumerState:
        counts = {seq: entry.deliveries - 1 for seq, entry in self._pending.items() if entry.deliveries > 1}
        return ConsumerState(
            self.delivered_consumer_seq,
            self.delivered_stream_seq,
            self.ack_floor_consumer_seq,
            self.ack_floor_stream_seq,
            {seq: (entry.dseq, entry.last_ns) for seq, entry in self._pending.items()},
            dict(sorted((counts | self._given_up).items())),
            {seq: entry.deadline_ns for seq, entry in self._pending.items()},
        )

    def encode(self) -> bytes:
        """The consumer state, with deadlines. Layout: docs/format.md, "Consumer state"."""
        return consumer_state.encode(self.state())

    @staticmethod
    def decode(buffer: bytes, policy: int = EXPLICIT) -> AckTable:
        """The table that `encode` wrote; all that is pending waits for its deadline, or is due where none is known."""
        out, state = AckTable(policy), consumer_state.decode(buffer)
        if policy == NONE and (state.pending or state.redelivered):
            raise ValueError("consumer state: pending messages, where the ack policy is none")
        out.delivered_consumer_seq, out.delivered_stream_seq = state.delivered_consumer_seq, state.delivered_stream_seq
        out.ack_floor_consumer_seq, out.ack_floor_stream_seq = state.ack_floor_consumer_seq, state.ack_floor_stream_seq
        before = state.ack_floor_consumer_seq if policy == EXPLICIT else 0
        for seq in sorted(state.pending.keys() | state.redelivered.keys()):
            count = state.redelivered.get(seq, 0)
            if seq > state.delivered_stream_seq:
                raise ValueError(f"consumer state: message {seq} is above what was delivered")
            if count >= COUNT_MAX:
                raise ValueError(f"consumer state: message {seq} was delivered too often: {count}")
            if seq not in state.pending:
                out._given_up[seq] = count
                continue
            dseq, last_ns = state.pending[seq]
            if not before < dseq <= state.delivered_consumer_seq:
                raise ValueError(f"consumer state: message {seq} has the consumer sequence {dseq}")
            before = dseq
            deadline_ns = last_ns if state.deadlines is None else state.deadlines[seq]
            out._pending[seq] = _Entry(dseq, last_ns, deadline_ns, count + 1)
        return out

    def apply(self, buffer: bytes) -> None:
        """Make the changes again; ValueError names the delta that cannot be, and those before it are made."""
        logged, self.logged = self.logged, False
        try:
            _Replay(self, bytes(buffer)).run()
        finally:
            self.logged = logged

    def __len__(self) -> int:
        return len(self._pending)

    def _floor_is_delivered(self) -> None:
        self.ack_floor_consumer_seq = self.delivered_consumer_seq
        self.ack_floor_stream_seq = self.delivered_stream_seq

    def _settle(self, dseq: int, seq: int) -> None:
        """Move the floor now that `seq` is no longer pending."""
        if self.policy == ALL:
            is_lowest = all(each > seq for each in self._pending)
            if dseq > self.ack_floor_consumer_seq and seq > self.ack_floor_stream_seq and is_lowest:
                self.ack_floor_consumer_seq, self.ack_floor_stream_seq = dseq, seq
        elif not self._pending:
            self._floor_is_delivered()
        elif dseq == self.ack_floor_consumer_seq + 1:
            after = next((each for each in self._pending if each > seq), None)
            if after is not None:
                dseq, seq = self._pending[after].dseq - 1, after - 1
            self.ack_floor_consumer_seq, self.ack_floor_stream_seq = dseq, seq

    def _drop(self, start: int, stop: int) -> tuple[int, int]:
        """How many in [start, stop) were known, and the highest consumer sequence that was pending."""
        dropped, highest = 0, 0
        for seq in sorted(self._pending.keys() | self._given_up.keys()):
            if not start <= seq < stop:
                continue
            dropped += 1
            entry = self._pending.pop(seq, None)
            if entry is None:
                del self._given_up[seq]
            else:
                highest = max(highest, entry.dseq)
                self._settle(entry.dseq, seq)
        return dropped, highest


class _Replay:
    """Deltas, read from front to back and made again."""

    def __init__(self, table: AckTable, data: bytes) -> None:
        self.table, self.data, self.at, self.start = table, data, 0, 0
        self.seq = self.time = self.wait = self.deadline = 0

    def bad(self, reason: str) -> ValueError:
        return ValueError(f"consumer changes at byte {self.start}: {reason}")

    def next(self) -> int:
        value, after = read_varint(self.data, self.at)
        if after < 0:
            raise self.bad("no whole varint in its shortest form")
        self.at = after
        return value

    def move(self, difference: int) -> int:
        self.seq = (self.seq + unzigzag(difference)) % 2**64
        return self.seq

    def run(self) -> None:
        while self.at < len(self.data):
            self.start = self.at
            n, kind = divmod(self.next(), 4)
            if kind == ACK:
                self.repeat(1, n, self.ack, EXPLICIT)
            elif kind == ACK_RUN:
                self.repeat(n, self.next(), self.ack, EXPLICIT)
            elif kind == DELIVER:
                self.deliver(n, self.next())
            elif n > REWIND:
                raise self.bad("a kind that is not known")
            else:
                self.other(n, self.next())

    def deliver(self, count: int, stride: int) -> None:
        if not 1 <= count <= RUN_MAX:
            raise self.bad("a run of none or of too many")
        if stride == 0:
            raise self.bad("a delivery that does not rise")
        for _ in range(count):
            seq = self.table.delivered_stream_seq + stride
            if seq > SEQ_MAX or self.table.delivered_consumer_seq == SEQ_MAX:
                raise self.bad("a sequence passes 2^64 - 1")
            self.table.deliver(seq, _signed(self.time), _signed(self.time + self.wait))

    def redeliver(self, seq: int) -> bool:
        if self.table.delivered_consumer_seq == SEQ_MAX:
            raise self.bad("a sequence passes 2^64 - 1")
        if self.table.get(seq) is None:
            return False
        self.table.redeliver(seq, _signed(self.time), _signed(self.time + self.wait))
        return True

    def ack(self, seq: int) -> bool:
        was_given_up = self.table.get(seq) is None and self.table.redelivered(seq) > 0
        return self.table.ack(seq) or was_given_up

    def repeat(self, count: int, difference: int, change: Callable[[int], bool], policy: int | None = None) -> None:
        """Make `change` to `count` messages from a sequence on."""
        first = self.move(difference)
        if policy not in (None, self.table.policy):
            raise self.bad("a change that this ack policy does not have")
        if not 1 <= count <= RUN_MAX:
            raise self.bad("a run of none or of too many")
        if first + count - 1 > SEQ_MAX:
            raise self.bad("a sequence passes 2^64 - 1")
        for seq in range(first, first + count):
            if not change(seq):
                raise self.bad("a message that is not pending")
        self.seq = first + count - 1

    def other(self, kind: int, value: int) -> None:
        table = self.table
        if kind == PURGE:
            self.require(value > 0, "a change that changes nothing")
            table.purge(value)
        elif kind == REWIND:
            self.require(table.rewind(value), "a change that changes nothing")
        elif kind == GIVE_UP:
            self.require(table.give_up(self.move(value)), "a message that is not pending")
        elif kind == REDELIVER:
            self.repeat(value, self.next(), self.redeliver)
        elif kind == TIME:
            self.time, self.wait = self.time + unzigzag(value), self.wait + unzigzag(self.next())
        elif kind == DEADLINE:
            more = self.next()
            self.deadline += unzigzag(more)
            done = table.set_deadline(self.move(value), _signed(self.deadline))
            self.require(done, "a message that is not pending")
        elif kind == ACK_ALL:
            more, seq = self.next(), self.move(value)
            self.require(table.policy == ALL, "a change that this ack policy does not have")
            self.require(more <= SEQ_MAX - table.ack_floor_consumer_seq, "a sequence passes 2^64 - 1")
            known = len(table._pending) + len(table._given_up)
            if more > 0:
                table.ack_all(seq, table.ack_floor_consumer_seq + more)
            self.require(len(table._pending) + len(table._given_up) < known, "a change that changes nothing")
        else:
            more, seq = self.next(), self.move(value)
            self.require(seq + more <= SEQ_MAX, "a sequence passes 2^64 - 1")
            self.require(table.drop(seq, seq + more + 1) > 0, "a change that changes nothing")

    def require(self, holds: bool, reason: str) -> None:
        if not holds:
            raise self.bad(reason)
