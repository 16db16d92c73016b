"""Acks and pull requests as compiled code parses them, against the Python that knows every form."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.broker.consumers.ack_parser import ack_kind, ack_numbers, pull_fields
from penstock.consumer.ack_payload import AckKind, parse_ack
from penstock.consumer.ack_subject import ack_filters, parse_ack_subject
from penstock.consumer.pull_request import parse_pull
from penstock.errors import PullRefused

ACK, PROGRESS, NEXT, VERB = 1, 2, 3, 4
SHORT, LONG = ack_filters("ORDERS", "billing", "$G", "hub")
NUMBERS = st.one_of(
    st.integers(0, 2**64 + 5).map(str),
    st.sampled_from(["0", "007", "", "x", "1x", "-1", "+1", "٣", "18446744073709551616", "99999999999999999999999"]),
    st.text("0123456789abz", max_size=6),
)


@given(st.lists(NUMBERS.map(lambda text: text or "_"), min_size=5, max_size=5))
def test_the_numbers_of_an_ack_are_read_as_python_reads_them(numbers: list[str]) -> None:
    subject = SHORT.removesuffix("*.*.*.*.*") + ".".join(numbers)
    found = parse_ack_subject(subject)
    assert found is not None
    assert ack_numbers(subject.encode(), len(SHORT)) == (found.delivered, found.stream_seq, found.consumer_seq)


@given(st.lists(NUMBERS.map(lambda text: text or "_"), min_size=5, max_size=8))
def test_those_of_the_long_form_too(numbers: list[str]) -> None:
    subject = LONG.removesuffix("*.*.*.*.>") + ".".join(numbers)
    found = parse_ack_subject(subject)
    assert found is not None
    assert ack_numbers(subject.encode(), len(LONG)) == (found.delivered, found.stream_seq, found.consumer_seq)


WORDS = st.sampled_from([b"", b"+ACK", b"+OK", b"-NAK", b"+WPI", b"+NXT", b"+TERM", b" ", b"{}", b"5", b"+", b"ack"])


@given(st.lists(WORDS, max_size=3).map(b"".join) | st.binary(max_size=8))
def test_an_ack_is_taken_for_what_python_takes_it_for_or_left_to_it(payload: bytes) -> None:
    kinds = {AckKind.ACK: ACK, AckKind.PROGRESS: PROGRESS, AckKind.NEXT: NEXT}
    assert ack_kind(payload) == kinds.get(parse_ack(payload).kind, VERB)


FIELDS = st.sampled_from(
    ["batch", "expires", "max_bytes", "idle_heartbeat", "no_wait", "Batch", "group", "x", "b\\u0061tch"]
)
VALUES = st.one_of(
    st.integers(-(2**64), 2**64).map(str),
    st.integers(0, 2000).map(str),
    st.sampled_from(["true", "false", "null", "1e3", "1.5", '"5"', "01", "-0", "{}", "[]", "", "+1", "tru"]),
)
BLANKS = st.sampled_from(["", "", " ", "\n", "\t ", "\r\n", "\v", "\u00a0"])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Something like a pull request, whole or a little wrong."""
    parts = [
        f'{draw(BLANKS)}"{draw(FIELDS)}"{draw(BLANKS)}:{draw(BLANKS)}{draw(VALUES)}{draw(BLANKS)}'
        for _ in range(draw(st.integers(0, 4)))
    ]
    ends = draw(st.sampled_from([("{", "}"), ("{", "}"), ("{", "}}"), ("{", ",}"), ("{", ""), ("", "")]))
    return f"{draw(BLANKS)}{ends[0]}{','.join(parts)}{ends[1]}{draw(BLANKS)}".encode()


def read_slowly(payload: bytes) -> tuple[int, int, int, int, bool] | None:
    """What Python reads; None where it refuses the request, or it is of a kind that only Python serves."""
    try:
        found = parse_pull(payload)
    except PullRefused:
        return None
    if found.group or found.id or found.min_pending or found.min_ack_pending or found.priority:
        return None
    return found.batch, found.max_bytes, found.expires, found.idle_heartbeat, found.no_wait


@given(requests() | st.binary(max_size=12) | st.integers(-(10**20), 10**20).map(lambda n: str(n).encode()))
@example(b"")
@example(b" 5 ")
@example(b'{"batch":5,"expires":5000000000}')
@example(b'{"expires": 29750000000, "batch": 500, "idle_heartbeat": 15000000000}')
@example(b'{"batch":1,"batch":2}')
def test_a_pull_request_is_read_as_python_reads_it_or_left_to_it(payload: bytes) -> None:
    found = pull_fields(payload)
    if found is not None:
        assert found == read_slowly(payload)


def test_what_clients_of_today_send_is_read_in_compiled_code() -> None:
    for payload in (
        b"",
        b"1",
        b"100",
        b'{"expires": 4990000000, "batch": 10}',
        b'{"batch":100,"expires":5000000000,"idle_heartbeat":2500000000}',
        b'{"no_wait":true,"batch":10}',
        b'{"batch":1000000,"max_bytes":1048576,"expires":30000000000}',
        b'{\n  "batch": 5,\n  "no_wait": false\n}',
    ):
        assert pull_fields(payload) is not None
        assert pull_fields(payload) == read_slowly(payload)
