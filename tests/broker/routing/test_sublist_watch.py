"""Sublist: who wants to know of subscriptions to one subject, and whether somebody hears deliveries on exactly that."""

from __future__ import annotations

from penstock.broker.routing.router import Router
from penstock.broker.routing.sublist import Sublist
from penstock.broker.streams.ingest import Ingest
from penstock.testing.inside_client import InsideClient


class Place:
    """One router with one account."""

    def __init__(self) -> None:
        self.router, self.sublist = Router(), Sublist()
        self.router.on_tick = lambda: None

    def subscribe(self, subject: str, queue: str = "") -> InsideClient:
        client = InsideClient(self.router, self.sublist)
        client.subscribe(subject, lambda received: None, queue)
        return client


def test_only_a_subscription_to_the_very_subject_counts_and_in_its_group_only() -> None:
    place = Place()
    sublist = place.sublist
    for subject, queue in (("a.*", ""), ("a.>", ""), ("a", ""), ("a.b.c", ""), ("a.b", "other")):
        place.subscribe(subject, queue)
    assert not sublist.has_exactly(b"a.b")
    assert not sublist.has_exactly(b"a.b", b"g")
    assert sublist.has_exactly(b"a.b", b"other")
    plain, member = place.subscribe("a.b"), place.subscribe("a.b", "g")
    assert sublist.has_exactly(b"a.b")
    assert sublist.has_exactly(b"a.b", b"g")
    plain.close()
    member.close()
    assert not sublist.has_exactly(b"a.b")
    assert not sublist.has_exactly(b"a.b", b"g")


def test_a_stream_counts_and_a_service_which_no_delivery_reaches_does_not() -> None:
    place = Place()
    place.sublist.add_service(print, b"a.b")
    place.sublist.add_service(print, b"a.b", b"g")
    assert not place.sublist.has_exactly(b"a.b") and not place.sublist.has_exactly(b"a.b", b"g")
    ingest = Ingest()
    place.router.capture(place.sublist, ingest, b"a.b")
    assert place.sublist.has_exactly(b"a.b")


def test_who_watches_a_subject_is_told_of_those_who_come_and_go_and_of_no_others() -> None:
    place = Place()
    sublist = place.sublist
    told: list[bool] = []

    def tell() -> None:
        told.append(sublist.has_exactly(b"a.b"))

    sublist.watch(b"a.b", tell)
    client = place.subscribe("a.b")
    place.subscribe("a.*")
    place.subscribe("a.c")
    client.close()
    assert told == [True, False]
    sublist.unwatch(b"a.b", tell)
    sublist.unwatch(b"a.b", tell)
    place.subscribe("a.b")
    assert told == [True, False]
