"""replay: append messages of a stream, filtered and transformed, to another: `penstock pipeline replay`, docs/lake.md.

The range is fixed at the start, so a stream may also be replayed into itself. `format("penstock")` writes the messages:
all of them or none.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.errors import PenstockSparkError
from penstock.spark.pipelines.jobs import OnProgress, watched
from penstock.spark.table import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Transform = Callable[["DataFrame"], "DataFrame"]
WRITTEN = ("subject", "headers", "payload")
TIMES = ("ts_ns", "ts")


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a run."""

    source: str
    target: str
    rows: int
    seconds: float


def run(
    spark: SparkSession,
    path: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    stream: str | Sequence[str] | None = None,
    to_stream: str,
    account: str | None = None,
    to_account: str | None = None,
    create_subjects: Sequence[str] = (),
    lake: str | os.PathLike[str] | None = None,
    subjects: Sequence[str] | None = None,
    start_seq: int | None = None,
    stop_seq: int | None = None,
    since: str | int | None = None,
    until: str | int | None = None,
    where: str | None = None,
    transform: str | Transform | None = None,
    keep_times: bool = False,
    on_progress: OnProgress | None = None,
) -> Replayed:
    """Append messages of `path` to the stream `to_stream` of the store `to`, which may be the same.

    A stream may be given as ACCOUNT/STREAM; a target without an account is searched for in the source's account, if one
    was given. `create_subjects` are the subjects of the target stream if the replay creates it.

    `where` is an SQL condition. `transform`, a function or "module:function" (also "file.py:function"), receives the
    DataFrame (stream, seq, ts, ts_ns, subject, headers, payload) and returns one with subject and payload, and headers
    if they are to be kept. Messages get the time of the replay, unless `keep_times` takes it from ts_ns or ts.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    began = time.monotonic()
    frame = table(
        spark, path, lake=lake, stream=stream, account=account, subjects=subjects, start_seq=start_seq,
        stop_seq=stop_seq, since=since, until=until,
    )  # fmt: skip
    if where is not None:
        frame = frame.where(where)
    if transform is not None:
        frame = apply(transform, frame)
    columns = written_columns(frame.columns, keep_times)
    frame = frame.select(*columns)
    counts = Observation("penstock_replay")
    frame = frame.observe(counts, f.count(f.lit(1)).alias("rows"))
    root = os.path.abspath(os.fspath(to))
    writer = frame.write.format("penstock").option("path", root).option("stream", to_stream)
    into = account if to_account is None and "/" not in to_stream else to_account
    if into is not None:
        writer = writer.option("account", into)
    if keep_times:
        writer = writer.option("timeColumn", columns[-1])
    if create_subjects:
        writer = writer.option("createSubjects", ",".join(create_subjects))
    with watched(spark, on_progress):
        writer.mode("append").save()
    return Replayed(
        source=os.path.abspath(os.fspath(path)),
        target=os.path.join(root, to_stream),
        rows=counts.get["rows"],
        seconds=time.monotonic() - began,
    )


def written_columns(columns: Sequence[str], keep_times: bool) -> list[str]:
    """The columns of a frame that make up a message."""
    for name in ("subject", "payload"):
        if name not in columns:
            raise PenstockSparkError(
                f"the transform gave no column {name}, only {', '.join(columns)}: a message needs it"
            )
    found = [name for name in WRITTEN if name in columns]
    if keep_times:
        times = [name for name in TIMES if name in columns]
        if not times:
            raise PenstockSparkError("keep_times: the transform gave neither ts_ns nor ts")
        found.append(times[0])
    return found


def apply(transform: str | Transform, frame: DataFrame) -> DataFrame:
    """The frame that the function returns for `frame`, checked."""
    from pyspark.sql import DataFrame as ClassicFrame

    function = load(transform) if isinstance(transform, str) else transform
    found = function(frame)
    if not isinstance(found, ClassicFrame):
        raise PenstockSparkError(
            f"the transform gave a {type(found).__name__}: a function of a DataFrame gives one back"
        )
    return found


def load(name: str) -> Transform:
    """The function in "module:function" or "file.py:function"."""
    place, _, wanted = name.rpartition(":")
    if not place or not wanted:
        raise PenstockSparkError(
            f"transform {name!r}: module:function is wanted, such as jobs.clean:strip or clean.py:strip"
        )
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(os.path.basename(place).removesuffix(".py"), place)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except (ImportError, FileNotFoundError) as error:
        raise PenstockSparkError(f"transform {name!r}: {error}") from None
    function = getattr(module, wanted, None)
    if not callable(function):
        raise PenstockSparkError(f"transform {name!r}: {place} has no function {wanted!r}")
    return function  # type: ignore[no-any-return]
