"""STREAM.MSG and STREAM.PURGE: one message looked at or deleted; many taken away."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.routing.origin import Origin
from support.jetstream import Place

Run = Callable[..., None]


async def filled(place: Place, count: int = 6, **config: Any) -> None:
    await place.caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"], **config})
    for n in range(count):
        headers = b"NATS/1.0\r\nX: y\r\n\r\n" if n % 2 else None
        await place.caller.publish(f"s.{n % 3}", b"body%d" % n, headers)


def test_a_message_is_found_in_every_way(run: Run) -> None:
    async def seq(place: Place, **wanted: Any) -> int:
        return int((await place.caller.api("STREAM.MSG.GET.S", wanted))["message"]["seq"])

    async def test(place: Place) -> None:
        await filled(place)
        found = (await place.caller.api("STREAM.MSG.GET.S", {"seq": 2}))["message"]
        assert list(found) == ["subject", "seq", "hdrs", "data", "time"]
        assert base64.b64decode(found["hdrs"]) == b"NATS/1.0\r\nX: y\r\n\r\n"
        assert base64.b64decode(found["data"]) == b"body1"
        bare = (await place.caller.api("STREAM.MSG.GET.S", {"seq": 2, "no_hdr": True}))["message"]
        assert "hdrs" not in bare
        assert await seq(place, last_by_subj="s.1") == 5
        assert await seq(place, last_by_subj="s.*") == 6
        assert await seq(place, next_by_subj="s.2") == 3
        assert await seq(place, next_by_subj="s.2", seq=4) == 6
        assert await seq(place, start_time="2020-01-01T00:00:00Z") == 1
        assert await seq(place, start_time="2020-01-01T00:00:00Z", next_by_subj="s.1") == 2

    run(test)


@pytest.mark.parametrize(
    "wanted, code",
    [
        ({}, 10003),
        ({"no_hdr": True}, 10003),
        ({"seq": 1, "last_by_subj": "s.1"}, 10003),
        ({"seq": 1, "start_time": "2020-01-01T00:00:00Z"}, 10003),
        ({"last_by_subj": "a", "next_by_subj": "b"}, 10003),
        ({"seq": 1, "batch": 2}, 10003),
        ({"seq": -1}, 10025),
        ({"what": 1}, 10025),
        ({"seq": 99}, 10037),
        ({"seq": 2**64 - 1}, 10037),
        ({"last_by_subj": "s..1"}, 10037),
        ({"next_by_subj": "t"}, 10037),
        ({"start_time": "2100-01-01T00:00:00Z"}, 10037),
    ],
)
def test_a_get_that_cannot_be_answered_says_why(run: Run, wanted: dict[str, Any], code: int) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        assert (await place.caller.api("STREAM.MSG.GET.S", wanted))["error"]["err_code"] == code

    run(test)


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("no_erase", [True, False])
def test_a_deleted_message_is_gone(run: Run, storage: str, no_erase: bool) -> None:
    async def test(place: Place) -> None:
        await filled(place, storage=storage)
        assert (await place.caller.api("STREAM.MSG.DELETE.S", {"seq": 2, "no_erase": no_erase}))["success"]
        again = await place.caller.api("STREAM.MSG.DELETE.S", {"seq": 2, "no_erase": no_erase})
        assert again["error"]["err_code"] == 10043
        assert (await place.caller.api("STREAM.MSG.GET.S", {"seq": 2}))["error"]["err_code"] == 10037
        info = await place.caller.api("INFO")
        assert (info["api"]["total"], info["api"]["errors"]) == (4, 1)  # a missing sequence counts as no error

    run(test)


def test_deleting_outside_of_the_stream_says_so(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        for seq, text in ((0, "no message found"), (99, "stream store EOF")):
            error = (await place.caller.api("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": True}))["error"]
            assert (error["code"], error["err_code"], error["description"]) == (500, 10057, text)

    run(test)


def test_a_stream_may_deny_deletes_and_purges(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place, deny_delete=True, deny_purge=True)
        assert (await place.caller.api("STREAM.MSG.DELETE.S", {"seq": 1}))["error"]["err_code"] == 10057
        assert (await place.caller.api("STREAM.PURGE.S"))["error"]["err_code"] == 10110
        sealed = {"name": "S", "subjects": ["s.*"], "deny_delete": True, "deny_purge": True, "sealed": True}
        assert (await place.caller.api("STREAM.UPDATE.S", sealed))["config"]["sealed"]
        for request, body in (("MSG.DELETE", {"seq": 1}), ("PURGE", {})):
            assert (await place.caller.api(f"STREAM.{request}.S", body))["error"]["err_code"] == 10109

    run(test)


@pytest.mark.parametrize(
    "wanted, purged, left",
    [
        (b"", 6, []),
        (b"not JSON counts as no body", 6, []),
        ({"filter": "s.1"}, 2, [1, 3, 4, 6]),
        ({"filter": "s.1", "keep": 1}, 1, [1, 3, 4, 5, 6]),
        ({"keep": 2}, 4, [5, 6]),
        ({"seq": 4}, 3, [4, 5, 6]),
        ({"seq": 4, "filter": "s.0"}, 1, [2, 3, 4, 5, 6]),
        ({"filter": "a..b"}, 0, [1, 2, 3, 4, 5, 6]),
        ({"seq": 100}, 6, []),
    ],
)
def test_a_purge_takes_what_it_names(run: Run, wanted: Any, purged: int, left: list[int]) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        assert await place.caller.api("STREAM.PURGE.S", wanted) == {
            "type": "io.nats.jetstream.api.v1.stream_purge_response",
            "success": True,
            "purged": purged,
        }
        stream = place.jetstream.accounts["$G"].streams["S"].stream
        assert [message.seq for message in stream.read()] == left

    run(test)


def test_a_purge_waits_for_what_was_published_before_it(run: Run) -> None:
    async def test(place: Place) -> None:
        await place.caller.api("STREAM.CREATE.S", {"name": "S"})
        for _ in range(100):
            place.caller.account.publish(Origin.CLIENT, b"S", b"x")
        assert (await place.caller.api("STREAM.PURGE.S"))["purged"] == 100
        assert (await place.caller.publish("S", b"y"))["seq"] == 101

    run(test)


def test_a_long_purge_goes_in_slices(run: Run) -> None:
    async def test(place: Place) -> None:
        await place.caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.*"]})
        for n in range(30_000):
            place.caller.account.publish(Origin.CLIENT, b"s.%d" % (n % 3), b"")
        assert (await place.caller.api("STREAM.PURGE.S", {"filter": "s.1", "keep": 10}))["purged"] == 9_990
        assert (await place.caller.api("STREAM.PURGE.S", {"filter": "s.2", "seq": 15_001}))["purged"] == 5_000
        assert (await place.caller.api("STREAM.PURGE.S", {"keep": 100}))["purged"] == 14_910
        assert (await place.caller.api("STREAM.INFO.S"))["state"]["messages"] == 100

    run(test)
