"""What a reload changes, and what it must not."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from penstock.server import reload
from penstock.server.options import AccountOptions, JetStreamOptions, Options, TlsOptions, User, WebsocketOptions
from penstock.server.reload import ReloadError, compare_options

ELSEWHERE = {"allow_non_tls", "no_auth_user", "tls", "websocket", "jetstream"}  # they have rules of their own
NOT_COMPARED = {"config_file", "config_digest", "warnings", "no_log"}


def test_every_option_has_its_rule() -> None:
    known = set(reload._CHANGING) | set(reload._FIXED) | ELSEWHERE | NOT_COMPARED
    assert {field.name for field in fields(Options)} == known
    known = set(reload._FIXED_JETSTREAM) | {"enabled", "store_dir", "max_memory", "max_storage"}
    assert {field.name for field in fields(JetStreamOptions)} == known


def test_nothing_changed_is_no_change() -> None:
    assert compare_options(Options(), Options()) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"debug": True}, "Reloaded: debug = true"),
        ({"max_payload": 5}, "Reloaded: max_payload = 5"),
        ({"ping_interval": 90.0}, "Reloaded: ping_interval = 1m30s"),
        ({"users": [User("a")]}, "Reloaded: authorization users"),
        ({"accounts": {"A": AccountOptions("A")}}, "Reloaded: accounts"),
        ({"no_fast_producer_stall": True}, "Reloaded: fast producers will not be stalled"),
        ({"tls": TlsOptions()}, "Reloaded: tls = enabled"),
        ({"jetstream": JetStreamOptions(enabled=True)}, "Reloaded: JetStream"),
    ],
)
def test_what_may_change_is_told_in_the_reference_s_words(change: dict[str, Any], text: str) -> None:
    (found,) = compare_options(Options(), replace(Options(), **change))
    assert found.text == text
    assert found.name.split(".")[0] in change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"port": 5222}, "config reload not supported for Port: old=4222, new=5222"),
        ({"server_name": "x"}, "config reload not supported for ServerName: old=, new=x"),
        ({"no_header_support": True}, "config reload not supported for NoHeaderSupport: old=false, new=true"),
        ({"no_auth_user": "x"}, "config reload not supported for NoAuthUser: old=, new=x"),
        ({"websocket": WebsocketOptions(port=80)}, "config reload not supported for Websocket"),
    ],
)
def test_what_may_not_change_stops_the_reload(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ReloadError, match=text):
        compare_options(Options(), replace(Options(), **change))


def test_a_port_that_may_be_any_stays_as_it_is() -> None:
    assert compare_options(Options(port=4999), Options(port=-1)) == []


def test_jetstream_s_bounds_may_grow_only() -> None:
    def server(**options: Any) -> Options:
        return Options(jetstream=JetStreamOptions(enabled=True, **options))

    (change,) = compare_options(server(max_storage=1024**3), server(max_storage=2 * 1024**3))
    assert (change.name, change.text) == (
        "jetstream.max_storage",
        "Reloaded: JetStream max_file_store = 2.00 GB",
    )
    for old, new, text in (
        ({"max_memory": 2}, {"max_memory": 1}, "decreasing jetstream max memory and store"),
        ({}, {"max_memory": 1}, "jetstream dynamic max memory and store"),
        ({"max_memory": 1}, {}, "jetstream max memory and max store"),
        ({"store_dir": "a"}, {"store_dir": "b"}, "jetstream storage directory"),
        ({"durability": "disk"}, {"durability": "os"}, "Durability: old=disk, new=os"),
    ):
        with pytest.raises(ReloadError, match=f"config reload not supported for {text}"):
            compare_options(server(**old), server(**new))


def test_a_user_who_needed_no_password_may_go_with_its_name() -> None:
    old = Options(no_auth_user="a", users=[User("a"), User("b")])
    (change,) = compare_options(old, Options(users=[User("b")]))
    assert change.name == "users"
    with pytest.raises(ReloadError, match="NoAuthUser"):
        compare_options(old, Options(users=[User("a"), User("b")]))
