"""Why a consumer does not deliver, and what happened to a message: each reason from the facts that cause it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.consumer.config import ConsumerConfig
from penstock.consumer.moment import Moment, format_moment
from penstock.consumer.why import (
    ConsumerFacts,
    Delivery,
    Listeners,
    MessageFacts,
    Reason,
    explain_consumer,
    explain_message,
)

NOW = 1_794_768_763_000_000_000  # 2026-11-15T18:52:43Z
S = 1_000_000_000
PULL = ConsumerConfig(durable_name="C", ack_policy="explicit", max_ack_pending=1000, max_deliver=-1)
PUSH = ConsumerConfig(durable_name="C", ack_policy="explicit", deliver_subject="d.c", max_deliver=-1)


def changed(config: ConsumerConfig, **fields: Any) -> ConsumerConfig:
    return ConsumerConfig(**{name: getattr(config, name) for name in config.__struct_fields__} | fields)


def consumer(config: ConsumerConfig = PULL, **facts: Any) -> list[Reason]:
    known: dict[str, Any] = {
        "first_seq": 1, "last_seq": 10, "subjects_overlap": True, "matching": 10, "delivered_seq": 4,
        "ack_floor_seq": 4, "next_seq": 5, "num_pending": 6, "num_ack_pending": 0,
    }  # fmt: skip
    return explain_consumer(ConsumerFacts("S", "C", config, NOW, **known | facts))


def codes(reasons: list[Reason]) -> list[str]:
    return [reason.code for reason in reasons]


def test_a_consumer_whose_messages_are_wanted_delivers() -> None:
    (reason,) = consumer(listeners=Listeners(num_waiting=2))
    assert reason == Reason("delivers", "it delivers: 6 messages to go, from sequence 5 on")
    (reason,) = consumer(PUSH, listeners=Listeners(is_push_bound=True))
    assert reason.code == "delivers"


def test_of_files_alone_it_is_said_what_would_be_delivered() -> None:
    (reason,) = consumer(num_pending=1)
    assert reason.code == "ready" and reason.text.startswith("1 message can be delivered, from sequence 5 on")


def test_a_pause_says_until_when_and_how_long_that_is() -> None:
    until = NOW + 3600 * S
    (reason, *_) = consumer(changed(PULL, pause_until=Moment(until)), listeners=Listeners(num_waiting=1))
    assert reason == Reason("paused", f"it is paused until {format_moment(Moment(until))} (in 1h0m0s)", True, until)
    assert codes(consumer(changed(PULL, pause_until=Moment(NOW)))) == ["ready"]


def test_too_many_unacknowledged_messages_stop_new_ones() -> None:
    (reason,) = consumer(changed(PULL, max_ack_pending=3), num_ack_pending=3, next_due_ns=NOW + 2 * S)
    assert (reason.code, reason.is_blocking, reason.until_ns) == ("max_ack_pending", True, NOW + 2 * S)
    assert "max_ack_pending is 3" in reason.text and reason.text.endswith("(in 2s)")
    assert codes(consumer(changed(PULL, max_ack_pending=-1), num_ack_pending=3)) == ["ready"]


def test_nobody_asks_and_nobody_listens() -> None:
    (reason,) = consumer(listeners=Listeners())
    assert (reason.code, reason.is_blocking) == ("no_requests", True)
    (reason,) = consumer(changed(PUSH, deliver_group="q"), listeners=Listeners())
    assert reason.code == "not_heard" and "d.c in queue group q" in reason.text


def test_a_client_that_does_not_answer_flow_control_holds_its_consumer() -> None:
    (reason,) = consumer(PUSH, listeners=Listeners(is_push_bound=True, is_stalled=True))
    assert (reason.code, reason.is_blocking) == ("flow_control", True)


def test_a_filter_that_can_match_nothing_is_told_from_one_that_matches_nothing_yet() -> None:
    config = changed(PULL, filter_subject="x.>")
    none: dict[str, Any] = {"num_pending": 0, "matching": 0}
    (reason,) = consumer(config, subjects_overlap=False, **none)
    assert reason.code == "filter_outside" and "x.>" in reason.text
    assert codes(consumer(config, **none)) == ["filter_matches_nothing"]
    assert codes(consumer(PULL, first_seq=11, **none)) == ["empty"]


def test_a_consumer_that_has_everything_has_caught_up() -> None:
    done: dict[str, Any] = {"num_pending": 0, "delivered_seq": 10, "next_seq": 11}
    (reason,) = consumer(**done)
    assert reason.code == "caught_up" and "delivered and acknowledged" in reason.text
    (reason,) = consumer(changed(PULL, ack_policy="none"), **done)
    assert reason.text.endswith("was delivered")


def test_messages_that_wait_for_their_acks_come_again_by_backoff_or_ack_wait() -> None:
    done: dict[str, Any] = {"num_pending": 0, "delivered_seq": 10, "next_seq": 11, "num_ack_pending": 2}
    (reason,) = consumer(next_due_ns=NOW + 90 * S, **done)
    assert (reason.code, reason.until_ns) == ("ack_wait", NOW + 90 * S) and reason.text.endswith("(in 1m30s)")
    (reason,) = consumer(changed(PULL, backoff=(S,)), next_due_ns=NOW + S, **done)
    assert reason.code == "backoff" and reason.is_blocking
    assert codes(consumer(next_due_ns=NOW - S, **done)) == ["ready", "ack_wait"]


def test_a_consumer_ahead_of_its_stream_is_told_from_one_that_starts_later() -> None:
    facts: dict[str, Any] = {"num_pending": 0, "matching": 10}
    (reason, *_) = consumer(delivered_seq=50, next_seq=51, **facts)
    assert reason.code == "ahead_of_stream" and "sequence 50, and the stream's last is 10" in reason.text
    (reason, *_) = consumer(delivered_seq=0, next_seq=51, **facts)
    assert reason.code == "starts_later"


def test_who_gave_some_up_is_not_said_to_have_everything_acknowledged() -> None:
    reasons = consumer(PULL, num_pending=0, given_up=(3,), listeners=Listeners(num_waiting=1))
    assert codes(reasons) == ["caught_up", "given_up"]
    assert "was acknowledged or given up" in reasons[0].text and "delivered and acknowledged" not in reasons[0].text
    assert reasons[1].text.startswith("1 message was given up")


def test_one_message_is_spoken_of_in_the_singular() -> None:
    for changes, text in (
        ({"num_pending": 0, "num_ack_pending": 1}, "1 message waits for its acknowledgement"),
        ({"num_pending": 0, "num_ack_pending": 2}, "2 messages wait for their acknowledgement"),
        ({"config": changed(PULL, max_ack_pending=1), "num_ack_pending": 1}, "1 message is delivered and not"),
    ):
        assert any(text in reason.text for reason in consumer(**({"config": PULL} | changes))), text


def test_what_was_given_up_is_named_beside_the_rest() -> None:
    reasons = consumer(changed(PULL, max_deliver=3), given_up=tuple(range(1, 13)), listeners=Listeners(num_waiting=1))
    assert codes(reasons) == ["delivers", "given_up"]
    assert "12 messages were given up, delivered 3 times" in reasons[1].text and reasons[1].text.endswith("10, …")


def test_a_pin_and_a_slow_replay_are_named_and_block_nothing() -> None:
    config = changed(PULL, priority_policy="pinned_client", replay_policy="original")
    reasons = consumer(config, listeners=Listeners(num_waiting=3, pin_id="abc", pinned_ns=NOW - 5 * S))
    assert codes(reasons) == ["delivers", "pinned", "replay"]
    assert "pin id abc" in reasons[1].text and "(5s ago)" in reasons[1].text


# --------------------------------------------------------------------------------------------------------- messages


def message(*deliveries: Delivery, **facts: Any) -> list[Reason]:
    known: dict[str, Any] = {
        "first_seq": 1, "last_seq": 10, "is_stored": True, "subject": "a.b", "time_ns": NOW - 60 * S, "size": 1234,
        "matching": frozenset(one.name for one in deliveries),
    }  # fmt: skip
    return explain_message(MessageFacts("S", known.pop("seq", 5), NOW, **known | facts, deliveries=deliveries))


def delivery(config: ConsumerConfig = PULL, **facts: Any) -> Delivery:
    known: dict[str, Any] = {
        "created_ns": NOW - 30 * S, "delivered_seq": 8, "delivered_count": 8, "ack_floor_seq": 3,
    }  # fmt: skip
    return Delivery("C", config, **known | facts)


def test_a_stored_message_says_what_it_is_and_when_it_expires() -> None:
    (reason,) = message()
    assert reason.code == "stored" and "a.b, 1,234 bytes" in reason.text and "(1m0s ago)" in reason.text
    (reason,) = message(expires_ns=NOW + 10 * S)
    assert reason.until_ns == NOW + 10 * S and "it expires" in reason.text


@pytest.mark.parametrize(
    ("removal", "code"),
    [
        ("user", "deleted"), ("purge", "purged"), ("rollup", "rolled_up"), ("erase", "erased"),
        ("max_msgs", "max_msgs"), ("max_bytes", "max_bytes"), ("max_msgs_per_subject", "max_msgs_per_subject"),
        ("max_age", "expired"), ("ttl", "expired"), ("ack", "acknowledged"), ("interest", "no_interest"),
        ("lost", "lost"), ("skipped", "skipped"), ("compact", "deleted"), ("", "gone"),
    ],
)  # fmt: skip
def test_a_message_that_is_gone_says_what_took_it(removal: str, code: str) -> None:
    (reason,) = message(is_stored=False, removal=removal)
    assert reason.code == code and reason.text


def test_every_reason_of_the_log_has_its_sentence() -> None:
    from penstock.consumer.why import _GONE
    from penstock.format.constants import REASONS

    assert set(_GONE) == {*REASONS, "erase"}


def test_a_sequence_above_the_last_was_never_there() -> None:
    facts = MessageFacts("S", 11, NOW, 1, 10, False, deliveries=(delivery(),))
    assert codes(explain_message(facts)) == ["never"]
    assert codes(explain_message(MessageFacts("S", 0, NOW, 1, 10, False))) == ["never"]


def at(config: ConsumerConfig = PULL, is_stored: bool = True, matches: bool = True, **facts: Any) -> Reason:
    one = delivery(config, **facts)
    matching = frozenset({"C"}) if matches else frozenset()
    _, reason = message(one, is_stored=is_stored, matching=matching)
    assert reason.consumer == "C"
    return reason


def test_a_pending_message_says_how_often_it_came_and_when_it_comes_again() -> None:
    reason = at(is_pending=True, deliveries=2, delivered_ns=NOW - 3 * S, due_ns=NOW + 27 * S)
    assert (reason.code, reason.until_ns) == ("pending", NOW + 27 * S)
    assert reason.text.startswith("delivered twice, last ") and reason.text.endswith("(in 27s)")
    assert at(is_pending=True, deliveries=1, due_ns=NOW - 1).text.endswith("due to come again")


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({}, "acknowledged"),
        ({"ack_floor_seq": 8}, "acknowledged"),
        ({"delivered_seq": 4}, "not_delivered"),
        ({"config": changed(PULL, max_deliver=3), "deliveries": 3, "is_given_up": True}, "given_up"),
        ({"config": changed(PULL, ack_policy="none")}, "delivered"),
        ({"matches": False}, "not_matched"),
        ({"config": changed(PULL, deliver_policy="by_start_sequence", opt_start_seq=6)}, "before_start"),
        ({"config": changed(PULL, deliver_policy="by_start_time", opt_start_time=Moment(NOW))}, "before_start"),
        ({"config": changed(PULL, deliver_policy="new")}, "before_start"),
        ({"config": changed(PULL, deliver_policy="last")}, "settled"),
        ({"delivered_count": 0}, "before_start"),
        ({"is_stored": False}, "settled"),
        ({"is_stored": False, "delivered_seq": 4}, "not_delivered"),
    ],
)
def test_a_consumer_tells_what_it_did_with_a_message(facts: dict[str, Any], code: str) -> None:
    assert at(**facts).code == code


def test_of_a_message_that_is_gone_nobody_knows_whether_a_filter_matched() -> None:
    filtered = changed(PULL, filter_subject="a.>")
    reason = at(filtered, is_stored=False, matches=False, ack_floor_seq=8)
    assert reason.code == "settled" and "its filter does not match" in reason.text
