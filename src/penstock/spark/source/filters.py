"""Pushdown: filters of a Spark query as ranges of sequence and time, subjects and streams, which the scan applies.

A filter is pushed down only if the scan returns exactly the rows that Spark would keep; Spark evaluates all others,
which may still help to skip blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from penstock.base.subject import Filters, is_valid_filter, is_valid_name, is_valid_subject

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

INT64_STOP = 2**63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Pushed:
    """The constraints of a read. Ranges are half open; times are nanoseconds."""

    start_seq: int | None = None
    stop_seq: int | None = None
    since: int | None = None
    until: int | None = None
    subjects: tuple[str, ...] = ()
    """NATS filters; at least one must match. Empty: all subjects."""
    literals: frozenset[str] | None = None
    """Literal subjects; the message's subject must be one of them. None: any subject."""
    prefixes: tuple[str, ...] = ()
    """Prefixes; the subject must begin with every one of them."""
    streams: frozenset[str] | None = None

    def take(self, one: Filter) -> bool:
        """Narrow the read by a filter; True when Spark need not evaluate it any more."""
        from pyspark.sql import datasource as spark

        path: tuple[str, ...] = getattr(one, "attribute", ())
        column = path[0] if len(path) == 1 else ""
        if isinstance(one, spark.IsNotNull):
            return column in ("stream", "seq", "ts", "ts_ns", "subject", "payload")
        if column in ("seq", "ts", "ts_ns"):
            return self._take_number(column, one)
        if column in ("subject", "stream"):
            return self._take_name(column, one)
        return False

    def _take_number(self, column: str, one: Any) -> bool:
        from pyspark.sql import datasource as spark

        if isinstance(one, spark.In):
            values = [_number(column, value) for value in one.value]
            known = [value for value in values if value is not None]
            if not known or len(known) < len(values):
                return False
            self._between(column, min(known), max(known))
            return len(set(known)) == 1
        value = _number(column, getattr(one, "value", None))
        if value is None:
            return False
        if isinstance(one, spark.EqualTo | spark.EqualNullSafe):
            self._between(column, value, value)
        elif isinstance(one, spark.GreaterThan):
            self._between(column, value + 1, None)
        elif isinstance(one, spark.GreaterThanOrEqual):
            self._between(column, value, None)
        elif isinstance(one, spark.LessThan):
            self._between(column, None, value - 1)
        elif isinstance(one, spark.LessThanOrEqual):
            self._between(column, None, value)
        else:
            return False
        return True

    def _between(self, column: str, low: int | None, high: int | None) -> None:
        """Narrow to low <= column <= high."""
        unit = 1000 if column == "ts" else 1  # ts is ts_ns // 1000, so a microsecond covers a thousand nanoseconds
        start = None if low is None else min(max(low * unit, -INT64_STOP), INT64_STOP)
        stop = None if high is None or (high + 1) * unit >= INT64_STOP else max((high + 1) * unit, -INT64_STOP)
        if column == "seq":
            self.start_seq, self.stop_seq = _later(self.start_seq, start), _earlier(self.stop_seq, stop)
        else:
            self.since, self.until = _later(self.since, start), _earlier(self.until, stop)

    def _take_name(self, column: str, one: Any) -> bool:
        from pyspark.sql import datasource as spark

        if isinstance(one, spark.StringStartsWith):
            return column == "subject" and self._take_prefix(one.value)
        if isinstance(one, spark.In):
            names = list(one.value)
        elif isinstance(one, spark.EqualTo | spark.EqualNullSafe):
            names = [one.value]
        else:
            return False
        if not all(isinstance(name, str) for name in names):
            return False
        if column == "stream":
            self.streams = frozenset(names) if self.streams is None else self.streams & frozenset(names)
            return True
        if any(is_valid_name(name) and not is_valid_subject(name) for name in names):
            return False  # the literal `a.*` would match more as a NATS filter; Spark compares it
        # No message has an invalid subject.
        found = frozenset(name for name in names if is_valid_subject(name))
        self.literals = found if self.literals is None else self.literals & found
        return True

    def _take_prefix(self, prefix: str) -> bool:
        self.prefixes = (*self.prefixes, prefix)
        return True

    @property
    def is_nothing(self) -> bool:
        """Whether no row can match."""
        return (
            self.streams == frozenset()
            or self.literals == frozenset()
            or (self.literals is not None and not self.scan_subjects)
            or _is_empty(self.start_seq, self.stop_seq)
            or _is_empty(self.since, self.until)
            or INT64_STOP in (self.start_seq, self.since)
        )

    @property
    def scan_subjects(self) -> tuple[str, ...]:
        """The filters for the scan; together with `left_prefixes` they are equivalent to all the constraints."""
        if self.literals is not None:
            allowed = Filters(self.subjects)
            return tuple(
                sorted(
                    name
                    for name in self.literals
                    if (not self.subjects or allowed.match(name))
                    and all(name.startswith(prefix) for prefix in self.prefixes)
                )
            )
        if self.subjects:
            return self.subjects
        widest = max((wider for wider in map(_as_filter, self.prefixes) if wider), key=len, default="")
        return (widest,) if widest else ()

    @property
    def left_prefixes(self) -> tuple[str, ...]:
        """The prefixes that the scan's filters do not express."""
        if self.literals is not None:
            return ()
        told = self.scan_subjects if not self.subjects else ()
        return tuple(prefix for prefix in self.prefixes if not (prefix.endswith(".") and told == (_as_filter(prefix),)))


def _as_filter(prefix: str) -> str:
    """The NATS filter of the subjects that share the prefix's whole tokens; "" when there is none."""
    tokens = prefix.rpartition(".")[0]
    wider = f"{tokens}.>"
    return wider if tokens and is_valid_subject(tokens) and is_valid_filter(wider) else ""


def _number(column: str, value: Any) -> int | None:
    """The value in the column's unit; None if it has another type."""
    if column == "ts":
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        return (value - _EPOCH) // timedelta(microseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _later(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _is_empty(start: int | None, stop: int | None) -> bool:
    return start is not None and stop is not None and start >= stop


def push(filters: Iterable[Filter], pushed: Pushed) -> list[Filter]:
    """Narrow `pushed` by the filters and return those that Spark must evaluate."""
    return [one for one in filters if not pushed.take(one)]
