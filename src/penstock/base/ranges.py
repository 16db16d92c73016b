"""Half open ranges of sequences without the members of sets."""

from __future__ import annotations

from penstock.base.seq_set import SeqSet


def subtract(span: tuple[int, int], sets: tuple[SeqSet, ...]) -> list[tuple[int, int]]:
    """What is left of a half open range without the members of the sets."""
    left = [span]
    for members in sets:
        rest: list[tuple[int, int]] = []
        for start, stop in left:
            at = start
            while at < stop:
                present = members.present_from(at)
                if present is None or present >= stop:
                    rest.append((at, stop))
                    break
                if present > at:
                    rest.append((at, present))
                absent = members.absent_from(present)
                at = stop if absent is None else absent
        left = rest
    return left
