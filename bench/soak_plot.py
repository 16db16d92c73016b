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
    start = taken.under_load[0].at_s
    minutes = [(sample.at_s - start) / 60 for sample in taken.under_load]
    ends = [_minute(taken, taken.before), _minute(taken, taken.after)]
    for field, label, colour, unit in lines:
        axes.plot(
            minutes, [getattr(s, field) / unit for s in taken.under_load], color=colour, linewidth=1.4, label=label
        )
        levels = [getattr(sample, field) / unit for sample in (taken.before, taken.after)]
        axes.plot(ends, levels, color=colour, linewidth=0.9, linestyle=(0, (2, 3)), alpha=0.8)
        axes.plot(ends, levels, "o", color=colour, markersize=5.5, markeredgecolor="white", clip_on=False, zorder=4)
    for window in taken.windows:
        axes.axvspan(*((at - start) / 60 for at in window), color=GREY, alpha=0.08, linewidth=0)
    axes.set_title(name)
    axes.set_ylim(bottom=0)
    axes.set_xlim(min(ends), max(ends))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if len(lines) > 1:
        axes.legend(frameon=False, ncols=len(lines), loc="lower right", bbox_to_anchor=(1, 0.98), borderaxespad=0.1)


def _minute(taken: Taken, sample: Sample) -> float:
    return (sample.at_s - taken.under_load[0].at_s) / 60


def _name_windows(axes: Any, taken: Taken) -> None:
    start = taken.under_load[0].at_s
    for name, (begin, end) in zip(("early", "late"), taken.windows, strict=True):
        middle = ((begin + end) / 2 - start) / 60
        axes.text(middle, 0.04, name, transform=axes.get_xaxis_transform(), ha="center", color=GREY, fontsize=9)
