"""`penstock.Server`: a server in a Python process, and the pytest fixtures made of it."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import nats
import pytest

import penstock
from penstock.errors import PenstockError

pytestmark = pytest.mark.nats_py


async def connect(url: str, **options: object) -> nats.NATS:
    return await nats.connect(url, allow_reconnect=False, connect_timeout=5, **options)


async def publish(url: str, count: int, **options: object) -> list[int]:
    nc = await connect(url, **options)
    js = nc.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    seqs = [(await js.publish("orders.new", b"%d" % n)).seq for n in range(count)]
    await nc.close()
    return seqs


def test_a_server_in_its_own_thread_is_ready_when_entered_and_leaves_nothing_behind() -> None:
    with penstock.Server() as server:
        store_dir = server.store_dir
        assert asyncio.run(publish(server.url, 3)) == [1, 2, 3]
        assert os.path.isdir(store_dir)
    assert not os.path.exists(store_dir)


def test_a_server_on_the_callers_loop_serves_it() -> None:
    async def main() -> list[int]:
        async with penstock.Server() as server:
            return await publish(server.url, 2)

    assert asyncio.run(main()) == [1, 2]


def test_a_lame_duck_that_has_stopped_by_itself_is_left_without_a_trace(tmp_path: Path) -> None:
    with penstock.Server(store_dir=tmp_path / "data", lame_duck_grace_period=0.0, lame_duck_duration=0.0) as server:
        asyncio.run(publish(server.url, 2))
        inner = server.server
        inner.loop.call_soon_threadsafe(inner.lame_duck)
        asyncio.run_coroutine_threadsafe(inner.wait(), inner.loop).result(20)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", server.port), timeout=5)
    with penstock.open(tmp_path / "data") as db:
        assert db.stream("ORDERS").state().messages == 2


def test_what_was_published_is_in_the_store_for_the_library(tmp_path: Path) -> None:
    with penstock.Server(store_dir=tmp_path / "data") as server:
        asyncio.run(publish(server.url, 5))
    with penstock.open(tmp_path / "data") as db:
        assert [message.data for message in db.stream("ORDERS").read()] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_database_of_the_same_process_is_served_and_stays_open(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db:
        orders = db.stream("ORDERS", subjects=["orders.>"])
        orders.publish("orders.old", b"from the library")
        with penstock.Server(database=db) as server:

            async def main() -> None:
                nc = await connect(server.url)
                js = nc.jetstream()
                assert (await js.get_last_msg("ORDERS", "orders.old")).data == b"from the library"
                await js.publish("orders.new", b"from a client")
                orders.publish("orders.new", b"from the library again")
                assert (await js.stream_info("ORDERS")).state.messages == 3
                await nc.close()

            asyncio.run(main())
        assert [message.data for message in orders.read()][1:] == [b"from a client", b"from the library again"]


def test_streams_made_by_the_library_while_it_is_served_take_messages_of_clients(tmp_path: Path) -> None:
    with penstock.open(tmp_path / "data") as db, penstock.Server(database=db) as server:
        events = db.stream("EVENTS", subjects=["events.>"])

        async def main() -> int:
            nc = await connect(server.url)
            ack = await nc.jetstream().publish("events.a", b"x")
            await nc.close()
            return ack.seq

        assert asyncio.run(main()) == 1
        assert events.get(1).data == b"x"


def test_options_are_those_of_the_server() -> None:
    with penstock.Server(username="ann", password="secret") as server:
        with pytest.raises(nats.errors.Error):
            asyncio.run(publish(server.url, 1))
        assert asyncio.run(publish(server.url, 1, user="ann", password="secret")) == [1]


def test_a_mistaken_option_is_named() -> None:
    with pytest.raises(TypeError, match="passwort"):
        penstock.Server(passwort="x")


def test_a_port_in_use_is_an_error_that_names_it() -> None:
    with (
        penstock.Server() as first,
        pytest.raises(PenstockError, match=str(first.port)),
        penstock.Server(port=first.port),
    ):
        pass


def test_two_servers_on_one_store_are_refused_and_the_holder_named(tmp_path: Path) -> None:
    with (
        penstock.Server(store_dir=tmp_path / "data"),
        pytest.raises(penstock.StoreLocked, match="in this process already"),
        penstock.Server(store_dir=tmp_path / "data"),
    ):
        pass


def test_the_fixture_gives_a_fresh_server(penstock_server: penstock.Server, nats_url: str) -> None:
    assert nats_url == penstock_server.url
    assert asyncio.run(publish(nats_url, 1)) == [1]


@pytest.mark.penstock(username="ann", password="secret")
def test_the_fixture_takes_options_from_a_marker(nats_url: str) -> None:
    assert asyncio.run(publish(nats_url, 1, user="ann", password="secret")) == [1]


def test_a_file_that_names_no_port_gets_any_and_what_the_call_says_goes_before_it(tmp_path: Path) -> None:
    """It was 0.0.0.0:4222, whatever the call said: two such tests at once collided."""
    config = tmp_path / "server.conf"
    config.write_text("max_payload: 2048\n")
    with penstock.Server(config=config) as first, penstock.Server(config=config, host="::1", port=-1) as second:
        assert first.options.host == "127.0.0.1" and first.port not in (4222, second.port)
        assert second.url == f"nats://[::1]:{second.port}" and second.options.max_payload == 2048
        taken = first.port
    config.write_text(f'listen: "127.0.0.1:{taken}"\n')
    with penstock.Server(config=config) as named, penstock.Server(config=config, port=-1) as other:
        assert named.port == taken != other.port


@pytest.mark.parametrize(("name", "value"), [("max_payload", "x"), ("no_auth_user", 3), ("server_name", None)])
def test_an_option_of_another_type_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(TypeError, match=f"option '{name}' takes"):
        penstock.Server(**{name: value})  # type: ignore[arg-type]
