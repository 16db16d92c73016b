"""Subsz: the subscriptions and their statistics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.base.subject import is_valid_subject, matches
from penstock.server.monitor.closed import HeldSubscription
from penstock.server.monitor.page import LOOK_SLICE, Page, RequestError, now_text, yield_to_loop
from penstock.wire import go_json

if TYPE_CHECKING:
    from penstock.broker.account import Account
    from penstock.server.monitor.query import Query
    from penstock.server.server import Server

LIMIT = 1024  # entries by default


@dataclass(slots=True)
class SubszOptions:
    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""

    @classmethod
    def of_query(cls, query: Query) -> SubszOptions:
        return cls(
            subscriptions=query.boolean("subs"),
            offset=query.integer("offset"),
            limit=query.integer("limit"),
            account=query.text("acc"),
            test=query.text("test"),
        )


class SubDetail(Page, kw_only=True):
    account: str = ""
    account_tag: str = ""
    subject: str
    qgroup: str = ""
    sid: str
    msgs: int
    max: int = 0
    cid: int


class SublistStats(Page, kw_only=True):
    num_subscriptions: int
    num_cache: int
    num_inserts: int
    num_removes: int
    num_matches: int
    cache_hit_rate: int | float
    max_fanout: int
    avg_fanout: int | float


class Subsz(Page, kw_only=True):
    long_list: ClassVar[str] = "subscriptions_list"

    server_id: str
    now: str
    num_subscriptions: int
    num_cache: int
    num_inserts: int
    num_removes: int
    num_matches: int
    cache_hit_rate: int | float
    max_fanout: int
    avg_fanout: int | float
    total: int
    offset: int
    limit: int
    subscriptions_list: list[SubDetail] = []


async def make_subsz(server: Server, options: SubszOptions) -> Subsz:
    if options.test and not _is_literal(options.test):
        raise RequestError(f"invalid test subject, must be valid publish subject: {options.test}")
    accounts = [one for one in server.accounts.values() if not options.account or one.name == options.account]
    stats = sublist_stats(accounts)
    page = Subsz(
        server_id=server.id,
        now=now_text(),
        **{name: getattr(stats, name) for name in stats.__struct_fields__},
        total=0,
        offset=max(0, options.offset),
        limit=options.limit if options.limit > 0 else LIMIT,
    )
    if not options.subscriptions:
        return page
    seen = 0
    for detail in _details(accounts):
        seen += 1
        if seen % (LOOK_SLICE // 4) == 0:
            await yield_to_loop()
        if options.test and not matches(options.test, detail.subject):
            continue
        if page.offset <= page.total < page.offset + page.limit:
            page.subscriptions_list.append(detail)
        page.total += 1
    return page


def sublist_stats(accounts: list[Account]) -> SublistStats:
    """The summed counters of these accounts' subscriptions."""
    lists = [account.sublist for account in accounts]
    matched = sum(one.matches for one in lists)
    hits = sum(one.cache_hits for one in lists)
    fanouts = [one.fanout() for one in lists]  # entries of the cache, subscribers of all, of the largest
    cached = sum(entries for entries, _, _ in fanouts)
    subscribers = sum(total for _, total, _ in fanouts)
    return SublistStats(
        num_subscriptions=sum(one.count for one in lists),
        num_cache=cached,
        num_inserts=sum(one.inserts for one in lists),
        num_removes=sum(one.removes for one in lists),
        num_matches=matched,
        cache_hit_rate=go_json.go_float(hits / matched) if matched else 0,
        max_fanout=max((largest for _, _, largest in fanouts), default=0),
        avg_fanout=go_json.go_float(subscribers / cached) if cached else 0,
    )


def _details(accounts: list[Account]) -> Iterator[SubDetail]:
    """The subscriptions of services and streams, without a client id, then those of clients."""
    for account in accounts:
        for number, (subject, queue, _, msgs, most, _, _) in enumerate(account.sublist.listing(has_clients=False), 1):
            yield _detail(account, (subject, queue, b"%d" % number, msgs, most), 0)
        for client in list(account.clients.values()):
            for held in client.subscriptions():
                yield _detail(account, held, client.cid)


def _detail(account: Account, held: tuple[bytes, bytes, bytes, int, int], cid: int) -> SubDetail:
    sub = HeldSubscription.of(held)
    return SubDetail(
        account=account.name,
        account_tag=account.name,
        subject=sub.subject,
        qgroup=sub.queue,
        sid=sub.sid,
        msgs=sub.msgs,
        max=sub.max,
        cid=cid,
    )


def _is_literal(subject: str) -> bool:
    return is_valid_subject(subject) and not any(token in ("*", ">") for token in subject.split("."))
