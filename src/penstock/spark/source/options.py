"""ReadOptions: the checked options of a read from `format("penstock")`. docs/spark.md lists them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal, cast
from urllib.parse import unquote, urlsplit

from penstock.base.duration import parse_duration, parse_time
from penstock.base.subject import explain_filter
from penstock.scan.part import HeadersMode, Mode, part_columns
from penstock.scan.plan import PART_BYTES
from penstock.spark.errors import PenstockSparkError

Table = Literal["messages", "blocks", "subjects", "streams", "consumers"]
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*(?:(b|k|m|g|t)(?:i?b)?)?", re.IGNORECASE)


def _texts(text: str) -> tuple[str, ...]:
    """A list of names: separated by commas, or as JSON."""
    if text.lstrip().startswith("["):
        found = json.loads(text)
        if not all(isinstance(one, str) for one in found):
            raise ValueError("a list of texts is wanted")
        return tuple(found)
    return tuple(one.strip() for one in text.split(",") if one.strip())


def _paths(text: str) -> tuple[str, ...]:
    return tuple(map(directory, _texts(text)))


def directory(text: str) -> str:
    """A store's directory; Spark users may write it as a file: URL."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme.lower() == "file" and rest.startswith("/"):
        return unquote(urlsplit(text).path)
    if colon and rest.startswith("//"):
        raise ValueError(f"{text} is no directory: mount it, or copy it to a disk that all workers reach")
    return text


def _filters(text: str) -> tuple[str, ...]:
    found = _texts(text)
    for one in found:
        why = explain_filter(one)
        if why is not None:
            raise ValueError(f"{one!r}: {why}")
    return found


def _columns(text: str) -> tuple[str, ...]:
    return part_columns(_texts(text), "map")


def _integer(low: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError("a whole number is wanted") from None
        if not low <= number < 2**63:
            raise ValueError(f"a number from {low} on, below 2^63, is wanted")
        return number

    return parse


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None or not int(found[1]):
        raise ValueError('a size is wanted, such as 67108864, "64m" or "64MiB"')
    return int(found[1]) * _UNITS[(found[2] or "").lower()]


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false is wanted")
    return text.lower() == "true"


def _one_of(*known: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in known:
            raise ValueError(f"one of {', '.join(known)} is wanted")
        return text.lower()

    return parse


_headers = _one_of("map", "raw", "none")
_mode = _one_of("fail", "skip", "quarantine")
_table = _one_of("messages", "blocks", "subjects", "streams", "consumers")
_offsets = _one_of("earliest", "latest")
_seq, _count = _integer(0), _integer(1)


def _named(name: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    return {"name": name, "parse": parse}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read, batch or streaming."""

    paths: tuple[str, ...] = field(default=(), metadata=_named("path", _paths))
    streams: tuple[str, ...] | None = field(default=None, metadata=_named("stream", _texts))
    """None: all streams of the store."""
    account: str | None = field(default=None, metadata=_named("account", str))
    """None: all accounts of the store."""
    subjects: tuple[str, ...] = field(default=(), metadata=_named("subjects", _filters))
    columns: tuple[str, ...] | None = field(default=None, metadata=_named("columns", _columns))
    headers: HeadersMode = field(default="map", metadata=_named("headers", _headers))
    mode: Mode = field(default="fail", metadata=_named("mode", _mode))
    table: Table = field(default="messages", metadata=_named("table", _table))
    starting_seq: int | None = field(default=None, metadata=_named("startingSeq", _seq))
    ending_seq: int | None = field(default=None, metadata=_named("endingSeq", _seq))
    """Exclusive."""
    starting_time: int | None = field(default=None, metadata=_named("startingTime", parse_time))
    ending_time: int | None = field(default=None, metadata=_named("endingTime", parse_time))
    """Exclusive, both in Unix nanoseconds."""
    max_partition_bytes: int = field(default=PART_BYTES, metadata=_named("maxPartitionBytes", _size))
    min_partitions: int | None = field(default=None, metadata=_named("minPartitions", _count))
    """None: one per core if there is enough to read."""
    pushdown: bool = field(default=False, metadata=_named("pushdown", _truth))
    """Off: Spark 4.3 keeps pushed filters with the DataFrame, so a later use of it would be filtered by them too."""
    starting_offsets: Literal["earliest", "latest"] = field(
        default="earliest", metadata=_named("startingOffsets", _offsets)
    )
    max_messages_per_trigger: int | None = field(default=None, metadata=_named("maxMessagesPerTrigger", _count))
    max_bytes_per_trigger: int | None = field(default=None, metadata=_named("maxBytesPerTrigger", _size))
    min_messages_per_trigger: int | None = field(default=None, metadata=_named("minMessagesPerTrigger", _count))
    max_trigger_delay: int | None = field(default=None, metadata=_named("maxTriggerDelay", parse_duration))
    """Nanoseconds."""
    fail_on_data_loss: bool = field(default=True, metadata=_named("failOnDataLoss", _truth))

    @staticmethod
    def parse(options: Mapping[str, str]) -> ReadOptions:
        """Parse Spark's map, which ignores the case of names; PenstockSparkError says what is wrong with an option."""
        by_name = {one.metadata["name"].lower(): one for one in fields(ReadOptions)}
        found: dict[str, Any] = {}
        for given, text in options.items():
            key = _ALIASES.get(given.lower(), given.lower())
            known = by_name.get(key)
            if known is None:
                raise PenstockSparkError(_unknown(given, [one.metadata["name"] for one in by_name.values()]))
            try:
                found[known.name] = known.metadata["parse"](str(text))
            except ValueError as error:
                raise PenstockSparkError(f"option {known.metadata['name']}={text!r}: {error}") from None
        return _checked(ReadOptions(**found), found)


_ALIASES = {"paths": "path", "streams": "stream", "subject": "subjects"}


def _unknown(given: str, names: list[str]) -> str:
    lower = {name.lower(): name for name in names}
    near = [lower[name] for name in get_close_matches(given.lower(), lower, n=3, cutoff=0.6)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(sorted(names))}"
    return f"unknown option {given!r} of format penstock: {hint}"


def _checked(options: ReadOptions, given: Iterable[str]) -> ReadOptions:
    """Check options against each other."""
    named = {one.name: one.metadata["name"] for one in fields(ReadOptions)}
    if options.table != "messages":
        fit = ("paths", "streams", "account", "table", *(("subjects",) if options.table == "subjects" else ()))
        for name in given:
            if name not in fit:
                raise PenstockSparkError(
                    f"option {named[name]} does not go with table={options.table}, which reads no messages: leave it "
                    f"out, and narrow the table with select and where"
                )
    if not options.paths:
        raise PenstockSparkError('no store: give its directory, as .load("DIR") or .option("path", "DIR")')
    if options.streams == ():
        raise PenstockSparkError("option stream is empty: name streams, or leave it out to read all of the store")
    if options.headers == "none" and options.columns is not None and "headers" in options.columns:
        raise PenstockSparkError("option columns asks for headers, option headers=none leaves them out: drop one")
    for low, high in (("starting_seq", "ending_seq"), ("starting_time", "ending_time")):
        start, stop = cast("int | None", getattr(options, low)), cast("int | None", getattr(options, high))
        if start is not None and stop is not None and start > stop:
            raise PenstockSparkError(f"option {named[low]} lies after {named[high]}: nothing can be between them")
    return options
