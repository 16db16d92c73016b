"""CONNECT: what a client says about itself. Rules: docs/wire.md.

Reading is as tolerant as nats-server: unknown fields are ignored, names match in any case, null keeps the previous
value. A field of another type, or a text that is not one JSON object, closes the connection without an error message.
"""

from __future__ import annotations

import msgspec

from penstock.errors import InvalidJson, ProtocolError
from penstock.wire import errors
from penstock.wire.go_decode import Struct, decode_one


class BadConnect(ProtocolError):
    """A CONNECT that cannot be read: the log says why, and the client is closed without a word."""


class Connect(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of CONNECT. A client that has not yet said any counts as verbose, pedantic and hearing its echo."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    tls_required: bool = False
    headers: bool = False
    no_responders: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    auth_token: str = ""
    nkey: str = ""
    sig: str = ""
    jwt: str = ""
    account: str = ""
    new_account: bool = False
    remote_account: str = ""
    proxy_sig: str = ""

    def __repr__(self) -> str:
        """The client's name and login, without the password, as errors show it."""
        return f"<Connect name={self.name!r} user={self.user!r} nkey={self.nkey!r}>"

    @property
    def names_account(self) -> bool:
        """Clients may not choose their account: to ask for one is an authorization violation."""
        return self.new_account or self.account != ""

    @property
    def fault(self) -> str | None:
        """The -ERR that closes the connection of a client that is otherwise accepted; None if there is none."""
        if self.protocol not in (0, 1):
            return errors.INVALID_PROTOCOL
        if self.no_responders and not self.headers:
            return errors.NO_RESPONDERS_NEEDS_HEADERS
        return None


DEFAULTS = Connect()

_PERMISSION = Struct("server.SubjectPermission", {"allow": "[]string", "deny": "[]string"})
_GO_TYPES = {bool: "bool", int: "int", str: "string"}
_FIELDS = {field.encode_name: field for field in msgspec.structs.fields(Connect)}
_CONNECT = Struct(
    "server.ClientOpts",
    {
        **{name: _GO_TYPES[field.type] for name, field in _FIELDS.items()},
        # Of routes and leaf nodes: read for their types, not kept.
        "import": "server.SubjectPermission",
        "export": "server.SubjectPermission",
    },
    nested={"server.SubjectPermission": _PERMISSION},
)


def decode_connect(text: bytes, before: Connect = DEFAULTS) -> Connect:
    """What the client has said, by `text`: fields that it leaves out stay as they were `before`.

    BadConnect where the text is none.
    """
    try:
        said = decode_one(text, _CONNECT)
    except InvalidJson as error:
        raise BadConnect(f"CONNECT cannot be read: {error}") from None
    return msgspec.structs.replace(
        before, **{_FIELDS[name].name: value for name, value in said.items() if name in _FIELDS}
    )
