"""Parsing of options that several commands share: subjects and times."""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.base.duration import parse_time
from penstock.base.subject import explain_filter
from penstock.errors import UsageError


def check_filters(filters: Sequence[str], option: str) -> list[str]:
    """Subject filters given as an option."""
    for one in filters:
        if (why := explain_filter(one)) is not None:
            raise UsageError(f"{option} {one!r}: {why}; tokens are split by dots, * matches one and > all that follow")
    return list(filters)


def parse_moment(text: str | None, option: str) -> int | None:
    """Unix nanoseconds of a time given as an option; digits alone are Unix nanoseconds."""
    if text is None:
        return None
    try:
        return parse_time(int(text) if text.isdigit() else text, time.time_ns())
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
