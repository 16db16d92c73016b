"""wire/errors, wire/status and wire/nuid: the texts a client meets."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import errors, nuid, parser, status


def test_an_error_line_quotes_its_text() -> None:
    assert errors.line(errors.UNKNOWN_OPERATION) == b"-ERR 'Unknown Protocol Operation'\r\n"


def test_violations_quote_subjects_as_go_does() -> None:
    assert errors.publish_violation('a."b"') == r'Permissions Violation for Publish to "a.\"b\""'
    assert errors.reply_violation("$JS.ACK.x") == 'Permissions Violation for Publish with Reply of "$JS.ACK.x"'
    assert errors.subscription_violation("a.>") == 'Permissions Violation for Subscription to "a.>"'
    assert (
        errors.subscription_violation("a", "_sys_")
        == 'Permissions Violation for Subscription to "a" using queue "_sys_"'
    )
    assert errors.tokens_violation("a.b") == 'Permissions Violation for Subscription to "a.b", too many tokens'
    assert errors.subscription_withdrawn("a", None, "9") == 'Permissions Violation for Subscription to "a" (sid "9")'


def test_every_fault_of_the_parser_has_its_text_or_none() -> None:
    assert dict(zip(parser.FAULTS, errors.FAULT_TEXTS, strict=True)) == {
        None: None,
        "PARSE": "Unknown Protocol Operation",
        "CONTROL_LINE": "maximum control line exceeded",
        "PAYLOAD": "Maximum Payload Violation",
        "ARGUMENTS": None,
    }


def test_a_status_is_the_first_line_of_its_block() -> None:
    block = status.status_block(100, "Idle Heartbeat", [("Nats-Last-Consumer", "1"), ("Nats-Last-Stream", "2")])
    assert block == b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 2\r\n\r\n"
    assert status.parse_status(block) == (100, "Idle Heartbeat")
    assert status.no_responders(b"a.b") == b"NATS/1.0 503\r\nNats-Subject: a.b\r\n\r\n"
    assert status.parse_status(status.no_responders(b"a.b")) == (503, "")


def test_a_block_without_a_status_has_none() -> None:
    for block in (
        b"",
        b"NATS/1.0",
        b"NATS/1.0\r\n\r\n",
        b"NATS/1.0 4\r\n\r\n",
        b"NATS/1.0 404",
        b"HTTP/1.1 200\r\n\r\n",
    ):
        assert status.parse_status(block) is None, block


@given(st.integers(100, 999), st.from_regex(r"[A-Za-z][A-Za-z ]*[A-Za-z]|", fullmatch=True))
def test_every_status_reads_back(code: int, text: str) -> None:
    assert status.parse_status(status.status_block(code, text)) == (code, text)


def test_names_are_22_digits_and_all_different() -> None:
    names = {nuid.make_nuid() for _ in range(10_000)}
    assert len(names) == 10_000
    assert {len(name) for name in names} == {nuid.SIZE}
    assert set("".join(names)) == set(nuid.DIGITS)


def test_a_short_name_is_the_one_the_reference_gives() -> None:
    """So the reference names the servers nats-1, nats-2 and nats-3 of a cluster."""
    assert [nuid.short_name(f"nats-{n}") for n in (1, 2, 3)] == ["yrzKKRBu", "cnrtt3eg", "bkCGheKT"]
    assert len(nuid.short_name("x", 10)) == 10
