"""The `accounts` of a configuration file: their users, their JetStream limits and their other limits."""

from __future__ import annotations

from penstock.server.auth import nkeys
from penstock.server.conf.auth import apply_default, read_permissions, read_users
from penstock.server.conf.jetstream import read_account_jetstream
from penstock.server.conf.tree import Node
from penstock.server.conf.values import (
    Fault,
    Findings,
    int_of,
    into,
    keys,
    map_of,
    quote,
    shown,
    text_of,
)
from penstock.server.options import AccountLimits, AccountOptions, Permissions

GLOBAL = "$G"


def read_accounts(node: Node, findings: Findings) -> tuple[dict[str, AccountOptions], dict[str, Node]]:
    """The accounts by name, and the place of each one's users in the file."""
    if isinstance(node.value, list):
        return _read_names(node.value, findings), {}
    accounts: dict[str, AccountOptions] = {}
    places: dict[str, Node] = {}
    for name, inner in map_of(node).items():
        if inner.is_used:
            continue
        if not isinstance(inner.value, dict):
            findings.errors.append(f"{inner.place}: Expected map entries for accounts")
        elif name == GLOBAL:
            findings.errors.append(f"{inner.place}: {quote(name)} is a Reserved Account")
        else:
            accounts[name] = _read_account(name, inner.value, findings)
            places[name] = next((n for key, n in inner.value.items() if key.lower() == "users"), inner)
    return accounts, places


def _read_names(names: list[Node], findings: Findings) -> dict[str, AccountOptions]:
    accounts: dict[str, AccountOptions] = {}
    for node in names:
        name = text_of(node)
        if name == GLOBAL:
            findings.errors.append(f"{node.place}: {quote(name)} is a Reserved Account")
        elif name in accounts:
            findings.errors.append(f"{node.place}: Duplicate Account Entry: {name}")
        else:
            accounts[name] = AccountOptions(name)
    return accounts


def _read_account(name: str, tree: dict[str, Node], findings: Findings) -> AccountOptions:
    account = AccountOptions(name)

    def nkey(node: Node) -> None:
        if not isinstance(node.value, str) or nkeys.decode(nkeys.Kind.ACCOUNT, node.value) is None:
            raise Fault(node, f"Not a valid public nkey for an account: {quote(shown(node.value))}")
        account.nkey = node.value

    def permissions(node: Node) -> Permissions:
        return read_permissions(node, findings)

    def msg_trace(node: Node) -> None:
        if not isinstance(node.value, str | dict):
            raise Fault(node, f"Expected account message trace {quote('msg_trace')} to be a string or a map/struct")
        findings.idle.append("msg_trace")

    findings.walk(
        tree,
        keys(
            {
                "nkey": nkey,
                "imports": lambda node: findings.refuse(node, "imports"),
                "exports": lambda node: findings.refuse(node, "exports"),
                "mappings maps": lambda node: findings.refuse(node, "mappings"),
                "jetstream": into(account, "jetstream", lambda node: read_account_jetstream(node, findings)),
                "users": into(account, "users", lambda node: read_users(node, findings)),
                "default_permissions": into(account, "default_permissions", permissions),
                "limits": into(account, "limits", lambda node: _read_limits(node, findings)),
                "msg_trace trace_dest": msg_trace,
            }
        ),
    )
    apply_default(account.users, account.default_permissions)
    for user in account.users:
        user.account = name
    return account


def _read_limits(node: Node, findings: Findings) -> AccountLimits:
    if not isinstance(node.value, dict):
        raise Fault(node, f"Expected account limits to be a map/struct, got {shown(node.value)}")
    limits = AccountLimits()
    findings.walk(
        node.value,
        keys(
            {
                "max_connections max_conn": into(limits, "max_connections", int_of),
                "max_subscriptions max_subs": into(limits, "max_subscriptions", int_of),
                "max_payload max_pay": into(limits, "max_payload", int_of),
                "max_leafnodes max_leafs": into(limits, "max_leafnodes", int_of),
            }
        ),
        unknown="Unknown field {} parsing account limits",
    )
    return limits
