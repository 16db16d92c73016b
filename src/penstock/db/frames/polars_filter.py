"""Translates a Polars predicate to an Arrow filter, for pruning: what Arrow cannot express is left out, which only
widens the filter.

Polars writes an expression as JSON; we read the few shapes that select rows by sequence, time and subject.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.scan.schema import schema

if TYPE_CHECKING:
    import polars as pl

_COMPARE: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "Eq": lambda a, b: a == b,
    "Gt": lambda a, b: a > b,
    "GtEq": lambda a, b: a >= b,
    "Lt": lambda a, b: a < b,
    "LtEq": lambda a, b: a <= b,
}
_BETWEEN = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"), "None": ("Gt", "Lt")}
_PRUNES = ("seq", "ts", "ts_ns", "subject")


class _Unsaid(Exception):
    """The expression contains something that we do not translate."""


def to_arrow_filter(predicate: pl.Expr) -> pc.Expression | None:
    """A filter that matches every row that `predicate` matches, and perhaps more; None if it would match all rows."""
    try:
        tree = json.loads(predicate.meta.serialize(format="json"))
    except Exception:  # noqa: BLE001 (a Python function in it, or a Polars that writes none: pruning is all that is lost)
        return None
    return _wider(tree)


def _wider(tree: Any) -> pc.Expression | None:
    """The filter of one node: for an AND, the parts that can be translated; for an OR, all parts or nothing."""
    try:
        kind, node = _only(tree)
        if kind == "BinaryExpr" and node["op"] in ("And", "LogicalAnd"):
            sides = [side for side in (_wider(node["left"]), _wider(node["right"])) if side is not None]
            return sides[0] & sides[1] if len(sides) == 2 else sides[0] if sides else None
        if kind == "BinaryExpr" and node["op"] in ("Or", "LogicalOr"):
            left, right = _wider(node["left"]), _wider(node["right"])
            return None if left is None or right is None else left | right
        if kind == "BinaryExpr":
            return _compared(node["op"], node["left"], node["right"])
        if kind == "Function":
            return _function(node["function"], node["input"])
    except (_Unsaid, KeyError, TypeError, ValueError, OverflowError, pa.ArrowException):
        return None
    return None


def _compared(op: str, left: Any, right: Any) -> pc.Expression:
    if op not in _COMPARE:
        raise _Unsaid
    if "Column" in left:
        name = _column(left)
        return _COMPARE[op](pc.field(name), _scalar(name, right))
    name = _column(right)
    return _COMPARE[op](_scalar(name, left), pc.field(name))


def _function(function: Any, given: list[Any]) -> pc.Expression:
    kind, which = _only(function)
    if kind != "Boolean":
        raise _Unsaid
    which, options = _only(which)
    name = _column(given[0])
    if which == "IsIn":
        values = _value(given[1])
        if any(value is None for value in values):
            raise _Unsaid
        return pc.field(name).isin(pa.array(list(values), schema().field(name).type))
    if which == "IsBetween":
        low, high = _BETWEEN[options["closed"]]
        bounds = _scalar(name, given[1]), _scalar(name, given[2])
        return _COMPARE[low](pc.field(name), bounds[0]) & _COMPARE[high](pc.field(name), bounds[1])
    raise _Unsaid


def _column(node: Any) -> str:
    kind, name = _only(node)
    if kind != "Column" or name not in _PRUNES:
        raise _Unsaid
    return str(name)


def _scalar(column: str, node: Any) -> pc.Expression:
    """A constant in the column's type, only if it fits exactly."""
    value = _value(node)
    if value is None or isinstance(value, float):
        raise _Unsaid
    return pc.scalar(pa.scalar(value, schema().field(column).type))


def _value(node: Any) -> Any:
    """The value that Polars computes for an expression without columns."""
    import polars

    if "Literal" not in node:
        raise _Unsaid
    found = polars.select(polars.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")).to_series()
    value = found[0]
    return value.to_list() if isinstance(value, polars.Series) else value


def _only(node: Any) -> tuple[str, Any]:
    """The name and the content of a node that has a single entry."""
    if not isinstance(node, dict) or len(node) != 1:
        raise _Unsaid
    return next(iter(node.items()))
