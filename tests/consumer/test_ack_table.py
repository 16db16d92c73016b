"""AckTable: damaged changes first, then the floors as nats-server reports them, then all implementations on random
operations.
"""

from __future__ import annotations

import random
from types import ModuleType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.consumer import ack_table as compiled
from penstock.consumer.ack_table import ALL, EXPLICIT, NONE
from penstock.format import consumer_state
from twins import ack_table as reference
from twins.varint import write_varint, zigzag

both_halves = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])

Table = compiled.AckTable | reference.AckTable
SEQ_MAX = 2**64 - 1
SECOND = 10**9
TIME_MIN, TIME_MAX = -(2**63), 2**63 - 1


def v(*values: int) -> bytes:
    return b"".join(write_varint(value) for value in values)


def ack_run(count: int, difference: int) -> bytes:
    return v(count << 2 | 2, zigzag(difference))


def other(kind: int, *values: int) -> bytes:
    return v(kind << 2 | 3, *values)


def filled(kernel: ModuleType, count: int = 5, policy: int = EXPLICIT) -> Table:
    table: Table = kernel.AckTable(policy)
    table.logged = True
    for seq in range(1, count + 1):
        table.deliver(seq, 100, 200)
    return table


def marks(table: Table) -> tuple[tuple[int, int], tuple[int, int], int, int]:
    """What a consumer's info reports: delivered, ack floor, pending, redelivered."""
    return (
        (table.delivered_consumer_seq, table.delivered_stream_seq),
        (table.ack_floor_consumer_seq, table.ack_floor_stream_seq),
        table.pending_count,
        table.redelivered_count,
    )


@both_halves
@pytest.mark.parametrize(
    ("data", "offset", "reason"),
    [
        (b"\x80", 0, "varint"),
        (b"\x80\x00", 0, "varint"),
        (v(1 << 2 | 1), 0, "varint"),
        (v(0 << 2 | 1, 1), 0, "a run of none"),
        (v(65537 << 2 | 1, 1), 0, "too many"),
        (v(1 << 2 | 1, 0), 0, "does not rise"),
        (v(2 << 2 | 1, 2**63), 0, "passes"),
        (v(0), 0, "not pending"),
        (v(zigzag(1) << 2, zigzag(9) << 2), 1, "not pending"),
        (ack_run(0, 1), 0, "a run of none"),
        (ack_run(2, 5), 0, "not pending"),
        (ack_run(5, -1), 0, "passes"),
        (other(0, 0), 0, "varint"),
        (other(1, 0, zigzag(1)), 0, "a run of none"),
        (other(1, 1, zigzag(6)), 0, "not pending"),
        (other(2, zigzag(6), 0), 0, "not pending"),
        (other(3, zigzag(3), 1), 0, "policy"),
        (other(4, zigzag(6)), 0, "not pending"),
        (other(5, zigzag(6), 3), 0, "changes nothing"),
        (other(5, zigzag(1), SEQ_MAX), 0, "passes"),
        (other(6, 0), 0, "changes nothing"),
        (other(7, 5), 0, "changes nothing"),
        (other(8, 0), 0, "not known"),
    ],
)
def test_damaged_changes_are_refused_where_they_are_wrong(
    kernel: ModuleType, data: bytes, offset: int, reason: str
) -> None:
    table = filled(kernel)
    with pytest.raises(ValueError, match=rf"changes at byte {offset}: .*({reason})"):
        table.apply(data)


@both_halves
def test_changes_of_another_policy_are_refused(kernel: ModuleType) -> None:
    for data in (ack_run(1, 1), ack_run(2, 1), v(zigzag(1) << 2)):
        for policy in (ALL, NONE):
            with pytest.raises(ValueError, match="policy"):
                filled(kernel, policy=policy).apply(data)
    for dseq in (0, SEQ_MAX):
        table = filled(kernel, policy=ALL)
        if dseq == 0:
            with pytest.raises(ValueError, match="changes nothing"):
                table.apply(other(3, zigzag(3), dseq))
        else:
            table.apply(other(3, zigzag(3), dseq))
            assert marks(table) == ((5, 5), (5, 3), 2, 0), "a consumer sequence that was never given counts as the last"


