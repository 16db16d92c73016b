"""Ack subjects, ack payloads and pull requests: cases that the recordings do not cover."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.subject import matches
from penstock.consumer.ack_payload import ACK, NAK, UNKNOWN, Ack, AckKind, parse_ack
from penstock.consumer.ack_subject import (
    NO_NUMBER,
    AckSubject,
    account_hash,
    ack_filters,
    flow_control_filters,
    format_ack_subject,
    format_flow_control_subject,
    parse_ack_subject,
)
from penstock.consumer.blanks import trim
from penstock.consumer.config import ConsumerConfig
from penstock.consumer.names import random_token
from penstock.consumer.pull_request import PullRequest, parse_pull, read_pull
from penstock.errors import PullRefused

DELIVERY = AckSubject("ORDERS", "billing", 2, 17, 23, 1_700_000_000_000_000_001, 5)


def test_an_ack_subject_reads_back_in_both_forms() -> None:
    text = "$JS.ACK.ORDERS.billing.2.17.23.1700000000000000001.5"
    assert format_ack_subject(DELIVERY) == text
    assert parse_ack_subject(text) == DELIVERY
    long = text.replace("$JS.ACK.", f"$JS.ACK.hub.{account_hash('A')}.")
    assert parse_ack_subject(long) == parse_ack_subject(long + ".more.tokens") == DELIVERY
    short_filter, long_filter = ack_filters("ORDERS", "billing", "A", "hub")
    assert matches(text, short_filter) and not matches(text, long_filter)
    assert matches(long, long_filter) and matches(long + ".more.tokens", long_filter)


@pytest.mark.parametrize("subject", ["", "$JS.ACK.a.b.1.1.1.1", "$JS.ACK.a.b.1.1.1.1.1.1", "$JS.API.a.b.1.1.1.1.1"])
def test_other_subjects_are_no_ack_subjects(subject: str) -> None:
    assert parse_ack_subject(subject) is None


def test_what_is_no_number_is_a_sequence_that_nothing_has() -> None:
    found = parse_ack_subject("$JS.ACK.S.C.x.-1.1²..18446744073709551617")
    assert found is not None
    assert found[2:] == (NO_NUMBER, NO_NUMBER, NO_NUMBER, NO_NUMBER, 1)


def test_flow_control_answers_come_back_to_their_consumer() -> None:
    subject = format_flow_control_subject("S", "C", random_token())
    assert re.fullmatch(r"\$JS\.FC\.S\.C\.[0-9A-Za-z]{4}", subject)
    assert any(matches(subject, held) for held in flow_control_filters("S", "C", "A"))
    assert not any(matches(subject, held) for held in flow_control_filters("S", "D", "A"))


@given(st.binary(max_size=40))
def test_any_payload_is_some_ack(payload: bytes) -> None:
    ack = parse_ack(payload)
    assert (ack.kind is AckKind.UNKNOWN) == (ack == UNKNOWN)
    parse_ack(b"-NAK" + payload)
    assert parse_ack(b"+NXT" + payload).request == payload
    assert parse_ack(b"+TERM" + payload).kind is AckKind.TERM


def test_a_delay_that_cannot_be_read_is_kept_for_the_log() -> None:
    assert parse_ack(b"-NAK soon") == Ack(AckKind.NAK, bad_delay=b"soon")
    assert parse_ack(b"-NAK ") == NAK
    assert parse_ack(b'-NAK {"delay": 5}').delay_ns == 5
    assert parse_ack(b"") is parse_ack(b"+OK") is ACK


@given(st.binary(max_size=40))
def test_any_payload_is_some_pull_request_or_refused_with_a_status(payload: bytes) -> None:
    for body in (payload, b"{" + payload, b'{"batch":' + payload + b"}"):
        try:
            assert parse_pull(body).count >= 1
        except PullRefused as refused:
            assert str(refused).startswith("400 Bad Request - ")


def test_blanks_are_those_of_unicode() -> None:
    assert trim("\u2003\u00a0 5\t\u3000".encode()) == b"5"
    assert trim(b"\x1c5") == b"\x1c5", "Python counts this one as a blank, Go does not"
    assert trim(b" \xff ") == b"\xff"


def test_a_pull_from_a_push_consumer_is_refused_before_it_is_read() -> None:
    with pytest.raises(PullRefused, match="409 Consumer is push based"):
        read_pull(b"{", ConsumerConfig(deliver_subject="d"))


def test_who_is_not_pinned_is_told() -> None:
    config = ConsumerConfig(priority_policy="pinned_client", priority_groups=("A",))
    assert read_pull(b'{"group":"A","id":"one"}', config, "one").id == "one"
    assert read_pull(b'{"group":"A"}', config, "one").id == "", "it waits for its turn"
    with pytest.raises(PullRefused, match="423 Nats-Pin-Id mismatch"):
        read_pull(b'{"group":"A","id":"two"}', config, "one")


def test_the_fast_way_and_the_slow_way_read_the_same() -> None:
    fields = b'"batch":5,"expires":7,"no_wait":true,"max_bytes":9,"group":"A","id":"x","priority":3'
    fast, slow = parse_pull(b"{" + fields + b"}"), parse_pull(b"{" + fields + b',"unknown":null}')
    assert fast == slow == PullRequest(7, 5, 9, True, 0, "A", 0, 0, "x", 3)


@given(st.text(max_size=20), st.sampled_from(["batch", "expires", "no_wait", "id", "group", "x"]))
def test_no_text_of_a_client_ends_the_line_of_its_refusal(text: str, field: str) -> None:
    """The status is one line of headers: text from a client must not begin another line."""
    said = text.replace('"', "").encode("utf-8", "surrogatepass")
    for payload in (
        b'{"%b":1}' % said,
        b'{"batch":%b}' % said,
        b'{"%b":"%b"}' % (field.encode(), said),
        b'{"%b":%b' % (field.encode(), said),
        b"{}" + said,
        b"{\r\n" + said,
    ):
        try:
            read_pull(payload, ConsumerConfig(priority_groups=("g",), priority_policy="overflow"))
        except PullRefused as refusal:
            assert not re.search(r"[\r\n]", str(refusal)), payload
