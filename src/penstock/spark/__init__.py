"""Penstock on Spark: `register`, `session`, `table`, and the pipelines as modules. pyspark waits until it is used."""

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
    """Make `format("penstock")` known to a session, and let it take the filters of queries over."""
    from penstock.spark.source.source import PenstockSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(PenstockSource)


def session(**conf: object) -> SparkSession:
    """The running Spark session, or a new one on this machine that knows `format("penstock")`.

    Settings are given with underscores for dots (`spark_master="local[4]"`, the `spark_` may be left out), or as
    `**{"spark.sql.shuffle.partitions": 8}`. With a master elsewhere nothing is bound to loopback.
    """
    from penstock.spark.session import session as start

    return start(**conf)


def table(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    """A stream as a DataFrame, its exported part from the lake: penstock/spark/table.py."""
    from penstock.spark.table import table as read

    return read(spark, path, **options)


def messages(frame: DataFrame, **expressions: Any) -> DataFrame:
    """A DataFrame's rows as messages, by expressions, ready to be written: penstock/spark/messages.py."""
    from penstock.spark.messages import messages as make

    return make(frame, **expressions)


def __getattr__(name: str) -> Any:
    if name in _PIPELINES:
        return import_module(f"penstock.spark.pipelines.{name}")
    raise AttributeError(f"module 'penstock.spark' has no attribute {name!r}")


class _Package(ModuleType):
    """Importing a submodule sets its name here; those that are functions here stay functions."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in ("messages", "session", "table"):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
