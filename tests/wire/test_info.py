"""wire/info: the line a server opens with, field by field as nats-server 2.15.1 prints it."""

import json

import pytest

from penstock.wire.info import is_info, make_info

INFO = make_info(server_id="NABC", server_name="srv", host="127.0.0.1", port=4222, max_payload=1048576)

# Taken from nats-server 2.15.1 with JetStream, a domain and an nkey user, and after a client's first PING.
RECORDED = (
    b'INFO {"server_id":"N","server_name":"srv","version":"2.15.1","proto":1,"git_commit":"b2fd3ef","go":"go1.27.2",'
    b'"host":"h","port":42,"headers":true,"auth_required":true,"max_payload":1048576,"jetstream":true,"client_id":6,'
    b'"client_ip":"127.0.0.1","nonce":"BlCiL-r9KOxamXo","cluster":"cc","domain":"hub","connect_info":true,'
    b'"remote_account":"$G","api_lvl":5,"xkey":"X"} \r\n'
)


def test_what_is_empty_is_left_out_and_our_name_stands_at_the_end() -> None:
    fields = json.loads(INFO.line().removeprefix(b"INFO ").removesuffix(b" \r\n"))
    assert list(fields) == [
        *("server_id", "server_name", "version", "proto", "go", "host", "port", "headers", "max_payload"),
        *("api_lvl", "product"),
    ]
    assert fields["version"] == "2.15.1"
    assert fields["product"] == "penstock"


def test_the_fields_stand_in_the_reference_s_order() -> None:
    ours = INFO.but(
        server_id="N",
        git_commit="b2fd3ef",
        go="go1.27.2",
        host="h",
        port=42,
        auth_required=True,
        jetstream=True,
        client_id=6,
        client_ip="127.0.0.1",
        nonce="BlCiL-r9KOxamXo",
        cluster="cc",
        domain="hub",
        connect_info=True,
        remote_account="$G",
        xkey="X",
    )
    assert ours.line().replace(b',"product":"penstock"', b"") == RECORDED


def test_the_other_fields_stand_between_their_neighbours() -> None:
    line = INFO.but(
        tls_required=True,
        tls_verify=True,
        tls_available=True,
        connect_urls=("a:1", "b:2"),
        ws_connect_urls=("c:3",),
        ldm=True,
        acc_is_sys=True,
    ).line()
    assert b'"headers":true,"tls_required":true,"tls_verify":true,"tls_available":true,"max_payload"' in line
    assert b'"connect_urls":["a:1","b:2"],"ws_connect_urls":["c:3"],"ldm":true,"acc_is_sys":true,"api_lvl"' in line


@pytest.mark.parametrize("text", [b"{}", b"null", RECORDED[5:], b'{"import":{"deny":[]},"gossip_mode":255,"zz":1}'])
def test_a_client_may_say_info(text: bytes) -> None:
    assert is_info(text)


@pytest.mark.parametrize(
    "text", [b"", b"\r", b"{", b"[]", b"{}x", b'{"port":"x"}', b'{"gossip_mode":256}', b'{"gossip_mode":"1"}']
)
def test_an_info_that_the_reference_closes_on_is_known(text: bytes) -> None:
    assert not is_info(text)