TOKENS = st.one_of(
    st.binary(min_size=1, max_size=3),
    st.builds(lambda count, stride: v(count << 2 | 1, stride), st.integers(0, 4), st.integers(0, 3)),
    st.builds(ack_run, st.integers(0, 4), st.integers(-4, 6)),
    st.builds(lambda difference: v(zigzag(difference) << 2), st.integers(-6, 8)),
    st.builds(
        lambda kind, a, b: other(kind, a, b), st.sampled_from((0, 1, 2, 3, 5)), st.integers(0, 6), st.integers(0, 9)
    ),
    st.builds(lambda kind, a: other(kind, a), st.sampled_from((4, 6, 7, 8)), st.integers(0, 9)),
    st.builds(lambda kind, a: other(kind, a, a), st.integers(0, 7), st.sampled_from((2**63, SEQ_MAX, SEQ_MAX - 1))),
)


@settings(max_examples=600, deadline=None)
@given(tokens=st.lists(TOKENS, max_size=12), policy=st.sampled_from((NONE, EXPLICIT, ALL)))
@example(tokens=[v(65536 << 2 | 1, 1), ack_run(65536, 6)], policy=EXPLICIT)
def test_any_bytes_apply_alike(tokens: list[bytes], policy: int) -> None:
    data = b"".join(tokens)
    twin, table = filled(reference, policy=policy), filled(compiled, policy=policy)
    try:
        twin.apply(data)
    except ValueError as error:
        with pytest.raises(ValueError, match="at byte") as raised:
            table.apply(data)
        assert str(raised.value) == str(error)
    else:
        table.apply(data)
    assert table.encode() == twin.encode()
    assert table.redelivered_count == twin.redelivered_count
    assert table.due(TIME_MAX, 10**6) == twin.due(TIME_MAX, 10**6)
    assert table.logged, "what is replayed is not logged, what comes after it is"
    assert table.changes() == filled(compiled, policy=policy).changes()


@both_halves
@pytest.mark.parametrize(
    ("state", "policy", "reason"),
    [
        ((5, 5, 0, 0, {6: (1, 0)}, {}, {6: 0}), EXPLICIT, "message 6 is above"),
        ((5, 5, 0, 0, {}, {6: 1}, {}), EXPLICIT, "message 6 is above"),
        ((5, 5, 0, 0, {3: (0, 0)}, {}, {3: 0}), EXPLICIT, "message 3 has the consumer sequence 0"),
        ((5, 5, 0, 0, {3: (6, 0)}, {}, {3: 0}), EXPLICIT, "message 3 has the consumer sequence 6"),
        ((5, 5, 0, 0, {3: (3, 0), 4: (3, 0)}, {}, None), EXPLICIT, "message 4 has the consumer sequence 3"),
        ((5, 5, 3, 1, {3: (3, 0)}, {}, None), EXPLICIT, "message 3 has the consumer sequence 3"),
        ((5, 5, 0, 0, {3: (3, 0)}, {3: 2**32}, {3: 0}), EXPLICIT, "too often"),
        ((5, 5, 0, 0, {3: (3, 0)}, {}, {3: 0}), NONE, "policy is none"),
    ],
)
def test_a_state_that_no_table_has_is_refused(
    kernel: ModuleType, state: tuple[object, ...], policy: int, reason: str
) -> None:
    data = consumer_state.encode(consumer_state.ConsumerState(*state))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=reason):
        kernel.AckTable.decode(data, policy)


@both_halves
def test_a_state_without_deadlines_is_due_at_once(kernel: ModuleType) -> None:
    state = consumer_state.ConsumerState(7, 14, 3, 10, {12: (4, 1000), 14: (5, 1003)}, {12: 1})
    table = kernel.AckTable.decode(consumer_state.encode(state))
    assert table.get(12) == (4, 1000, 2, 1000)
    assert table.due(1002, 10) == [12]


