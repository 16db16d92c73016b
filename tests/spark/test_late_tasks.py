"""Tasks and commits that end as nobody planned: a commit that fails half way, an attempt that comes too late."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import penstock
from penstock.base.disk import Disk
from penstock.db.adopt import root_of
from penstock.db.stage import Stage, discard_job
from penstock.format.paths import StreamPaths
from penstock.spark.errors import PenstockSparkError
from penstock.spark.sink.writer import PenstockStreamWriter, PenstockWriter
from penstock.store.open.adopt_plan import read_batches
from penstock.store.open.adoption import JOBS_KEPT, Adoption
from penstock.store.write.batch import Batch

SCHEMA = StructType([StructField("subject", StringType()), StructField("payload", BinaryType())])
SMALL, LARGE = 10, 50_000  # appended; adopted as blocks


class Task:
    """What a task knows of itself."""

    def partitionId(self) -> int:
        return 0

    def getLocalProperty(self, name: str) -> str:
        return {"sql.streaming.queryId": "q", "streaming.sql.batchId": "0"}[name]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pyspark.TaskContext, "get", staticmethod(Task))
    with penstock.open(tmp_path / "store", durability="os") as db:
        db.stream("S", subjects=["a.>"])
    return tmp_path / "store"


def rows(count: int) -> Any:
    yield pa.RecordBatch.from_pydict({"subject": ["a.x"] * count, "payload": [b"x" * 100] * count})


def options(store: Path) -> dict[str, str]:
    return {"path": str(store), "stream": "S"}


def count(store: Path) -> int:
    with penstock.open(store) as db:
        return db.get_stream("S").state().messages


def staged(store: Path) -> list[str]:
    return [name for _, _, names in os.walk(Path(root_of(store, "S"), "staging")) for name in names]


def fail(*given: object) -> None:
    raise OSError(errno.ENOSPC, "no space")


@pytest.mark.parametrize("messages", [SMALL, LARGE])
def test_a_commit_that_fails_half_way_is_not_cleaned_up(
    store: Path, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    """The job's end removed the blocks that the decided adoption was going to move: the stream could not be opened."""
    writer = PenstockWriter(options(store), SCHEMA, False)
    told = [writer.write(rows(messages))]
    with monkeypatch.context() as patch:
        for name in ("_take_in", "_append"):
            patch.setattr(Adoption, name, fail)
        with pytest.raises(PenstockSparkError, match=r"decided all the same.* do not write it again"):
            writer.commit(told)
        writer.abort(told)  # as Spark does
    assert count(store) == messages
    assert staged(store) == []


@pytest.mark.parametrize("messages", [SMALL, LARGE])
def test_a_streaming_commit_that_fails_half_way_is_in_once(
    store: Path, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    writer = PenstockStreamWriter(options(store), SCHEMA, False)
    told = [writer.write(rows(messages))]
    with monkeypatch.context() as patch:
        for name in ("_take_in", "_append"):
            patch.setattr(Adoption, name, fail)
        with pytest.raises(PenstockSparkError, match="start the query again"):
            writer.commit(told, 0)
        writer.abort(told, 0)
    again = PenstockStreamWriter(options(store), SCHEMA, False)
    again.commit([again.write(rows(messages))], 0)
    assert count(store) == messages
    assert staged(store) == []


def test_an_attempt_that_comes_after_its_batch_stages_nothing(store: Path) -> None:
    writer = PenstockStreamWriter(options(store), SCHEMA, False)
    told = [writer.write(rows(5))]
    writer.commit(told, 0)
    late = writer.write(rows(5))
    assert staged(store) == []
    writer.commit([late], 0)
    assert count(store) == 5


def test_an_attempt_whose_job_is_over_fails_and_leaves_nothing(store: Path) -> None:
    root = root_of(store, "S")
    stage = Stage(root, "job", "task")
    stage.append(Batch.of([("a.x", b"x" * 100)] * 1000))
    discard_job(root, "job")
    with pytest.raises((OSError, penstock.PenstockError)):
        for _ in range(200):  # more than a block
            stage.append(Batch.of([("a.x", b"x" * 100)] * 1000))
        stage.finish()
    stage.discard()
    assert staged(store) == []


@pytest.mark.parametrize("messages", [0, SMALL, LARGE])
@pytest.mark.parametrize("dies", ["half way", "at the end"])
def test_a_writer_that_dies_before_it_answers_is_asked_again(
    store: Path, monkeypatch: pytest.MonkeyPatch, messages: int, dies: str
) -> None:
    """A batch write went in twice, or the job was told to run again, when the process that adopted it was killed."""
    writer = PenstockWriter(options(store), SCHEMA, False)
    told = [writer.write(rows(messages))]
    with monkeypatch.context() as patch:
        if dies == "half way":
            patch.setattr(Adoption, "_remember", fail)
            with pytest.raises(PenstockSparkError):
                writer.commit(told)
        else:
            writer.commit(told)
    writer.commit(told)
    assert count(store) == messages
    assert staged(store) == []


def test_the_last_jobs_are_remembered_and_every_query(store: Path) -> None:
    writer = PenstockStreamWriter(options(store), SCHEMA, False)
    writer.commit([writer.write(rows(1))], 0)
    jobs = []
    for _ in range(JOBS_KEPT + 3):
        job = PenstockWriter(options(store), SCHEMA, False)
        job.commit([job.write(rows(1))])
        jobs.append(job.job)
    known = read_batches(Disk(), StreamPaths(root_of(store, "S")))
    assert list(known) == sorted(["q", *jobs[-JOBS_KEPT:]])


def test_a_staged_block_that_is_not_seen_fails_the_batch(store: Path) -> None:
    """It was left out, and the batch was in without it."""
    writer = PenstockWriter(options(store), SCHEMA, False)
    told = [writer.write(rows(3 * LARGE))]
    last = max(Path(root_of(store, "S"), "staging").rglob("*.blk"))
    last.unlink()
    last.with_suffix(".sum").unlink()
    with pytest.raises(PenstockSparkError, match="messages of the 150000 that were staged"):
        writer.commit(told)
    assert count(store) == 0
    assert staged(store) == []


def test_a_path_is_a_directory(store: Path) -> None:
    """An address of an object store became a folder of that name beside the driver."""
    given = options(store) | {"createSubjects": "a.>"}
    with pytest.raises(PenstockSparkError, match="s3://bucket/store is no directory"):
        PenstockWriter(given | {"path": "s3://bucket/store"}, SCHEMA, False)
    assert PenstockWriter(given | {"path": store.as_uri()}, SCHEMA, False).options.path == str(store)
