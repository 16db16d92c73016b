"""Accstatz: the messages and bytes that each account has sent and received."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.server.monitor.page import Page, now_text

if TYPE_CHECKING:
    from penstock.broker.account import Account
    from penstock.server.server import Server


@dataclass(slots=True)
class AccstatzOptions:
    accounts: list[str] = field(default_factory=list)
    include_unused: bool = False


class Traffic(Page, kw_only=True):
    msgs: int
    bytes: int


_NONE = Traffic(msgs=0, bytes=0)


class TrafficByKind(Page, kw_only=True):
    msgs: int
    bytes: int
    gateways: Traffic
    routes: Traffic
    leafs: Traffic


class AccountStat(Page, kw_only=True):
    acc: str
    name: str
    conns: int
    leafnodes: int
    total_conns: int
    num_subscriptions: int
    sent: TrafficByKind
    received: TrafficByKind
    slow_consumers: int


class Accstatz(Page, kw_only=True):
    server_id: str
    now: str
    account_statz: list[AccountStat]


def make_accstatz(server: Server, options: AccstatzOptions) -> Accstatz:
    names = options.accounts or list(server.accounts)
    accounts = [server.accounts[name] for name in names if name in server.accounts]
    return Accstatz(
        server_id=server.id,
        now=now_text(),
        account_statz=[account_stat(one) for one in accounts if options.include_unused or one.clients],
    )


def account_stat(account: Account) -> AccountStat:
    """An account's statistics: messages delivered to its clients are `sent`, those they publish are `received`."""
    count = len(account.clients)
    return AccountStat(
        acc=account.name,
        name=account.name,
        conns=count,
        leafnodes=0,
        total_conns=count,
        num_subscriptions=account.sublist.count,
        sent=_traffic(account.out_msgs, account.out_bytes),
        received=_traffic(account.in_msgs, account.in_bytes),
        slow_consumers=account.slow_consumers,
    )


def _traffic(msgs: int, size: int) -> TrafficByKind:
    return TrafficByKind(msgs=msgs, bytes=size, gateways=_NONE, routes=_NONE, leafs=_NONE)
