"""What a connection may publish and hear: the kernel against a plain model and against the real server's -ERR lines."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.subject import covers, matches, overlap
from penstock.broker.routing.permissions import Permissions
from support.servers import ServerProcess
from support.wire_client import WireClient

SECOND = 1_000_000_000

# A model: lists of entries, asked one by one.


def queue_matches(queue: str, entry: str) -> bool:
    return queue == entry or covers(entry, queue)


class Model:
    def __init__(self, allow: list[str] | None, deny: list[str]) -> None:
        self.allow = [entry.split() for entry in allow or []]
        self.deny = [entry.split() for entry in deny]

    def denies(self, subject: str, queue: str) -> bool:
        hit = [entry for entry in self.deny if matches(subject, entry[0])]
        return any(len(e) == 1 or (queue != "" and queue_matches(queue, e[1])) for e in hit)

    def subscribes(self, subject: str, queue: str) -> bool:
        if self.allow:
            hit = [entry for entry in self.allow if matches(subject, entry[0])]
            named = [entry[1] for entry in hit if len(entry) == 2]
            if queue and named:
                if not any(queue_matches(queue, name) for name in named):
                    return False
            elif not any(len(entry) == 1 for entry in hit):
                return False
        return not self.denies(subject, queue)

    def delivers(self, subject: str, queue: str) -> bool:
        hit = [entry for entry in self.allow if matches(subject, entry[0])]
        is_allowed = any(len(e) == 1 or (queue != "" and queue_matches(queue, e[1])) for e in hit)
        return (not self.allow or is_allowed) and not self.denies(subject, queue)


tokens = st.sampled_from(["a", "b", "c"])
literals = st.lists(tokens, min_size=1, max_size=4).map(".".join)


@st.composite
def filters(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3))
    return ".".join([*parts, ">"] if draw(st.booleans()) else parts)


queues = st.sampled_from(["", "", "q1", "q2", "q.1", "q.*", "*", ">"])
entries = st.tuples(filters(), queues).map(lambda pair: " ".join(pair).strip())
lists = st.lists(entries, max_size=4)


@settings(deadline=None)  # a busy machine is no fault
@given(allow=lists, deny=lists, subject=filters() | literals, queue=queues)
def test_a_subscription_is_judged_as_the_model_judges_it(
    allow: list[str], deny: list[str], subject: str, queue: str
) -> None:
    made = Permissions(subscribe_allow=allow, subscribe_deny=deny)
    assert made.subscribes(subject.encode(), queue.encode()) == Model(allow, deny).subscribes(subject, queue)


@settings(deadline=None)  # a busy machine is no fault
@given(allow=lists, deny=lists, subject=filters(), queue=queues, received=literals)
def test_a_delivery_is_judged_as_the_model_judges_it_and_unfiltered_subscriptions_need_no_judge(
    allow: list[str], deny: list[str], subject: str, queue: str, received: str
) -> None:
    made = Permissions(subscribe_allow=allow, subscribe_deny=deny)
    model = Model(allow, deny)
    assert made.delivers(received.encode(), queue.encode()) == model.delivers(received, queue)
    if any(overlap(subject, entry[0]) for entry in model.deny) and ("*" in subject or ">" in subject):
        assert made.filters(subject.encode())
    if model.subscribes(subject, queue) and matches(received, subject) and not made.filters(subject.encode()):
        assert model.delivers(received, queue)


@settings(deadline=None)  # a busy machine is no fault
@given(
    allow=st.none() | st.lists(filters(), max_size=3),
    deny=st.lists(filters(), max_size=3),
    subject=literals | st.sampled_from(["", ".", "a.", ".a", "a..b", "a.*", ">"]),
)
def test_a_publish_is_judged_as_the_model_judges_it(allow: list[str] | None, deny: list[str], subject: str) -> None:
    made = Permissions(publish_allow=allow, publish_deny=deny)
    is_formed = "" not in subject.split(".")
    is_allowed = not allow or (is_formed and any(matches(subject, entry) for entry in allow))
    is_denied = is_formed and any(matches(subject, entry) for entry in deny)
    assert made.publishes(subject.encode()) == (is_allowed and not is_denied)


def test_a_connection_that_may_hear_one_token_hears_no_more_through_a_wider_subscription() -> None:
    """The reference lets `foo.>` in where `foo.*` is allowed and delivers all under foo; we hold it to `foo.*`."""
    made = Permissions(subscribe_allow=["foo.*"])
    assert made.subscribes(b"foo.>") and made.filters(b"foo.>")
    assert made.delivers(b"foo.a") and not made.delivers(b"foo.a.b")
    assert not made.filters(b"foo.*") and not made.filters(b"foo.a")


def test_entries_that_are_no_subjects_are_refused_by_name() -> None:
    for entry in ("a b c", "", "a..b", "a.>.b q", "a q..x"):
        with pytest.raises(ValueError, match="permission"):
            Permissions(subscribe_allow=[entry])
    with pytest.raises(ValueError, match="filter 1"):
        Permissions(publish_allow=["a", "b c"])


# Replies.


def test_an_answer_may_be_published_once_and_in_time() -> None:
    made = Permissions(responses_max=1, responses_expires_ns=5 * SECOND)
    assert made.has_responses and made.has_publish
    assert not made.publishes(b"R", 0)
    made.note(b"R", 0)
    assert made.publishes(b"R", 5 * SECOND)
    assert not made.publishes(b"R", 5 * SECOND)
    made.note(b"S", 0)
    assert not made.publishes(b"S", 5 * SECOND + 1)
    assert made.noted_count == 0


def test_answers_may_be_many_or_without_end() -> None:
    made = Permissions(["out"], responses_max=3, responses_expires_ns=-1)
    made.note(b"R", 0)
    assert [made.publishes(b"R", SECOND << 30) for _ in range(4)] == [True, True, True, False]
    assert made.publishes(b"out", 0)
    endless = Permissions(responses_max=-1, responses_expires_ns=-1)
    endless.note(b"R", 0)
    assert all(endless.publishes(b"R", SECOND << 30) for _ in range(100))


def test_zero_stands_for_one_answer_within_two_minutes() -> None:
    made = Permissions(responses_max=0, responses_expires_ns=0)
    made.note(b"R", 0)
    made.note(b"S", 0)
    assert made.publishes(b"R", 120 * SECOND) and not made.publishes(b"R", 120 * SECOND)
    assert not made.publishes(b"S", 120 * SECOND + 1)


def test_what_may_be_published_anyway_is_not_noted() -> None:
    made = Permissions(["out.>"], responses_max=1)
    made.note(b"out.R", 0)
    assert made.noted_count == 0


def test_old_replies_are_forgotten_and_their_number_has_a_bound() -> None:
    made = Permissions(responses_max=1, responses_expires_ns=SECOND)
    for n in range(5000):
        made.note(b"R%d" % n, n)
    made.note(b"late", 10 * SECOND)
    assert made.noted_count == 1
    endless = Permissions(responses_max=1, responses_expires_ns=-1)
    for n in range(300_000):
        endless.note(b"R%d" % n, n)
    assert 100_000 < endless.noted_count < 270_000
    assert endless.publishes(b"R299999", 0) and not endless.publishes(b"R0", 0)


# The real server.

ASKED = 40
USERS = 40


def made_entry(rng: random.Random, has_queue: bool) -> str:
    parts = [rng.choice(["a", "b", "*"]) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.3:
        parts.append(">")
    queue = rng.choice(["q1", "q2", "q.1", "q.*", "*", "q.>"]) if has_queue and rng.random() < 0.4 else ""
    return (".".join(parts) + " " + queue).strip()


def made_rules(rng: random.Random, has_queue: bool) -> dict[str, list[str]]:
    rules = {side: [made_entry(rng, has_queue) for _ in range(rng.randint(0, 3))] for side in ("allow", "deny")}
    return {side: entries for side, entries in rules.items() if entries}


@pytest.fixture(scope="module", params=["real", "ours"])
def asked(request: pytest.FixtureRequest) -> Iterator[tuple[ServerProcess, list[dict[str, dict[str, list[str]]]]]]:
    """The real server, or ours, with many users, and what it was told about them."""
    rng = random.Random(4)
    told = [{"subscribe": made_rules(rng, True), "publish": made_rules(rng, False)} for _ in range(USERS)]
    users = [
        {"user": f"u{n}", "password": "x", "permissions": {side: rules for side, rules in user.items() if rules}}
        for n, user in enumerate(told)
    ]
    config = "host: 127.0.0.1\nport: -1\nauthorization: " + json.dumps({"users": users}) + "\n"
    with ServerProcess(request.param, config) as server:
        yield server, told


def refusals(server: ServerProcess, user: str, commands: list[str]) -> list[str]:
    """What the server says to the commands, in order, without +OK and PONG."""
    wire = WireClient(server.port)
    connect = {"verbose": False, "pedantic": False, "user": user, "pass": "x"}
    wire.send(f"CONNECT {json.dumps(connect)}\r\n".encode() + "".join(commands).encode() + b"PING\r\n")
    said = []
    while (frame := wire.receive()).verb != "PONG":
        if frame.verb == "-ERR":
            said.append(frame.text.decode())
    wire.close()
    return said


def test_a_server_refuses_the_same_subscriptions(
    asked: tuple[ServerProcess, list[dict[str, dict[str, list[str]]]]],
) -> None:
    server, told = asked
    rng = random.Random(5)
    count = 0
    for n, user in enumerate(told):
        rules = user["subscribe"]
        made = Permissions(subscribe_allow=rules.get("allow"), subscribe_deny=rules.get("deny"))
        wanted = [made_entry(rng, True).partition(" ")[::2] for _ in range(ASKED)]
        commands = [f"SUB {subject} {queue} {sid}\r\nUNSUB {sid}\r\n" for sid, (subject, queue) in enumerate(wanted)]
        expected = [
            f'\'Permissions Violation for Subscription to "{subject}"'
            + (f' using queue "{queue}"' if queue else "")
            + "'"
            for subject, queue in wanted
            if not made.subscribes(subject.encode(), queue.encode())
        ]
        assert refusals(server, f"u{n}", commands) == expected, rules
        count += len(expected)
    assert count > 200


def test_a_server_refuses_the_same_publishes(
    asked: tuple[ServerProcess, list[dict[str, dict[str, list[str]]]]],
) -> None:
    server, told = asked
    rng = random.Random(6)
    count = 0
    for n, user in enumerate(told):
        rules = user["publish"]
        made = Permissions(publish_allow=rules.get("allow"), publish_deny=rules.get("deny"))
        wanted = [
            ".".join(rng.choice(["a", "b", "c", "*", ">", ""]) for _ in range(rng.randint(1, 4))) or "."
            for _ in range(ASKED)
        ]
        commands = [f"PUB {subject} 0\r\n\r\n" for subject in wanted]
        expected = [
            f"'Permissions Violation for Publish to \"{subject}\"'"
            for subject in wanted
            if not made.publishes(subject.encode())
        ]
        assert refusals(server, f"u{n}", commands) == expected, rules
        count += len(expected)
    assert count > 200
