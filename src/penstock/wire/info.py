"""INFO: what a server says about itself, when a client connects and whenever it changes. Rules: docs/wire.md.

Fields stand in the reference's order, and those that it leaves out when they are empty are left out; `product` is our
own, for who wants to know which server answers.
"""

from __future__ import annotations

import platform
from typing import Any

import msgspec

from penstock.errors import InvalidJson
from penstock.wire import go_json
from penstock.wire.go_decode import Number, Struct, decode_one

VERSION = "2.15.1"  # of the reference whose behaviour this is: clients choose what to use by it
API_LEVEL = 5
PROTO = 1
RUNTIME = f"python{platform.python_version()}"


class Info(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of INFO as a client receives them."""

    server_id: str
    server_name: str
    version: str
    proto: int
    git_commit: str = ""
    go: str
    host: str
    port: int
    headers: bool
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: int
    jetstream: bool = False
    client_id: int = 0
    client_ip: str = ""
    nonce: str = ""
    cluster: str = ""
    domain: str = ""
    connect_urls: tuple[str, ...] = ()
    ws_connect_urls: tuple[str, ...] = ()
    ldm: bool = False
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    api_lvl: int = 0
    xkey: str = ""
    product: str

    def line(self) -> bytes:
        """The line as it is sent: a blank stands before its end, as in the reference."""
        return b"INFO " + go_json.encode(self) + b" \r\n"

    def but(self, **changes: Any) -> Info:
        """The same with some fields changed: for one client, for one moment."""
        return msgspec.structs.replace(self, **changes)


def make_info(*, server_id: str, server_name: str, host: str, port: int, max_payload: int, **more: Any) -> Info:
    """An Info with what every Penstock server says."""
    return Info(
        server_id=server_id,
        server_name=server_name,
        version=VERSION,
        proto=PROTO,
        go=RUNTIME,
        host=host,
        port=port,
        headers=True,
        max_payload=max_payload,
        api_lvl=API_LEVEL,
        product="penstock",
        **more,
    )


def is_info(text: bytes) -> bool:
    """Whether a client may say INFO with this text: it is read and passed over, but a text that is none closes."""
    try:
        decode_one(text, _INFO)
    except InvalidJson:
        return False
    return True


def _read_byte(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, Number) and value.isdecimal() and int(value) < 256:
        return int(value)
    raise InvalidJson("json: cannot unmarshal this into Go value of type uint8")


def _fields(go_type: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), go_type)


_PERMISSION = Struct("server.SubjectPermission", {"allow": "[]string", "deny": "[]string"})
_INFO = Struct(
    "server.Info",
    {
        **_fields("string", "server_id server_name version git_commit go host ip client_ip nonce cluster domain"),
        **_fields("string", "compression remote_account route_account route_acc_add_reqid gateway gateway_url xkey"),
        **_fields("string", "gateway_cmd_payload"),
        **_fields("bool", "headers auth_required tls_required tls_verify tls_available jetstream cluster_dynamic ldm"),
        **_fields("bool", "connect_info acc_is_sys lnoc lnocu info_on_connect gateway_nrp gateway_iom"),
        **_fields("[]string", "connect_urls ws_connect_urls gateway_urls leafnode_urls"),
        **_fields("int", "proto port api_lvl route_pool_size route_pool_idx"),
        **_fields("int32", "max_payload"),
        **_fields("uint64", "client_id"),
        **_fields("uint8", "gossip_mode gateway_cmd"),
        **_fields("server.SubjectPermission", "import export"),
    },
    nested={"server.SubjectPermission": _PERMISSION},
    readers={"uint8": _read_byte},
)
