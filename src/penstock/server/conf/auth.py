"""The `authorization` block, users and permissions of a configuration file."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.server.auth import nkeys
from penstock.server.conf.tree import Node
from penstock.server.conf.values import (
    Fault,
    Findings,
    flag_of,
    go_type,
    int_of,
    into,
    is_subject,
    keys,
    map_of,
    parse_duration,
    quote,
    seconds_of,
    shown,
    text_of,
    texts_of,
)
from penstock.server.options import Permissions, ResponsePermission, SubjectPermission, User

TIMEOUT_HIGH = 60.0
CONNECTION_TYPES = ("STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS")


@dataclass(slots=True)
class Authorization:
    """The `authorization` block as it was read; it is checked against the rest after the whole file was read."""

    node: Node
    username: str = ""
    password: str = ""
    token: str = ""
    timeout: float = 0.0
    users: list[User] | None = None
    default_permissions: Permissions | None = None


def read_authorization(node: Node, findings: Findings) -> Authorization:
    auth = Authorization(node)

    def permissions(inner: Node) -> Permissions:
        return read_permissions(inner, findings)

    def timeout(inner: Node) -> None:
        auth.timeout = seconds = seconds_of(inner, "authorization")
        if seconds > TIMEOUT_HIGH:
            findings.warn(
                inner,
                "timeout",
                f"timeout of {shown(inner.value)} ({seconds:f} seconds) is high, consider keeping it under 60 seconds. "
                "possibly caused by unquoted duration; use '1m' instead of 1m, for example",
            )

    def proxy_required(inner: Node) -> None:
        if flag_of(inner):
            findings.refuse(inner, "proxy_required")

    findings.walk(
        map_of(node),
        keys(
            {
                "user username": into(auth, "username", text_of),
                "pass password": into(auth, "password", text_of),
                "token": into(auth, "token", text_of),
                "timeout": timeout,
                "users": into(auth, "users", lambda inner: read_users(inner, findings)),
                "default_permission default_permissions permissions": into(auth, "default_permissions", permissions),
                "auth_callout auth_hook": lambda inner: findings.refuse(inner, "auth_callout"),
                "proxy_required": proxy_required,
            }
        ),
    )
    apply_default(auth.users or [], auth.default_permissions)
    return auth


def apply_default(users: list[User], permissions: Permissions | None) -> None:
    """Give the default permissions to users without permissions of their own."""
    for user in users:
        user.permissions = user.permissions or permissions


def read_users(node: Node, findings: Findings) -> list[User]:
    if not isinstance(node.value, list):
        raise Fault(node, f"Expected users field to be an array, got {_shape(node)}")
    found = []
    for item in node.value:
        if not isinstance(item.value, dict):
            findings.errors.append(f"{item.place}: Expected user entry to be a map/struct, got {_shape(item)}")
            continue
        found.append(_read_user(item, item.value, findings))
    return found


def _shape(node: Node) -> str:
    """An invalid list of users as an error shows it: only the types of texts, since they may be passwords."""
    return go_type(node.value) if isinstance(node.value, str | list) else shown(node.value)


def _read_user(item: Node, entry: dict[str, Node], findings: Findings) -> User:
    user = User()

    def permissions(inner: Node) -> Permissions:
        return read_permissions(inner, findings)

    def connection_types(node: Node) -> None:
        kinds = [kind.upper() for kind in texts_of(node, "allowed connection types")]
        for kind in kinds:
            if kind not in CONNECTION_TYPES:
                raise Fault(node, f"invalid connection types [{quote(kind)}]")
        user.connection_types = frozenset(kinds)

    errors_before = len(findings.errors)
    findings.walk(
        entry,
        keys(
            {
                "nkey": into(user, "nkey", text_of),
                "user username": into(user, "username", text_of),
                "pass password": into(user, "password", text_of),
                "permission permissions authorization": into(user, "permissions", permissions),
                "allowed_connection_types connection_types clients": connection_types,
                "proxy_required": into(user, "proxy_required", flag_of),
            }
        ),
    )
    place = next(reversed(entry.values()), item)
    if len(findings.errors) > errors_before:
        return user
    if not user.nkey and not user.username:
        raise Fault(place, "User entry requires a user")
    if user.nkey and nkeys.decode(nkeys.Kind.USER, user.nkey) is None:
        raise Fault(place, "Not a valid public nkey for a user")
    if user.nkey and (user.username or user.password):
        raise Fault(place, "Nkey users do not take usernames or passwords")
    return user


# --------------------------------------------------------------------------------------------------------- permissions


def read_permissions(node: Node, findings: Findings) -> Permissions:
    if not isinstance(node.value, dict):
        raise Fault(node, f"Expected permissions to be a map/struct, got {shown(node.value)}")
    found = Permissions()

    def responses(inner: Node) -> None:
        if isinstance(inner.value, bool):
            found.responses = ResponsePermission() if inner.value else None
        else:
            found.responses = _read_responses(inner, findings)

    findings.walk(
        node.value,
        keys(
            {
                "pub publish import": into(found, "publish", lambda inner: _read_subjects(inner, findings, False)),
                "sub subscribe export": into(found, "subscribe", lambda inner: _read_subjects(inner, findings, True)),
                "publish_allow_responses allow_responses": responses,
            }
        ),
        unknown="Unknown field {} parsing permissions",
    )
    if found.responses is not None:
        # `allow_responses` makes replies the exception, so all other subjects must be allowed by name.
        found.publish = found.publish or SubjectPermission()
        found.publish.allow = found.publish.allow or []
    return found


def _read_subjects(node: Node, findings: Findings, is_queue_allowed: bool) -> SubjectPermission | None:
    if not isinstance(node.value, dict):
        return SubjectPermission(allow=_subject_list(node, is_queue_allowed))
    if not node.value:
        return None
    found = SubjectPermission()

    def subjects(inner: Node) -> list[str]:
        return _subject_list(inner, is_queue_allowed)

    findings.walk(
        node.value,
        {"allow": into(found, "allow", subjects), "deny": into(found, "deny", subjects)},
        unknown="Unknown field name {} parsing subject permissions, only 'allow' or 'deny' are permitted",
    )
    return found


def _subject_list(node: Node, is_queue_allowed: bool) -> list[str]:
    """One subject or an array of them."""
    if isinstance(node.value, str):
        subjects = [node.value]
    elif isinstance(node.value, list):
        subjects = []
        for item in node.value:
            if not isinstance(item.value, str):
                raise Fault(item, "Subject in permissions array cannot be cast to string")
            subjects.append(item.value)
    else:
        wanted = "Expected subject permissions to be a subject, or array of subjects, got"
        raise Fault(node, f"{wanted} {go_type(node.value)}")
    for subject in subjects:
        why = _why_not(subject, is_queue_allowed)
        if why:
            raise Fault(node, why)
    return subjects


def _why_not(subject: str, is_queue_allowed: bool) -> str:
    if is_subject(subject):
        return ""
    parts = subject.split()
    if not is_queue_allowed or len(parts) != 2:
        return f"subject {quote(subject)} is not a valid subject"
    if not is_subject(parts[0]):
        return f"subject {quote(parts[0])} is not a valid subject"
    return "" if is_subject(parts[1]) else f"queue {quote(parts[1])} is not a valid queue"


def _read_responses(node: Node, findings: Findings) -> ResponsePermission:
    if not isinstance(node.value, dict):
        raise Fault(node, "error parsing response permissions, expected a boolean or a map")
    found = ResponsePermission()

    def count(inner: Node) -> None:
        found.max_msgs = int_of(inner) or found.max_msgs

    def expires(inner: Node) -> None:
        if not isinstance(inner.value, str):
            raise Fault(inner, "error parsing expires, not a duration string")
        try:
            found.expires = parse_duration(inner.value) or found.expires
        except ValueError as error:
            raise Fault(inner, f"error parsing expires: {error}") from None

    findings.walk(
        node.value,
        keys({"max max_msgs max_messages max_responses": count, "expires expiration ttl": expires}),
        unknown="Unknown field {} parsing permissions",
    )
    return found
