"""The picture of a soak: memory, descriptors, threads and disk over its time, with the windows that were compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.soak_samples import MB, Sample, Taken

BLUE, ORANGE, GREEN, GREY = "#2f6fb5", "#d98032", "#4a9a6b", "#5b6472"
Line = tuple[str, str, str, float]  # field, label, colour, unit
PANELS: tuple[tuple[str, float, tuple[Line, ...]], ...] = (
    ("Memory, MB", 1.7, (("rss", "resident", BLUE, MB), ("anonymous", "anonymous", ORANGE, MB))),
    (
        "Descriptors, connections",
        1.2,
        (("descriptors", "open descriptors", BLUE, 1), ("connections", "clients connected", GREEN, 1)),
    ),
    ("Threads", 0.8, (("threads", "threads", BLUE, 1),)),
    ("Disk, MB", 1.0, (("disk", "files of the store", BLUE, MB),)),
)
STYLE: dict[str, Any] = {
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
    "axes.titleweight": "bold", "axes.titlesize": 10.5, "axes.grid": True, "grid.alpha": 0.25, "axes.axisbelow": True,
}  # fmt: skip


def draw(taken: Taken, title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            len(PANELS), 1, sharex=True, figsize=(11, 9), dpi=120, layout="constrained",
            height_ratios=[height for _, height, _ in PANELS],
        )  # fmt: skip
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
        for axes, (name, _, lines) in zip(panels, PANELS, strict=True):
            _draw_panel(axes, taken, name, lines)
        _name_windows(panels[0], taken)
        panels[-1].set_xlabel("minutes since everything began to come and go")
        figure.savefig(path)
        plt.close(figure)


def _draw_panel(axes: Any, taken: Taken, name: str, lines: tuple[Line, ...]) -> None:
    samples = [*taken.before, *taken.under_load, *taken.after]
    minutes = [_minute(taken, sample.at_s) for sample in samples]
    for field, label, colour, unit in lines:
        values = [getattr(sample, field) / unit for sample in samples]
        axes.plot(minutes, values, color=colour, linewidth=1.4, label=label)
    for start, end in (_span(taken.before), _span(taken.after)):
        axes.axvspan(_minute(taken, start), _minute(taken, end), color=GREEN, alpha=0.10, linewidth=0)
    for start, end in taken.windows:
        axes.axvspan(_minute(taken, start), _minute(taken, end), color=GREY, alpha=0.10, linewidth=0)
    axes.set_title(name)
    axes.set_ylim(bottom=0)
    axes.set_xlim(minutes[0], minutes[-1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if len(lines) > 1:
        axes.legend(frameon=False, ncols=len(lines), loc="lower right", bbox_to_anchor=(1, 0.98), borderaxespad=0.1)


def _minute(taken: Taken, at_s: float) -> float:
    return (at_s - taken.under_load[0].at_s) / 60


def _span(samples: list[Sample]) -> tuple[float, float]:
    return samples[0].at_s, samples[-1].at_s


def _name_windows(axes: Any, taken: Taken) -> None:
    spans = (_span(taken.before), *taken.windows, _span(taken.after))
    for name, (start, end) in zip(("base", "early", "late", "base"), spans, strict=True):
        middle = _minute(taken, (start + end) / 2)
        axes.text(middle, 0.05, name, transform=axes.get_xaxis_transform(), ha="center", color=GREY, fontsize=9)
