"""Spark looks for modules named pyspark_*: by this one it knows `format("penstock")` without being told."""

from penstock.spark.source.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
