"""The rules of a publish that a recorded answer cannot show: TTLs in nanoseconds, odd numbers, any bytes as headers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import (
    ApiError,
    HeadersTooLarge,
    MessageTooLarge,
    RecordTooLarge,
    RollupNotAllowed,
    SchedulesDisabled,
    StreamSealed,
    WrongLastMsgId,
    WrongLastSequence,
)
from penstock.stream import rules
from penstock.stream.config import StreamConfig, make_config
from penstock.stream.config_rules import check_create, check_update
from penstock.stream.rules import Verdict, judge
from penstock.wire.headers import encode, find
from penstock.wire.ttl import TTL_NEVER, TTL_NS_MAX, parse_ttl

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines that test are busy

S = 1_000_000_000


class View:
    def __init__(self, config: StreamConfig, last_seq: int = 0) -> None:
        self.config = config
        self.last_seq = last_seq

    def last_msg_id(self) -> str:
        return "last"

    def last_seq_of(self, subject_filter: bytes) -> int:
        return 3 if subject_filter == b"t.a" else 0

    def find_duplicate(self, msg_id: bytes) -> int | None:
        return 2 if msg_id == b"seen" else None


def view(last_seq: int = 0, **fields: Any) -> View:
    return View(check_create(make_config("T", subjects="t.>", **fields)), last_seq)


ALL = view(last_seq=9, allow_msg_ttl=True, allow_rollup_hdrs=True)


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        (b"5", 5 * S),
        (b"007", 7 * S),
        (b"1.9s", S),
        (b"1h", 3600 * S),
        (b"NeVeR", TTL_NEVER),
        (b"00", 0),
        (b"0", None),
        (b"0s", None),
        (b"999ms", None),
        (b"-1", None),
        (b"-5s", None),
        (b"x", None),
        (b"1d", None),
        (b"\xff", None),
        ("١".encode(), None),
        (b"9223372036854775807", TTL_NS_MAX),
        (b"9223372036854775808", None),
        (b"18446744073709551617", None),
        (b"2562047h", TTL_NS_MAX),
        (b"2562048h", None),
        (b"9" * 60_000, None),
        (b"0" * 60_000 + b"5", 5 * S),
    ],
)
def test_ttls(value: bytes, ns: int | None) -> None:
    assert parse_ttl(value) == ns


def test_a_verdict_says_what_to_do() -> None:
    headers = encode({"Nats-Msg-Id": "new", "Nats-Rollup": "Sub", "Nats-TTL": "90s"})
    assert judge(ALL, b"t.a", headers, 5) == Verdict(headers, rollup="sub", ttl_ns=90 * S, msg_id=b"new")
    assert judge(ALL, b"t.a", encode({"Nats-TTL": "never"}), 5).ttl_ns == TTL_NEVER
    assert judge(ALL, b"t.a", encode({"Nats-Rollup": "all"}), 5).rollup == "all"
    seen = encode({"Nats-Msg-Id": "seen", "Nats-Rollup": "all"})
    assert judge(ALL, b"t.a", seen, 5) == Verdict(seen, duplicate_seq=2, msg_id=b"seen")
    assert judge(ALL, b"t.a", b"", 5) == Verdict()


@pytest.mark.parametrize("value", ["x", "-9", "+9", "9.0", " ", str(2**64 + 9), "9" * 60_000, "٩", "9 "])
def test_an_expected_sequence_that_is_no_sequence_never_fits(value: str) -> None:
    """The reference wraps at 2^64, so that 2^64 + 9 would fit where 9 does; we refuse it."""
    headers = b"NATS/1.0\r\nNats-Expected-Last-Sequence: " + value.encode() + b"\r\n\r\n"
    if not value.strip():
        assert judge(ALL, b"t.a", headers, 0)
        return
    with pytest.raises(WrongLastSequence) as caught:
        judge(ALL, b"t.a", headers, 0)
    assert caught.value.actual == 9
    assert judge(ALL, b"t.a", encode({"Nats-Expected-Last-Sequence": "9"}), 0)


def test_the_expected_sequence_of_a_subject() -> None:
    key = "Nats-Expected-Last-Subject-Sequence"
    assert judge(ALL, b"t.a", encode({key: "3"}), 0)
    assert judge(ALL, b"t.b", encode({key: "3", key + "-Subject": "t.a"}), 0)
    with pytest.raises(WrongLastSequence, match="wrong last sequence: 0"):
        judge(ALL, b"t.b", encode({key: "3"}), 0)


def test_the_expected_message_id() -> None:
    assert judge(ALL, b"t.a", encode({"Nats-Expected-Last-Msg-Id": "last"}), 0)
    with pytest.raises(WrongLastMsgId, match="wrong last msg ID: last"):
        judge(ALL, b"t.a", encode({"Nats-Expected-Last-Msg-Id": b"\xff"}), 0)


def test_sizes_are_judged_without_headers_too() -> None:
    with pytest.raises(RecordTooLarge):
        judge(ALL, b"t.a", b"", 32 * 1024 * 1024)
    with pytest.raises(RecordTooLarge):
        judge(ALL, b"t.a", encode({"A": "x" * (32 * 1024 * 1024)}), 0)
    assert judge(view(storage="memory"), b"t.a", b"", 2**40)
    with pytest.raises(MessageTooLarge):
        judge(view(max_msg_size=10), b"t.a", b"", 11)
    with pytest.raises(HeadersTooLarge):
        judge(ALL, b"t.a", encode({"A": "x" * 65536}), 0)
    sealed = View(check_update(ALL.config, make_config("T", subjects="t.>", allow_msg_ttl=True, sealed=True)))
    with pytest.raises(StreamSealed):
        judge(sealed, b"t.a", b"", 0)


def test_a_rollup_needs_the_right_to_purge() -> None:
    with pytest.raises(RollupNotAllowed):
        judge(view(), b"t.a", encode({"Nats-Rollup": "sub"}), 0)


@pytest.mark.parametrize(
    ("zone", "is_known"), [("UTC", True), ("Local", True), ("", False), ("../etc/passwd", False), ("/", False)]
)
def test_a_time_zone_without_a_schedule(zone: str, is_known: bool) -> None:
    headers = encode({"Nats-Schedule-Time-Zone": zone})
    if is_known:
        assert judge(ALL, b"t.a", headers, 0)
    else:
        with pytest.raises(SchedulesDisabled):
            judge(ALL, b"t.a", headers, 0)


NAMES = [b"Msg-Id", b"TTL", b"Rollup", b"Incr", b"Expected-Stream", b"Expected-Last-Sequence", b"Expected-Last-Msg-Id"]
NAMES += [b"Expected-Last-Subject-Sequence", b"Expected-Last-Subject-Sequence-Subject", b"Schedule", b"Scheduler"]
NAMES += [b"Schedule-Next", b"Schedule-Time-Zone", b"Stream-Source", b"Batch-Id", b"Request-Info"]
LINES = st.builds(lambda name, value: b"Nats-" + name + b":" + value, st.sampled_from(NAMES), st.binary(max_size=6))


@relaxed
@given(
    st.lists(LINES | st.binary(max_size=8) | st.sampled_from([b"Nats-TTL", b"", b"A: Nats-TTL: 1"]), max_size=5),
    st.binary(max_size=8),
)
def test_one_pass_finds_what_a_search_for_each_key_finds(lines: list[bytes], end: bytes) -> None:
    raw = b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + end
    found = rules._asked(raw)
    assert dict(found) == {key: value for key in rules._RULED if (value := find(raw, key)) is not None}


@relaxed
@given(st.lists(LINES | st.binary(max_size=8), max_size=4), st.binary(max_size=8))
def test_any_bytes_as_headers_give_a_verdict_or_an_api_error(lines: list[bytes], end: bytes) -> None:
    raw = b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in lines) + end
    for stream in (ALL, view()):
        try:
            verdict = judge(stream, b"t.a", raw, 1)
            assert verdict.ttl_ns >= -1
        except ApiError:
            pass