@both_halves
def test_what_cannot_be_is_refused(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="ack policy 3"):
        kernel.AckTable(3)
    with pytest.raises(ValueError, match="begin at 1"):
        kernel.AckTable(EXPLICIT, 0)
    table = filled(kernel)
    with pytest.raises(ValueError, match="5 was delivered already"):
        table.deliver(5, 0, 0)
    with pytest.raises(ValueError, match="6 is not pending"):
        table.redeliver(6, 0, 0)
    with pytest.raises(ValueError, match="policy is not all"):
        table.ack_all(3)
    with pytest.raises(ValueError, match="policy is not explicit"):
        filled(kernel, policy=ALL).ack(3)
    for seq, time in ((2**64, 0), (-1, 0), (6, 2**63)):
        with pytest.raises(OverflowError):
            table.deliver(seq, time, 0)
        with pytest.raises(OverflowError):
            table.deliver(seq, 0, time)
    last = kernel.AckTable.decode(consumer_state.encode(consumer_state.ConsumerState(SEQ_MAX, 5, SEQ_MAX, 5)))
    with pytest.raises(OverflowError, match="passes"):
        last.deliver(6, 0, 0)
    with pytest.raises(ValueError, match=r"at byte 0: .*passes"):
        last.apply(v(1 << 2 | 1, 1))


# Recorded from nats-server 2.15.1.


@both_halves
def test_explicit_acks_out_of_order_twice_and_of_what_was_never_delivered(kernel: ModuleType) -> None:
    table = filled(kernel)
    floors = []
    for seq in (2, 4, 1, 1, 2):
        table.ack(seq)
        floors.append(marks(table)[1:3])
    assert floors == [((0, 0), 4), ((0, 0), 3), ((2, 2), 2), ((2, 2), 2), ((2, 2), 2)]
    assert table.redeliver(5, 300, 400) == (6, 2)
    assert marks(table) == ((6, 5), (2, 2), 2, 1)
    assert table.ack(3)
    assert marks(table) == ((6, 5), (4, 4), 1, 1)
    assert table.get(5) == (5, 400, 2, 300), "the consumer sequence of its first delivery stays"
    assert table.ack(5)
    assert marks(table) == ((6, 5), (6, 5), 0, 0)
    assert table.deliver(6, 500, 600) == 7
    assert not table.ack(9)
    assert marks(table) == ((7, 6), (6, 5), 1, 0)


@both_halves
def test_the_floor_passes_redelivered_messages(kernel: ModuleType) -> None:
    table = kernel.AckTable()
    table.deliver(1, 0, 0)
    table.redeliver(1, 0, 0)
    table.deliver(2, 0, 0)
    table.deliver(3, 0, 0)
    floors = [marks(table)[1] for seq in (1, 2, 3) if table.ack(seq)]
    assert floors == [(2, 1), (3, 2), (4, 3)]


@both_halves
def test_the_floor_passes_gaps_of_a_filter(kernel: ModuleType) -> None:
    table = kernel.AckTable()
    for seq in (1, 5, 9, 13):
        table.deliver(seq, 0, 0)
    floors = [marks(table)[1] for seq in (1, 9, 5, 13) if table.ack(seq)]
    assert floors == [(1, 4), (1, 4), (3, 12), (4, 13)]
    table.deliver(17, 0, 0)
    assert marks(table) == ((5, 17), (4, 13), 1, 0)


@both_halves
def test_messages_that_leave_the_stream_are_settled(kernel: ModuleType) -> None:
    table = filled(kernel, 6)
    assert table.drop(2, 3) == 1
    assert marks(table) == ((6, 6), (0, 0), 5, 0)
    assert table.drop(1, 2) == 1
    assert marks(table) == ((6, 6), (2, 2), 4, 0)
    assert table.drop(6, 7) == 1
    assert table.ack(3)
    assert marks(table) == ((6, 6), (3, 3), 2, 0)
    assert table.drop(3, 3) == table.drop(9, 2**64) == 0


