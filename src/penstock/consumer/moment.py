"""Moment: a point in time from a request, in nanoseconds, with the time zone in which it is shown again.

nats-server keeps and shows the zone of a consumer's start and pause. When a consumer is created again, the same moment
in another zone counts as a different configuration.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec

from penstock.base.duration import NS_PER_SECOND
from penstock.wire.go_decode import read_time

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)


class Moment(msgspec.Struct, frozen=True):
    """Unix nanoseconds, and the zone's offset in minutes east of UTC."""

    ns: int
    zone: int = 0

    @property
    def is_zero(self) -> bool:
        """Whether it is Go's zero time, which means that it was never set."""
        return self.ns == ZERO_NS


ZERO_NS = -62_135_596_800 * NS_PER_SECOND  # the first of January of the year 1


def parse_moment(text: str) -> Moment:
    """The moment in a JSON text; InvalidJson says what is wrong, in the words of Go's decoder."""
    rough = read_time(text)  # checks the text; reaches from 1677 to 2262 only
    found = _TIME.fullmatch(text)
    if found is None or found[1] == "0000":  # Python's years begin at 1
        return Moment(rough)
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    offset = int(found[9] or 0) * 60 + int(found[10] or 0)
    zone = -offset if found[8] == "-" else offset
    since = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    seconds = since.days * 86_400 + since.seconds - zone * 60
    return Moment(seconds * NS_PER_SECOND + int((found[7] or "")[:9].ljust(9, "0")), zone)


def format_moment(moment: Moment) -> str:
    """The text that `parse_moment` reads, as Go writes it: the fraction's trailing zeros left out."""
    seconds, fraction = divmod(moment.ns, NS_PER_SECOND)
    local = _EPOCH + timedelta(seconds=seconds + moment.zone * 60)
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    hours, minutes = divmod(abs(moment.zone), 60)
    zone = f"{'-' if moment.zone < 0 else '+'}{hours:02d}:{minutes:02d}" if moment.zone else "Z"
    return f"{local:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + digits + zone
