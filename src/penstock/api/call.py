"""Call: one request to the API; Endpoint: one kind of request, with the function that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.broker.account import Request
from penstock.errors import NotEmptyRequest
from penstock.wire.go_decode import Struct, decode, is_empty_object

if TYPE_CHECKING:
    from penstock.api.account import JetStreamAccount

Fields = dict[str, Any]
Answer = Fields | Awaitable[Fields]

_BLANK = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One kind of request. `handle` returns the fields of the reply after its type, or an awaitable of them."""

    subject: str  # after "$JS.API.", up to the names
    names: int  # how many names follow it: streams, consumers
    type: str
    handle: Callable[[Call], Answer]
    zero: Mapping[str, Any] = field(default_factory=dict)  # fields of an error's reply besides the error
    is_quiet: bool = False  # a successful reply is neither counted nor audited
    is_uncounted: bool = False  # no reply is counted or audited
    needs_cluster: bool = False
    takes_more: bool = False  # further tokens may follow the names
    is_system: bool = False  # a request of the system account, which has no JetStream of its own


class Unanswered(Exception):
    """The request gets no reply, as in nats-server, which has no responder for it."""


class Call:
    """A request, and the account that it is for."""

    __slots__ = ("endpoint", "headers", "jetstream", "names", "request", "strict")

    def __init__(
        self, request: Request, endpoint: Endpoint, names: list[str], jetstream: JetStreamAccount | None, strict: bool
    ) -> None:
        self.request = request
        self.endpoint = endpoint
        self.names = names
        self.jetstream = jetstream
        self.strict = strict
        self.headers: bytes | None = None  # of a successful reply

    @property
    def account(self) -> JetStreamAccount:
        assert self.jetstream is not None, "an account without JetStream is answered before"
        return self.jetstream

    @property
    def subject(self) -> str:
        """The subject after `$JS.API.`."""
        return self.request.subject[8:].decode("utf-8", "surrogateescape")

    @property
    def payload(self) -> bytes:
        return self.request.payload

    @property
    def is_json(self) -> bool:
        """Whether the body is JSON; where a body is optional, any other text counts as none."""
        return self.payload.lstrip(_BLANK)[:1] in (b"{", b"[")

    @property
    def is_empty(self) -> bool:
        return not self.payload or is_empty_object(self.payload)

    def refuse_body(self) -> None:
        if not self.is_empty:
            raise NotEmptyRequest

    def decode(self, struct: Struct) -> Fields:
        return decode(self.payload, struct, strict=self.strict)