@both_halves
def test_a_purge_moves_delivered_and_floor(kernel: ModuleType) -> None:
    table = filled(kernel, 6)
    table.ack(3)
    assert table.purge(3) == 2
    assert [marks(table)[1]] + [marks(table)[1] for seq in (4, 5, 6) if table.ack(seq)] == [
        (3, 3),
        (4, 4),
        (5, 5),
        (6, 6),
    ]
    table = filled(kernel, 3)
    assert table.purge(9) == 3
    assert marks(table) == ((3, 8), (3, 8), 0, 0)
    table = kernel.AckTable()
    assert table.purge(6) == 0
    assert marks(table) == ((0, 5), (0, 5), 0, 0)
    table.deliver(6, 0, 0)
    assert marks(table) == ((1, 6), (0, 5), 1, 0)
    table = filled(kernel, 4)
    table.purge(3)
    assert marks(table) == ((4, 4), (2, 2), 2, 0)
    table.ack(3)
    assert marks(table) == ((4, 4), (3, 3), 1, 0)
    table = filled(kernel, 6, ALL)
    table.purge(4)
    assert marks(table) == ((6, 6), (3, 3), 3, 0)
    table.ack_all(6, 6)
    assert marks(table) == ((6, 6), (6, 6), 0, 0)


@both_halves
def test_a_message_that_is_given_up_does_not_move_the_floor(kernel: ModuleType) -> None:
    table = filled(kernel, 3)
    assert table.ack(2)
    assert table.give_up(1)
    assert table.give_up(3)
    assert not table.give_up(3)
    assert marks(table) == ((3, 3), (0, 0), 0, 2)
    table.deliver(4, 0, 0)
    table.deliver(5, 0, 0)
    assert [marks(table)[1] for seq in (4, 5) if table.ack(seq)] == [(0, 0), (5, 5)]
    assert not table.ack(1), "it is not pending, but no longer counts as redelivered"
    assert marks(table) == ((5, 5), (5, 5), 0, 1)
    assert kernel.AckTable.decode(table.encode()).redelivered(3) == 1
    table.drop(3, 4)
    assert marks(table) == ((5, 5), (5, 5), 0, 0)


@both_halves
def test_giving_up_counts_as_the_delivery_that_was_not_made(kernel: ModuleType) -> None:
    table = filled(kernel, 1)
    table.redeliver(1, 0, 0)
    assert table.redelivered(1) == 1
    table.give_up(1)
    assert table.redelivered(1) == 2
    table.deliver(2, 0, 0)
    table.deliver(3, 0, 0)
    assert [marks(table)[1] for seq in (2, 3) if table.ack(seq)] == [(0, 0), (4, 3)]
    assert table.redelivered_count == 1


@both_halves
def test_ack_all_takes_the_consumer_sequence_of_the_ack(kernel: ModuleType) -> None:
    table = filled(kernel, 6, ALL)
    assert table.ack_all(3, 3) == 3
    assert table.ack_all(2, 2) == 0
    assert marks(table) == ((6, 6), (3, 3), 3, 0)
    assert table.redeliver(4, 300, 400) == (7, 2)
    assert table.ack_all(4, 7) == 1
    assert marks(table) == ((7, 6), (7, 4), 2, 0)
    assert table.ack_all(6, 6) == 0, "below the floor by its consumer sequence"
    for seq in (7, 8, 9):
        table.deliver(seq, 0, 0)
    assert table.ack_all(8, 9) == 4
    assert marks(table) == ((10, 9), (9, 8), 1, 0)
    assert table.term(9)
    assert marks(table) == ((10, 9), (10, 9), 0, 0)
    assert table.ack_all(10) == 0
    table = filled(kernel, 2, ALL)
    table.give_up(1)
    table.give_up(2)
    table.deliver(3, 0, 0)
    table.deliver(4, 0, 0)
    assert table.ack_all(2, 2) == 0
    assert marks(table)[1:3] == ((0, 0), 2)
    assert table.ack_all(4, 4) == 2
    assert marks(table) == ((4, 4), (4, 4), 0, 1)


@both_halves
def test_with_ack_policy_none_the_floor_follows(kernel: ModuleType) -> None:
    table = kernel.AckTable(NONE, 5)
    assert marks(table) == ((0, 4), (0, 4), 0, 0)
    table.logged = True
    table.deliver(5, 0, 0)
    table.deliver(9, 0, 0)
    assert marks(table) == ((2, 9), (2, 9), 0, 0)
    again = kernel.AckTable(NONE, 5)
    again.apply(table.changes())
    assert marks(again) == marks(table)
    assert table.next_due() is None


