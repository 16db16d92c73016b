"""decode: the fields of JSON payloads as columns. `penstock pipeline decode` writes Parquet. Page: docs/lake.md.

A payload that is not JSON, or does not fit the schema, is kept in a column, dropped and counted, or fails the query.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.spark.errors import PenstockSparkError
from penstock.spark.pipelines.jobs import OnProgress, watched
from penstock.spark.table import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SAMPLE = 1000
SAMPLE_BYTES = 4 << 20  # one expression parses the whole sample
KEPT = ("stream", "seq", "ts", "ts_ns", "subject", "headers")
OnBad = Literal["column", "drop", "fail"]


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of a run."""

    output: str
    rows: int
    bad: int
    """Payloads that were not JSON of the schema; `rows` includes them unless they were dropped."""
    schema: str
    seconds: float


def decode(
    frame: DataFrame,
    *,
    schema: str | StructType | None = None,
    column: str = "payload",
    into: str | None = None,
    prefix: str = "",
    on_bad: OnBad = "column",
    corrupt: str = "_corrupt",
    sample: int = SAMPLE,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The frame with its JSON payloads replaced by their fields.

    schema: DDL or a StructType; None: inferred from the JSON objects among the first `sample` rows. A field with the
    name of a column gets the prefix `payload_`; `prefix` applies to all fields, `into` puts them into one struct
    column. on_bad: the text of a bad payload goes to the column `corrupt`, its row is dropped, or the query fails.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    if on_bad not in ("column", "drop", "fail"):
        raise PenstockSparkError(f"on_bad={on_bad!r}: column, drop or fail")
    fields = infer_schema(frame, column, sample) if schema is None else _parse(frame.sparkSession, schema)
    if corrupt in fields.names:
        raise PenstockSparkError(f"the payloads have a field {corrupt!r}: choose another name with corrupt=")
    asked = {"columnNameOfCorruptRecord": corrupt, "mode": "FAILFAST" if on_bad == "fail" else "PERMISSIVE"}
    text = f.col(column).cast("string")
    wanted = fields if on_bad == "fail" else StructType([*fields.fields, StructField(corrupt, StringType())])
    parsed = "_decoded"
    found = frame.withColumn(parsed, f.from_json(text, wanted, asked | dict(options or {})))
    others = [name for name in frame.columns if name != column]
    names = _names(fields, others if into is None else [], prefix)
    if into is None:
        data = [f.col(parsed)[field].alias(name) for field, name in names.items()]
    else:
        data = [f.struct(*[f.col(parsed)[field].alias(name) for field, name in names.items()]).alias(into)]
    if on_bad == "fail":
        return found.select(*others, *data)
    # An empty payload yields no struct.
    bad = f.coalesce(f.col(parsed)[corrupt], f.when(f.col(parsed).isNull(), f.coalesce(text, f.lit("")))).alias(corrupt)
    result = found.select(*others, *data, bad)
    return result if on_bad == "column" else result.where(f.col(corrupt).isNull()).drop(corrupt)


def infer_schema(frame: DataFrame, column: str = "payload", sample: int = SAMPLE) -> StructType:
    """The fields of the JSON objects among the first `sample` rows, merged by Spark's rules."""
    from pyspark.sql import functions as f

    if sample < 1:
        raise PenstockSparkError(f"sample={sample}: at least 1")
    texts, size, seen = [], 0, 0
    for row in frame.select(f.col(column).cast("string").alias("text")).limit(sample).collect():
        seen += 1
        if _is_object(row.text) and size + len(row.text) <= SAMPLE_BYTES:
            texts.append(row.text)
            size += len(row.text)
    if not texts:
        raise PenstockSparkError(
            f"none of the first {seen} payloads is a JSON object: filter the messages, raise sample={sample}, "
            "or give the schema"
        )
    shown = frame.sparkSession.range(1).select(f.schema_of_json(f.lit(f"[{','.join(texts)}]"))).head()
    assert shown is not None
    return _parse(frame.sparkSession, str(shown[0]).removeprefix("ARRAY<STRUCT<").removesuffix(">>"))


def _is_object(text: str | None) -> bool:
    try:
        return isinstance(json.loads(text or ""), dict)
    except (ValueError, RecursionError):
        return False


def _parse(spark: SparkSession, schema: str | StructType) -> StructType:
    from pyspark.errors import ParseException
    from pyspark.sql.types import StructType

    if isinstance(schema, StructType):
        return schema
    try:
        found = StructType.fromDDL(schema)
    except ParseException as error:
        raise PenstockSparkError(
            f"schema {schema!r} is no DDL such as 'id long, tags array<string>': {error}"
        ) from None
    if not isinstance(found, StructType):
        raise PenstockSparkError(f"schema {schema!r}: fields with their types are wanted, such as 'id long'")
    return found


def _names(fields: StructType, taken: Sequence[str], prefix: str) -> dict[str, str]:
    """The column name of each field; Spark ignores the case of names."""
    again = [name for name in fields.names if fields.names.index(name) != _lower(fields).index(name.lower())]
    if again:
        raise PenstockSparkError(f"fields that differ only in case: {', '.join(again)}; give a schema without them")
    used, found = {name.lower() for name in taken}, {}
    for field in fields.names:
        name = f"{prefix}{field}"
        name = f"payload_{name}" if name.lower() in used else name
        if name.lower() in used:
            raise PenstockSparkError(f"two columns would be called {name!r}: give a prefix, or into= a struct column")
        used.add(name.lower())
        found[field] = name
    return found


def _lower(fields: StructType) -> list[str]:
    return [name.lower() for name in fields.names]


def run(
    spark: SparkSession,
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    stream: str | Sequence[str] | None = None,
    account: str | None = None,
    lake: str | os.PathLike[str] | None = None,
    subjects: Sequence[str] | None = None,
    start_seq: int | None = None,
    stop_seq: int | None = None,
    since: str | int | None = None,
    until: str | int | None = None,
    schema: str | StructType | None = None,
    sample: int = SAMPLE,
    prefix: str = "",
    into: str | None = None,
    on_bad: OnBad = "column",
    partition_by: Sequence[str] = (),
    mode: Literal["error", "overwrite", "append"] = "error",
    on_progress: OnProgress | None = None,
) -> Decoded:
    """Write the messages with their payloads' fields as columns to Parquet in `output`."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    began = time.monotonic()
    frame = table(
        spark, path, lake=lake, stream=stream, account=account, subjects=subjects, start_seq=start_seq,
        stop_seq=stop_seq, since=since, until=until,
    )  # fmt: skip
    fields = infer_schema(frame, sample=sample) if schema is None else _parse(spark, schema)
    found = decode(frame, schema=fields, prefix=prefix, into=into, on_bad="fail" if on_bad == "fail" else "column")
    counts = Observation("penstock_decode")
    bad = f.sum(f.lit(0)) if on_bad == "fail" else f.count("_corrupt")
    found = found.observe(counts, f.count(f.lit(1)).alias("rows"), bad.alias("bad"))
    if on_bad == "drop":
        found = found.where(f.col("_corrupt").isNull()).drop("_corrupt")
    try:
        with watched(spark, on_progress):
            found.write.mode(mode).partitionBy(*partition_by).parquet(os.fspath(output))
    except AnalysisException as error:
        raise PenstockSparkError(f"{os.fspath(output)}: {error}") from None
    rows, wrong = counts.get["rows"], counts.get["bad"] or 0
    return Decoded(
        output=os.fspath(output),
        rows=rows - wrong if on_bad == "drop" else rows,
        bad=wrong,
        schema=", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields.fields),
        seconds=time.monotonic() - began,
    )
