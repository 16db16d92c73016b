"""The subjects of a new stream if only its messages are known: the first token of each subject, and everything below
it."""

from __future__ import annotations

from collections.abc import Iterable


def derived_filter(subject: str) -> str:
    """`orders.eu.42` gives `orders.>`; a subject of one token gives itself."""
    first, dot, _ = subject.partition(".")
    return f"{first}.>" if dot else first


def derived_filters(subjects: Iterable[str]) -> list[str]:
    """The filters that capture all of these subjects; they do not overlap."""
    return sorted({derived_filter(subject) for subject in subjects})
