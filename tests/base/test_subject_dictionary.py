"""SubjectDictionary: both halves against each other, with names that share prefixes and sort around the dot."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.base import subject as compiled_subject
from penstock.base import subject_dictionary as compiled
from twins import subject as reference_subject
from twins import subject_dictionary as reference

HALVES = [
    SimpleNamespace(SubjectDictionary=compiled.SubjectDictionary, Filters=compiled_subject.Filters),
    SimpleNamespace(SubjectDictionary=reference.SubjectDictionary, Filters=reference_subject.Filters),
]
both_halves = pytest.mark.parametrize("kernel", HALVES, ids=["compiled", "reference"])

# `-` sorts before the dot and `/` after it; tokens are prefixes of each other, empty, long, and not UTF-8.
TOKENS = [
    b"a",
    b"b",
    b"ab",
    b"a-",
    b"-",
    b"/",
    b"",
    b"*",
    b">",
    b"\xff\xfe",
    b"a\x00",
    b"longer-than-a-word",
    b"longer-than",
]
NAMES = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=4).map(b".".join).filter(bool)
FILTER_TOKENS = [b"a", b"b", b"ab", b"a-", b"-", b"/", b"*", b"\xff\xfe", b"longer-than"]
FILTERS = st.builds(
    lambda tokens, tail: b".".join([*tokens, b">"] if tail else tokens),
    st.lists(st.sampled_from(FILTER_TOKENS), min_size=1, max_size=4),
    st.booleans(),
)


@both_halves
@pytest.mark.parametrize("name", [b"", "", b"a" * 65536])
def test_a_name_of_no_bytes_or_too_many_is_refused(kernel: SimpleNamespace, name: bytes | str) -> None:
    tree = kernel.SubjectDictionary()
    with pytest.raises(ValueError, match="1 to 65535 bytes"):
        tree.insert(name)
    with pytest.raises(ValueError, match="1 to 65535 bytes"):
        tree.insert_at(0, name)
    assert name not in tree
    assert tree.lookup(name) is None
    assert not tree.delete(name)
    assert len(tree) == 0


@both_halves
def test_a_taken_number_and_a_taken_name_are_refused(kernel: SimpleNamespace) -> None:
    tree = kernel.SubjectDictionary()
    assert tree.insert(b"a") == 0
    for number, name in ((0, b"b"), (1, b"a"), (-1, b"b"), (2**31 - 1, b"b"), (2**40, b"b")):
        with pytest.raises(ValueError, match="number"):
            tree.insert_at(number, name)
    assert list(tree) == [b"a"]
    assert tree.number_stop == 1


@both_halves
def test_a_malformed_filter_is_refused(kernel: SimpleNamespace) -> None:
    tree = kernel.SubjectDictionary()
    with pytest.raises(ValueError, match="empty token"):
        tree.matching(["a..b"])


@both_halves
def test_an_empty_tree_answers(kernel: SimpleNamespace) -> None:
    tree = kernel.SubjectDictionary()
    assert list(tree) == tree.matching([]) == tree.matching(["a.*", "b"]) == tree.following(b"a", 5) == []
    assert tree.matching_count([">"]) == 0
    assert tree.name_of(0) is tree.name_of(-1) is tree.name_of(2**40) is None


@both_halves
def test_numbers_passed_over_and_freed_are_given_out_again(kernel: SimpleNamespace) -> None:
    tree = kernel.SubjectDictionary()
    tree.insert_at(5, b"five")
    tree.insert_at(2, b"two")
    assert tree.number_stop == 6
    assert [tree.insert(b"n%d" % n) for n in range(5)] == [0, 1, 3, 4, 6]
    assert tree.delete(b"two")
    assert tree.delete(b"n0")
    assert tree.name_of(2) is None
    assert [tree.insert(b"m%d" % n) for n in range(3)] == [0, 2, 7]


@both_halves
def test_a_text_and_its_bytes_are_one_name(kernel: SimpleNamespace) -> None:
    tree = kernel.SubjectDictionary()
    assert tree.insert("ä.b") == tree.insert("ä.b".encode()) == 0
    assert "ä.b" in tree
    assert tree.name_of(0) == "ä.b".encode()


@both_halves
def test_names_of_64_kib_and_prefixes_of_each_other(kernel: SimpleNamespace) -> None:
    tree = kernel.SubjectDictionary()
    names = [b"x" * size for size in (1, 2, 7, 8, 9, 15, 16, 17, 300, 65534, 65535)]
    names += [b"x" * 65000 + b".y", b"x" * 65000 + b".yy", b"x" * 65000 + b"-"]
    for name in names:
        tree.insert(name)
    assert list(tree) == sorted(names)
    assert tree.matching([b"x" * 65000 + b".*"]) == [b"x" * 65000 + b".y", b"x" * 65000 + b".yy"]
    for name in names[::2]:
        assert tree.delete(name)
    assert list(tree) == sorted(names[1::2])


@both_halves
def test_a_star_is_not_jumped_over_by_a_byte_below_the_dot(kernel: SimpleNamespace) -> None:
    """Once a search for `r.*.>` went from `r.a` straight to `r.a.`, past `r.a-.x`, which matches."""
    tree = kernel.SubjectDictionary()
    names = [b"r.a", b"r.a-.x", b"r.a.x", b"r.a/.x", b"r.b"]
    for name in names:
        tree.insert(name)
    assert tree.matching([b"r.*.>"]) == [b"r.a-.x", b"r.a.x", b"r.a/.x"]


def grown(seed: int, count: int) -> tuple[compiled.SubjectDictionary, reference.SubjectDictionary]:
    """Both halves after the same random inserts and deletes, with enough names for many leaves."""
    rnd = random.Random(seed)
    tree, twin = compiled.SubjectDictionary(), reference.SubjectDictionary()
    live: list[bytes] = []
    for _ in range(count):
        if live and rnd.random() < 0.25:
            name = live.pop(rnd.randrange(len(live)))
            assert tree.delete(name)
            assert twin.delete(name)
            continue
        name = b".".join(rnd.choice(TOKENS) for _ in range(rnd.randint(1, 4))) + b".%d" % rnd.randrange(count)
        if name not in twin:
            live.append(name)
        assert tree.insert(name) == twin.insert(name)
    return tree, twin


@pytest.mark.parametrize("seed", range(4))
def test_a_large_tree_answers_every_filter_as_the_twin_does(seed: int) -> None:
    tree, twin = grown(seed, 6000)
    rnd = random.Random(seed)
    assert list(tree) == list(twin)
    assert (len(tree), tree.number_stop) == (len(twin), twin.number_stop)
    for _ in range(150):
        filters = []
        for _ in range(rnd.choice([1, 1, 2, 5])):
            tokens = [rnd.choice(FILTER_TOKENS) for _ in range(rnd.randint(1, 5))]
            filters.append(b".".join([*tokens, b">"] if rnd.random() < 0.4 else tokens))
        filters += rnd.sample(list(twin), rnd.choice([0, 0, 2]))
        filters = [text for text in filters if reference_subject.is_valid_filter(text)]
        assert tree.matching(filters) == twin.matching(filters), filters
        assert tree.matching_count(filters) == twin.matching_count(filters), filters
    for name in rnd.sample(list(twin), 50):
        for start in (name, name + b"\x00", name[:-1]):
            assert tree.following(start, 3) == twin.following(start, 3)


def test_a_filter_with_more_stars_than_a_plan_holds_matches() -> None:
    tree, twin = compiled.SubjectDictionary(), reference.SubjectDictionary()
    for tokens in range(1, 30):
        for last in (b"x", b"y"):
            name = b"a." * tokens + last
            tree.insert(name)
            twin.insert(name)
    for stars in range(1, 30):
        for text in (
            b"*." * stars + b"x",
            b"a." + b"*." * stars + b">",
            b"*." * stars + b"*",
            b"a.*." * (stars // 2) + b"y",
        ):
            assert tree.matching([text]) == twin.matching([text])
            assert tree.matching_count([text]) == twin.matching_count([text])


def test_dropping_all_names_gives_their_memory_back() -> None:
    tree = compiled.SubjectDictionary()
    names = [b"orders.%d" % n for n in range(20_000)]
    for name in names:
        tree.insert(name)
    full = tree.memory()
    random.Random(1).shuffle(names)
    for name in names:
        assert tree.delete(name)
    assert len(tree) == 0
    assert tree.memory() < full / 2
    assert [tree.insert(name) for name in names[:3]] != []
    assert list(tree) == sorted(names[:3])


def test_a_hundred_thousand_names_stay_small() -> None:
    tree = compiled.SubjectDictionary()
    names = [b"orders.customer.%d" % n for n in range(100_000)]
    random.Random(1).shuffle(names)
    for name in names:
        tree.insert(name)
    assert tree.memory() < 80 * len(names)
    assert list(tree) == sorted(names)


@both_halves
@given(names=st.lists(st.binary(min_size=1, max_size=6), max_size=40), start=st.binary(max_size=6))
def test_any_bytes_are_names_in_byte_order(kernel: SimpleNamespace, names: list[bytes], start: bytes) -> None:
    tree = kernel.SubjectDictionary()
    numbers = {name: tree.insert(name) for name in names}
    assert list(tree) == sorted(set(names))
    assert all(tree.name_of(number) == name for name, number in numbers.items())
    assert tree.following(start, 100) == sorted(name for name in set(names) if name >= start)


@both_halves
@given(names=st.lists(NAMES, max_size=60), filters=st.lists(FILTERS, min_size=1, max_size=4))
def test_matching_is_matching_each_name(kernel: SimpleNamespace, names: list[bytes], filters: list[bytes]) -> None:
    tree = kernel.SubjectDictionary()
    for name in names:
        tree.insert(name)
    packed = kernel.Filters(filters)
    expected = [name for name in sorted(set(names)) if packed.match(name)]
    assert tree.matching(packed) == tree.matching(filters) == expected
    assert tree.matching_count(packed) == len(expected)


class TreeMachine(RuleBasedStateMachine):
    """Any sequence of operations leaves both halves alike."""

    def __init__(self) -> None:
        super().__init__()
        self.tree, self.twin = compiled.SubjectDictionary(), reference.SubjectDictionary()

    @rule(name=NAMES)
    def insert(self, name: bytes) -> None:
        assert self.tree.insert(name) == self.twin.insert(name)

    @rule(stem=NAMES, count=st.integers(1, 300))
    def insert_many(self, stem: bytes, count: int) -> None:
        for n in range(count):
            name = b"%s.%d" % (stem, n * 7919 % 1000)
            assert self.tree.insert(name) == self.twin.insert(name)

    @rule(number=st.integers(0, 400), name=NAMES)
    def insert_at(self, number: int, name: bytes) -> None:
        if self.twin.name_of(number) is not None or name in self.twin:
            with pytest.raises(ValueError, match="taken"):
                self.tree.insert_at(number, name)
        else:
            self.tree.insert_at(number, name)
            self.twin.insert_at(number, name)

    @rule(name=NAMES)
    def delete(self, name: bytes) -> None:
        assert self.tree.delete(name) == self.twin.delete(name)

    @rule(filters=st.lists(FILTERS, max_size=2))
    def delete_matching(self, filters: list[bytes]) -> None:
        for name in self.twin.matching(filters):
            assert self.tree.delete(name)
            assert self.twin.delete(name)

    @rule(filters=st.lists(FILTERS, max_size=3))
    def match(self, filters: list[bytes]) -> None:
        assert self.tree.matching(filters) == self.twin.matching(filters)
        assert self.tree.matching_count(filters) == self.twin.matching_count(filters)

    @invariant()
    def alike(self) -> None:
        assert list(self.tree) == list(self.twin)
        assert (self.tree.count, self.tree.number_stop) == (self.twin.count, self.twin.number_stop)
        for name in list(self.twin)[:20]:
            assert self.tree.lookup(name) == self.twin.lookup(name)


TestTreeMachine = TreeMachine.TestCase
TestTreeMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
