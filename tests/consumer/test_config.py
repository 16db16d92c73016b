"""Configurations of consumers: created from Python values, written as JSON, and checked without a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock.base.subject import covers, is_valid_filter
from penstock.consumer.config import ConsumerCaps, ConsumerConfig, make_config
from penstock.consumer.config_json import CreateRequest, decode_config, decode_request, encode_config
from penstock.consumer.filter_tree import FilterTree
from penstock.consumer.moment import ZERO_NS, Moment, format_moment, parse_moment
from penstock.consumer.rules import admit, check_create, check_update, resolve
from penstock.errors import ApiError, ConsumerCreateFailed, InvalidJson
from penstock.stream.config import StreamConfig
from penstock.stream.config import make_config as make_stream_config
from penstock.stream.config_rules import check_create as check_stream

NS = 1_000_000_000


def stream(**fields: Any) -> StreamConfig:
    return check_stream(make_stream_config("T", subjects=["t.>"], **fields))


def test_python_values_become_nanoseconds_and_small_letters() -> None:
    config = make_config(
        "billing",
        filter_subjects="t.eu.>",
        ack_policy="Explicit",
        ack_wait="30s",
        backoff=["1s", timedelta(seconds=2), 3],
        opt_start_time=datetime(2026, 11, 15, tzinfo=UTC),
        deliver_policy="by_start_time",
        inactive_threshold=None,
    )
    assert config.durable_name == config.given_name == "billing"
    assert config.filters == ("t.eu.>",)
    assert (config.ack_policy, config.ack_wait, config.backoff) == ("explicit", 30 * NS, (NS, 2 * NS, 3 * NS))
    assert config.opt_start_ns == 1_794_700_800 * NS
    assert make_config(name="x") == ConsumerConfig(durable_name="x")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"filter": "a"}, "a consumer has no field 'filter'"),
        ({"ack_wiat": "1s"}, "did you mean 'ack_wait'"),
        ({"ack_wait": "soon"}, "ack_wait: not a duration"),
        ({"max_batch": "many"}, "max_batch: Expected `int`"),
        ({"max_batch": 2**63}, "max_batch: Expected `int`"),
        ({"ack_policy": "maybe"}, "ack_policy: Invalid enum value"),
        ({"pause_until": "tomorrow"}, "pause_until: "),
        ({"filter_subjects": ["t.\ud800"]}, "filter_subjects: 'utf-8' codec can't encode"),
    ],
)
def test_a_wrong_value_is_named_with_its_field(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ConsumerCreateFailed) as caught:
        make_config("C", **fields)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-15T12:00:00Z",
        "2026-11-15T12:00:00.123456789Z",
        "2026-11-15T12:00:00.5+02:00",
        "2026-11-15T12:00:00-03:30",
        "1970-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999999Z",
        "1066-10-14T09:00:00Z",
    ],
)
def test_a_time_is_shown_in_the_zone_that_it_was_written_in(text: str) -> None:
    assert format_moment(parse_moment(text)) == text


def test_a_time_counts_the_same_in_every_zone() -> None:
    there, here = parse_moment("2026-11-15T12:00:00+02:00"), parse_moment("2026-11-15T10:00:00Z")
    assert there.ns == here.ns
    assert there != here
    assert parse_moment("2026-11-15T10:00:00+00:00") == here
    assert parse_moment("2026-11-15T1:00:00,25Z").ns % NS == 250_000_000
    assert parse_moment("0001-01-01T00:00:00Z") == Moment(ZERO_NS)
    assert Moment(ZERO_NS).is_zero and not parse_moment("1970-01-01T00:00:00Z").is_zero
    with pytest.raises(InvalidJson, match="month out of range"):
        parse_moment("2026-13-15T10:00:00Z")


def test_json_has_the_order_of_the_reference_and_its_escapes() -> None:
    config = ConsumerConfig(name="C", description="<&>", metadata={"b": "1", "a": "2"}, filter_subjects=("t.a",))
    assert encode_config(config) == (
        b'{"name":"C","description":"\\u003c\\u0026\\u003e","deliver_policy":"all","ack_policy":"none",'
        b'"filter_subjects":["t.a"],"replay_policy":"instant","num_replicas":0,"metadata":{"a":"2","b":"1"}}'
    )
    assert decode_config(encode_config(config)) == config


def test_without_strict_what_is_unknown_is_left_out() -> None:
    raw = b'{"stream_name":"T","config":{"name":"C","colour":"red"},"size":5}'
    with pytest.raises(InvalidJson, match="colour"):
        decode_request(raw)
    assert decode_request(raw, strict=False) == CreateRequest("T", ConsumerConfig(name="C"))


@pytest.mark.parametrize(
    ("config", "fields", "kind"),
    [
        (ConsumerConfig(durable_name="C", num_replicas=3), {}, errors.ConsumerReplicasExceeded),
        (ConsumerConfig(durable_name="C", name="D"), {}, errors.DurableAndNameMismatch),
        (ConsumerConfig(name="a.b"), {}, errors.InvalidConfig),
        (ConsumerConfig(name="C"), {"retention": "workqueue"}, errors.PullRequiresAck),
        (ConsumerConfig(durable_name="x" * 256), {}, errors.ConsumerNameTooLong),
    ],
)
def test_without_a_server_the_rules_hold_too(config: ConsumerConfig, fields: dict[str, Any], kind: type) -> None:
    with pytest.raises(kind):
        check_create(config, stream(**fields))


def test_an_unknown_endpoint_of_durables_has_no_name_in_it() -> None:
    request = CreateRequest("T", ConsumerConfig(durable_name="C"))
    with pytest.raises(errors.DurableNotInSubject):
        resolve("CONSUMER.DURABLE.CREATE.T", request)
    assert resolve("CONSUMER.DURABLE.CREATE.T.C", request).name == "C"


def test_what_is_checked_stays_as_it_is_through_an_update() -> None:
    config = check_create(make_config("C", ack_policy="explicit"), stream())
    assert check_update(config, config, stream()) == config
    changed = check_update(config, make_config("C", ack_policy="explicit", max_deliver=5), stream())
    assert changed.max_deliver == 5
    with pytest.raises(ConsumerCreateFailed, match="ack policy can not be updated"):
        check_update(config, make_config("C", ack_policy="all"), stream())


def test_a_push_consumer_that_is_heard_keeps_its_subject() -> None:
    old = check_create(make_config("C", deliver_subject="d"), stream())
    new = make_config("C", deliver_subject="e")
    assert check_update(old, new, stream()).deliver_subject == "e"
    with pytest.raises(errors.ConsumerNameInUse):
        check_update(old, new, stream(), is_bound=True)


def test_the_smallest_of_the_limits_counts() -> None:
    caps = ConsumerCaps(server_ack_pending=50, account_ack_pending=20)
    assert check_create(make_config("C", ack_policy="all"), stream(), caps).max_ack_pending == 20
    assert caps.consumers_of(stream()) == 1000
    assert caps.consumers_of(stream(max_consumers=5)) == 5
    assert ConsumerCaps(account_consumers=3).consumers_of(stream(max_consumers=5)) == 3
    assert ConsumerCaps(default_consumers=-1).consumers_of(stream()) == -1


def test_an_ephemeral_consumer_without_a_name_has_none_in_its_configuration() -> None:
    names = iter(("one", "one", "two"))
    first = admit(ConsumerConfig(), stream(), {}, make_name=lambda: next(names))
    assert (first.name, first.config.name, first.old) == ("one", "", None)
    assert first.config.inactive_threshold == 5 * NS
    second = admit(ConsumerConfig(), stream(), {first.name: first.config}, make_name=lambda: next(names))
    assert second.name == "two", "a name that is taken is not taken again"


@given(st.lists(st.lists(st.sampled_from(["a", "b", "*", ">"]), min_size=1, max_size=3).map(".".join), max_size=6))
def test_filters_cover_each_other_as_pairs_do(texts: list[str]) -> None:
    filters = sorted({text for text in texts if is_valid_filter(text)})
    tree = FilterTree(filters)
    for text in filters:
        assert tree.covers(text) == any(covers(other, text) for other in filters if other != text), (text, filters)


def test_thousands_of_filters_are_checked_at_once() -> None:
    """Comparing each with each would block everybody else for seconds."""
    filters = tuple(f"t.{n}.*" for n in range(20_000))
    assert check_create(ConsumerConfig(name="C", filter_subjects=filters), stream()).filters == filters
    with pytest.raises(errors.OverlappingFilters):
        check_create(ConsumerConfig(name="C", filter_subjects=("t.0.a", *filters)), stream())


@pytest.mark.parametrize(
    "error",
    [errors.MaxAckPendingExceeded(5), errors.BadSampling("x"), errors.PullRefused(409, "Consumer is push based")],
)
def test_consumer_errors_survive_pickling(error: Exception) -> None:
    import pickle

    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))
    assert isinstance(error, ApiError | errors.PullRefused)
