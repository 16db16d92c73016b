"""wire/connect: what is read from CONNECT, what ends the connection. Each text was asked of nats-server 2.15.1."""

import pytest

from penstock.wire.connect import DEFAULTS, BadConnect, Connect, decode_connect


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\r",
        b"{",
        b"{}{}",
        b"[]",
        b'"x"',
        b"5",
        b'{"verbose":"false"}',
        b'{"verbose":0}',
        b'{"verbose":false,}',
        b"{'verbose':false}",
        b'{"protocol":1.0}',
        b'{"protocol":1e0}',
        b'{"protocol":99999999999999999999}',
        b'{"name":5}',
        b'{"name":"a\tb"}',
        b'{"zz":[1,{"a":NaN}]}',
        b'{"import":5}',
        b'{"import":{"allow":5}}',
        b'{"remote_account":5}',
        b'{"proxy_sig":5}',
        b"\xef\xbb\xbf{}",
    ],
)
def test_a_text_that_the_reference_closes_on_is_refused(text: bytes) -> None:
    with pytest.raises(BadConnect, match="CONNECT cannot be read"):
        decode_connect(text)


@pytest.mark.parametrize(
    "text, said",
    [
        (b"{}", {}),
        (b"null", {}),
        (b" \n{ } ", {}),
        (b'{"verbose":null,"protocol":null}', {}),
        (b'{"VERBOSE":false}', {"verbose": False}),
        (b'{"\\u0076erbose":false}', {"verbose": False}),
        (b'{"verbose":false,"verbose":true}', {}),
        (b'{"zz":[1,{"a":null}],"echo":false}', {"echo": False}),
        (b'{"import":{"allow":["a"]},"export":null}', {}),
        (b'{"name":"\xff\\ud800"}', {"name": "\ufffd\ufffd"}),
        (b'{"user":"a","pass":"b","auth_token":"t"}', {"user": "a", "password": "b", "auth_token": "t"}),
        (b'{"nkey":"U","sig":"s","jwt":"j"}', {"nkey": "U", "sig": "s", "jwt": "j"}),
        (
            b'{"headers":true,"no_responders":true,"protocol":1}',
            {"headers": True, "no_responders": True, "protocol": 1},
        ),
    ],
)
def test_what_the_reference_takes_is_read(text: bytes, said: dict[str, object]) -> None:
    assert decode_connect(text) == Connect(**said)  # type: ignore[arg-type]


def test_a_second_connect_changes_only_what_it_names() -> None:
    first = decode_connect(b'{"verbose":false,"headers":true,"name":"a"}')
    assert decode_connect(b'{"name":"b"}', first) == Connect(verbose=False, headers=True, name="b")


def test_protocols_beyond_1_and_no_responders_without_headers_are_faults() -> None:
    assert DEFAULTS.fault is None
    assert decode_connect(b'{"protocol":2}').fault == "invalid client protocol"
    assert decode_connect(b'{"protocol":-1}').fault == "invalid client protocol"
    assert decode_connect(b'{"no_responders":true}').fault == "no responders requires headers support"
    assert decode_connect(b'{"no_responders":true,"headers":true}').fault is None


def test_a_client_that_names_an_account_is_known() -> None:
    assert decode_connect(b'{"account":"x"}').names_account
    assert decode_connect(b'{"new_account":true}').names_account
    assert not decode_connect(b'{"account":""}').names_account
