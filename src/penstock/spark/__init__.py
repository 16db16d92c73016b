"""Penstock on Spark: `register`, `session`, `table`, and the pipelines as modules. pyspark is imported on first use."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.pipelines import decode as decode
    from penstock.spark.pipelines import lake as lake
    from penstock.spark.pipelines import migrate as migrate
    from penstock.spark.pipelines import replay as replay
    from penstock.spark.pipelines import state as state
    from penstock.spark.pipelines import verify as verify

_PIPELINES = ("verify", "lake", "migrate", "state", "replay", "decode")

__all__ = ["messages", "register", "session", "table"]


def register(spark: SparkSession) -> None:
    """Register `format("penstock")` with a session, and enable pushdown of query filters into it."""
    from penstock.spark.source.source import PenstockSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(PenstockSource)


def session(**conf: object) -> SparkSession:
    """The running Spark session, or a new one on this machine, with `format("penstock")` registered.

    Settings use underscores for dots (`spark_master="local[4]"`; the prefix `spark_` is optional), or are passed as
    `**{"spark.sql.shuffle.partitions": 8}`. With a remote master nothing is bound to loopback.
    """
    from penstock.spark.session import session as start

    return start(**conf)


def table(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    """A stream as a DataFrame; its exported part is read from the lake: penstock/spark/table.py."""
    from penstock.spark.table import table as read

    return read(spark, path, **options)


def messages(frame: DataFrame, **expressions: Any) -> DataFrame:
    """A DataFrame's rows mapped to messages by expressions, ready to be written: penstock/spark/messages.py."""
    from penstock.spark.messages import messages as make

    return make(frame, **expressions)


def __getattr__(name: str) -> Any:
    if name in _PIPELINES:
        return import_module(f"penstock.spark.pipelines.{name}")
    raise AttributeError(f"module 'penstock.spark' has no attribute {name!r}")


class _Package(ModuleType):
    """Importing a submodule would overwrite the function of the same name here; this keeps the function."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in ("messages", "session", "table"):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
