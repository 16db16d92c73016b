"""DIRECT.GET: stored messages as they are."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.routing.origin import Origin
from support.jetstream import Place, Reply

Run = Callable[..., None]
GET = "$JS.API.DIRECT.GET.D"


async def filled(place: Place, count: int = 8, **config: Any) -> None:
    await place.caller.api("STREAM.CREATE.D", {"name": "D", "subjects": ["d.>"], "allow_direct": True, **config})
    for n in range(count):
        headers = b"NATS/1.0\r\nX: y\r\n\r\n" if n % 2 else None
        place.caller.account.publish(Origin.CLIENT, f"d.{n % 3}".encode(), b"body%d" % n, headers)
    place.turn_end()
    await place.jetstream.accounts["$G"].streams["D"].committed()


def fields(reply: Reply) -> dict[str, str]:
    return dict(re.findall(r"(Nats-[\w-]+): (.*)\r\n", (reply.headers or b"").decode()))


def status(reply: Reply) -> str:
    return (reply.headers or b"").decode().split("\r\n")[0]


def test_a_message_comes_with_its_headers_and_where_it_is_from(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        (found,) = await place.caller.ask(GET, {"seq": 2})
        time = place.jetstream.accounts["$G"].streams["D"].stream.get(2).time_ns
        assert found.payload == b"body1"
        start, _, stamp = (found.headers or b"").partition(b"Nats-Time-Stamp: ")
        assert start == b"NATS/1.0\r\nX: y\r\nNats-Stream: D\r\nNats-Subject: d.1\r\nNats-Sequence: 2\r\n"
        digits = f"{time % 10**9:09d}".rstrip("0")
        assert stamp.decode().endswith(f".{digits}Z\r\n\r\n")
        (bare,) = await place.caller.ask(GET, {"seq": 2, "no_hdr": True})
        assert (bare.headers, bare.payload) == (None, b"body1")

    run(test)


@pytest.mark.parametrize(
    "wanted, seq",
    [
        ({"seq": 1}, 1),
        ({"SEQ": 3, "other": [1]}, 3),
        ({"last_by_subj": "d.1"}, 8),
        ({"last_by_subj": "d.*"}, 8),
        ({"next_by_subj": "d.0", "seq": 3}, 4),
        ({"next_by_subj": "d.2"}, 3),
        ({"start_time": "2020-01-01T00:00:00Z"}, 1),
        ({"start_time": "2020-01-01T00:00:00Z", "next_by_subj": "d.2"}, 3),
    ],
)
def test_one_message_is_found_in_every_way(run: Run, wanted: dict[str, Any], seq: int) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        (found,) = await place.caller.ask(GET, wanted)
        assert fields(found)["Nats-Sequence"] == str(seq)

    run(test)


@pytest.mark.parametrize(
    "wanted, told",
    [
        (b"", "408 Empty Request"),
        (b"null", "408 Empty Request"),
        (b"x", "408 Malformed Request"),
        (b"[]", "408 Malformed Request"),
        (b'{"seq":1} x', "408 Malformed Request"),
        ({"seq": "x"}, "408 Malformed Request"),
        ({"seq": -1}, "408 Malformed Request"),
        ({"seq": 2**64}, "408 Malformed Request"),  # once an OverflowError
        ({"seq": 1, "batch": 2**63}, "408 Malformed Request"),
        ({"seq": 2**64 - 1}, "404 Message Not Found"),
        ({"seq": 2**63, "batch": 2}, "404 Message Not Found"),
        ({"foo": 1}, "408 Empty Request"),
        ({"seq": 0, "batch": 3}, "408 Empty Request"),
        ({"multi_last": []}, "408 Empty Request"),
        ({"seq": 1, "last_by_subj": "d.1"}, "408 Bad Request"),
        ({"last_by_subj": "a", "batch": 2}, "408 Bad Request"),
        ({"next_by_subj": "a", "multi_last": ["b"]}, "408 Bad Request"),
        ({"multi_last": ["a"], "up_to_seq": 3, "up_to_time": "2020-01-01T00:00:00Z"}, "408 Bad Request"),
        ({"seq": 99}, "404 Message Not Found"),
        ({"last_by_subj": "zz"}, "404 Message Not Found"),
        ({"last_by_subj": "d..1"}, "404 Message Not Found"),
        ({"seq": 50, "batch": 3}, "404 Message Not Found"),
        ({"multi_last": ["zz"]}, "404 No Results"),
        ({"multi_last": ["d.*"], "up_to_seq": 99}, "404 No Results"),
        ({"multi_last": ["d.*"], "up_to_time": "2020-01-01T00:00:00Z"}, "404 No Results"),
    ],
)
def test_what_cannot_be_answered_gets_a_status(run: Run, wanted: Any, told: str) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        (found,) = await place.caller.ask(GET, wanted)
        assert (status(found), found.payload) == (f"NATS/1.0 {told}", b"")

    run(test)


def test_the_last_of_a_subject_is_found_by_the_requests_own_subject(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        (found,) = await place.caller.ask(f"{GET}.d.1")
        assert fields(found)["Nats-Sequence"] == "8"
        (found,) = await place.caller.ask(f"{GET}.d.1", {"no_hdr": True})
        assert found.payload == b"body7"
        (found,) = await place.caller.ask(f"{GET}.d.1", {"seq": 1})
        assert status(found) == "NATS/1.0 408 Bad Request"
        level = b"NATS/1.0\r\nNats-Required-Api-Level: 6\r\n\r\n"
        (found,) = await place.caller.ask(f"{GET}.d.1", b"", level)
        assert status(found) == "NATS/1.0 412 Required Api Level"

    run(test)


def test_a_batch_counts_down_and_ends_with_a_marker(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        await place.caller.api("STREAM.MSG.DELETE.D", {"seq": 4})
        *found, end = await place.caller.ask(GET, {"seq": 2, "batch": 3}, count=9)
        told = [
            (one["Nats-Sequence"], one["Nats-Num-Pending"], one["Nats-Last-Sequence"]) for one in map(fields, found)
        ]
        assert told == [("2", "5", "0"), ("3", "4", "2"), ("5", "3", "3")]
        assert end.headers == b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 3\r\nNats-Last-Sequence: 5\r\n\r\n"
        *found, end = await place.caller.ask(GET, {"next_by_subj": "d.0", "batch": 100}, count=9)
        assert [fields(one)["Nats-Sequence"] for one in found] == ["1", "7"]
        *found, end = await place.caller.ask(GET, {"seq": 1, "batch": 100, "max_bytes": 12}, count=9)
        assert len(found) == 2
        *found, end = await place.caller.ask(GET, {"seq": 1, "batch": 2, "no_hdr": True}, count=9)
        assert [one.headers for one in found] == [None, None]
        assert fields(end) == {"Nats-Num-Pending": "7", "Nats-Last-Sequence": "2"}

    run(test)


def test_a_long_batch_leaves_in_slices_and_in_order(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place, count=5000)
        asked = place.caller.ask(GET, {"seq": 1, "batch": 5000}, count=9999)
        *found, end = await asked
        assert [fields(one)["Nats-Sequence"] for one in found] == [str(n) for n in range(1, 5001)]
        assert [one.payload for one in found] == [b"body%d" % n for n in range(5000)]
        assert fields(end)["Nats-Num-Pending"] == "0"

    run(test)


def test_several_last_are_of_one_moment(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        for wanted, seqs, up_to in (
            ({"multi_last": ["d.*"]}, ["6", "7", "8"], "8"),
            ({"multi_last": ["d.1", "d.2", "d.1"]}, ["6", "8"], "8"),
            ({"multi_last": ["d.*"], "up_to_seq": 5}, ["3", "4", "5"], "5"),
            ({"multi_last": ["d.*"], "seq": 7}, ["7", "8"], "8"),
            ({"multi_last": ["d.*"], "batch": 1}, ["6"], "8"),
            ({"multi_last": ["d.*"], "seq": 99}, [], "8"),
        ):
            *found, end = await place.caller.ask(GET, wanted, count=9)
            assert [fields(one)["Nats-Sequence"] for one in found] == seqs
            assert fields(end)["Nats-UpTo-Sequence"] == up_to

    run(test)


def test_more_than_1024_last_are_refused(run: Run) -> None:
    async def test(place: Place) -> None:
        await place.caller.api("STREAM.CREATE.D", {"name": "D", "subjects": ["d.*"], "allow_direct": True})
        for n in range(1025):
            place.caller.account.publish(Origin.CLIENT, b"d.%d" % n, b"")
        await place.jetstream.accounts["$G"].streams["D"].committed()
        (found,) = await place.caller.ask(GET, {"multi_last": ["d.*"]})
        assert status(found) == "NATS/1.0 413 Too Many Results"

    run(test)


def test_only_what_is_durable_is_read(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place, count=1)
        endpoint = place.jetstream.accounts["$G"].streams["D"]
        place.caller.account.publish(Origin.CLIENT, b"d.0", b"not yet synced")
        assert endpoint.stream.store.engine.committed_seq == 1
        (found,) = await place.caller.ask(GET, {"last_by_subj": "d.0"})
        assert found.payload in (b"body0", b"not yet synced")
        assert fields(found)["Nats-Sequence"] == ("1" if found.payload == b"body0" else "2")

    run(test)


def test_a_stream_that_another_thread_holds_is_waited_for_outside_of_the_loop(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        stream = place.jetstream.accounts["$G"].streams["D"].stream
        is_held, may_go = threading.Event(), threading.Event()

        def hold() -> None:
            with stream.locked():
                is_held.set()
                may_go.wait(10)

        thread = threading.Thread(target=hold)
        thread.start()
        await asyncio.to_thread(is_held.wait)
        asked = [asyncio.ensure_future(place.caller.ask(GET, {"seq": n})) for n in (1, 2, 3)]
        looked = asyncio.ensure_future(place.caller.api("STREAM.MSG.GET.D", {"seq": 1}))
        await asyncio.sleep(0)  # the loop runs on
        assert not any(one.done() for one in (*asked, looked))
        may_go.set()
        assert [fields((await one)[0])["Nats-Sequence"] for one in asked] == ["1", "2", "3"]
        assert (await looked)["message"]["seq"] == 1
        thread.join()

    run(test)