# Penstock's own rules.


@both_halves
def test_a_message_deleted_above_pending_ones_acknowledges_none_of_them(kernel: ModuleType) -> None:
    """nats-server treats it as an ack of all messages before it, which are then never redelivered."""
    table = filled(kernel, 6, ALL)
    table.drop(3, 4)
    assert marks(table) == ((6, 6), (0, 0), 5, 0)
    table.drop(1, 3)
    assert marks(table) == ((6, 6), (2, 2), 3, 0)


@both_halves
def test_a_stream_that_lost_its_end_takes_back_its_deliveries(kernel: ModuleType) -> None:
    table = filled(kernel, 6)
    table.ack(2)
    assert not table.rewind(6)
    assert table.rewind(4)
    assert marks(table) == ((6, 4), (0, 0), 3, 0)
    assert table.deliver(5, 0, 0) == 7, "consumer sequences never come twice"
    table.rewind(2)
    assert table.ack(1)
    assert marks(table) == ((7, 2), (7, 2), 0, 0)
    table.rewind(1)
    assert marks(table) == ((7, 1), (7, 1), 0, 0)


@both_halves
def test_what_is_due_comes_once_in_order_of_deadline_and_sequence(kernel: ModuleType) -> None:
    table = kernel.AckTable()
    for seq, deadline_ns in ((1, 50), (2, 60), (3, 40), (4, 60), (5, TIME_MAX), (6, TIME_MIN)):
        table.deliver(seq, 0, deadline_ns)
    assert table.next_due() == TIME_MIN
    assert table.due(39, 10) == [6]
    assert table.due(60, 0) == table.due(60, -1) == []
    assert table.due(60, 2) == [3, 1]
    assert table.next_due() == 60
    assert table.due(60, 9) == [2, 4]
    assert table.due(60, 9) == []
    assert table.set_deadline(2, 70)
    assert table.redeliver(3, 60, 65) == (7, 2)
    assert table.due(70, 9) == [3, 2]
    assert table.ack(5)
    assert table.next_due() is None
    assert not table.set_deadline(5, 70)


def test_a_table_costs_little_however_it_is_used() -> None:
    table = compiled.AckTable()
    for seq in range(1, 100_001):
        table.deliver(seq, 0, seq)
    assert table.memory() < 44 * 100_000
    for seq in range(1, 100_001):
        table.redeliver(seq, 0, -seq)
    assert table.memory() < 48 * 100_000
    for seq in range(100_001, 300_001):
        table.deliver(seq, 0, seq)
        table.ack(seq - 50_000)
    assert table.pending_count == 100_000
    assert table.memory() < 60 * table.pending_count
    for seq in random.Random(1).sample(range(1, 300_001), 300_000):
        table.ack(seq)
    assert marks(table) == ((400_000, 300_000), (400_000, 300_000), 0, 0)
    assert table.memory() < 100_000


def test_runs_are_a_few_bytes_and_random_acks_three_each() -> None:
    table = compiled.AckTable()
    table.logged = True
    for seq in range(1, 1001):
        table.deliver(10**9 + seq, 1_700_000_000 * SECOND, 1_700_000_030 * SECOND)
    assert len(table.changes()) < 40
    for seq in range(1, 1001):
        table.ack(10**9 + seq)
    assert len(table.changes()) < 12
    table = compiled.AckTable()
    for seq in range(1, 100_001):
        table.deliver(seq, 0, 0)
    table.logged = True
    for seq in random.Random(1).sample(range(1, 100_001), 1000):
        table.ack(seq)
    assert len(table.changes()) <= 3000


