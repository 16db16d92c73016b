"""Routez, gatewayz, leafz, ipqueuesz, raftz: pages about other servers, nearly empty for a single server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.server.monitor.page import Page, now_text

if TYPE_CHECKING:
    from penstock.server.server import Server


@dataclass(slots=True)
class RoutezOptions:
    subscriptions: bool = False
    subscriptions_detail: bool = False


@dataclass(slots=True)
class GatewayzOptions:
    name: str = ""
    accounts: bool = False
    account_name: str = ""
    subscriptions: bool = False
    subscriptions_detail: bool = False


@dataclass(slots=True)
class LeafzOptions:
    subscriptions: bool = False
    account: str = ""


@dataclass(slots=True)
class IpqueueszOptions:
    all: bool = False
    filter: str = ""


@dataclass(slots=True)
class RaftzOptions:
    account: str = ""
    group: str = ""


class Routez(Page, kw_only=True):
    server_id: str
    server_name: str
    now: str
    num_routes: int
    routes: list[str]


class Gatewayz(Page, kw_only=True):
    server_id: str
    now: str
    outbound_gateways: dict[str, str]
    inbound_gateways: dict[str, str]


class Leafz(Page, kw_only=True):
    server_id: str
    now: str
    leafnodes: int
    leafs: list[str]


class QueueLength(Page, kw_only=True):
    pending: int
    in_progress: int = 0


def make_routez(server: Server) -> Routez:
    return Routez(server_id=server.id, server_name=server.name, now=now_text(), num_routes=0, routes=[])


def make_gatewayz(server: Server) -> Gatewayz:
    return Gatewayz(server_id=server.id, now=now_text(), outbound_gateways={}, inbound_gateways={})


def make_leafz(server: Server) -> Leafz:
    return Leafz(server_id=server.id, now=now_text(), leafnodes=0, leafs=[])


def make_ipqueuesz(queues: dict[str, tuple[int, int]], options: IpqueueszOptions) -> dict[str, QueueLength]:
    """The server's internal queues; empty ones only if all are requested."""
    return {
        name: QueueLength(pending=pending, in_progress=in_progress)
        for name, (pending, in_progress) in sorted(queues.items())
        if (pending or in_progress or options.all) and options.filter in name
    }
