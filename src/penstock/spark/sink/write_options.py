"""WriteOptions: the checked options of a write to `format("penstock")`. docs/spark.md lists them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from penstock.spark.errors import PenstockSparkError
from penstock.spark.source.options import directory

_NAMES = {
    "path": "path",
    "stream": "stream",
    "account": "account",
    "subjectcolumn": "subject",
    "payloadcolumn": "payload",
    "headerscolumn": "headers",
    "timecolumn": "time",
    "subject": "literal",
    "createsubjects": "create",
}
_SHOWN = {
    "path", "stream", "account", "subjectColumn", "payloadColumn", "headersColumn", "timeColumn", "subject",
    "createSubjects",
}  # fmt: skip
_SPARKS_OWN = {"checkpointlocation", "queryname"}  # a streaming query passes its own options on


@dataclass(frozen=True, slots=True)
class WriteOptions:
    path: str
    stream: str
    account: str | None = None
    """None: the account of the existing stream with this name; `$G` for a new stream."""
    subject: str = ""
    """The column's name; "": the column `subject`, if it exists."""
    payload: str = ""
    headers: str = ""
    time: str = ""
    """A column of timestamps or int64 nanoseconds; "": the time of the adoption, even if `ts_ns` or `ts` exists."""
    literal: str = ""
    """One subject for all messages."""
    create: tuple[str, ...] = ()
    """The subjects of the stream if the write creates it."""

    @staticmethod
    def parse(options: Mapping[str, str]) -> WriteOptions:
        found: dict[str, str] = {}
        for given, text in options.items():
            key = given.lower()
            if key in _SPARKS_OWN:
                continue
            name = _NAMES.get(key)
            if name is None:
                near = get_close_matches(key, [one.lower() for one in _SHOWN], n=3, cutoff=0.6)
                shown = [one for one in sorted(_SHOWN) if one.lower() in near]
                hint = f"did you mean {' or '.join(shown)}?" if shown else f"there are {', '.join(sorted(_SHOWN))}"
                raise PenstockSparkError(f"unknown option {given!r} for writing to format penstock: {hint}")
            found[name] = text
        for needed in ("path", "stream"):
            if not found.get(needed):
                raise PenstockSparkError(f'option {needed} is missing: .option("{needed}", …)')
        if found.get("subject") and found.get("literal"):
            raise PenstockSparkError("options subject and subjectColumn are both given: leave one out")
        try:
            found["path"] = directory(found["path"])
        except ValueError as error:
            raise PenstockSparkError(f"option path: {error}") from None
        create = tuple(one.strip() for one in found.pop("create", "").split(",") if one.strip())
        return WriteOptions(**found, create=create)
