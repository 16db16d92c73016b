"""Sublist: the tree with its cache against a plain list of subscriptions."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from penstock.broker.routing.sublist import Sublist
from twins.sublist import Sublist as Model

TOKENS = [b"a", b"b", b"ab", b"a*", b">>", b"\xff", b"a-token-that-is-longer-than-most"]
FILTERS = st.builds(
    lambda tokens, tail: b".".join([*tokens, b">"] if tail else tokens),
    st.lists(st.sampled_from([*TOKENS, b"*", b"*"]), min_size=1, max_size=5),
    st.booleans(),
) | st.just(b">")
# Published subjects may be anything that a line can hold: wildcards and empty tokens too.
SUBJECTS = st.lists(st.sampled_from([*TOKENS, b"*", b">", b""]), min_size=1, max_size=6).map(b".".join)
QUEUES = st.sampled_from([b"", b"", b"q", b"workers", b"q2"])


def normal(found: tuple[list[object], list[list[object]]]) -> tuple[list[str], list[list[str]]]:
    plain, groups = found
    return sorted(map(str, plain)), sorted(sorted(map(str, group)) for group in groups)


class Subscriptions(RuleBasedStateMachine):
    """Any order of coming, going and asking: the cached answer, the fresh one and the model's are the same."""

    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.sublist = Sublist()
        self.model = Model()
        self.number = 0
        self.asked: list[bytes] = []

    @rule(target=tokens, subject=FILTERS, queue=QUEUES)
    def add(self, subject: bytes, queue: bytes) -> tuple[object, int]:
        self.number += 1
        name = f"service {self.number}"
        return self.sublist.add_service(name, subject, queue), self.model.add_service(name, subject, queue)

    @rule(pair=consumes(tokens))
    def remove(self, pair: tuple[object, int]) -> None:
        for _ in range(2):  # the second time does nothing
            self.sublist.remove_service(pair[0])
            self.model.remove_service(pair[1])

    @rule(subject=SUBJECTS)
    def ask(self, subject: bytes) -> None:
        expected = normal(self.model.subscribers(subject))
        assert normal(self.sublist.subscribers(subject)) == expected
        assert normal(self.sublist.subscribers(subject)) == expected, "from the cache"
        assert normal(self.sublist.subscribers(subject, cached=False)) == expected
        assert self.sublist.subscriber_count(subject) == self.model.subscriber_count(subject)
        self.asked.append(subject)

    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        if self.asked:
            self.ask(data.draw(st.sampled_from(self.asked)))

    @rule(prefix=SUBJECTS, lasts=st.lists(SUBJECTS, min_size=3, max_size=6))
    def ask_in_a_row(self, prefix: bytes, lasts: list[bytes]) -> None:
        """The way to the last token is remembered: what comes next may have another, more of them, or none."""
        for last in lasts:
            for subject in (prefix + b"." + last, prefix + b".x", prefix + b".", prefix):
                assert normal(self.sublist.subscribers(subject, cached=False)) == normal(
                    self.model.subscribers(subject)
                )

    @invariant()
    def lists_and_counts_what_is_there(self) -> None:
        assert self.sublist.count == self.model.count == self.sublist.inserts - self.sublist.removes
        listing = sorted((subject, queue, str(target)) for subject, queue, *_, target in self.sublist.listing())
        assert listing == sorted((subject, queue, str(target)) for subject, queue, target in self.model.listing())

    @invariant()
    def tells_how_many_hear_what_is_cached(self) -> None:
        answers, subscribers, most = self.sublist.fanout()
        assert answers == self.sublist.cached_count() <= 2048
        assert most <= subscribers <= answers * self.sublist.count


Subscriptions.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_subscriptions = Subscriptions.TestCase


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(FILTERS, QUEUES), max_size=60), SUBJECTS, st.randoms(use_true_random=False))
def test_removing_all_in_any_order_leaves_nothing(
    subscriptions: list[tuple[bytes, bytes]], subject: bytes, rng: random.Random
) -> None:
    sublist = Sublist()
    tokens = [sublist.add_service(object(), *one) for one in subscriptions]
    rng.shuffle(tokens)
    for token in tokens:
        sublist.subscribers(subject)
        sublist.remove_service(token)
    assert sublist.subscribers(subject) == ([], [])
    assert sublist.count == 0
    assert sublist.listing() == []


@pytest.mark.parametrize(
    "subject", [b"", b".", b"a.", b".a", b"a..b", b">.a", b"a.>.b", b"a b", b"a\x00", b"a" * 65536]
)
def test_what_cannot_be_subscribed_to_is_refused(subject: bytes) -> None:
    with pytest.raises(ValueError, match="subscribed"):
        Sublist().add_service(print, subject)


def test_ten_thousand_hearers_of_thousands_of_subjects_are_not_kept_in_the_cache() -> None:
    """2,048 cached answers of any size took gigabytes."""
    sublist = Sublist()
    tokens = [sublist.add_service(f"s{n}", b">" if n % 2 else b"a.>", b"q" if n % 3 else b"") for n in range(10_000)]
    for n in range(3000):
        plain, groups = sublist.subscribers(b"a.%d" % n)
        assert len(plain) + len(groups[0]) == 10_000
    assert sublist.cached_count() == 0
    for token in tokens[10:]:
        sublist.remove_service(token)
    assert len(sublist.subscribers(b"a.1")[0]) == 4
    assert sublist.cached_count() == 1


def seconds_to_find(count: int) -> float:
    """Processor time of one search among so many queue groups, the least of three."""
    sublist = Sublist()
    for n in range(count):
        sublist.add_service(n, b"orders.new", b"group-%d" % n)
        sublist.add_service(-n, b"orders.*", b"group-%d" % n)
    spent = []
    for _ in range(3):
        began = time.thread_time()
        plain, groups = sublist.subscribers(b"orders.new", cached=False)
        spent.append(time.thread_time() - began)
        assert plain == []
        assert sorted(map(sorted, groups)) == [[-n, n] for n in range(count - 1, -1, -1)]
    return min(spent)


def test_ten_times_the_queue_groups_take_some_ten_times_as_long() -> None:
    """Each group's name was compared with each other's: 20,000 of them held the server up for seconds per message."""
    assert seconds_to_find(10_000) < 40 * seconds_to_find(1_000)


def test_a_subject_of_two_thousand_tokens_is_subscribed_to_and_matched() -> None:
    sublist = Sublist()
    stars, literal = b".".join([b"*"] * 2000), b".".join([b"a"] * 2000)
    tokens = [sublist.add_service(name, name) for name in (stars, literal, stars + b".>")]
    assert sorted(sublist.subscribers(literal)[0]) == sorted([stars, literal])
    assert sublist.subscribers(literal + b".b")[0] == [stars + b".>"]
    for token in tokens:
        sublist.remove_service(token)
    assert sublist.subscribers(literal) == ([], [])
