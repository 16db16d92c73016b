"""Into how many tasks a read is divided."""

from __future__ import annotations

import os

import pytest

from penstock.spark.source.options import ReadOptions
from penstock.spark.source.tasks import SPLIT_BYTES, task_bytes

MIB = 1 << 20


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


def tasks_of(total: int, **options: str) -> int:
    return -(-total // task_bytes(total, ReadOptions.parse({"path": "x", **options})))


@pytest.mark.parametrize(
    ("total", "tasks"),
    [(0, 0), (1, 1), (SPLIT_BYTES, 1), (2 * SPLIT_BYTES, 2), (128 * MIB, 2), (128 * MIB + 1, 4), (300 * MIB, 6)],
)
def test_every_core_has_as_many_tasks_as_the_others(total: int, tasks: int) -> None:
    assert tasks_of(total) == tasks


def test_what_is_asked_for_counts() -> None:
    assert tasks_of(100 * MIB, minPartitions="5") == 5
    assert tasks_of(100 * MIB, maxPartitionBytes=str(10 * MIB)) == 10
    assert tasks_of(105 * MIB, maxPartitionBytes=str(10 * MIB)) == 12
    assert tasks_of(100 * MIB, minPartitions="3", maxPartitionBytes=str(10 * MIB)) == 10


def test_no_task_reads_more_than_is_allowed() -> None:
    for total in range(1, 500 * MIB, 7_654_321):
        options = ReadOptions.parse({"path": "x", "maxPartitionBytes": str(32 * MIB)})
        assert 1 <= task_bytes(total, options) <= 32 * MIB
