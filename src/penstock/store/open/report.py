"""Report: what an open found that was not as it should be, by file, offset and sequence."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing: what it is, where, and which sequences it cost."""

    kind: str  # torn tail · damaged records · lost sequences · set aside · missing block · rebuilt · unknown file
    path: str
    text: str
    offset: int = 0
    size: int = 0
    seqs: tuple[tuple[int, int], ...] = ()  # half open ranges

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


@dataclass(slots=True)
class Report:
    """The findings of one open or verify."""

    findings: list[Finding] = field(default_factory=list)

    def add(
        self,
        kind: str,
        path: str,
        text: str,
        *,
        offset: int = 0,
        size: int = 0,
        seqs: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self.findings.append(Finding(kind, path, text, offset, size, seqs))

    @property
    def lost(self) -> list[tuple[int, int]]:
        """The sequences that are gone, as half open ranges."""
        return [span for finding in self.findings for span in finding.seqs]

    @property
    def damage(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind in DAMAGE]

    @property
    def is_clean(self) -> bool:
        return not self.damage


DAMAGE = frozenset({"damaged records", "lost sequences", "set aside", "missing block"})


def format_ranges(ranges: list[tuple[int, int]] | tuple[tuple[int, int], ...], most: int = 8) -> str:
    """Half open ranges as people write them: "3, 7-9"."""
    parts = [str(start) if stop == start + 1 else f"{start}-{stop - 1}" for start, stop in ranges[:most]]
    return ", ".join(parts) + (f" and {len(ranges) - most} more ranges" if len(ranges) > most else "")