@pytest.mark.parametrize("seed", range(4))
def test_a_big_table_that_grows_wraps_and_shrinks_is_still_its_twin(seed: int) -> None:
    rng = random.Random(seed)
    table, twin = compiled.AckTable(), reference.AckTable()
    both: tuple[Table, ...] = (table, twin)
    for target in (3000, 100, 2500, 2300, 4000, 1500, 1700, 0, 1100, 1000, 3000, 10):
        while twin.pending_count != target:
            now_ns = rng.randrange(1000)
            if twin.pending_count < target:
                seq = twin.delivered_stream_seq + rng.choice((1, 1, 1, 9))
                assert len({each.deliver(seq, now_ns, now_ns + 5) for each in both}) == 1
            pending = list(twin.state().pending) if rng.random() < 0.05 else []
            for seq in rng.sample(pending, min(len(pending), 20)):
                assert len({each.set_deadline(seq, now_ns + 50) for each in both}) == 1
            for seq in rng.sample(pending, min(len(pending), 20)) + pending[: rng.choice((0, 30))]:
                if twin.pending_count > target or rng.random() < 0.3:
                    assert len({each.ack(seq) for each in both}) == 1
                    if twin.pending_count == target:
                        break
        assert table.encode() == twin.encode()
        assert table.due(300, 500) == twin.due(300, 500)
        assert table.memory() < 48 * max(target, 1024) + 48 * target + 1024
    assert marks(table) == marks(twin)


class Naive:
    """Explicit acks as nats-server processes them: a map, and a walk over the stream's sequences."""

    def __init__(self) -> None:
        self.delivered = self.floor = (0, 0)
        self.pending: dict[int, int] = {}

    def deliver(self, seq: int) -> None:
        self.delivered = (self.delivered[0] + 1, seq)
        self.pending[seq] = self.delivered[0]

    def ack(self, seq: int) -> None:
        dseq = self.pending.pop(seq, None)
        if dseq is None:
            return
        if not self.pending:
            self.floor = self.delivered
        elif dseq == self.floor[0] + 1:
            self.floor = (dseq, seq)
            for after in range(seq + 1, self.delivered[1] + 1):
                if after in self.pending:
                    self.floor = (self.pending[after] - 1, after - 1)
                    break


@given(st.lists(st.tuples(st.sampled_from("dddarr"), st.integers(1, 40)), max_size=80))
def test_floors_are_those_of_a_walk_over_all_sequences(steps: list[tuple[str, int]]) -> None:
    table, naive = compiled.AckTable(), Naive()
    for kind, number in steps:
        if kind == "d":
            seq = naive.delivered[1] + 1 + number % 3
            naive.deliver(seq)
            table.deliver(seq, 0, 0)
        elif kind == "a":
            naive.ack(number)
            table.ack(number)
        elif number in naive.pending:
            naive.delivered = (naive.delivered[0] + 1, naive.delivered[1])
            table.redeliver(number, 0, 0)
        assert marks(table)[:3] == (naive.delivered, naive.floor, len(naive.pending))


TIMES = st.one_of(st.integers(0, 50), st.integers(TIME_MIN, TIME_MAX))
PARTS = st.integers(0, 200)


