"""Who is let in, mode by mode. Each expectation is put to the real server first, and then to ours."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import nkeys
import pytest

from penstock.server.auth.auth import Authenticator, Claim, Credentials, Identity, compile_permissions
from penstock.server.auth.passwords import check_bcrypt, check_plain, is_bcrypt
from penstock.server.options import (
    AccountOptions,
    Options,
    Permissions,
    ResponsePermission,
    SubjectPermission,
    User,
    WebsocketOptions,
)
from penstock.wire.connect import Connect, decode_connect
from support.servers import Kind, ServerProcess
from support.wire_client import Closed, WireClient

# bcrypt, cost 4, of "secret".
HASH = "$2a$04$WCNjH6dodUGhfJNTTyo6UuWB6sPY7QbRX3Fn.b2sQ9wKo2ddo6yuW"

FIRST = nkeys.from_seed(nkeys.encode_seed(bytes(range(32)), nkeys.PREFIX_BYTE_USER))
SECOND = nkeys.from_seed(nkeys.encode_seed(bytes(range(1, 33)), nkeys.PREFIX_BYTE_USER))
KEY, OTHER_KEY = FIRST.public_key.decode(), SECOND.public_key.decode()

Given = dict[str, Any] | Callable[[bytes], dict[str, Any]]


def signed(pair: nkeys.KeyPair, public: str, encode: Callable[[bytes], bytes]) -> Callable[[bytes], dict[str, Any]]:
    return lambda nonce: {"nkey": public, "sig": encode(pair.sign(nonce)).decode()}


def url(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


@dataclass(frozen=True)
class Mode:
    """A configuration, the options it stands for, whether INFO asks who one is, and who ends up in which account."""

    name: str
    config: str
    options: Options
    tells_required: bool
    cases: list[tuple[Given, str | None]]


IN = "$G"
USERS = [User("a", "b"), User("n")]
USERS_TEXT = "{user: a, password: b}, {user: n}"
NKEYS = [User(nkey=KEY), User(nkey=OTHER_KEY), User("a", "b")]
NKEYS_TEXT = f"{{nkey: {KEY}}}, {{nkey: {OTHER_KEY}}}, {{user: a, password: b}}"
SIGNATURES: list[tuple[Given, str | None]] = [
    (signed(FIRST, KEY, url), IN),
    (signed(FIRST, KEY, base64.b64encode), IN),
    (signed(FIRST, KEY, lambda raw: url(raw) + b"="), None),
    (signed(FIRST, KEY, lambda raw: base64.b64encode(raw).rstrip(b"=") + b"/"), None),
    (signed(SECOND, KEY, url), None),
    ({"nkey": KEY}, None),
    ({"nkey": KEY, "sig": "!!"}, None),
    ({"nkey": KEY, "sig": "AAAA"}, None),
    ({"nkey": "UABC", "sig": "AAAA"}, None),
    ({"user": "a", "pass": "b"}, IN),
    ({"user": "a", "pass": "b", "nkey": "x"}, None),
    ({"user": "a", "pass": "b", "nkey": KEY}, None),
]

MODES = [
    Mode(
        "nobody is asked",
        "",
        Options(),
        False,
        [
            ({}, IN),
            ({"user": "x", "pass": "y"}, IN),
            ({"auth_token": "x"}, IN),
            ({"account": "A"}, None),
            ({"new_account": True}, None),
        ],
    ),
    Mode(
        "one user",
        "authorization { user: a, password: b }",
        Options(username="a", password="b"),
        True,
        [
            ({}, None),
            ({"user": "a", "pass": "b"}, IN),
            ({"user": "a", "pass": "bb"}, None),
            ({"user": "z", "pass": "b"}, None),
            ({"user": "a"}, None),
            ({"auth_token": "b"}, None),
            ({"user": "a", "pass": "b", "account": "x"}, None),
        ],
    ),
    Mode(
        "a token",
        "authorization { token: tok }",
        Options(authorization="tok"),
        True,
        [
            ({}, None),
            ({"auth_token": "tok"}, IN),
            ({"auth_token": "to"}, None),
            ({"user": "tok"}, None),
            ({"user": "u", "pass": "tok"}, None),
            ({"user": "u", "auth_token": "tok"}, IN),
        ],
    ),
    Mode(
        "a token as a bcrypt hash",
        f'authorization {{ token: "{HASH}" }}',
        Options(authorization=HASH),
        True,
        [({"auth_token": "secret"}, IN), ({"auth_token": HASH}, None), ({}, None)],
    ),
    Mode(
        "users",
        f"authorization {{ users: [{USERS_TEXT}] }}",
        Options(users=USERS),
        True,
        [
            ({}, None),
            ({"user": "a", "pass": "b"}, IN),
            ({"user": "n"}, IN),
            ({"user": "n", "pass": "x"}, None),
            ({"user": "a"}, None),
            ({"user": "nobody", "pass": "b"}, None),
            ({"auth_token": "b"}, None),
        ],
    ),
    Mode(
        "users with bcrypt passwords",
        f'authorization {{ users: [{{user: a, password: "{HASH}"}}, {{user: n, password: "$2a$04$nonsense"}}] }}',
        Options(users=[User("a", HASH), User("n", "$2a$04$nonsense")]),
        True,
        [
            ({"user": "a", "pass": "secret"}, IN),
            ({"user": "a", "pass": "Secret"}, None),
            ({"user": "a", "pass": HASH}, None),
            ({"user": "a", "pass": "s" * 100}, None),
            ({"user": "n", "pass": "$2a$04$nonsense"}, None),
            ({}, None),
        ],
    ),
    Mode(
        "no_auth_user",
        f"authorization {{ users: [{USERS_TEXT}] }}\nno_auth_user: n",
        Options(users=USERS, no_auth_user="n"),
        False,
        [
            ({}, IN),
            ({"user": "a", "pass": "b"}, IN),
            ({"user": "n"}, IN),
            ({"user": "n", "pass": "x"}, None),
            ({"pass": "x"}, None),
            ({"auth_token": "x"}, None),
            ({"user": "a"}, None),
            ({"nkey": "UABC"}, IN),
        ],
    ),
    Mode(
        "no_auth_user with a password",
        "authorization { users: [{user: a, password: b}, {user: n, password: np}] }\nno_auth_user: n",
        Options(users=[User("a", "b"), User("n", "np")], no_auth_user="n"),
        False,
        [({}, IN), ({"user": "n"}, None), ({"user": "n", "pass": "np"}, IN)],
    ),
    Mode(
        "no_auth_user with a bcrypt password is nobody, in the reference as well",
        f'authorization {{ users: [{{user: n, password: "{HASH}"}}] }}\nno_auth_user: n',
        Options(users=[User("n", HASH)], no_auth_user="n"),
        False,
        [({}, None), ({"user": "n", "pass": "secret"}, IN)],
    ),
    Mode(
        "nkeys",
        f"authorization {{ users: [{NKEYS_TEXT}] }}",
        Options(users=NKEYS),
        True,
        [*SIGNATURES, ({}, None), ({"nkey": OTHER_KEY}, None)],
    ),
    Mode(
        "nkeys with one that needs no signature",
        f"authorization {{ users: [{NKEYS_TEXT}] }}\nno_auth_user: {OTHER_KEY}",
        Options(users=NKEYS, no_auth_user=OTHER_KEY),
        False,
        [*SIGNATURES, ({}, IN), ({"nkey": OTHER_KEY}, IN)],
    ),
    Mode(
        "accounts",
        "authorization { users: [{user: g, password: x}] }\n"
        "accounts { A: {users: [{user: a, password: x}]}, B: {users: [{user: b, password: x}]} }",
        Options(
            users=[User("g", "x")],
            accounts={
                "A": AccountOptions("A", users=[User("a", "x")]),
                "B": AccountOptions("B", users=[User("b", "x")]),
            },
        ),
        True,
        [
            ({}, None),
            ({"user": "a", "pass": "x"}, "A"),
            ({"user": "b", "pass": "x"}, "B"),
            ({"user": "g", "pass": "x"}, IN),
        ],
    ),
    Mode(
        "accounts without users",
        "accounts { A: {}, B: {} }",
        Options(accounts={"A": AccountOptions("A"), "B": AccountOptions("B")}),
        False,
        [({}, IN), ({"user": "a", "pass": "x"}, IN)],
    ),
    Mode(
        "users of the system account alone",
        "accounts { $SYS: {users: [{user: admin, password: x}]} }",
        Options(accounts={"$SYS": AccountOptions("$SYS", users=[User("admin", "x")])}),
        True,
        [
            ({}, IN),
            ({"user": "admin", "pass": "x"}, "$SYS"),
            ({"user": "admin", "pass": "y"}, None),
            ({"user": "nobody"}, None),
        ],
    ),
    Mode(
        "users of a system account beside another account",
        "accounts { SYS: {users: [{user: admin, password: x}]}, A: {} }\nsystem_account: SYS",
        Options(
            accounts={"SYS": AccountOptions("SYS", users=[User("admin", "x")]), "A": AccountOptions("A")},
            system_account="SYS",
        ),
        True,
        [({}, None), ({"user": "admin", "pass": "x"}, "SYS")],
    ),
    Mode(
        "connection types",
        "authorization { users: [{user: w, password: x, allowed_connection_types: [WEBSOCKET]}, "
        "{user: s, password: x, allowed_connection_types: [STANDARD, MQTT]}] }",
        Options(
            users=[
                User("w", "x", connection_types=frozenset({"WEBSOCKET"})),
                User("s", "x", connection_types=frozenset({"STANDARD", "MQTT"})),
            ]
        ),
        True,
        [({"user": "w", "pass": "x"}, None), ({"user": "s", "pass": "x"}, IN)],
    ),
]


def by_name(mode: Mode) -> str:
    return mode.name.replace(" ", "-")


def credentials(given: Given, nonce: bytes) -> dict[str, Any]:
    return given(nonce) if callable(given) else given


def accounts_told(server: ServerProcess, mode: Mode) -> list[str | None]:
    """Into which account the server lets each case; None: not at all."""
    found: list[str | None] = []
    for given, _ in mode.cases:
        wire = WireClient(server.port)
        info = json.loads(wire.receive().text)
        assert info.get("auth_required", False) == mode.tells_required
        nonce = info.get("nonce", "").encode()
        assert len(nonce) == (15 if any(user.nkey for user in mode.options.users) else 0)
        connect = {"verbose": False, "protocol": 1, **credentials(given, nonce)}
        wire.send(f"CONNECT {json.dumps(connect)}\r\nPING\r\n".encode())
        frame = wire.receive()
        if frame.verb == "PONG":
            found.append(json.loads(wire.receive().text)["remote_account"])
        else:
            assert (frame.verb, frame.text) == ("-ERR", b"'Authorization Violation'")
            with pytest.raises(Closed):
                wire.receive()
            found.append(None)
        wire.close()
    return found


@pytest.mark.parametrize("kind", ["real", "ours"])
@pytest.mark.parametrize("mode", MODES, ids=by_name)
def test_the_real_server_and_ours_let_in_who_is_expected(mode: Mode, kind: Kind) -> None:
    with ServerProcess(kind, "host: 127.0.0.1\nport: -1\n" + mode.config) as server:
        assert accounts_told(server, mode) == [account for _, account in mode.cases]


@pytest.mark.parametrize("mode", MODES, ids=by_name)
def test_the_authenticator_lets_in_who_is_expected(mode: Mode) -> None:
    async def run() -> list[str | None]:
        authenticator = Authenticator(mode.options)
        assert authenticator.tells_required() == mode.tells_required
        nonce = b"0123456789abcde"
        found = []
        for given, _ in mode.cases:
            connect = decode_connect(json.dumps(credentials(given, nonce)).encode())
            identity = await authenticator.authenticate(connect, nonce)
            found.append(identity.account if identity else None)
        authenticator.close()
        return found

    assert asyncio.run(run()) == [account for _, account in mode.cases]


def test_a_bcrypt_password_is_left_to_a_thread_and_a_wrong_user_is_not() -> None:
    authenticator = Authenticator(Options(users=[User("a", HASH)]))
    assert isinstance(authenticator.judge(Credentials("a", "wrong")), Claim)
    assert "wrong" not in repr(authenticator.judge(Credentials("a", "wrong")))
    assert authenticator.judge(Credentials("z", "wrong")) is None


def test_whoever_goes_away_takes_their_password_from_the_queue() -> None:
    slow = "$2b$12$" + HASH[7:]

    async def run() -> int:
        authenticator = Authenticator(Options(users=[User("a", slow), User("b", HASH)]))
        crowd = [
            asyncio.ensure_future(authenticator.authenticate(Connect(user="a", password="wrong"))) for _ in range(500)
        ]
        await asyncio.sleep(0)
        for task in crowd:
            task.cancel()
        # Two are being hashed, 498 are not any more: this one is next, not in a minute.
        identity = await asyncio.wait_for(authenticator.authenticate(Connect(user="b", password="secret")), 20)
        assert identity is not None
        authenticator.close()
        return sum(task.cancelled() for task in crowd)

    assert asyncio.run(run()) == 500


def test_an_identity_shows_a_name_and_never_a_token() -> None:
    open_to_all = Authenticator(Options())
    shown = [
        (Credentials(), "", "", "authentication error"),
        (Credentials("x", "y"), "x", "user:x", 'authentication error - User "x"'),
        (Credentials(token="t"), "[REDACTED]", "token", 'authentication error - Token "[REDACTED]"'),
        (Credentials("x", nkey="UA"), "UA", "nkey:UA", 'authentication error - Nkey "UA"'),
        (Credentials('x"\n'), 'x"\n', 'user:x"\n', 'authentication error - User "x\\"\\n"'),
    ]
    for given, user, label, refusal in shown:
        identity = open_to_all.judge(given)
        assert isinstance(identity, Identity)
        assert (identity.user, identity.label, given.refusal) == (user, label, refusal)


def test_a_first_line_that_is_no_connect_is_for_the_user_without_a_name() -> None:
    assert Authenticator(Options()).anonymous() == Identity()
    assert Authenticator(Options(users=USERS)).anonymous() is None
    unnamed = Authenticator(Options(users=USERS, no_auth_user="n")).anonymous()
    assert unnamed is not None and unnamed.user == "n"
    assert Authenticator(Options(users=[User("n", HASH)], no_auth_user="n")).anonymous() is None
    far = User("n", connection_types=frozenset({"WEBSOCKET"}))
    elsewhere = Authenticator(Options(users=[far], no_auth_user="n"))
    assert elsewhere.anonymous() is None and elsewhere.anonymous("websocket") is not None


def test_a_websocket_may_have_credentials_of_its_own_and_cookies() -> None:
    options = Options(websocket=WebsocketOptions(port=-1, username="w", password="x", auth_timeout=7.0))
    authenticator = Authenticator(options)
    assert not authenticator.is_required() and authenticator.is_required("websocket")
    assert authenticator.tells_required("websocket")
    assert (authenticator.timeout(), authenticator.timeout("websocket")) == (2.0, 7.0)
    assert authenticator.judge(Credentials("w", "x"), kind="websocket") is not None
    assert authenticator.judge(Credentials("w", "y"), kind="websocket") is None
    assert authenticator.judge(Credentials("w", "y")) is not None
    users = Options(users=USERS, websocket=WebsocketOptions(port=-1, no_auth_user="n"))
    assert Authenticator(users).judge(Credentials(), kind="websocket") is not None
    assert Authenticator(users).judge(Credentials()) is None


def test_cookies_stand_in_for_what_a_connect_leaves_out() -> None:
    cookies = Credentials("cu", "cp", "ct")
    assert Credentials.of(Connect(), cookies) == cookies
    assert Credentials.of(Connect(user="u", password="p", auth_token="t"), cookies) == Credentials("u", "p", "t")
    assert Credentials.of(Connect(account="x")).asks_account and Credentials.of(Connect(new_account=True)).asks_account


def test_defaults_are_for_users_without_permissions_of_their_own() -> None:
    general, own = Permissions(SubjectPermission(["g"])), Permissions(SubjectPermission(["o"]))
    options = Options(
        users=[User("a"), User("b", permissions=own)],
        default_permissions=general,
        accounts={"X": AccountOptions("X", users=[User("c")], default_permissions=own)},
    )
    users = Authenticator(options).users
    assert [users[name].permissions for name in "abc"] == [general, own, own]
    assert [users[name].account for name in "abc"] == ["", "", "X"]


def test_permissions_are_compiled_for_the_connection() -> None:
    assert compile_permissions(None) is None
    made = compile_permissions(
        Permissions(
            SubjectPermission(["out.>"], ["out.no"]),
            SubjectPermission(["in.>", "work q"]),
            ResponsePermission(2, 1.5),
        )
    )
    assert made is not None and made.has_responses
    assert made.publishes(b"out.x") and not made.publishes(b"out.no") and not made.publishes(b"in.x")
    assert made.subscribes(b"in.x") and made.subscribes(b"work", b"q") and not made.subscribes(b"work")
    made.note(b"R", 0)
    assert made.publishes(b"R", 1_500_000_000) and not made.publishes(b"R", 1_500_000_001)


def test_passwords_are_plain_or_bcrypt() -> None:
    assert is_bcrypt(HASH) and is_bcrypt("$2y$11$x")
    assert not is_bcrypt("secret") and not is_bcrypt("$2a$1$x") and not is_bcrypt("x$2a$04$x")
    assert check_bcrypt(HASH, "secret") and not check_bcrypt(HASH, "sec\0ret") and not check_bcrypt("$2a$04$x", "x")
    assert check_plain("é", "é") and not check_plain("é", "e") and not check_plain("a", "\ud800")
