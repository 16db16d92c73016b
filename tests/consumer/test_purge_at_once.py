"""Many messages are purged at once, while consumers of every kind have them pending or have not reached them yet."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.db.consumer_info import ConsumerInfo

COUNT = 4000


@pytest.mark.parametrize("upto", [COUNT + 1, 3500, 1500, 900])
def test_what_is_pending_and_what_is_to_come_is_counted_right_after_a_purge(tmp_path: Path, upto: int) -> None:
    with penstock.open(tmp_path / "data", durability="lazy") as db:
        stream = db.stream("S", subjects=["s.>"])
        stream.publish_many([(f"s.{n % 7}", b"x") for n in range(COUNT)])
        ahead = stream.consumer("ahead", max_ack_pending=-1)
        behind = stream.consumer("behind", filter="s.3")
        lasts = stream.consumer("lasts", filter="s.>", deliver_policy="last_per_subject")
        first = ahead.fetch(2500)
        assert ahead.ack(first[:1000]) == 1000
        assert [one.info().num_pending for one in (ahead, behind, lasts)] == [COUNT - 2500, 571, 7]
        stream.purge(seq=upto)
        left = [one.seq for one in first[1000:] if one.seq >= upto]
        assert ahead.info().num_ack_pending == len(left)
        assert ahead.info().num_pending == COUNT - max(2500, upto - 1)
        assert behind.info().num_pending == sum(1 for n in range(upto - 1, COUNT) if n % 7 == 3)
        assert lasts.info().num_pending == (7 if upto < COUNT - 7 else 0)
        assert ahead.info().ack_floor.stream_seq >= min(upto - 1, 2500)
        stream.publish("s.3", b"new")
        assert [one.seq for one in behind.fetch(1000, timeout=0)][-1] == COUNT + 1
        expected = _places(ahead.info())
    with penstock.open(tmp_path / "data") as db:
        assert _places(db.get_stream("S").consumer("ahead").info()) == expected


def _places(info: ConsumerInfo) -> tuple[int, ...]:
    delivered, floor = info.delivered, info.ack_floor
    places = delivered.consumer_seq, delivered.stream_seq, floor.consumer_seq, floor.stream_seq
    return *places, info.num_pending, info.num_ack_pending
