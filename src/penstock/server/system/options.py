"""The bodies of `$SYS` requests: options under nats-server's names and Go types, and the filter for one server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.errors import InvalidJson
from penstock.server.monitor.accountz import AccountzOptions
from penstock.server.monitor.accstatz import AccstatzOptions
from penstock.server.monitor.connz import ConnzOptions
from penstock.server.monitor.healthz import HealthzOptions
from penstock.server.monitor.jsz import JszOptions
from penstock.server.monitor.peers import (
    GatewayzOptions,
    IpqueueszOptions,
    LeafzOptions,
    RaftzOptions,
    RoutezOptions,
)
from penstock.server.monitor.subsz import SubszOptions
from penstock.server.system.why import WhyOptions
from penstock.wire.go_decode import Struct, decode_one, kind_of, text_of

if TYPE_CHECKING:
    from penstock.server.server import Server

T = TypeVar("T")

_FILTERS = {
    "server_name": "string",
    "cluster": "string",
    "host": "string",
    "exact_match": "bool",
    "tags": "[]string",
    "domain": "string",
}


@dataclass(slots=True)
class NoOptions:
    """A request whose body only has the filter."""


@dataclass(slots=True)
class ProfilezOptions:
    name: str = ""
    debug: int = 0
    duration: int = 0


class Body(Generic[T]):
    """One kind of request: the Go struct that its body is read as, and the options made from it."""

    def __init__(self, go_name: str, fields: dict[str, str], make: Callable[..., T], **renamed: str) -> None:
        self._renamed = renamed  # fields whose names differ between the wire and the options
        self._fields = fields
        self._make = make
        self._struct = Struct(
            f"server.{go_name}", {**_FILTERS, **fields}, readers={"server.SortOpt": _sort, "server.ConnState": _state}
        )

    def decode(self, payload: bytes) -> tuple[T, dict[str, Any]]:
        """The options and the filter; InvalidJson with the text of Go's decoder."""
        found = decode_one(payload, self._struct) if payload else {}
        options = {}
        for name in self._fields.keys() & found.keys():
            ours = name.replace("-", "_")
            options[self._renamed.get(ours, ours)] = found.pop(name)
        return self._make(**options), found


def is_for(server: Server, filters: dict[str, Any]) -> bool:
    """Whether a request with this filter is for this server."""
    options = server.options
    for wanted, ours in (
        (filters.get("server_name"), server.name),
        (filters.get("host"), server.info.host),
        (filters.get("cluster"), ""),
    ):
        if wanted and (wanted != ours if filters.get("exact_match") else wanted not in ours):
            return False
    ours_tags = {tag.lower() for tag in options.server_tags}
    if any(tag.strip().lower() not in ours_tags for tag in filters.get("tags", ())):
        return False
    domain = filters.get("domain")
    return not domain or domain == options.jetstream.domain


def why(error: InvalidJson) -> str:
    """The decoder's text, without the prefix of the JetStream API."""
    return error.description.removeprefix("invalid JSON: ")


def _sort(value: Any) -> str:
    if value is None:
        return ""
    if type(value) is not str:
        raise _no_field(kind_of(value), "sort", "SortOpt")
    return text_of(value)


def _state(value: Any) -> int:
    if value is None:
        return 0
    if kind_of(value) != "number" or not value.lstrip("-").isdigit():
        said = f"number {value}" if kind_of(value) == "number" else kind_of(value)
        raise _no_field(said, "state", "ConnState")
    return int(value)


def _no_field(said: str, name: str, go_type: str) -> InvalidJson:
    return InvalidJson(
        f"json: cannot unmarshal {said} into Go struct field ConnzEventOptions.{name} of type server.{go_type}"
    )


CONNZ = Body(
    "ConnzEventOptions",
    {
        "sort": "server.SortOpt",
        "auth": "bool",
        "subscriptions": "bool",
        "subscriptions_detail": "bool",
        "offset": "int",
        "limit": "int",
        "cid": "uint64",
        "mqtt_client": "string",
        "state": "server.ConnState",
        "user": "string",
        "acc": "string",
        "filter_subject": "string",
    },
    ConnzOptions,
    acc="account",
)
SUBSZ = Body(
    "SubszEventOptions",
    {"offset": "int", "limit": "int", "subscriptions": "bool", "account": "string", "test": "string"},
    SubszOptions,
)
JSZ = Body(
    "JszEventOptions",
    {
        "account": "string",
        **dict.fromkeys(("accounts", "streams", "consumer", "direct_consumer", "config", "leader_only"), "bool"),
        "offset": "int",
        "limit": "int",
        "raft": "bool",
        "stream_leader_only": "bool",
    },
    JszOptions,
)
HEALTHZ = Body(
    "HealthzEventOptions",
    {
        **dict.fromkeys(("js-enabled", "js-enabled-only", "js-server-only", "js-meta-only"), "bool"),
        **dict.fromkeys(("account", "stream", "consumer"), "string"),
        "details": "bool",
    },
    HealthzOptions,
)
ROUTEZ = Body("RoutezEventOptions", {"subscriptions": "bool", "subscriptions_detail": "bool"}, RoutezOptions)
GATEWAYZ = Body(
    "GatewayzEventOptions",
    {
        "name": "string",
        "accounts": "bool",
        "account_name": "string",
        "subscriptions": "bool",
        "subscriptions_detail": "bool",
    },
    GatewayzOptions,
)
LEAFZ = Body("LeafzEventOptions", {"subscriptions": "bool", "account": "string"}, LeafzOptions)
ACCOUNTZ = Body("AccountzEventOptions", {"account": "string"}, AccountzOptions)
ACCSTATZ = Body("AccountStatzEventOptions", {"accounts": "[]string", "include_unused": "bool"}, AccstatzOptions)
PROFILEZ = Body(
    "ProfilezEventOptions", {"name": "string", "debug": "int", "duration": "time.Duration"}, ProfilezOptions
)
IPQUEUESZ = Body("IpqueueszEventOptions", {"all": "bool", "filter": "string"}, IpqueueszOptions)
RAFTZ = Body("RaftzEventOptions", {"account": "string", "group": "string"}, RaftzOptions)
VARZ = Body("VarzEventOptions", {}, NoOptions)
EXPVARZ = Body("ExpvarzEventOptions", {}, NoOptions)
STATSZ = Body("StatszEventOptions", {}, NoOptions)
ACCOUNT_INFO = Body("AccInfoEventOptions", {}, NoOptions)
FILTERS = Body("EventFilterOptions", {}, NoOptions)
WHY = Body("WhyOptions", {"account": "string", "stream": "string", "consumer": "string", "seq": "uint64"}, WhyOptions)
KICK = Struct("server.KickClientReq", {"cid": "uint64"})
LAME_DUCK = Struct("server.LDMClientReq", {"cid": "uint64"})
NSUBS = Struct("server.accNumSubsReq", {"acc": "string", "subject": "string", "queue": "string"})
CONNS = Struct("server.accNumConnsReq", {"acc": "string"})
