"""Our checks of stream configurations and publishes give the answers that a real nats-server gave.

The answers: tests/parity/recorded/tables/stream.json, recorded by tests/parity/record.py. A case that ends in "(later)"
asks for a feature that this version refuses.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from parity.tables import recorded
from penstock.base.subject import matches
from penstock.errors import ApiError, FeatureMissing, StreamNameInUse, StreamNameMismatch, StreamNotFound
from penstock.stream import config as stream_config
from penstock.stream.config import StreamConfig
from penstock.stream.config_json import decode_config, decode_request, encode_config, to_dict
from penstock.stream.config_rules import check_create, check_update, same, validate
from penstock.stream.rules import judge

CASES: dict[str, Any] = recorded("stream")

# Where we answer otherwise on purpose: sequences stay below 2^63, as Arrow and Spark have signed numbers.
OURS = {"a first sequence of 2^64 - 1": "too large"}


def cases(group: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", CASES[group], ids=lambda case: case["case"])


def encode(request: str) -> bytes:
    return request.encode()


def check(case: dict[str, Any], answer: Any) -> None:
    """Run `answer` and compare the configuration it gives, or the error it raises, with the recorded reply."""
    expected = case["reply"]
    if case["case"].endswith("(later)"):
        with pytest.raises(FeatureMissing, match="this version of Penstock does not have"):
            answer()
    elif case["case"] in OURS:
        with pytest.raises(ApiError, match=OURS[case["case"]]):
            answer()
    elif "error" in expected:
        with pytest.raises(ApiError) as caught:
            answer()
        if case["case"].endswith("(syntax)"):
            assert caught.value.err_code == expected["error"]["err_code"]
        else:
            assert caught.value.to_json() == expected["error"]
    else:
        config = answer()
        assert to_dict(config) == expected["config"]
        assert list(to_dict(config)) == list(expected["config"]), "Go's order of fields"
        assert decode_config(encode_config(config)) == config
        assert validate(config) == config or config.sealed, "a checked configuration stays as it is"


def create(request: str, token: str | None = None) -> StreamConfig:
    config, pedantic = decode_request(encode(request))
    if config.name != (token or stream_token(request)):
        raise StreamNameMismatch
    return check_create(config, pedantic=pedantic)


def stream_token(request: str) -> str:
    """The stream in the API subject, as the recorder chose it."""
    try:
        name = json.loads(request).get("name")
    except (ValueError, AttributeError):
        return "T"
    return name if isinstance(name, str) and name and not set(name) & set(" \t\r\n.*>") else "T"


def test_the_answers_come_from_the_release_we_match() -> None:
    assert CASES["server"] == "2.15.1"
    assert sum(len(CASES[group]) for group in ("create", "check", "update", "again")) >= 60
    assert sum(len(case["steps"]) for case in CASES["publish"]) >= 40


@cases("create")
def test_create_answers_as_the_reference(case: dict[str, Any]) -> None:
    check(case, lambda: create(case["request"]))


@cases("check")
def test_names_are_judged_as_the_reference_judges_them(case: dict[str, Any]) -> None:
    def answer() -> StreamConfig:
        validate(decode_config(encode(case["request"])))
        raise StreamNotFound

    check(case, answer)


@cases("update")
def test_update_answers_as_the_reference(case: dict[str, Any]) -> None:
    old = create(case["created"])

    def answer() -> StreamConfig:
        config, pedantic = decode_request(encode(case["request"]))
        if validate(config, pedantic=pedantic).name != old.name:
            raise StreamNameMismatch
        return check_update(old, config, pedantic=pedantic)

    check(case, answer)


@cases("again")
def test_create_of_an_existing_stream_answers_as_the_reference(case: dict[str, Any]) -> None:
    old = create(case["created"])

    def answer() -> StreamConfig:
        if not same(old, create(case["request"])):
            raise StreamNameInUse
        return old

    check(case, answer)


class Model:
    """A stream as simple as can be: enough of one to judge a publish by."""

    def __init__(self, config: StreamConfig) -> None:
        self.config = config
        self.last_seq = max(config.first_seq - 1, 0)
        self._messages: dict[int, bytes] = {}
        self._ids: dict[bytes, int] = {}
        self._last_id = ""

    def last_msg_id(self) -> str:
        return self._last_id

    def last_seq_of(self, subject_filter: bytes) -> int:
        return max((seq for seq, subject in self._messages.items() if matches(subject, subject_filter)), default=0)

    def find_duplicate(self, msg_id: bytes) -> int | None:
        return self._ids.get(msg_id)

    def publish(self, subject: bytes, headers: bytes, payload_size: int) -> dict[str, Any]:
        """The reply that a server would send, with the headers that it would store."""
        try:
            verdict = judge(self, subject, headers, payload_size)
        except ApiError as error:
            return {"error": error.to_json(), "seq": 0}
        if verdict.duplicate_seq is not None:
            return {"seq": verdict.duplicate_seq, "duplicate": True}
        self.last_seq += 1
        if verdict.rollup:
            gone = [seq for seq, at in self._messages.items() if verdict.rollup == "all" or at == subject]
            for seq in gone:
                del self._messages[seq]
        self._messages[self.last_seq] = subject
        self._last_id = (verdict.msg_id or b"").decode()
        if verdict.msg_id:
            self._ids[verdict.msg_id] = self.last_seq
        return {"seq": self.last_seq, "stored_headers": verdict.headers.decode("latin-1")}


def headers_of(step: dict[str, Any]) -> bytes:
    """The header block of a step, as the recorder builds it."""
    if "headers" not in step and "pad" not in step:
        return b""
    lines = [step.get("first_line", "NATS/1.0"), *step.get("headers", [])]
    if "pad" in step:
        lines.append("X-Pad: " + "x" * step["pad"])
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@cases("publish")
def test_a_publish_is_judged_as_the_reference_judges_it(case: dict[str, Any]) -> None:
    model = Model(check_create(decode_config(json.dumps(case["config"]).encode())))
    for step in case["steps"]:
        if "update" in step:
            changed = decode_config(json.dumps(case["config"] | step["update"]).encode())
            model.config = check_update(model.config, changed)
            continue
        reply = model.publish(step["subject"].encode(), headers_of(step), step.get("payload_size", 2))
        if "pad" in step:
            reply.pop("stored_headers", None)
        assert reply == step["reply"], step.get("headers")


def test_every_feature_that_is_missing_is_recorded() -> None:
    """Each has a "(later)" case, so that the day it comes its answers are there."""
    asked = [json.loads(case["request"]) for case in CASES["create"] if case["case"].endswith("(later)")]
    missing = [field for field in stream_config.FIELDS.values() if field.missing_feature]
    assert len(missing) == 7
    for field in missing:
        assert any(request.get(field.name, field.default) not in (field.default, []) for request in asked), field.name
