"""Stream configurations: Python values, rules that no server shows, sizes of blocks. Parity is in test_parity.py."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import ApiError, BadStreamName, FeatureMissing, InvalidConfig, InvalidJson, SubjectOverlap
from penstock.stream.block_sizes import block_size
from penstock.stream.config import FIELDS, ConsumerLimits, Placement, StreamConfig, make_config
from penstock.stream.config_json import decode_config, decode_request, encode_config, to_dict
from penstock.stream.config_rules import check_create, check_overlap, check_update, same, validate

relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines that test are busy

S = 1_000_000_000


def made(**fields: Any) -> StreamConfig:
    return check_create(make_config(fields.pop("name", "T"), **fields))


def test_python_values_are_taken_as_people_write_them() -> None:
    config = make_config(
        "ORDERS",
        subjects="orders.>",
        max_age="7d",
        duplicate_window=timedelta(minutes=1),
        storage="MEMORY",
        discard="New",
        consumer_limits={"inactive_threshold": "1h"},
        placement={"tags": ["a"]},
        max_msgs=None,
    )
    assert config.subjects == ("orders.>",)
    assert (config.max_age, config.duplicate_window) == (7 * 86400 * S, 60 * S)
    assert (config.storage, config.discard, config.max_msgs) == ("memory", "new", 0)
    assert config.consumer_limits == ConsumerLimits(inactive_threshold=3600 * S)
    assert config.placement == Placement(tags=("a",))
    assert (
        make_config("T", subjects=["a", "b"]).subjects == make_config("T", subjects=("a", "b")).subjects == ("a", "b")
    )
    assert make_config("T", max_age=1.5).max_age == 1_500_000_000


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"max_mgs": 1}, "no field 'max_mgs'; did you mean 'max_msgs'"),
        ({"durability": "disk"}, "no field 'durability'"),
        ({"max_age": "soon"}, "max_age: not a duration"),
        ({"max_msgs": "5"}, "max_msgs: Expected `int`"),
        ({"max_msgs": True}, "max_msgs: Expected `int`"),
        ({"max_msgs": 1.5}, "max_msgs: Expected `int`"),
        ({"max_msgs": 2**63}, "max_msgs:"),
        ({"max_msgs": 2**70}, "max_msgs:"),
        ({"max_msg_size": 2**31}, "max_msg_size:"),
        ({"first_seq": -1}, "first_seq:"),
        ({"retention": "forever"}, "retention: Invalid enum value"),
        ({"subjects": 5}, "subjects:"),
        ({"subjects": [5]}, "subjects:"),
        ({"no_ack": 1}, "no_ack:"),
        ({"metadata": {"a": 1}}, "metadata:"),
        ({"placement": {"cloud": "x"}}, "placement:"),
        ({"consumer_limits": {"inactive_threshold": "x"}}, "consumer_limits: not a duration"),
        ({"name": 5}, "name:"),
    ],
)
def test_values_of_another_kind_are_refused_by_field(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidConfig, match=match):
        make_config(fields.pop("name", "T"), **fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mirror", {"name": "O"}),
        ("sources", [{"name": "O"}]),
        ("allow_msg_counter", True),
        ("allow_atomic", True),
        ("allow_msg_schedules", True),
        ("allow_batched", True),
    ],
)
def test_what_comes_later_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(FeatureMissing, match=f"{field}: this version of Penstock does not have") as caught:
        made(**{field: value})
    assert caught.value.to_json()["err_code"] == 10052
    old = made()
    with pytest.raises(FeatureMissing, match=field):
        check_update(old, make_config("T", **{field: value}))


@pytest.mark.parametrize(
    "name", ["", "a.b", "..", ".", "a b", "a\0b", "a*", ">", "a\tb", "n" * 256, "é" * 128, "\ud800"]
)
def test_names_that_no_stream_may_have(name: str) -> None:
    with pytest.raises(InvalidConfig):
        check_create(StreamConfig(name))


@pytest.mark.parametrize("name", ["a/b", "../x", "a\\b", "/"])
def test_names_with_path_separators(name: str) -> None:
    with pytest.raises(BadStreamName):
        check_create(StreamConfig(name))
    with pytest.raises(InvalidConfig):
        validate(StreamConfig(name))


def test_texts_that_are_too_long_or_no_text() -> None:
    with pytest.raises(InvalidConfig, match="metadata exceeds maximum size of 131072 bytes"):
        made(metadata={"k": "v" * 128 * 1024})
    assert made(metadata={"k": "v" * (128 * 1024 - 1 - len("_nats.req.level") - 1)}), "the level counts too"
    for field in ("description", "metadata", "subjects", "placement"):
        value: Any = {"metadata": {"a": "\ud800"}, "placement": {"tags": ["\ud800"]}}.get(field, "\ud800")
        with pytest.raises(InvalidConfig):
            made(**{field: value})


def test_a_config_built_by_hand_with_a_bad_enum_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="invalid storage: 'tape'"):
        validate(msgspec.structs.replace(made(), storage="tape"))


def test_first_seq_stays_below_2_63() -> None:
    assert made(first_seq=2**63 - 1).first_seq == 2**63 - 1
    with pytest.raises(InvalidConfig, match=r"below 2\^63"):
        made(first_seq=2**63)


def test_an_update_cannot_unseal_or_rename() -> None:
    old = check_update(made(), make_config("T", sealed=True))
    assert (old.sealed, old.deny_delete, old.deny_purge, old.discard) == (True, True, True, "new")
    with pytest.raises(InvalidConfig, match="can not unseal"):
        check_update(old, make_config("T", deny_delete=True, deny_purge=True))
    with pytest.raises(InvalidConfig, match="name must match original"):
        check_update(made(), make_config("U"))


def test_the_same_stream_is_known_by_all_but_its_versions() -> None:
    assert same(made(), made(metadata={"_nats.ver": "9", "_nats.level": "9", "_nats.req.level": "9"}))
    assert not same(made(), made(max_msgs=5))


def test_streams_may_not_share_a_subject() -> None:
    config = made(subjects=["a.*", "b"])
    check_overlap(config, [made(name="U", subjects=["a.*.c", "c"]), config])
    for subject in ("a.x", ">", "*"):
        with pytest.raises(SubjectOverlap):
            check_overlap(config, [made(name="U", subjects=[subject], no_ack=True)])


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({}, 8 * MIB),
        ({"max_msgs_per_subject": 1}, 4 * MIB),
        ({"max_bytes": 1}, 32_000),
        ({"max_bytes": 127_996}, 32_000),
        ({"max_bytes": 128_000}, 4 * MIB),
        ({"max_bytes": 32 * MIB}, 8 * MIB),
        ({"max_bytes": 4 * (8 * MIB - 100)}, 4 * MIB),
        ({"max_bytes": 2**63 - 1}, 8 * MIB),
        ({"max_msgs": 1, "max_msg_size": 100}, 32_000),
        ({"max_msgs": 1000, "max_msg_size": 1000}, 4 * MIB),
        ({"max_msgs": 1000}, 8 * MIB),
        ({"max_msgs": 1, "max_bytes": 2**40}, 8 * MIB),
        ({"max_msgs": 1, "max_msgs_per_subject": 1}, 4 * MIB),
    ],
)
def test_block_size_follows_the_limits(fields: dict[str, Any], size: int) -> None:
    assert block_size(made(**fields)) == size


def test_json_is_escaped_as_go_escapes_it() -> None:
    raw = encode_config(made(subjects="t.>", description="<&\u2028"))
    assert b'"t.\\u003e"' in raw and b"\\u003c\\u0026\\u2028" in raw
    assert json.loads(raw)["description"] == "<&\u2028"
    assert raw.startswith(b'{"name":"T","description":')


def test_a_text_is_written_whatever_it_says() -> None:
    """A description "default" was left out, because that word is the default of persist_mode."""
    assert to_dict(made(description="default"))["description"] == "default"
    assert "persist_mode" not in to_dict(made())


def test_half_a_surrogate_pair_becomes_a_replacement() -> None:
    assert decode_config(rb'{"name": "T", "description": "\ud800"}').description == "\ufffd"
    assert decode_config(b'{"name": "T", "description": "\xff"}').description == "\ufffd"


@pytest.mark.parametrize("raw", [b"{", b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b'{"name"', b"{'name':1}", b"tru"])
def test_json_that_does_not_parse_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidJson, match="invalid JSON: "):
        decode_request(raw)


@relaxed
@given(st.binary())
def test_any_bytes_are_a_request_or_invalid_json(raw: bytes) -> None:
    try:
        decode_request(raw)
    except InvalidJson:
        pass


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["file", "new", "t.>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@relaxed
@given(st.dictionaries(st.sampled_from(StreamConfig.__struct_fields__), JSON, max_size=4))
def test_any_values_give_a_stream_or_an_api_error(fields: dict[str, Any]) -> None:
    """Both doors: JSON and Python. What passes is written and read back the same."""
    raw = json.dumps({"name": "T"} | fields).encode()
    try:
        config = check_create(decode_request(raw)[0])
        assert decode_config(encode_config(config)) == config
        assert check_create(config) == config
        assert json.loads(encode_config(config)) == to_dict(config)
    except ApiError:
        pass
    try:
        check_create(make_config(fields.pop("name", "T"), **fields))
    except ApiError:
        pass


@pytest.mark.parametrize("field", [field.name for field in FIELDS.values() if field.go_type == "string"])
def test_text_that_is_not_unicode_is_refused(field: str) -> None:
    with pytest.raises(InvalidConfig, match="not valid Unicode"):
        check_create(make_config(**{"name": "T", field: "\ud800"}))
