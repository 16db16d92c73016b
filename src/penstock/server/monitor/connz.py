"""Connz: the open connections, and the closed ones."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, cast

from penstock.base.clock import SYSTEM
from penstock.base.subject import overlap
from penstock.server.auth.auth import GLOBAL_ACCOUNT
from penstock.server.monitor.closed import ClosedConnection, HeldSubscription, user_name
from penstock.server.monitor.page import LOOK_SLICE, SLICE, Page, RequestError, now_text, uptime_text, yield_to_loop
from penstock.server.monitor.subsz import SubDetail
from penstock.wire import go_json

if TYPE_CHECKING:
    from penstock.server.auth.certificate import PeerCertificate
    from penstock.server.connection import Connection
    from penstock.server.monitor.query import Query
    from penstock.server.server import Server

LIMIT = 1024  # entries by default
OPEN, CLOSED, ANY = 0, 1, 2

# Sort orders: the key of an open connection, the key of its facts, and whether the greatest comes first.
_Key = Callable[[Any], Any]
_SORTS: dict[str, tuple[_Key, _Key, bool]] = {
    "cid": (attrgetter("client.cid"), attrgetter("cid"), False),
    "start": (attrgetter("client.cid"), attrgetter("cid"), False),
    "subs": (attrgetter("client.sub_count"), attrgetter("sub_count"), True),
    "pending": (attrgetter("client.pending"), attrgetter("pending"), True),
    "msgs_to": (attrgetter("client.out_msgs"), attrgetter("out_msgs"), True),
    "msgs_from": (attrgetter("client.in_msgs"), attrgetter("in_msgs"), True),
    "bytes_to": (attrgetter("client.out_bytes"), attrgetter("out_bytes"), True),
    "bytes_from": (attrgetter("client.in_bytes"), attrgetter("in_bytes"), True),
    "last": (attrgetter("last_activity_ns"), attrgetter("last_activity_ns"), True),
    "idle": (attrgetter("last_activity_ns"), attrgetter("last_activity_ns"), False),
    "uptime": (lambda live: SYSTEM.now_ns() - live.start_ns, lambda gone: gone.stop_ns - gone.start_ns, False),
    "stop": (attrgetter("client.cid"), attrgetter("stop_ns"), True),
    "reason": (attrgetter("client.cid"), attrgetter("reason"), False),
    "rtt": (attrgetter("rtt_ns"), attrgetter("rtt_ns"), True),
}


@dataclass(slots=True)
class ConnzOptions:
    sort: str = ""
    auth: bool = False
    subscriptions: bool = False
    subscriptions_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    mqtt_client: str = ""
    state: int = OPEN
    user: str = ""
    account: str = ""
    filter_subject: str = ""

    @classmethod
    def of_query(cls, query: Query) -> ConnzOptions:
        sort, auth = query.text("sort"), query.boolean("auth")
        subjects, detail = query.subscriptions()
        offset, limit, cid = query.integer("offset"), query.integer("limit"), query.unsigned("cid")
        state = {"": OPEN, "open": OPEN, "closed": CLOSED, "any": ANY, "all": ANY}.get(query.text("state").lower())
        if state is None:
            raise RequestError(f"Error decoding state for {query.text('state')}")
        return cls(
            sort=sort,
            auth=auth,
            subscriptions=subjects,
            subscriptions_detail=detail,
            offset=offset,
            limit=limit,
            cid=cid,
            mqtt_client=query.text("mqtt_client"),
            state=state,
            user=query.text("user"),
            account=query.text("acc"),
        )


class TlsPeerCert(Page, kw_only=True):
    subject: str = ""
    spki_sha256: str = ""
    cert_sha256: str = ""


class ConnInfo(Page, kw_only=True):
    cid: int
    kind: str = ""
    type: str = ""
    ip: str
    port: int
    start: str
    last_activity: str
    stop: str = ""
    reason: str = ""
    rtt: str = ""
    uptime: str
    idle: str
    pending_bytes: int
    in_msgs: int
    out_msgs: int
    in_bytes: int
    out_bytes: int
    stalls: int = 0
    subscriptions: int
    name: str = ""
    lang: str = ""
    version: str = ""
    tls_version: str = ""
    tls_cipher_suite: str = ""
    tls_peer_certs: list[TlsPeerCert] = []
    tls_first: bool = False
    authorized_user: str = ""
    account: str = ""
    subscriptions_list: list[str] = []
    subscriptions_list_detail: list[SubDetail] = []
    name_tag: str = ""


class Connz(Page, kw_only=True):
    long_list: ClassVar[str] = "connections"

    server_id: str
    now: str
    num_connections: int
    total: int
    offset: int
    limit: int
    connections: list[ConnInfo] | None


async def make_connz(server: Server, options: ConnzOptions) -> Connz:
    """The page. The connections to show are chosen first, then described a slice at a time."""
    sort = options.sort or "cid"
    offset = max(0, options.offset)
    limit = options.limit if options.limit > 0 else LIMIT
    _check(options, sort)
    if options.cid > 0:
        limit = 1
    page = Connz(server_id="", now=now_text(), num_connections=0, total=0, offset=offset, limit=limit, connections=None)
    if options.account and options.account not in server.accounts:
        return page
    page.server_id = server.id
    page.connections = []
    living = _living(server, options.account) if options.state in (OPEN, ANY) else []
    gone = [one for one in server.closed if _is_of(one, options.account)] if options.state in (CLOSED, ANY) else []
    page.total = len(living) + len(gone)
    shown = await _sorted(*await _chosen(server, options, living, gone), sort, offset, limit)
    now_ns = SYSTEM.now_ns()
    for at, one in enumerate(shown, 1):
        page.connections.append(_entry(one, options, now_ns))
        if at % SLICE == 0:
            await yield_to_loop()
    page.num_connections = len(page.connections)
    return page


def _check(options: ConnzOptions, sort: str) -> None:
    if sort not in _SORTS:
        raise RequestError(f"invalid sorting option: {sort}")
    if sort in ("stop", "reason") and options.state != CLOSED:
        raise RequestError(f"sort by {sort} only valid on closed connections")
    if options.filter_subject not in ("", ">") and not options.account:
        raise RequestError("filter by subject only valid with account filtering")


def _living(server: Server, account: str) -> list[Connection]:
    """The open connections, oldest first: both maps hold them in the order of their ids."""
    if not account:
        return list(server.connections.values())
    return [cast("Connection", client) for client in server.accounts[account].clients.values()]


def _is_of(one: ClosedConnection, account: str) -> bool:
    # nats-server forgets that a closed connection was in $G.
    return not account or (one.account == account and account != GLOBAL_ACCOUNT)


async def _chosen(
    server: Server, options: ConnzOptions, living: list[Connection], gone: list[ClosedConnection]
) -> tuple[list[Connection], list[ClosedConnection]]:
    if options.cid > 0:
        found = server.connections.get(options.cid) if options.state in (OPEN, ANY) else None
        if found is not None:
            return [found], []
        return [], [one for one in gone if one.cid == options.cid][:1]
    if options.mqtt_client:
        return [], []  # there is no MQTT
    if options.user:
        living = await _those(living, lambda one: user_name(one) == options.user)
        gone = [one for one in gone if one.user == options.user]
    if options.filter_subject not in ("", ">"):
        wanted = options.filter_subject
        living = await _those(living, lambda one: any(overlap(wanted, sub[0]) for sub in one.client.subscriptions()))
    return living, gone


async def _those(living: list[Connection], is_meant: Callable[[Connection], bool]) -> list[Connection]:
    found: list[Connection] = []
    for start in range(0, len(living), LOOK_SLICE):
        found += [one for one in living[start : start + LOOK_SLICE] if is_meant(one)]
        await yield_to_loop()
    return found


async def _sorted(
    living: list[Connection], gone: list[ClosedConnection], sort: str, offset: int, limit: int
) -> list[Connection | ClosedConnection]:
    """The requested part of the chosen connections: sorted runs, merged as far as needed."""
    if not gone and sort in ("cid", "start"):
        return list(living[offset : offset + limit])
    key_living, key_gone, is_descending = _SORTS[sort]
    # Runs hold numbers alone, which the collector need not look at: ten thousand pairs with objects would wake it.
    runs: list[list[tuple[Any, int]]] = []
    by_cid: dict[int, Connection | ClosedConnection] = {}
    for start in range(0, len(living), LOOK_SLICE):
        part = living[start : start + LOOK_SLICE]
        by_cid.update((one.client.cid, one) for one in part)
        runs.append(sorted(((key_living(one), one.client.cid) for one in part), reverse=is_descending))
        await yield_to_loop()
    for start in range(0, len(gone), LOOK_SLICE):
        ended = gone[start : start + LOOK_SLICE]
        by_cid.update((one.cid, one) for one in ended)
        runs.append(sorted(((key_gone(one), one.cid) for one in ended), reverse=is_descending))
        await yield_to_loop()
    shown: list[Connection | ClosedConnection] = []
    for at, (_, cid) in enumerate(islice(heapq.merge(*runs, reverse=is_descending), offset + limit)):
        if at >= offset:
            shown.append(by_cid[cid])
        if at % LOOK_SLICE == 0:
            await yield_to_loop()
    return shown


def _entry(one: Connection | ClosedConnection, options: ConnzOptions, now_ns: int) -> ConnInfo:
    with_subs = options.subscriptions or options.subscriptions_detail
    if isinstance(one, ClosedConnection):
        facts = one
    else:
        facts = ClosedConnection.of(one, with_subscriptions=with_subs)
        if not one.rtt_ns and one.lang and not one.wants_pong:
            one.measure_rtt()
    end_ns = facts.stop_ns or now_ns
    info = ConnInfo(
        cid=facts.cid,
        kind="Client",
        type=facts.type,
        ip=facts.ip,
        port=facts.port,
        start=go_json.time_text(facts.start_ns + SYSTEM.offset_ns),
        last_activity=go_json.time_text(facts.last_activity_ns + SYSTEM.offset_ns),
        stop=go_json.time_text(facts.stop_ns + SYSTEM.offset_ns) if facts.stop_ns else "",
        reason=facts.reason,
        rtt=go_json.go_duration(rtt_shown(facts.rtt_ns)),
        uptime=uptime_text(facts.start_ns, end_ns),
        idle=uptime_text(facts.last_activity_ns, end_ns),
        pending_bytes=facts.pending,
        in_msgs=facts.in_msgs,
        out_msgs=facts.out_msgs,
        in_bytes=facts.in_bytes,
        out_bytes=facts.out_bytes,
        stalls=facts.stalls,
        subscriptions=facts.sub_count,
        name=facts.name,
        lang=facts.lang,
        version=facts.version,
    )
    if facts.tls is not None:
        info.tls_version, info.tls_cipher_suite = facts.tls.version, facts.tls.cipher
        info.tls_first = facts.tls.is_first
    _add_asked(info, facts, options)
    return info


def _add_asked(info: ConnInfo, facts: ClosedConnection, options: ConnzOptions) -> None:
    """Add the fields that are only shown on request."""
    if options.subscriptions_detail:
        info.subscriptions_list_detail = [_detail(facts, sub) for sub in facts.subscriptions]
    elif options.subscriptions:
        info.subscriptions_list = [sub.subject for sub in facts.subscriptions]
    if options.auth:
        if facts.tls is not None and facts.tls.certificate is not None:
            info.tls_peer_certs = [_shown(facts.tls.certificate)]
        info.authorized_user = facts.user
        is_global = facts.account == GLOBAL_ACCOUNT
        info.account = "" if is_global else facts.account
        info.name_tag = "" if is_global and facts.stop_ns else facts.account


def _detail(facts: ClosedConnection, sub: HeldSubscription) -> SubDetail:
    account = facts.account if facts.stop_ns else ""
    return SubDetail(
        account=account,
        account_tag=account,
        subject=sub.subject,
        qgroup=sub.queue,
        sid=sub.sid,
        msgs=sub.msgs,
        max=sub.max,
        cid=facts.cid,
    )


def rtt_shown(rtt_ns: int) -> int:
    """A round trip as text; below a millisecond in whole microseconds."""
    return rtt_ns - rtt_ns % 1000 if 1000 < rtt_ns < 1_000_000 else rtt_ns


def _shown(certificate: PeerCertificate) -> TlsPeerCert:
    return TlsPeerCert(subject=certificate.subject, spki_sha256=certificate.key_sha256, cert_sha256=certificate.sha256)
