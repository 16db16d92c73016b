"""STREAM requests: create, update, delete, look at, list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock
from penstock.broker.routing.origin import Origin
from support.jetstream import Place, opened

Run = Callable[..., None]
TYPE = "io.nats.jetstream.api.v1."


def test_a_stream_is_created_and_its_whole_configuration_told(run: Run) -> None:
    async def test(place: Place) -> None:
        found = await place.caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["a.>"], "metadata": {"b": "<"}})
        created = found.pop("created")
        assert created.endswith("Z") and found.pop("ts") >= created
        assert list(found) == ["type", "config", "state", "did_create"]
        assert found["type"] == TYPE + "stream_create_response"
        assert list(found["config"].items()) == list(
            {
                "name": "S",
                "subjects": ["a.>"],
                "retention": "limits",
                "max_consumers": -1,
                "max_msgs": -1,
                "max_bytes": -1,
                "max_age": 0,
                "max_msgs_per_subject": -1,
                "max_msg_size": -1,
                "discard": "old",
                "storage": "file",
                "num_replicas": 1,
                "duplicate_window": 120_000_000_000,
                "compression": "none",
                "allow_direct": False,
                "mirror_direct": False,
                "sealed": False,
                "deny_delete": False,
                "deny_purge": False,
                "allow_rollup_hdrs": False,
                "consumer_limits": {},
                "allow_msg_ttl": False,
                "metadata": {"_nats.level": "5", "_nats.req.level": "0", "_nats.ver": "2.15.1", "b": "<"},
            }.items()
        )
        zero = "0001-01-01T00:00:00Z"
        assert list(found["state"].items()) == [
            ("messages", 0),
            ("bytes", 0),
            ("first_seq", 0),
            ("first_ts", zero),
            ("last_seq", 0),
            ("last_ts", zero),
            ("consumer_count", 0),
        ]

    run(test)


def test_creating_the_same_again_finds_it_and_another_is_refused(run: Run) -> None:
    async def test(place: Place) -> None:
        first = await place.caller.api("STREAM.CREATE.S", {"name": "S"})
        again = await place.caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["S"]})
        assert again["did_create"] and again["created"] == first["created"]
        other = await place.caller.api("STREAM.CREATE.S", {"name": "S", "max_msgs": 5})
        assert other["error"]["err_code"] == 10058

    run(test)


def test_refusals_have_the_references_codes(run: Run) -> None:
    async def code(place: Place, subject: str, payload: Any = b"") -> int:
        found = await place.caller.api(subject, payload)
        assert "error" in found, (subject, payload, found)
        return int(found["error"]["err_code"])

    async def test(place: Place) -> None:
        await place.caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        assert await code(place, "STREAM.CREATE.T", {"name": "X"}) == 10056
        assert await code(place, "STREAM.CREATE.T", {"name": "T", "foo": 1}) == 10025
        assert await code(place, "STREAM.CREATE.T", {"name": "T", "subjects": ["s.1"]}) == 10065
        assert await code(place, "STREAM.CREATE.T", {"name": "T", "num_replicas": 3}) == 10074
        assert await code(place, "STREAM.CREATE.T", {"name": "T", "subjects": ["a..b"]}) == 10052
        assert await code(place, "STREAM.CREATE.T", {"name": "T", "allow_atomic": True}) == 10052
        assert await code(place, "STREAM.CREATE.a/b", {"name": "a/b"}) == 10128
        assert await code(place, "STREAM.UPDATE.T", {"name": "T"}) == 10059
        assert await code(place, "STREAM.UPDATE.T", {"name": "S"}) == 10056
        assert await code(place, "STREAM.UPDATE.S", {"name": "S", "storage": "memory"}) == 10052
        assert await code(place, "STREAM.INFO.T") == 10059
        assert await code(place, "STREAM.DELETE.T") == 10059
        assert await code(place, "STREAM.DELETE.S", b"x") == 10038
        assert await code(place, "STREAM.LEADER.STEPDOWN.S") == 10010

    run(test)


def test_a_refusal_shows_the_zero_fields_of_its_reply(run: Run) -> None:
    async def test(place: Place) -> None:
        found = await place.caller.api("STREAM.NAMES", b"{")
        assert list(found) == ["type", "error", "total", "offset", "limit", "streams"]
        assert found["streams"] is None
        assert list(await place.caller.api("STREAM.PURGE.X")) == ["type", "error", "purged"]
        assert list(await place.caller.api("STREAM.INFO.X")) == ["type", "error", "total", "offset", "limit"]

    run(test)


def test_an_update_changes_what_is_captured(run: Run) -> None:
    async def test(place: Place) -> None:
        await place.caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["a"]})
        assert (await place.caller.publish("a", b"1"))["seq"] == 1
        found = await place.caller.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["b"], "max_msgs": 1})
        assert found["config"]["subjects"] == ["b"] and found["config"]["max_msgs"] == 1
        assert (await place.caller.publish("b", b"2"))["seq"] == 2
        assert not place.caller.account.has_interest(b"a")
        assert (await place.caller.api("STREAM.INFO.S"))["state"]["messages"] == 1

    run(test)


def test_info_counts_what_was_just_published(run: Run) -> None:
    async def test(place: Place) -> None:
        await place.caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        for n in range(20):
            place.caller.account.publish(Origin.CLIENT, b"s.%d" % (n % 4), b"x")
        found = await place.caller.api("STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True})
        assert found["state"]["messages"] == 20
        assert found["state"]["subjects"] == {f"s.{n}": 5 for n in range(4)}
        assert (found["total"], found["offset"], found["limit"]) == (4, 0, 100_000)
        assert found["cluster"] == {"leader": "here"}
        page = await place.caller.api("STREAM.INFO.S", {"subjects_filter": "s.*", "offset": 3})
        assert page["state"]["subjects"] == {"s.3": 5} and page["offset"] == 3

    run(test)


def test_info_lists_deleted_sequences_on_request(run: Run) -> None:
    async def test(place: Place) -> None:
        await place.caller.api("STREAM.CREATE.S", {"name": "S"})
        assert (await place.caller.api("STREAM.INFO.S", {"deleted_details": True}))["state"]["deleted"] == [0]
        for _ in range(5):
            await place.caller.publish("S", b"x")
        for seq in (2, 3):
            assert (await place.caller.api("STREAM.MSG.DELETE.S", {"seq": seq}))["success"]
        state = (await place.caller.api("STREAM.INFO.S", {"deleted_details": True}))["state"]
        assert (state["num_deleted"], state["deleted"], state["messages"]) == (2, [2, 3], 3)

    run(test)


def test_names_and_lists_are_sorted_filtered_and_paged(run: Run) -> None:
    async def test(place: Place) -> None:
        assert (await place.caller.api("STREAM.NAMES"))["streams"] is None
        assert (await place.caller.api("STREAM.LIST"))["streams"] == []
        for name, subject in (("C", "c"), ("A", "a.*"), ("B", "b.>")):
            await place.caller.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [subject]})
        assert (await place.caller.api("STREAM.NAMES"))["streams"] == ["A", "B", "C"]
        for subject, wanted in (("a.x", ["A"]), ("*.x", ["A", "B"]), ("a..b", None), ("", ["A", "B", "C"])):
            assert (await place.caller.api("STREAM.NAMES", {"subject": subject}))["streams"] == wanted
        page = await place.caller.api("STREAM.LIST", {"offset": 2})
        assert [one["config"]["name"] for one in page["streams"]] == ["C"]
        assert (page["total"], page["offset"], page["limit"]) == (3, 2, 256)
        assert page["streams"][0]["config"]["metadata"] == {"_nats.req.level": "0"}
        assert (await place.caller.api("STREAM.NAMES", {"offset": 9}))["offset"] == 3

    run(test)


def test_a_deleted_stream_is_gone_and_can_be_made_anew(run: Run) -> None:
    async def test(place: Place) -> None:
        await place.caller.api("STREAM.CREATE.S", {"name": "S"})
        await place.caller.publish("S", b"1")
        assert (await place.caller.api("STREAM.DELETE.S"))["success"]
        assert not place.caller.account.has_interest(b"S")
        await place.caller.api("STREAM.CREATE.S", {"name": "S"})
        assert (await place.caller.publish("S", b"1"))["seq"] == 1

    run(test)


def test_many_creates_of_one_name_at_once_make_one_stream(run: Run) -> None:
    async def test(place: Place) -> None:
        asked = (place.caller.api("STREAM.CREATE.S", {"name": "S"}) for _ in range(20))
        found = await asyncio.gather(*asked)
        assert len({one["created"] for one in found}) == 1
        assert place.jetstream.accounts["$G"].database.streams() == ["S"]

    run(test)


def test_what_the_server_stored_is_there_for_penstock_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "store") as place:
            await place.caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
            await place.caller.publish("s.1", b"hello")
            await (await place.add("A")).api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        async with opened(tmp_path / "store") as place:
            assert (await place.caller.api("STREAM.INFO.S"))["state"]["messages"] == 1
            assert (await place.caller.publish("s.2", b"again"))["seq"] == 2

    asyncio.run(main())
    with penstock.open(tmp_path / "store") as db:
        assert [message.data for message in db.get_stream("S").read()] == [b"hello", b"again"]


def test_a_database_of_the_same_process_is_served_and_stays_open(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "store") as db:
        db.stream("OLD", subjects="old.>").publish("old.1", b"x")

        async def main() -> None:
            async with opened(tmp_path / "elsewhere", database=db) as place:
                assert (await place.caller.api("STREAM.INFO.OLD"))["state"]["messages"] == 1
                await asyncio.to_thread(db.stream, "NEW", subjects="new.>")
                await asyncio.sleep(0)
                assert (await place.caller.publish("new.1", b"y"))["stream"] == "NEW"
                await asyncio.to_thread(db.delete_stream, "OLD")
                await asyncio.sleep(0)
                assert (await place.caller.api("STREAM.NAMES"))["streams"] == ["NEW"]
                assert (await (await place.add("A")).api("STREAM.CREATE.S", {"name": "S"}))["did_create"]

        asyncio.run(main())
        assert db.get_stream("NEW").get(1).data == b"y"


def test_requests_of_a_stream_that_is_just_being_deleted_find_none(run: Run) -> None:
    async def test(place: Place) -> None:
        await place.caller.api("STREAM.CREATE.S", {"name": "S", "allow_direct": True})
        await place.caller.publish("S", b"x")
        account = place.jetstream.accounts["$G"]
        await asyncio.to_thread(account.streams["S"].stream._close)  # as a delete does, before the loop hears of it
        assert (await place.caller.api("STREAM.MSG.GET.S", {"seq": 1}))["error"]["err_code"] in (10037, 10059)
        (found,) = await place.caller.ask("$JS.API.DIRECT.GET.S", {"seq": 1})
        assert found.headers == b"NATS/1.0 404 Message Not Found\r\n\r\n"
        assert (await place.caller.api("STREAM.PURGE.S"))["error"]["err_code"] in (10059, 10110)

    run(test)


def test_publishing_while_a_stream_is_deleted_and_made_anew_loses_no_acknowledged_message(run: Run) -> None:
    """What was acknowledged is either in the stream that was deleted, or in the new one: sequences begin at 1 again."""

    async def test(place: Place) -> None:
        caller = place.caller
        for _ in range(5):
            await caller.api("STREAM.CREATE.S", {"name": "S"})
            asked = [asyncio.ensure_future(caller.publish("S", b"%d" % n)) for n in range(50)]
            deleted = asyncio.ensure_future(caller.api("STREAM.DELETE.S"))
            assert [(await one)["seq"] for one in asked] == list(range(1, 51))
            assert (await deleted)["success"]
        assert not caller.account.has_interest(b"S")

    run(test)
