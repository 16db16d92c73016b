"""Our checks of consumers, pull requests and acks give the answers that a real nats-server gave.

The answers: tests/parity/recorded/tables/consumer.json, recorded by tests/parity/record.py.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from parity.tables import recorded
from penstock.base.subject import matches
from penstock.consumer.ack_payload import AckKind, parse_ack
from penstock.consumer.ack_subject import account_hash, ack_filters, parse_ack_subject
from penstock.consumer.config import ConsumerCaps, ConsumerConfig
from penstock.consumer.config_json import CreateRequest, decode_config, decode_request, encode_config, to_dict
from penstock.consumer.pull_request import read_pull
from penstock.consumer.requests import (
    check_limits,
    check_unpin,
    decode_pause,
    decode_reset,
    decode_unpin,
    reset_seq,
    with_pause,
)
from penstock.consumer.rules import admit, resolve, validate
from penstock.errors import ApiError, PullRefused, StreamNotFound
from penstock.stream.config import StreamConfig
from penstock.stream.config_json import decode_config as decode_stream
from penstock.stream.config_rules import check_create

CASES: dict[str, Any] = recorded("consumer")


# Where we differ on purpose: we treat an empty list like an absent one.
OURS = {"action 'create': an empty list"}
MESSAGES = 3  # in the stream that the recorder's pull requests were for


def cases(group: str, title: str = "case") -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", CASES[group], ids=lambda case: case[title][:80])


def stream_of(case: dict[str, Any]) -> StreamConfig:
    return check_create(decode_stream(json.dumps(case["stream"]).encode()))


def caps_of(case: dict[str, Any]) -> ConsumerCaps:
    server, account = case.get("server", {}), case.get("account", {})
    return ConsumerCaps(
        server_ack_pending=server.get("max_ack_pending", 0),
        account_ack_pending=account.get("max_ack_pending", 0),
        request_batch=server.get("max_request_batch", 0),
        account_consumers=account.get("max_consumers", 0),
        default_consumers=server.get("default_max_consumers", 1000),
    )


def make_before(case: dict[str, Any], stream: StreamConfig, caps: ConsumerCaps) -> dict[str, ConsumerConfig]:
    """Create the consumers that exist before the question is asked."""
    consumers: dict[str, ConsumerConfig] = {}
    for fields in case.get("before", ()):
        name = fields.get("name") or fields["durable_name"]
        request = decode_request(json.dumps({"stream_name": "T", "config": fields}).encode())
        admitted = admit(resolve(f"CONSUMER.CREATE.T.{name}", request), stream, consumers, caps=caps)
        consumers[admitted.name] = admitted.config
    return consumers


def ask(case: dict[str, Any]) -> tuple[str, ConsumerConfig]:
    """The outcome of CREATE on a server: the consumer's name and configuration."""
    request: CreateRequest = decode_request(case["request"].encode())
    config = resolve(case["subject"], request)
    if request.stream_name != "T":
        raise StreamNotFound
    stream, caps = stream_of(case), caps_of(case)
    consumers = make_before(case, stream, caps)
    bound = case.get("bound", ())
    admitted = admit(
        config,
        stream,
        consumers,
        caps=caps,
        action=request.action,
        pedantic=request.pedantic,
        has_subscriber=lambda subject: any(matches(subject, held) for held in bound),
        make_name=lambda: "MADE_UP",
    )
    assert decode_config(encode_config(admitted.config)) == admitted.config
    if not request.pedantic:
        checked = msgspec.structs.replace(admitted.config, metadata={})
        after = msgspec.structs.replace(validate(admitted.config, stream, caps), metadata={})
        assert after == checked, "a checked configuration stays as it is"
    return admitted.name, admitted.config


def test_the_answers_come_from_the_release_we_match() -> None:
    assert CASES["server"] == "2.15.1"
    assert len(CASES["create"]) >= 1000
    assert len(CASES["pull"]) >= 500


@cases("create")
def test_create_answers_as_the_reference(case: dict[str, Any]) -> None:
    expected = case["reply"]
    if case["case"] in OURS:
        assert "error" in expected
        assert ask(case)[0] == "C"
    elif "error" in expected:
        with pytest.raises(ApiError) as caught:
            ask(case)
        assert caught.value.to_json() == expected["error"]
    else:
        name, config = ask(case)
        assert to_dict(config) == expected["config"]
        assert list(to_dict(config)) == list(expected["config"]), "Go's order of fields"
        assert name == expected["name"]


# What the words of an answer say about the request alone; other answers come of the messages there are.
REFUSALS = ("400 Bad Request", "409 Exceeded MaxRequest", "409 Consumer is push", "423 Nats-Pin-Id")


