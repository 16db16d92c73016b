"""CONSUMER requests: create, look at, list, delete, pause, unpin, reset. Texts and orders are nats-server 2.15.1's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from support.jetstream import Caller, Place, opened

Run = Callable[..., None]
TYPE = "io.nats.jetstream.api.v1."
NS = 1_000_000_000
LATER = "2090-01-01T00:00:00Z"


async def make(caller: Caller, name: str, stream: str = "S", more: dict[str, Any] | None = None, **config: Any) -> Any:
    """A durable consumer, unless the configuration says otherwise."""
    body = {"stream_name": stream, "config": {"durable_name": name, "ack_policy": "explicit"} | config}
    return await caller.api(f"CONSUMER.CREATE.{stream}.{name}", body | (more or {}))


async def filled(caller: Caller, count: int = 5, **config: Any) -> None:
    await caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], **config})
    for number in range(count):
        await caller.publish(f"s.{number}", b"x")


async def code(asked: Any) -> int | None:
    found = (await asked).get("error")
    return None if found is None else found["err_code"]


def test_a_consumer_is_created_and_all_of_it_told(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place.caller)
        found = await make(place.caller, "C")
        created = found.pop("created")
        assert created.endswith("Z") and found.pop("ts") >= created
        assert list(found.items()) == list(
            {
                "type": TYPE + "consumer_create_response",
                "stream_name": "S",
                "name": "C",
                "config": {
                    "durable_name": "C",
                    "name": "C",
                    "deliver_policy": "all",
                    "ack_policy": "explicit",
                    "ack_wait": 30 * NS,
                    "max_deliver": -1,
                    "replay_policy": "instant",
                    "max_waiting": 512,
                    "max_ack_pending": 1000,
                    "num_replicas": 0,
                    "metadata": {"_nats.level": "5", "_nats.req.level": "0", "_nats.ver": "2.15.1"},
                },
                "delivered": {"consumer_seq": 0, "stream_seq": 0},
                "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
                "num_ack_pending": 0,
                "num_redelivered": 0,
                "num_waiting": 0,
                "num_pending": 5,
            }.items()
        )
        info = await place.caller.api("CONSUMER.INFO.S.C")
        assert info.pop("ts") >= created and info.pop("created") == created
        assert info == found | {"type": TYPE + "consumer_info_response"}

    run(test)


def test_a_consumer_is_created_once_and_then_updated(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = place.caller
        await filled(caller)
        created = (await make(caller, "C"))["created"]
        again = await make(caller, "C", description="new")
        assert again["created"] == created and again["config"]["description"] == "new"
        assert await code(make(caller, "C", more={"action": "create"})) == 10148
        assert await code(make(caller, "D", more={"action": "update"})) == 10149
        assert await code(make(caller, "C", ack_policy="none")) == 10012
        same = await make(caller, "C", more={"action": "create"}, description="new")
        assert same["created"] == created

    run(test)


def test_a_consumer_without_a_name_gets_one(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place.caller)
        names = []
        for _ in range(2):
            found = await place.caller.api(
                "CONSUMER.CREATE.S", {"stream_name": "S", "config": {"filter_subject": "s.1"}}
            )
            assert len(found["name"]) == 8 and "name" not in found["config"] and found["num_pending"] == 1
            assert found["config"]["inactive_threshold"] == 5 * NS
            names.append(found["name"])
        assert (await place.caller.api("CONSUMER.NAMES.S"))["consumers"] == sorted(names)

    run(test)


def test_the_subjects_of_create_agree_with_what_they_bring(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = place.caller
        await filled(caller)
        plain = {"stream_name": "S", "config": {"filter_subject": "s.1"}}
        assert (await caller.api("CONSUMER.CREATE.S.c.s.1", plain))["config"]["filter_subject"] == "s.1"
        assert await code(caller.api("CONSUMER.CREATE.S.c.s.2", plain)) == 10131
        assert await code(caller.api("CONSUMER.CREATE.X.c", plain)) == 10056
        assert await code(caller.api("CONSUMER.CREATE.X.c", {"stream_name": "X"})) == 10059
        assert await code(caller.api("CONSUMER.CREATE.S.c", b"")) == 10056
        assert await code(caller.api("CONSUMER.CREATE.S.c", b"{")) == 10025
        assert await code(caller.api("CONSUMER.DURABLE.CREATE.S.c", plain)) == 10018
        durable = {"stream_name": "S", "config": {"durable_name": "d"}}
        assert (await caller.api("CONSUMER.DURABLE.CREATE.S.d", durable))["name"] == "d"
        assert await code(caller.api("CONSUMER.CREATE.S", durable)) == 10020
        assert await code(caller.api("CONSUMER.CREATE.S.x", durable)) == 10017

    run(test)


def test_lists_are_sorted_and_paged(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = place.caller
        await filled(caller)
        for number in range(300):
            await make(caller, f"C{number:03d}", mem_storage=True)
        found = await caller.api("CONSUMER.NAMES.S", {"offset": 298})
        assert found == {
            "type": TYPE + "consumer_names_response", "total": 300, "offset": 298, "limit": 1024,
            "consumers": ["C298", "C299"],
        }  # fmt: skip
        found = await caller.api("CONSUMER.LIST.S")
        assert (found["total"], found["offset"], found["limit"], len(found["consumers"])) == (300, 0, 256, 256)
        assert found["consumers"][1]["name"] == "C001"
        assert found["consumers"][1]["config"]["metadata"] == {"_nats.req.level": "0"}
        found = await caller.api("CONSUMER.LIST.S", {"offset": 999})
        assert (found["offset"], found["consumers"]) == (300, [])
        missing = await caller.api("CONSUMER.LIST.X")
        assert missing["error"]["err_code"] == 10059 and missing["consumers"] == [] and missing["total"] == 0
        assert await code(caller.api("CONSUMER.NAMES.S", {"x": 1})) == 10025
        assert (await caller.api("STREAM.INFO.S"))["state"]["consumer_count"] == 300
        assert (await caller.api("INFO"))["consumers"] == 300

    run(test)


def test_one_that_feeds_a_mirror_is_not_listed_and_told_whose_it_is(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = place.caller
        await filled(caller)
        body = {"stream_name": "S", "config": {"name": "D", "direct": True, "deliver_subject": "d"}}
        (reply,) = await caller.ask("$JS.API.CONSUMER.CREATE.S.D", body)
        assert reply.headers is not None
        head, identity = reply.headers.split(b": ")
        assert head == b"NATS/1.0\r\nNats-Stream-Identity" and len(identity) == 12  # eight letters, two line ends
        assert (await caller.api("CONSUMER.NAMES.S"))["consumers"] == []
        assert (await caller.api("STREAM.INFO.S"))["state"]["consumer_count"] == 0
        assert (await caller.api("INFO"))["consumers"] == 1
        assert (await caller.api("CONSUMER.INFO.S.D"))["name"] == "D"
        other = b"NATS/1.0\r\nNats-Stream-Identity: 12345678\r\n\r\n"
        (reply,) = await caller.ask("$JS.API.CONSUMER.CREATE.S.D", body, other)
        assert reply.json["error"]["err_code"] == 10225 and reply.headers is None
        assert reply.json["error"]["description"].endswith(identity[:8].decode())

    run(test)


def test_a_deleted_consumer_is_gone(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = place.caller
        await filled(caller)
        await make(caller, "C")
        assert await code(caller.api("CONSUMER.DELETE.S.C", b"x")) == 10038
        deleted = await caller.api("CONSUMER.DELETE.S.C")
        assert deleted == {"type": TYPE + "consumer_delete_response", "success": True}
        for endpoint in ("DELETE", "INFO", "PAUSE"):
            assert await code(caller.api(f"CONSUMER.{endpoint}.S.C")) == 10014
            assert await code(caller.api(f"CONSUMER.{endpoint}.X.C")) == 10059
        assert await code(caller.api("CONSUMER.INFO.S.C", b"x")) == 10038
        assert await code(caller.api("CONSUMER.UNPIN.S.C", {"group": "g"})) == 10014
        assert await code(caller.api("CONSUMER.UNPIN.S.C", {})) == 10025

    run(test)


def test_a_consumer_is_paused_and_resumed(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = place.caller
        await filled(caller)
        await make(caller, "C")
        caller.listen("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.>")
        paused = await caller.api("CONSUMER.PAUSE.S.C", {"pause_until": "2090-01-01T02:00:00+02:00"})
        assert paused.pop("pause_remaining") > 0
        assert paused == {"type": TYPE + "consumer_pause_response", "paused": True, "pause_until": LATER}
        info = await caller.api("CONSUMER.INFO.S.C")
        assert info["paused"] and info["pause_remaining"] > 0 and info["config"]["pause_until"] == LATER
        assert info["config"]["metadata"]["_nats.req.level"] == "1"
        await caller.api("CONSUMER.PAUSE.S.C", {"pause_until": LATER})  # the same again is not told
        updated = await make(caller, "C", description="also")  # an update leaves the pause as it is
        assert updated["paused"]
        resumed = await caller.api("CONSUMER.PAUSE.S.C")
        assert resumed == {
            "type": TYPE + "consumer_pause_response", "paused": False, "pause_until": "0001-01-01T00:00:00Z",
        }  # fmt: skip
        assert "paused" not in await caller.api("CONSUMER.INFO.S.C")
        told = [json.loads(payload)["paused"] for _, payload in caller.received]
        assert told == [True, True, False]  # the second came with the update

    run(test)


def test_a_pause_may_reach_further_than_a_clock_of_nanoseconds(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place.caller)
        await make(place.caller, "C")
        paused = await place.caller.api("CONSUMER.PAUSE.S.C", {"pause_until": "9999-12-31T00:00:00Z"})
        assert (paused["paused"], paused["pause_remaining"]) == (True, 2**63 - 1)
        assert (await place.caller.api("CONSUMER.INFO.S.C"))["paused"]

    run(test)


def test_a_group_is_unpinned_by_name(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = place.caller
        await filled(caller)
        found = await make(caller, "P", priority_policy="pinned_client", priority_groups=["g"])
        assert found["priority_groups"] == [{"group": "g", "pinned_ts": "0001-01-01T00:00:00Z"}]
        caller.listen("$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.>")
        assert await caller.api("CONSUMER.UNPIN.S.P", {"group": "g"}) == {"type": TYPE + "consumer_unpin_response"}
        assert await code(caller.api("CONSUMER.UNPIN.S.P", {"group": "h"})) == 10160
        assert await code(caller.api("CONSUMER.UNPIN.S.P", {"group": "a b"})) == 10162
        ((subject, payload),) = caller.received
        assert subject == b"$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.S.P" and json.loads(payload)["reason"] == "admin"

    run(test)


def test_a_reset_is_neither_counted_nor_answered_for_a_consumer_that_is_not_there(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = place.caller
        await filled(caller)
        await make(caller, "C")
        before = (await caller.api("INFO"))["api"]["total"]
        caller.listen("$JS.EVENT.ADVISORY.API")
        found = await caller.api("CONSUMER.RESET.S.C", {"seq": 3})
        assert found["type"] == TYPE + "consumer_reset_response" and found["reset_seq"] == 3
        assert found["delivered"] == found["ack_floor"] == {"consumer_seq": 0, "stream_seq": 2}
        assert found["num_pending"] == 3
        assert (await caller.api("CONSUMER.RESET.S.C"))["reset_seq"] == 3
        assert (await caller.api("CONSUMER.RESET.S.C", {"seq": 99}))["num_pending"] == 0
        bad = await caller.api("CONSUMER.RESET.S.C", b"{")
        assert bad["error"]["err_code"] == 10025 and bad["reset_seq"] == 0
        for subject in ("CONSUMER.RESET.S.X", "CONSUMER.RESET.X.C"):
            asked = asyncio.ensure_future(caller.api(subject))
            await caller.api("CONSUMER.RESET.S.C")  # a later one is answered
            assert not asked.done()
            asked.cancel()
        assert caller.received == []
        assert (await caller.api("INFO"))["api"]["total"] == before + 1  # the first question about it

    run(test)


def test_only_some_resets_are_allowed(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = place.caller
        await filled(caller)
        await make(caller, "N", deliver_policy="new")
        await make(caller, "B", deliver_policy="by_start_sequence", opt_start_seq=3)
        assert await code(caller.api("CONSUMER.RESET.S.N", {"seq": 2})) == 10204
        assert await code(caller.api("CONSUMER.RESET.S.B", {"seq": 2})) == 10204
        assert (await caller.api("CONSUMER.RESET.S.B", {"seq": 4}))["reset_seq"] == 4

    run(test)


def test_limits_of_account_stream_and_server_hold(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = await place.add("A", max_consumers=3, max_ack_pending=50)
        await filled(caller, max_consumers=2)
        assert await code(make(caller, "A", max_ack_pending=51)) == 10121
        assert (await make(caller, "A"))["config"]["max_ack_pending"] == 20
        assert await code(make(caller, "B", max_batch=200)) == 10125
        assert (await make(caller, "B"))["config"]["max_batch"] == 100
        assert await code(make(caller, "C")) == 10026
        await caller.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})
        for name in "ABC":
            assert await code(make(caller, name, "T")) is None
        assert await code(make(caller, "D", "T")) == 10026

    run(test, max_ack_pending=20, max_request_batch=100)


def test_a_stream_may_not_leave_its_consumers_outside_its_limits(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = place.caller
        await filled(caller)
        await make(caller, "C", max_ack_pending=50)
        stream = {"name": "S", "subjects": ["s.>"]}
        refused = await caller.api("STREAM.UPDATE.S", stream | {"consumer_limits": {"max_ack_pending": 40}})
        assert refused["error"]["err_code"] == 10069
        assert refused["error"]["description"].endswith("change to limits violates consumers: C")
        assert await code(caller.api("STREAM.UPDATE.S", stream | {"consumer_limits": {"max_ack_pending": 50}})) is None

    run(test)


def test_who_listens_hears_of_consumers_that_come_and_go(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = place.caller
        await filled(caller)
        caller.listen("$JS.EVENT.ADVISORY.CONSUMER.*.S.*")
        caller.listen("$JS.EVENT.ADVISORY.STREAM.DELETED.*")
        for name in "ABC":
            await make(caller, name)
        await make(caller, "C", description="told of by nobody")
        await caller.api("CONSUMER.DELETE.S.C")
        await caller.api("STREAM.DELETE.S")
        received = [subject.decode().removeprefix("$JS.EVENT.ADVISORY.") for subject, _ in caller.received]
        assert received[:4] == [f"CONSUMER.CREATED.S.{name}" for name in "ABC"] + ["CONSUMER.DELETED.S.C"]
        assert sorted(received[4:6]) == ["CONSUMER.DELETED.S.A", "CONSUMER.DELETED.S.B"]
        assert received[6:] == ["STREAM.DELETED.S"]

    run(test)


def test_what_was_answered_is_there_after_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        async with opened(tmp_path / "store") as place:
            caller = place.caller
            await filled(caller)
            await make(caller, "C", filter_subject="s.1")
            await make(caller, "P", pause_until=LATER)
            await make(caller, "GONE")
            await make(caller, "M", mem_storage=True)
            await caller.api("CONSUMER.DELETE.S.GONE")
            await caller.api("CONSUMER.RESET.S.C", {"seq": 4})

    async def second() -> None:
        async with opened(tmp_path / "store") as place:
            caller = place.caller
            assert (await caller.api("CONSUMER.NAMES.S"))["consumers"] == ["C", "P"]
            info = await caller.api("CONSUMER.INFO.S.C")
            assert info["delivered"] == {"consumer_seq": 0, "stream_seq": 3} and info["num_pending"] == 0
            assert (await caller.api("CONSUMER.INFO.S.P"))["paused"]

    asyncio.run(first())
    asyncio.run(second())


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_both_doors_see_the_same_consumers(tmp_path: Path, storage: str) -> None:
    async def main() -> None:
        with penstock.open(tmp_path / "store") as database:
            async with opened(tmp_path / "store", database) as place:
                await filled(place.caller, storage=storage)
                place.caller.listen("$JS.EVENT.ADVISORY.CONSUMER.>")
                await make(place.caller, "C")
                stream = database.get_stream("S")
                with stream.locked():
                    assert list(stream.consumers.by_name) == ["C"]
                    stream.consumers.delete("C")
                assert await code(place.caller.api("CONSUMER.INFO.S.C")) == 10014
                assert [subject.split(b".")[4] for subject, _ in place.caller.received] == [b"CREATED", b"DELETED"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("when", "pending"), [("0001-01-01T00:00:01Z", 5), ("1600-01-01T00:00:00Z", 5), ("9999-01-01T00:00:00Z", 0)]
)
def test_a_start_may_lie_beyond_all_messages(run: Run, when: str, pending: int) -> None:
    async def test(place: Place) -> None:
        await filled(place.caller)
        found = await make(place.caller, "C", deliver_policy="by_start_time", opt_start_time=when)
        assert (found["config"]["opt_start_time"], found["num_pending"]) == (when, pending)

    run(test)
