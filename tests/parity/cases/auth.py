"""Who may connect: user and password, token, users, bcrypt, nkeys, no_auth_user; and what is said to the others."""

from __future__ import annotations

import base64
import json
from typing import Any

import nkeys

from parity.catalog import add, case
from parity.script import Connection, Script
from support.servers import BASE

GROUP = "auth"
HASH = "$2a$04$7DqgBwaPWggmX8zekQhj0OhCLralUW013cyl4tm0NJV5o2Rj1OCuW"  # of "secret"
SEED, OTHER_SEED = (nkeys.encode_seed(bytes([n]) * 32, nkeys.PREFIX_BYTE_USER) for n in (1, 2))
NKEY = nkeys.from_seed(bytearray(SEED)).public_key.decode()

USER = BASE + "authorization { user: u, password: p }\n"
TOKEN = BASE + "authorization { token: t0ken }\n"
USERS = BASE + "authorization { users: [ {user: u, password: p}, {user: v, password: q} ] }\n"
BCRYPT = BASE + f'authorization {{ users: [ {{user: u, password: "{HASH}"}} ] }}\n'
BCRYPT_TOKEN = BASE + f'authorization {{ token: "{HASH}" }}\n'
NKEYS = BASE + f"authorization {{ users: [ {{nkey: {NKEY}}}, {{user: u, password: p}} ] }}\n"
NO_AUTH = BASE + "accounts { A { users: [{user: u, password: p}, {user: v, password: q}] } }\nno_auth_user: u\n"
ACCOUNTS = BASE + "accounts { A { users: [{user: u, password: p}] }\nB { users: [{user: v, password: q}] } }\n"
TYPES = BASE + "authorization { users: [ {user: u, password: p, allowed_connection_types: [WEBSOCKET]} ] }\n"
STANDARD = BASE + "authorization { users: [ {user: u, password: p, allowed_connection_types: [STANDARD]} ] }\n"
ODD = BASE + 'authorization { users: [ {user: "a b", password: "p\\"q<>&é"} ] }\n'


def trying(options: dict[str, Any], verbose: bool = False) -> object:
    """CONNECT with these credentials, then a message to oneself."""

    def run(s: Script) -> None:
        c = s.open()
        told = json.dumps({"verbose": verbose, **options})
        c.tell(f"CONNECT {told}\r\nSUB me 1\r\nPUB me 2\r\nhi\r\n")

    return run


RIGHT = {"user": "u", "pass": "p"}
TRIES: list[tuple[str, str, dict[str, Any]]] = [
    ("user: right", USER, RIGHT),
    ("user: wrong password", USER, {"user": "u", "pass": "x"}),
    ("user: wrong user", USER, {"user": "x", "pass": "p"}),
    ("user: no password", USER, {"user": "u"}),
    ("user: an empty password", USER, {"user": "u", "pass": ""}),
    ("user: nothing", USER, {}),
    ("user: a token", USER, {"auth_token": "p"}),
    ("user: letters' case", USER, {"user": "U", "pass": "P"}),
    ("user: a password with more after it", USER, {"user": "u", "pass": "pp"}),
    ("token: right", TOKEN, {"auth_token": "t0ken"}),
    ("token: wrong", TOKEN, {"auth_token": "token"}),
    ("token: nothing", TOKEN, {}),
    ("token: empty", TOKEN, {"auth_token": ""}),
    ("token: as a password", TOKEN, {"user": "u", "pass": "t0ken"}),
    ("token: as a user", TOKEN, {"user": "t0ken"}),
    ("users: the first", USERS, RIGHT),
    ("users: the second", USERS, {"user": "v", "pass": "q"}),
    ("users: one's password for the other", USERS, {"user": "v", "pass": "p"}),
    ("users: nobody", USERS, {"user": "w", "pass": "p"}),
    ("users: nothing", USERS, {}),
    ("bcrypt: right", BCRYPT, {"user": "u", "pass": "secret"}),
    ("bcrypt: wrong", BCRYPT, {"user": "u", "pass": "Secret"}),
    ("bcrypt: the hash itself", BCRYPT, {"user": "u", "pass": HASH}),
    ("bcrypt: a token", BCRYPT_TOKEN, {"auth_token": "secret"}),
    ("bcrypt: a wrong token", BCRYPT_TOKEN, {"auth_token": "x"}),
    ("no_auth_user: nothing", NO_AUTH, {}),
    ("no_auth_user: the other user", NO_AUTH, {"user": "v", "pass": "q"}),
    ("no_auth_user: a wrong password", NO_AUTH, {"user": "u", "pass": "x"}),
    ("no_auth_user: a user that is not there", NO_AUTH, {"user": "x", "pass": "x"}),
    ("no_auth_user: a token", NO_AUTH, {"auth_token": "x"}),
    ("accounts: nothing", ACCOUNTS, {}),
    ("accounts: one", ACCOUNTS, RIGHT),
    ("accounts: another", ACCOUNTS, {"user": "v", "pass": "q"}),
    ("connection types: not this one", TYPES, RIGHT),
    ("connection types: this one", STANDARD, RIGHT),
    ("letters of every kind: right", ODD, {"user": "a b", "pass": 'p"q<>&é'}),
    ("letters of every kind: wrong", ODD, {"user": "a b", "pass": "p"}),
]
for title, config, options in TRIES:
    add(GROUP, title, trying(options), config=config)
    add(GROUP, f"{title}, verbose", trying(options, verbose=True), config=config)