@cases("pull")
def test_a_pull_request_is_read_as_the_reference_reads_it(case: dict[str, Any]) -> None:
    config = decode_request(json.dumps({"config": case["config"]}).encode()).config
    frames: list[str] = case["frames"]
    if frames == ["412 Required Api Level"]:
        return
    if frames and frames[0].startswith(REFUSALS):
        with pytest.raises(PullRefused) as caught:
            read_pull(case["payload"].encode(), config)
        assert [str(caught.value)] == frames
        return
    request = read_pull(case["payload"].encode(), config)
    messages = frames.count("message")
    if messages:
        assert messages == min(request.count, MESSAGES)
    if "408 Request Timeout" in frames:
        assert request.expires != 0
    if frames[-1:] == ["409 Batch Completed"]:
        assert request.max_bytes > 0
        assert messages == request.count
    if "404 No Messages" in frames:
        assert request.no_wait


@cases("ack_payload", "payload")
def test_an_ack_is_read_as_the_reference_reads_it(case: dict[str, Any]) -> None:
    ack = parse_ack(case["payload"].encode())
    told = case.get("advisory", "")
    comes_again = case.get("next") == [2, 1]
    if told == "nak":
        assert ack.kind is AckKind.NAK
        assert comes_again == (ack.delay_ns is None or ack.delay_ns <= 0)
    elif told.startswith("terminated"):
        assert ack.kind is AckKind.TERM
        assert ack.reason == told.removeprefix("terminated").removeprefix(": ")
    elif "empty" not in case["answers"]:
        assert ack.kind is AckKind.NEXT
        if case["answers"][0] != "message":
            with pytest.raises(PullRefused) as caught:
                read_pull(ack.request, ConsumerConfig())
            assert [str(caught.value)] == case["answers"]
        else:
            assert read_pull(ack.request, ConsumerConfig()).count == len(case["answers"])
    elif case["pending"] == 0:
        assert ack.kind is AckKind.ACK
    else:
        assert ack.kind in (AckKind.UNKNOWN, AckKind.PROGRESS)
        assert (ack.kind is AckKind.PROGRESS) == (case["payload"] == "+WPI")


@cases("ack_subject", "subject")
def test_an_ack_subject_is_read_as_the_reference_reads_it(case: dict[str, Any]) -> None:
    subject = case["subject"].format(c="C", ts=1_700_000_000_000_000_000, p=2, hash=account_hash("A0"))
    listens = any(matches(subject, held) for held in ack_filters("T", "C", "A0"))
    assert listens == (case.get("answers") != ["503"])
    if listens:
        ack = parse_ack_subject(subject)
        assert ack is not None
        assert (ack.stream, ack.consumer) == ("T", "C")
        assert (case["pending"] == 0) == (ack.stream_seq == 1), "the stream sequence alone says which message it is"


@cases("request", "payload")
def test_requests_about_a_consumer_answer_as_the_reference(case: dict[str, Any]) -> None:
    fields = {"durable_name": "C", "ack_policy": "explicit", **case["config"]}
    stream = check_create(decode_stream(b'{"name": "T", "subjects": ["t.>"]}'))
    config = admit(decode_request(json.dumps({"config": fields}).encode()).config, stream, {}).config
    raw, expected = case["payload"].encode(), case["reply"]

    def answer() -> ConsumerConfig:
        if case["endpoint"] == "PAUSE":
            return with_pause(config, decode_pause(raw))
        if case["endpoint"] == "UNPIN":
            check_unpin(decode_unpin(raw), config)
            return config
        starts = {"all": 1, "by_start_sequence": 2, "new": 4, "last": 3}
        late = config.opt_start_ns is not None and config.opt_start_ns > 4_000_000_000 * 10**9
        start = 4 if late else starts.get(config.deliver_policy, 1)
        assert reset_seq(config, decode_reset(raw), start - 1, lambda ns: start) == expected["reset_seq"]
        return config

    if "error" in expected:
        with pytest.raises(ApiError) as caught:
            answer()
        assert caught.value.to_json() == expected["error"]
        return
    after = to_dict(answer())
    assert {key: after.get(key) for key in ("pause_until", "metadata")} == expected["config"]


@pytest.mark.parametrize("case", CASES["limits"], ids=lambda case: f"{case['before']} {case['after']}")
def test_limits_of_a_stream_change_beside_consumers_as_in_the_reference(case: dict[str, Any]) -> None:
    def stream_with(limits: dict[str, int]) -> StreamConfig:
        return check_create(
            decode_stream(json.dumps({"name": "T", "subjects": ["t.>"], "consumer_limits": limits}).encode())
        )

    old, new = stream_with(case["before"]), stream_with(case["after"])
    consumers = make_before({"before": case["consumers"]}, old, ConsumerCaps())
    if case["error"] is None:
        check_limits(old, new, consumers)
    else:
        with pytest.raises(ApiError) as caught:
            check_limits(old, new, consumers)
        assert caught.value.to_json() == case["error"]
