"""A crash at any point while streams are created, changed and deleted: what was acknowledged holds, and a stream opens
or does not exist.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.testing import CrashDisk, CrashImage
from support.crash_cases import booted, campaign_size, check_images, chunk_seed

pytestmark = pytest.mark.campaign
STATES = campaign_size(1_000) // 5
# The streams, with their max_msgs, after each acknowledged step, in order.
STEPS: list[dict[str, int]] = [
    {"A": 1},
    {"A": 1, "B": 1},
    {"A": 2, "B": 1},
    {"A": 2},
    {"A": 2, "B": 3},
    {"B": 3},
]


def record(root: Path) -> CrashDisk:
    root.mkdir()
    disk = CrashDisk(root)
    with penstock.open(root / "db", disk=disk) as db:
        before: dict[str, int] = {}
        for number, wanted in enumerate(STEPS):
            for name in before.keys() - wanted.keys():
                db.delete_stream(name)
            for name, limit in wanted.items():
                db.stream(name, max_msgs=limit)
                db.get_stream(name).publish(name, b"%d" % number)
            disk.mark(number)
            before = wanted
    return disk


def check(image: CrashImage) -> None:
    answered = -1 if image.mark is None else image.mark
    # The acknowledged state, or that of the running step; a step that deletes a stream does nothing else.
    allowed = [{}, *STEPS][answered + 1 : answered + 3]
    with booted(image.is_power_cut), penstock.open(image.path / "db") as db:
        found = {name: db.get_stream(name).config.max_msgs for name in db.streams()}
        assert found in allowed, f"{found}, not one of {allowed}"
        for name in found:
            db.get_stream(name).publish(name, b"goes on")
        for name in "AB":
            db.stream(name, max_msgs=5)
        assert db.streams() == ["A", "B"]
    with penstock.open(image.path / "db") as db:
        assert [stream.config.max_msgs for stream in db] == [5, 5]


def test_a_crash_leaves_each_stream_whole_or_not_there(scratch: Path) -> None:
    seed = chunk_seed("streams", "disk")
    disk = record(scratch / "run")
    check_images(disk, scratch / "images", STATES, seed, check)
