"""Sublist: who wants to know of subscriptions to one subject, and whether there is one to exactly that."""

from __future__ import annotations

from penstock.kernel.sublist import Sublist


def test_only_a_subscription_to_the_very_subject_counts_and_in_its_group_only() -> None:
    sublist = Sublist()
    for subject, queue in ((b"a.*", b""), (b"a.>", b""), (b"a", b""), (b"a.b.c", b""), (b"a.b", b"other")):
        sublist.add_service(object(), subject, queue)
    assert not sublist.has_exactly(b"a.b")
    assert not sublist.has_exactly(b"a.b", b"g")
    assert sublist.has_exactly(b"a.b", b"other")
    plain, member = sublist.add_service(object(), b"a.b"), sublist.add_service(object(), b"a.b", b"g")
    assert sublist.has_exactly(b"a.b")
    assert sublist.has_exactly(b"a.b", b"g")
    sublist.remove_service(plain)
    sublist.remove_service(member)
    assert not sublist.has_exactly(b"a.b")
    assert not sublist.has_exactly(b"a.b", b"g")


def test_who_watches_a_subject_is_told_of_those_who_come_and_go_and_of_no_others() -> None:
    sublist = Sublist()
    told: list[bool] = []

    def tell() -> None:
        told.append(sublist.has_exactly(b"a.b"))

    sublist.watch(b"a.b", tell)
    token = sublist.add_service(object(), b"a.b")
    sublist.add_service(object(), b"a.*")
    sublist.add_service(object(), b"a.c")
    sublist.remove_service(token)
    assert told == [True, False]
    sublist.unwatch(b"a.b", tell)
    sublist.unwatch(b"a.b", tell)
    sublist.add_service(object(), b"a.b")
    assert told == [True, False]