def before(data: str) -> object:
    def run(s: Script) -> None:
        s.open().tell(data)

    return run


FIRST = [
    ("PING", "PING\r\n"),
    ("PONG", "PONG\r\n"),
    ("PUB", "PUB a 1\r\nx\r\n"),
    ("SUB", "SUB a 1\r\n"),
    ("UNSUB", "UNSUB 1\r\n"),
    ("INFO", "INFO {}\r\n"),
    ("+OK", "+OK\r\n"),
    ("-ERR", "-ERR 'x'\r\n"),
    ("HPUB", "HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n"),
    ("nonsense", "HELLO\r\n"),
    ("an empty line", "\r\n"),
    ("CONNECT with what is no JSON", "CONNECT x\r\n"),
    ("CONNECT that is too long", "CONNECT " + "x" * 5000 + "\r\n"),
]
for title, data in FIRST:
    add(GROUP, f"before CONNECT: {title}", before(data), config=USER)
for title, data in FIRST[:5]:
    add(GROUP, f"before CONNECT with no_auth_user: {title}", before(data), config=NO_AUTH)


@case(GROUP, "CONNECT again with other credentials", config=USERS)
def again(s: Script) -> None:
    c = s.open()
    c.tell('CONNECT {"verbose":false,"user":"u","pass":"p"}\r\n')
    c.tell('CONNECT {"verbose":false,"user":"v","pass":"q"}\r\n')
    c.tell('CONNECT {"verbose":false,"user":"v","pass":"x"}\r\n')


@case(GROUP, "CONNECT again into another account", config=ACCOUNTS)
def again_account(s: Script) -> None:
    c, other = s.open(), s.connect("b", user="v", **{"pass": "q"})
    other.sub("ag.>", "1")
    other.flush()
    c.tell('CONNECT {"verbose":false,"user":"u","pass":"p"}\r\nSUB ag.> 1\r\n')
    c.tell('CONNECT {"verbose":false,"user":"v","pass":"q"}\r\nPUB ag.a 1\r\nx\r\n')
    other.flush()


def nonce(c: Connection) -> str:
    c.show_info = True
    frame = c._wire.receive()
    c.show_info = False
    found: str = json.loads(frame.text).get("nonce", "")
    return found


def sign(seed: bytes, text: str) -> bytes:
    signature: bytes = nkeys.from_seed(bytearray(seed)).sign(text.encode())
    return signature


def signing(kind: str) -> object:
    def run(s: Script) -> None:
        c = s.open()
        text = nonce(c)
        s.value("a nonce of", len(text))
        right = sign(SEED, text)
        options: dict[str, Any] = {
            "base64url": {"nkey": NKEY, "sig": base64.urlsafe_b64encode(right).decode().rstrip("=")},
            "base64": {"nkey": NKEY, "sig": base64.b64encode(right).decode()},
            "another's signature": {"nkey": NKEY, "sig": base64.b64encode(sign(OTHER_SEED, text)).decode()},
            "a signature of something else": {"nkey": NKEY, "sig": base64.b64encode(sign(SEED, "x")).decode()},
            "no signature": {"nkey": NKEY},
            "a signature that is no base64": {"nkey": NKEY, "sig": "!!"},
            "a short signature": {"nkey": NKEY, "sig": "AAAA"},
            "another's key": {
                "nkey": nkeys.from_seed(bytearray(OTHER_SEED)).public_key.decode(),
                "sig": base64.b64encode(sign(OTHER_SEED, text)).decode(),
            },
            "a key that is none": {"nkey": "UXXX", "sig": base64.b64encode(right).decode()},
            "no key": {"sig": base64.b64encode(right).decode()},
            "a password beside the key": {
                "nkey": NKEY,
                "sig": base64.b64encode(right).decode(),
                "user": "u",
                "pass": "x",
            },
            "a password instead": {"user": "u", "pass": "p"},
            "a wrong password instead": {"user": "u", "pass": "x"},
            "nothing": {},
        }[kind]
        c.send("CONNECT " + json.dumps({"verbose": False} | options) + "\r\nSUB me 1\r\nPUB me 2\r\nhi\r\n")
        c.flush(f"CONNECT with {kind}")

    return run


for kind in (
    "base64url",
    "base64",
    "another's signature",
    "a signature of something else",
    "no signature",
    "a signature that is no base64",
    "a short signature",
    "another's key",
    "a key that is none",
    "no key",
    "a password beside the key",
    "a password instead",
    "a wrong password instead",
    "nothing",
):
    add(GROUP, f"nkey: {kind}", signing(kind), config=NKEYS)


@case(GROUP, "nkey: a nonce is for one connection", config=NKEYS)
def nonces(s: Script) -> None:
    first, second = s.open(), s.open("b")
    s.value("they differ", nonce(first) != nonce(second))


@case(GROUP, "a wrong password is told apart from nothing by nobody", config=USER)
def wrong_info(s: Script) -> None:
    c = s.open()
    c.show_info = True
    c.read(1)
    c.tell('CONNECT {"verbose":false,"protocol":1,"user":"u","pass":"x"}\r\n')


@case(GROUP, "the default timeout is two seconds, told nowhere", config=USER)
def half_connect(s: Script) -> None:
    c = s.open()
    c.send('CONNECT {"verbose":false,')
    c.expect_close()
