"""Accountz: the accounts there are, and one of them in detail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.server.monitor.page import Page, RequestError, now_text
from penstock.server.monitor.subsz import SublistStats, sublist_stats
from penstock.wire import go_json

if TYPE_CHECKING:
    from penstock.broker.account import Account
    from penstock.server.server import Server

_DOMAIN_SUBJECTS = (
    "$KV.>",
    "$OBJ.>",
    "ACCOUNT.>",
    "CONSUMER.>",
    "DIRECT.>",
    "INFO",
    "META.>",
    "SERVER.>",
    "STREAM.>",
)


@dataclass(slots=True)
class AccountzOptions:
    account: str = ""


class Mapping(Page, kw_only=True):
    subject: str
    weight: int


class Export(Page, kw_only=True):
    """A service of the system account that others may use."""

    subject: str
    type: str
    response_type: str


class Import(Page, kw_only=True):
    """A service of the system account as another account sees it."""

    subject: str
    account: str
    to: str
    local_subject: str
    type: str
    invalid: bool
    share: bool
    tracking: bool


class AccountInfo(Page, kw_only=True):
    account_name: str
    update_time: str
    is_system: bool = False
    expired: bool
    complete: bool
    jetstream_enabled: bool
    leafnode_connections: int
    client_connections: int
    subscriptions: int
    mappings: dict[str, list[Mapping]] = {}
    exports: list[Export] = []
    imports: list[Import] = []
    name_tag: str = ""
    sublist_stats: SublistStats


class Accountz(Page, kw_only=True):
    server_id: str
    now: str
    system_account: str = ""
    accounts: list[str] | None = None
    account_detail: AccountInfo | None = None


def make_accountz(server: Server, options: AccountzOptions) -> Accountz:
    page = Accountz(
        server_id=server.id, now=now_text(), system_account=server.system.name if server.system is not None else ""
    )
    if options.account:
        page.account_detail = account_info(server, options.account)
    else:
        page.accounts = list(server.accounts)
    return page


def account_info(server: Server, name: str) -> AccountInfo:
    account = server.accounts.get(name)
    if account is None:
        raise RequestError(f"Account {name} does not exist")
    stats = sublist_stats([account])
    return AccountInfo(
        account_name=name,
        update_time=go_json.time_text(account.created_ns),
        is_system=account is server.system,
        expired=False,
        complete=True,
        jetstream_enabled=account.jetstream is not None,
        leafnode_connections=0,
        client_connections=len(account.clients),
        subscriptions=stats.num_subscriptions,
        mappings=_domain_mappings(server, account),
        exports=_exports(server) if account is server.system else [],
        imports=_imports(server, account),
        name_tag=name,
        sublist_stats=stats,
    )


def _domain_mappings(server: Server, account: Account) -> dict[str, list[Mapping]]:
    """With a JetStream domain its API has a second name in every account."""
    domain = server.options.jetstream.domain
    if server.jetstream is None or not domain:
        return {}
    if account is server.system:
        return {f"$JS.{domain}.API.>": [Mapping(subject="$JS.API.>", weight=100)]}
    return {
        f"$JS.{domain}.API.{tail}": [Mapping(subject=tail if tail[0] == "$" else f"$JS.API.{tail}", weight=100)]
        for tail in _DOMAIN_SUBJECTS
    }


def _exports(server: Server) -> list[Export]:
    exports = [
        Export(subject="$SYS.REQ.ACCOUNT.*.CONNZ", type="service", response_type="Streamed"),
        Export(subject="$SYS.REQ.ACCOUNT.*.STATZ", type="service", response_type="Streamed"),
        Export(subject="$SYS.DEBUG.SUBSCRIBERS", type="service", response_type="Singleton"),
        Export(subject="$SYS.REQ.USER.*.INFO", type="service", response_type="Singleton"),
    ]
    if server.jetstream is not None:
        exports.append(Export(subject="$JS.API.>", type="service", response_type="Singleton"))
    return exports


def _imports(server: Server, account: Account) -> list[Import]:
    if server.system is None:
        return []
    names = [(f"$SYS.REQ.USER.{account.name}.INFO", "$SYS.REQ.USER.INFO", True)]
    if account is not server.system:
        connz = f"$SYS.REQ.ACCOUNT.{account.name}.CONNZ"
        names = [
            (connz, "$SYS.REQ.ACCOUNT.PING.CONNZ", False),
            (connz, "$SYS.REQ.SERVER.PING.CONNZ", False),
            (f"$SYS.REQ.ACCOUNT.{account.name}.STATZ", "$SYS.REQ.ACCOUNT.PING.STATZ", False),
            *names,
        ]
        if server.jetstream is not None:
            names.append(("$JS.API.>", "$JS.API.>", True))
    return [
        Import(
            subject=there,
            account=server.system.name,
            to=here,
            local_subject=here,
            type="service",
            invalid=False,
            share=is_shared,
            tracking=False,
        )
        for there, here, is_shared in names
    ]
