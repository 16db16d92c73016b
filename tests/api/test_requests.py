"""The way of a request: counters, levels, order, a queue with an end, unknown subjects, domains, advisories, limits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.api.call import Call, Endpoint
from penstock.api.request import Api
from penstock.broker.account import Account
from support.jetstream import Caller, Place

Run = Callable[..., None]


def test_account_info_counts_usage_reservations_and_requests(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = await place.add("A", max_streams=2, max_storage=10_000)
        await caller.api("STREAM.CREATE.S", {"name": "S", "max_bytes": 1000})
        await caller.api("STREAM.CREATE.M", {"name": "M", "storage": "memory", "max_bytes": 500})
        await caller.publish("S", b"hello")
        await caller.api("STREAM.INFO.NONE")
        found = await caller.api("INFO")
        assert found.pop("type") == "io.nats.jetstream.api.v1.account_info_response"
        assert found == {
            "memory": 0,
            "storage": 36,
            "reserved_memory": 500,
            "reserved_storage": 1000,
            "streams": 2,
            "consumers": 0,
            "limits": {
                "max_memory": -1,
                "max_storage": 10_000,
                "max_streams": 2,
                "max_consumers": -1,
                "max_ack_pending": -1,
                "memory_max_stream_bytes": -1,
                "storage_max_stream_bytes": -1,
                "max_bytes_required": False,
            },
            "api": {"level": 5, "total": 3, "errors": 1},
        }

    run(test)


def test_an_account_keeps_within_its_limits(run: Run) -> None:
    async def code(caller: Caller, subject: str, **config: Any) -> int:
        found = await caller.api(subject, config)
        return int(found["error"]["err_code"]) if "error" in found else 0

    async def test(place: Place) -> None:
        caller = await place.add("A", max_streams=2, max_storage=2000, max_memory=1000, max_consumers=3)
        assert await code(caller, "STREAM.CREATE.S", name="S", max_bytes=3000) == 10047
        assert await code(caller, "STREAM.CREATE.S", name="S", max_bytes=3000, storage="memory") == 10028
        assert await code(caller, "STREAM.CREATE.S", name="S", max_consumers=5) == 10026
        assert await code(caller, "STREAM.CREATE.S", name="S", max_bytes=1500) == 0
        assert await code(caller, "STREAM.CREATE.T", name="T", max_bytes=501) == 10047
        assert await code(caller, "STREAM.CREATE.T", name="T", subjects=["t.>"]) == 0
        assert await code(caller, "STREAM.CREATE.U", name="U") == 10027
        assert await code(caller, "STREAM.CREATE.S", name="S", max_bytes=1500) == 0
        assert await code(caller, "STREAM.UPDATE.S", name="S", max_bytes=2001) == 10047
        assert await code(caller, "STREAM.UPDATE.S", name="S", max_bytes=2000) == 0
        answers = [await caller.publish(f"t.{n}", b"x" * 100) for n in range(20)]
        assert [one["seq"] for one in answers[:14]] == list(range(1, 15))
        assert {one["error"]["err_code"] for one in answers[15:]} == {10002}
        await caller.api("STREAM.PURGE.T")
        assert "error" not in await caller.publish("t.0", b"room again")
        strict = await place.add("B", max_bytes_required=True, storage_max_stream_bytes=5000)
        assert await code(strict, "STREAM.CREATE.S", name="S") == 10113
        assert await code(strict, "STREAM.CREATE.S", name="S", max_bytes=6000) == 10122
        assert await code(strict, "STREAM.CREATE.S", name="S", max_bytes=5000) == 0

    run(test)


def test_the_servers_own_room_is_a_limit_for_all(run: Run) -> None:
    async def test(place: Place) -> None:
        other = await place.add("A")
        await place.caller.api("STREAM.CREATE.S", {"name": "S", "max_bytes": 700})
        found = await other.api("STREAM.CREATE.S", {"name": "S", "max_bytes": 400})
        assert found["error"]["err_code"] == 10047
        assert "error" not in await other.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        await other.publish("s", b"x" * 1000)
        assert (await other.publish("s", b"one too many"))["error"]["err_code"] == 10023
        await other.api("STREAM.PURGE.S")
        assert "error" not in await other.publish("s", b"room again")

    run(test, max_storage=1000)


def test_an_account_without_jetstream_is_told_so(run: Run) -> None:
    async def test(place: Place) -> None:
        account = Account("C", place.tick)
        place.jetstream.refuse(account)
        caller = Caller(account)
        assert (await caller.api("INFO"))["error"]["err_code"] == 10039
        assert (await caller.api("STREAM.CREATE.S", {"x": 1}))["error"]["err_code"] == 10039
        assert (await caller.api("STREAM.LEADER.STEPDOWN.S"))["error"]["err_code"] == 10010
        system = Caller(place.accounts["$SYS"])
        found = await system.api("STREAM.NAMES")
        assert found["type"].endswith("system_response") and found["error"]["err_code"] == 10039

    run(test)


def test_accounts_do_not_see_each_other(run: Run) -> None:
    async def test(place: Place) -> None:
        other = await place.add("A")
        for caller in (place.caller, other):
            assert (await caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]}))["did_create"]
        await other.publish("s", b"x")
        assert (await place.caller.api("STREAM.INFO.S"))["state"]["messages"] == 0

    run(test)


def test_an_account_of_any_name_has_a_folder(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = await place.add("acme.com/a b%*")
        assert (await caller.api("STREAM.CREATE.S", {"name": "S"}))["did_create"]
        assert place.jetstream.accounts["acme.com/a b%*"].database.account == "acme%2Ecom%2Fa%20b%25%2A"

    run(test)


def test_a_level_above_ours_is_refused(run: Run) -> None:
    async def test(place: Place) -> None:
        for level, is_refused in (("5", False), ("6", True), ("x", True), ("", False), ("-1", False)):
            headers = f"NATS/1.0\r\nNats-Required-Api-Level: {level}\r\n\r\n".encode()
            found = await place.caller.api("STREAM.NAMES", b"", headers)
            assert (found.get("error", {}).get("err_code") == 10185) is is_refused, level

    run(test)


def test_unknown_subjects_have_no_answer(run: Run) -> None:
    async def test(place: Place) -> None:
        await place.caller.api("STREAM.CREATE.S", {"name": "S"})
        for subject in ("FOO", "STREAM.INFO", "STREAM.INFO.S.x", "INFO.x", "STREAM.SNAPSHOT", "META.LEADER.STEPDOWN"):
            asked = asyncio.ensure_future(place.caller.api(subject))
            assert "total" in await place.caller.api("STREAM.NAMES")  # a later one is answered
            assert not asked.done()
            asked.cancel()

    run(test)


def test_what_is_not_there_yet_is_refused_by_name_and_at_once(run: Run) -> None:
    async def test(place: Place) -> None:
        refused = await place.caller.api("STREAM.CREATE.S", {"name": "S", "compression": "s2"})
        assert (refused["error"]["code"], refused["error"]["err_code"]) == (500, 10052)
        assert refused["error"]["description"].startswith("compression: this version of Penstock does not have")
        created = await place.caller.api("STREAM.CREATE.S", {"name": "S"})
        assert created["config"]["compression"] == "none"
        refused = await place.caller.api("STREAM.UPDATE.S", created["config"] | {"compression": "s2"})
        assert refused["type"].endswith("stream_update_response") and "compression" in refused["error"]["description"]
        for verb, err_code in (("SNAPSHOT", 10064), ("RESTORE", 10062)):
            refused = await place.caller.api(f"STREAM.{verb}.S", {"deliver_subject": "d"})
            assert refused["type"] == f"io.nats.jetstream.api.v1.stream_{verb.lower()}_response"
            assert (refused["error"]["code"], refused["error"]["err_code"]) == (500, err_code)
            assert refused["error"]["description"].startswith(
                f"{verb.lower()} failed: this version of Penstock does not"
            )
        missing = await place.caller.api("STREAM.SNAPSHOT.NONE", {"deliver_subject": "d"})
        assert missing["error"]["err_code"] == 10059

    run(test)


CONSUMER = {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
# Every subject of the API of 2.15 with names for its places; those for the system account are asked in test_system*.
SUBJECTS = """INFO STREAM.CREATE.S STREAM.UPDATE.S STREAM.NAMES STREAM.LIST STREAM.INFO.S STREAM.PURGE.S
    STREAM.MSG.GET.S STREAM.MSG.DELETE.S STREAM.SNAPSHOT.S STREAM.RESTORE.S STREAM.LEADER.STEPDOWN.S
    STREAM.PEER.REMOVE.S
    STREAM.PEER.EVACUATE.S STREAM.CANCEL_MOVE.S CONSUMER.CREATE.S CONSUMER.CREATE.S.C CONSUMER.CREATE.S.C.f
    CONSUMER.DURABLE.CREATE.S.C CONSUMER.NAMES.S CONSUMER.LIST.S CONSUMER.INFO.S.C CONSUMER.DELETE.S.C
    CONSUMER.PAUSE.S.C CONSUMER.UNPIN.S.C CONSUMER.RESET.S.C CONSUMER.LEADER.STEPDOWN.S.C CONSUMER.PEER.REMOVE.S.C
    CONSUMER.PEER.EVACUATE.S.C STREAM.DELETE.S"""


@pytest.mark.parametrize("subject", SUBJECTS.split())
def test_every_request_of_the_api_is_answered(run: Run, subject: str) -> None:
    async def test(place: Place) -> None:
        await place.caller.api("STREAM.CREATE.S", {"name": "S"})
        await place.caller.api("CONSUMER.DURABLE.CREATE.S.C", CONSUMER)  # the reference's RESET is silent without one
        async with asyncio.timeout(60):
            answer = await place.caller.api(subject, {})
        assert answer["type"].startswith("io.nats.jetstream.api.v1.")

    run(test)


def test_a_domain_has_the_api_under_its_own_name(run: Run) -> None:
    async def test(place: Place) -> None:
        created = await place.caller.ask("$JS.hub.API.STREAM.CREATE.KV_b", {"name": "KV_b", "subjects": ["$KV.b.>"]})
        assert created[0].json["did_create"] and "domain" not in created[0].json
        ack = (await place.caller.ask("$JS.hub.API.$KV.b.key", b"value"))[0].json
        assert ack == {"stream": "KV_b", "domain": "hub", "seq": 1}
        assert (await place.caller.api("STREAM.INFO.KV_b"))["domain"] == "hub"
        assert (await place.caller.api("INFO"))["domain"] == "hub"

    run(test, domain="hub")


def test_without_strict_unknown_fields_are_ignored(run: Run) -> None:
    async def test(place: Place) -> None:
        assert (await place.caller.api("STREAM.CREATE.S", {"name": "S", "foo": 1}))["did_create"]

    run(test, strict=False)


def test_advisories_tell_of_streams_and_requests(run: Run) -> None:
    async def test(place: Place) -> None:
        caller = place.caller
        await caller.api("STREAM.CREATE.S", {"name": "S"})
        caller.listen("$JS.EVENT.ADVISORY.>")
        await caller.api("STREAM.CREATE.T", {"name": "T"})
        await caller.api("STREAM.UPDATE.T", {"name": "T"})
        await caller.api("STREAM.MSG.GET.S", {"seq": 1})
        await caller.api("STREAM.DELETE.T")
        told = [(subject.decode(), json.loads(payload)) for subject, payload in caller.received]
        actions = [(subject, one["action"]) for subject, one in told if one["type"].endswith("stream_action")]
        assert actions == [
            ("$JS.EVENT.ADVISORY.STREAM.CREATED.T", "create"),
            ("$JS.EVENT.ADVISORY.STREAM.UPDATED.T", "modify"),
            ("$JS.EVENT.ADVISORY.STREAM.DELETED.T", "delete"),
        ]
        audits = [one for subject, one in told if subject == "$JS.EVENT.ADVISORY.API"]
        assert [one["subject"].rpartition("API.")[2] for one in audits] == [
            "STREAM.CREATE.T",
            "STREAM.UPDATE.T",
            "STREAM.MSG.GET.S",  # it failed: a good one is not told of
            "STREAM.DELETE.T",
        ]
        assert json.loads(audits[2]["response"])["error"]["err_code"] == 10037
        assert audits[0]["request"] == '{"name": "T"}' and "request" not in audits[3]

    run(test)


class Sayings:
    """Advisories that are only counted."""

    def __init__(self) -> None:
        self.dropped: list[int] = []

    def audit(self, request: object, response: bytes) -> None: ...

    def limit_reached(self, system: object, dropped: int) -> None:
        self.dropped.append(dropped)


def test_a_full_queue_is_dropped_and_told_of(run: Run) -> None:
    """Requests that wait behind a slow one are bounded; the slow one is answered all the same."""

    async def test(place: Place) -> None:
        go = asyncio.Event()

        async def slow(call: Call) -> dict[str, Any]:
            await go.wait()
            return {"done": True}

        told = Sayings()
        api = Api([Endpoint("SLOW", 0, "slow", slow)], place.jetstream.loop, told, queue_max=10)  # type: ignore[arg-type]
        place.caller.account.serve("$JS.API.SLOW", api.handle)
        asked = [asyncio.ensure_future(place.caller.api("SLOW")) for _ in range(12)]
        await asyncio.sleep(0)
        assert told.dropped == [10] and (api.queued, api.inflight) == (1, 2)
        go.set()
        assert (await asked[0])["done"] and (await asked[-1])["done"]
        for one in asked[1:-1]:
            one.cancel()
        await api.close()
        assert (api.queued, api.inflight) == (0, 0)

    run(test)


def test_a_mistake_of_ours_is_logged_and_answered(run: Run, caplog: Any) -> None:
    async def test(place: Place) -> None:
        def broken(call: Call) -> dict[str, Any]:
            raise KeyError("a bug")

        async def broken_later(call: Call) -> dict[str, Any]:
            raise KeyError("a bug")

        endpoints = [Endpoint("NOW", 0, "now", broken), Endpoint("LATER", 0, "later", broken_later)]
        api = Api(endpoints, place.jetstream.loop, Sayings())  # type: ignore[arg-type]
        for name in ("NOW", "LATER"):
            place.caller.account.serve(f"$JS.API.{name}", api.handle)
            assert (await place.caller.api(name))["error"]["code"] == 500
        assert "a request on $JS.API.NOW failed" in caplog.text
        await api.close()

    run(test)