class TableMachine(RuleBasedStateMachine):
    """A random sequence of operations leaves both implementations with the same state, which replaying their changes
    also yields.
    """

    @initialize(policy=st.sampled_from((NONE, EXPLICIT, EXPLICIT, ALL)), start=st.sampled_from((1, 7, 2**64 - 900)))
    def begin(self, policy: int, start: int) -> None:
        self.table, self.twin = compiled.AckTable(policy, start), reference.AckTable(policy, start)
        self.table.logged = self.twin.logged = True
        self.follower = compiled.AckTable(policy, start)
        self.policy = policy
        self.all: tuple[Table, ...] = (self.table, self.twin)

    def some(self, part: int) -> int:
        """A sequence, mostly that of a message in the table."""
        state = self.twin.state()
        known = sorted(state.pending.keys() | state.redelivered.keys())
        if not known or part % 10 == 0:
            return max(0, min(state.delivered_stream_seq + 3 - part % 20, SEQ_MAX))
        return known[part % len(known)]

    @rule(gaps=st.lists(st.sampled_from((1, 1, 1, 1, 2, 5)), min_size=1, max_size=40), now_ns=TIMES, wait=TIMES)
    def deliver(self, gaps: list[int], now_ns: int, wait: int) -> None:
        for gap in gaps:
            seq, deadline_ns = self.twin.delivered_stream_seq + gap, min(now_ns + max(wait, 0), TIME_MAX)
            if seq <= SEQ_MAX:
                assert len({table.deliver(seq, now_ns, deadline_ns) for table in self.all}) == 1

    @rule(parts=st.lists(PARTS, max_size=20), now_ns=TIMES, deadline_ns=TIMES)
    def redeliver(self, parts: list[int], now_ns: int, deadline_ns: int) -> None:
        for seq in map(self.some, parts):
            if self.twin.get(seq) is not None:
                assert len({table.redeliver(seq, now_ns, deadline_ns) for table in self.all}) == 1

    @precondition(lambda self: self.policy == EXPLICIT)
    @rule(parts=st.lists(PARTS, max_size=20), run=st.integers(1, 20))
    def ack(self, parts: list[int], run: int) -> None:
        for part in parts:
            first = self.some(part)
            for seq in range(first, min(first + (run if part % 4 == 0 else 1), SEQ_MAX)):
                assert len({table.ack(seq) for table in self.all}) == 1

    @precondition(lambda self: self.policy == ALL)
    @rule(part=PARTS, dseq=st.integers(0, 60))
    def ack_all(self, part: int, dseq: int) -> None:
        seq = self.some(part)
        assert len({table.ack_all(seq, 0 if dseq < 30 else dseq) for table in self.all}) == 1

    @precondition(lambda self: self.policy != NONE)
    @rule(part=PARTS)
    def term(self, part: int) -> None:
        seq = self.some(part)
        assert len({table.term(seq) for table in self.all}) == 1

    @rule(parts=st.lists(PARTS, max_size=20), deadline_ns=TIMES)
    def set_deadline(self, parts: list[int], deadline_ns: int) -> None:
        for seq in map(self.some, parts):
            assert len({table.set_deadline(seq, deadline_ns) for table in self.all}) == 1

    @rule(parts=st.lists(PARTS, max_size=5))
    def give_up(self, parts: list[int]) -> None:
        for seq in map(self.some, parts):
            assert len({table.give_up(seq) for table in self.all}) == 1

    @rule(part=PARTS, length=st.integers(0, 10))
    def drop(self, part: int, length: int) -> None:
        start = self.some(part)
        assert len({table.drop(start, min(start + length, 2**64)) for table in self.all}) == 1

    @rule(part=PARTS)
    def purge(self, part: int) -> None:
        first = self.some(part)
        assert len({table.purge(first) for table in self.all}) == 1

    @rule(part=PARTS)
    def rewind(self, part: int) -> None:
        last = self.some(part)
        assert len({table.rewind(last) for table in self.all}) == 1

    @rule(now_ns=TIMES, limit=st.integers(0, 300))
    def due(self, now_ns: int, limit: int) -> None:
        assert self.table.due(now_ns, limit) == self.twin.due(now_ns, limit)

    @rule()
    def take_changes(self) -> None:
        data = self.table.changes()
        assert data == self.twin.changes()
        self.follower.apply(data)
        assert self.follower.encode() == self.table.encode()
        assert marks(self.follower) == marks(self.table)
        again = reference.AckTable.decode(self.twin.encode(), self.policy)
        assert compiled.AckTable.decode(self.table.encode(), self.policy).due(TIME_MAX, 10**4) == again.due(
            TIME_MAX, 10**4
        )

    @invariant()
    def alike(self) -> None:
        if not hasattr(self, "twin"):
            return
        state = self.twin.state()
        assert marks(self.table) == marks(self.twin)
        assert self.table.next_due() == self.twin.next_due()
        data = self.table.encode()
        assert data == self.twin.encode() == consumer_state.encode(self.table.state())
        again = compiled.AckTable.decode(data, self.policy)
        assert again.encode() == data
        assert marks(again) == marks(self.table)
        for seq in state.pending:
            assert self.table.get(seq) == self.twin.get(seq)
        assert state.ack_floor_consumer_seq <= state.delivered_consumer_seq
        assert all(seq > state.ack_floor_stream_seq for seq in state.pending)

    def teardown(self) -> None:
        if hasattr(self, "twin"):
            self.take_changes()


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
