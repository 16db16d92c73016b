"""Crashes of a streaming query at any point of a batch, with Spark's own log replayed by hand: fast, seeded.

Spark writes a batch's end to the offset log, runs it, then notes it in the commit log. After a crash the last batch of
the offset log, when the commit log lacks it, is run again from the end of the batch before it; the first batch has
nothing before it, so the source is asked where it begins.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import penstock
from penstock import Database
from penstock.spark.source.options import ReadOptions
from penstock.spark.source.stream_reader import PenstockStreamReader

SCHEMA = StructType([StructField("stream", StringType()), StructField("seq", LongType())])
Row = tuple[str, int]


class Crash(Exception):
    """The process ends here."""


class Checkpoint:
    """What survives: the logs, and a sink that keeps one set of rows per batch, as Spark's file sink does."""

    def __init__(self) -> None:
        self.offsets: list[str] = []
        self.commits = 0
        self.sink: dict[int, list[Row]] = {}

    def run(self, reader: PenstockStreamReader, dice: random.Random, batches: int) -> None:
        """Some batches, as MicroBatchExecution runs them; a crash may come after each step."""
        for _ in range(batches):
            number = self.commits
            start = json.loads(self.offsets[number - 1]) if number else reader.initialOffset()
            if len(self.offsets) == number:
                end = reader.latestOffset(start, reader.getDefaultReadLimit())
                self.maybe(dice)
                if number and json.dumps(end) == self.offsets[-1]:
                    continue
                self.offsets.append(json.dumps(end))
            self.maybe(dice)
            if number == 0:
                start = reader.initialOffset()  # asked again before the parts are planned
            rows = []
            for partition in reader.partitions(start, json.loads(self.offsets[number])):
                for batch in reader.read(partition):
                    rows += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
                self.maybe(dice)
            if number in self.sink:
                assert sorted(self.sink[number]) == sorted(rows), "the batch has other rows the second time"
            self.sink[number] = rows
            self.maybe(dice)
            self.commits += 1

    def maybe(self, dice: random.Random) -> None:
        if dice.random() < 0.08:
            raise Crash


def write(database: Database, dice: random.Random, messages: dict[str, int]) -> None:
    """Some more messages, perhaps in a stream that is new."""
    for _ in range(dice.randrange(4)):
        name = dice.choice("ABC")
        count = dice.choice([1, 7, 300])
        stream = database.stream(name, subjects=[f"{name}.>"])
        stream.publish_many((f"{name}.{n % 2}", b"x" * dice.randrange(300)) for n in range(count))
        messages[name] = messages.get(name, 0) + count


@pytest.mark.parametrize("seed", range(25))
def test_a_query_that_crashes_anywhere_gives_every_row_once(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    path, messages, checkpoint = os.fspath(tmp_path / "store"), {}, Checkpoint()
    begins_late = dice.random() < 0.5
    with penstock.open(path, durability="os") as database:
        write(database, dice, messages)
        start = dict(messages) if begins_late else {}
        for _ in range(12):
            options: dict[str, Any] = {"path": path, "startingOffsets": "latest" if begins_late else "earliest"}
            if dice.random() < 0.5:
                options["maxMessagesPerTrigger"] = str(dice.choice([1, 50, 1000]))
            if dice.random() < 0.3:
                options["maxBytesPerTrigger"] = str(dice.choice([100, 20_000]))
            reader = PenstockStreamReader(SCHEMA, ReadOptions.parse(options))
            try:
                for _ in range(dice.randrange(1, 5)):
                    if not checkpoint.offsets and begins_late:
                        start = dict(messages)  # nothing is written down yet: `latest` is wherever it is asked
                        reader.initialOffset()
                    write(database, dice, messages)
                    checkpoint.run(reader, dice, dice.randrange(1, 4))
            except Crash:
                continue
            finally:
                reader.stop()
        last = PenstockStreamReader(SCHEMA, ReadOptions.parse({"path": path}))
        calm = random.Random()
        calm.random = lambda: 1.0  # type: ignore[method-assign]
        checkpoint.run(last, calm, 4)
    found = [row for rows in checkpoint.sink.values() for row in rows]
    assert len(found) == len(set(found)), "a row came twice"
    first = {name: start.get(name, 0) + 1 for name in messages}
    assert set(found) == {(name, seq) for name, count in messages.items() for seq in range(first[name], count + 1)}
