"""Every origin of a message against every kind of listener: docs/publishes.md, "Who hears what".

A listener that is not reached does nothing, and is not counted: it is as if nobody listened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from penstock.broker.routing.origin import REACHES, Listener, Origin
from penstock.testing.inside_client import subscribe
from support.jetstream import Place

Run = Callable[..., None]
Look = Callable[[], Awaitable[Any]]


class Ear(NamedTuple):
    """One listener: what to publish to it, and how to see whether it took it."""

    subject: bytes
    payload: bytes
    reply: bytes | None
    has_heard: Look


async def client(place: Place) -> Ear:
    received: list[object] = []
    subscribe(place.caller.account, "heard", received.append)

    async def look() -> bool:
        return bool(received)

    return Ear(b"heard", b"", None, look)


async def stream(place: Place) -> Ear:
    await place.caller.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t"]})

    async def look() -> bool:
        return bool((await place.caller.api("STREAM.INFO.T"))["state"]["messages"])

    return Ear(b"t", b"", None, look)


async def service(place: Place) -> Ear:
    await filled(place)

    async def look() -> bool:
        return not (await place.caller.api("STREAM.INFO.S"))["state"]["messages"]

    return Ear(b"$JS.API.STREAM.PURGE.S", b"", None, look)


async def ack(place: Place) -> Ear:
    await filled(place)
    await make(place, "C", ack_policy="explicit")
    acks: list[bytes | None] = []
    subscribe(place.caller.account, "mine", lambda received: acks.append(received.reply))
    place.caller.account.publish(Origin.CLIENT, b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"1", None, b"mine")
    place.turn_end()
    assert acks and acks[0] is not None

    async def look() -> bool:
        return not (await place.caller.api("CONSUMER.INFO.S.C"))["num_ack_pending"]

    return Ear(acks[0], b"+ACK", None, look)


async def pull(place: Place) -> Ear:
    await filled(place)
    await make(place, "C", ack_policy="explicit")
    subscribe(place.caller.account, "mine", lambda received: None)

    async def look() -> bool:
        return bool((await place.caller.api("CONSUMER.INFO.S.C"))["delivered"]["consumer_seq"])

    return Ear(b"$JS.API.CONSUMER.MSG.NEXT.S.C", b"1", b"mine", look)


async def flow(place: Place) -> Ear:
    await filled(place)
    subscribe(place.caller.account, "out", lambda received: None)
    await make(place, "F", deliver_subject="out", flow_control=True, idle_heartbeat=10**11, ack_policy="none")
    sender = place.jetstream.accounts["$G"].streams["S"].deliveries["F"].session.push_sender
    assert sender is not None
    sender.request_flow_control()

    async def look() -> bool:
        return not sender.flow_subject

    return Ear(sender.flow_subject, b"", None, look)


async def filled(place: Place) -> None:
    await place.caller.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
    await place.caller.publish("s", b"precious")


async def make(place: Place, name: str, **config: Any) -> None:
    found = await place.caller.api(
        f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": {"durable_name": name, **config}}
    )
    assert "error" not in found, found


EARS = {
    Listener.CLIENT: client,
    Listener.STREAM: stream,
    Listener.SERVICE: service,
    Listener.ACK: ack,
    Listener.PULL: pull,
    Listener.FLOW: flow,
}


@pytest.mark.parametrize("listener", Listener, ids=lambda one: one.name)
@pytest.mark.parametrize("origin", Origin, ids=lambda one: one.name)
def test_a_message_does_what_its_origin_lets_it_do(run: Run, origin: Origin, listener: Listener) -> None:
    async def test(place: Place) -> None:
        ear = await EARS[listener](place)
        is_reached = listener in REACHES[origin]
        count = place.caller.account.publish(origin, ear.subject, ear.payload, None, ear.reply)
        place.turn_end()
        assert count == is_reached
        assert bool(await ear.has_heard()) == is_reached

    run(test)


def test_only_a_client_gives_commands() -> None:
    """The table itself: whoever adds a row has to say so here."""
    assert REACHES[Origin.CLIENT] == set(Listener)
    for origin in set(Origin) - {Origin.CLIENT}:
        assert REACHES[origin] == {Listener.CLIENT, Listener.STREAM}


def test_a_message_of_no_known_origin_is_refused(run: Run) -> None:
    async def test(place: Place) -> None:
        for origin in (-1, len(Origin)):
            with pytest.raises(ValueError, match="origin"):
                place.caller.account.publish(origin, b"a")  # type: ignore[arg-type]

    run(test)


def test_a_pull_request_whose_reply_is_heard_by_a_service_alone_is_dropped(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        await make(place, "C", ack_policy="explicit")
        account = place.caller.account
        reply = b"$JS.API.STREAM.PURGE.S"
        account.publish(
            Origin.CLIENT, b"$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":1,"expires":10000000000}', None, reply
        )
        place.turn_end()
        found = await place.caller.api("CONSUMER.INFO.S.C")
        assert (found["num_waiting"], found["delivered"]["consumer_seq"]) == (0, 0)

    run(test)


def test_a_push_consumer_to_a_services_subject_waits_for_a_client(run: Run) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        place.caller.account.serve("served", lambda request: pytest.fail("a delivery came to a service"))
        await make(place, "P", ack_policy="none", deliver_subject="served")
        place.turn_end()
        assert "push_bound" not in await place.caller.api("CONSUMER.INFO.S.P")
        received: list[bytes] = []
        subscribe(place.caller.account, "served", lambda one: received.append(one.payload))
        place.turn_end()
        assert received == [b"precious"]
        assert (await place.caller.api("CONSUMER.INFO.S.P"))["push_bound"]

    run(test)


@pytest.mark.parametrize("subject", ["$JS.hub.API.CONSUMER.MSG.NEXT.S.C", "$JS.hub.API.STREAM.PURGE.S"])
def test_what_a_client_asks_under_the_domains_name_is_its_own_request(run: Run, subject: str) -> None:
    async def test(place: Place) -> None:
        await filled(place)
        await make(place, "C", ack_policy="explicit")
        (reply,) = await place.caller.ask(subject, b"")
        assert reply.payload == b"precious" or reply.json["purged"] == 1

    run(test, domain="hub")


@pytest.mark.parametrize("text", [b"a b", b"a\tb", b"a\nb", b"a\r\nPING\r\n", b" "])
def test_no_subject_of_ours_ends_the_line_that_it_stands_in(run: Run, text: bytes) -> None:
    async def test(place: Place) -> None:
        received: list[object] = []
        subscribe(place.caller.account, ">", received.append)
        with pytest.raises(ValueError, match="would end its line"):
            place.caller.account.publish(Origin.EVENT, text)
        with pytest.raises(ValueError, match="would end its line"):
            place.caller.account.publish(Origin.EVENT, b"a", b"", None, text)
        place.turn_end()
        assert not received

    run(test)
