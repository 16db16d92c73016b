"""report: the results of `state` as one HTML file with plots, which needs no other file and no network.

Every text that comes from a store is escaped. The plots have no background and use mid-tones: they are legible on dark
and on light pages.
"""

from __future__ import annotations

import base64
import io
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.base.duration import format_time
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]
Cell = tuple[int, int, int, int]
BLUE, ORANGE, GREEN, PURPLE, RED, GREY = "#3b82c4", "#d9822b", "#3a9d6e", "#9467bd", "#c9504a", "#858b95"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, "#2a9aa8", GREY)
STREAMS_SHOWN = 5  # in one plot; the others are summed
CONSUMERS_SHOWN = 50
REASONS = {"deleted": GREY, "skipped": ORANGE, "lost": RED}


@dataclass(frozen=True, slots=True)
class Facts:
    """The contents of a report: rows of the DataFrames of `state`, with the longest lists cut."""

    path: str
    streams: list[Row]  # the first is "*", all of them
    percentiles: list[Row]
    histograms: dict[tuple[str, str], dict[int, Cell]]
    rates: tuple[str, list[Row]]  # "minute", "hour" or "day"; rows with stream, second, messages, bytes
    top_subjects: list[Row]
    gaps: list[Row]
    duplicates: list[Row]
    consumers: list[Row] = field(default_factory=list)  # those that are furthest behind first
    made_ns: int = field(default_factory=time.time_ns)


def write_report(facts: Facts, path: str | os.PathLike[str]) -> None:
    """Write the report under a temporary name first, so that no reader sees a partial file."""
    target = os.fspath(path)
    text = render(facts)
    with open(f"{target}.tmp", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(f"{target}.tmp", target)


def render(facts: Facts) -> str:
    """The page."""
    whole = facts.streams[0]
    name = os.path.basename(facts.path.rstrip("/")) or facts.path
    parts = [_cards(facts, whole)]
    if whole["messages"]:
        unit, rates = facts.rates
        sizes, waits = facts.histograms.get(("*", "size"), {}), facts.histograms.get(("*", "gap"), {})
        parts += [
            _section(f"Messages per {unit}", _picture(lambda axes: _plot_rates(axes, unit, rates), "rate over time")),
            _section("Streams", _streams_table(facts.streams)),
            _section(
                "Sizes and times",
                '<div class="pair">'
                + _picture(lambda axes: _plot_histogram(axes, sizes, format_bytes, "headers and payload", BLUE),
                           "how large messages are", width=5.6)
                + _picture(lambda axes: _plot_histogram(axes, waits, format_wait, "time since the last message", GREEN,
                           10), "how far apart messages are", width=5.6)
                + "</div>" + _percentiles_table(facts.percentiles),
            ),
            _section("Subjects with most messages", _picture(
                lambda axes: _plot_subjects(axes, facts.top_subjects), "messages by subject",
                height=0.9 + 0.27 * len(facts.top_subjects)) + _subjects_table(facts.top_subjects)),
        ]  # fmt: skip
    parts.append(_section("Gaps", _gaps(facts)))
    parts.append(_section("Duplicates", _duplicates(facts.duplicates, whole["duplicates"])))
    if facts.consumers:
        parts.append(_section("Consumers", _consumers(facts.consumers)))
    made = format_time(facts.made_ns // 10**9 * 10**9)
    return PAGE.format(
        title=escape(f"Penstock: the state of {name}"),
        path=escape(facts.path),
        made=escape(made),
        body="\n".join(parts),
    )


# Tables.


def _table(columns: Sequence[tuple[str, Callable[[Row], str], bool]], rows: Iterable[Row]) -> str:
    """Columns are (title, text of a row, is a number); every text is escaped here."""
    head = "".join(f'<th class="{"n" if number else "t"}">{escape(title)}</th>' for title, _, number in columns)
    body = "".join(
        "<tr>" + "".join(
            f'<td class="{"n" if number else "t"}">{escape(text(row))}</td>' for _, text, number in columns
        ) + "</tr>"
        for row in rows
    )  # fmt: skip
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cards(facts: Facts, whole: Row) -> str:
    first, last = _moment(whole["first_ts_ns"]), _moment(whole["last_ts_ns"])
    cards = [
        ("messages", f"{whole['messages']:,}"), ("stored", format_bytes(whole["bytes"])),
        ("streams", f"{len(facts.streams) - 1:,}"), ("subjects", f"{whole['subjects']:,}"),
        ("peak per minute", f"{whole['peak_per_minute']:,}"), ("lost", f"{whole['lost']:,}"),
    ]  # fmt: skip
    boxes = "".join(f"<div><b>{escape(value)}</b><span>{escape(title)}</span></div>" for title, value in cards)
    return f'<div class="cards">{boxes}</div><p>From {escape(first)} to {escape(last)}, UTC.</p>'


def _streams_table(rows: Sequence[Row]) -> str:
    shown = [*rows[1:], rows[0]] if len(rows) > 2 else rows[1:]
    return _table(
        [
            ("stream", lambda row: "all" if row["stream"] == "*" else row["stream"], False),
            ("messages", lambda row: f"{row['messages']:,}", True),
            ("stored", lambda row: format_bytes(row["bytes"]), True),
            ("subjects", lambda row: f"{row['subjects']:,}", True),
            ("sequences", lambda row: f"{row['first_seq']}–{row['last_seq']}" if row["last_seq"] else "", True),
            ("first", lambda row: _moment(row["first_ts_ns"]), False),
            ("last", lambda row: _moment(row["last_ts_ns"]), False),
            ("per minute", lambda row: f"{row['mean_per_minute']:,.1f}", True),
            ("peak minute", lambda row: f"{row['peak_per_minute']:,}", True),
            ("peak hour", lambda row: f"{row['peak_per_hour']:,}", True),
        ],
        shown,
    )


def _percentiles_table(rows: Sequence[Row]) -> str:
    many = len({row["stream"] for row in rows}) > 2
    shown = [row for row in rows if many or row["stream"] != "*"]

    def cell(name: str) -> Callable[[Row], str]:
        return lambda row: (format_bytes if row["what"] == "size" else format_wait)(row[name])

    numbers = [(title, cell(name), True) for title, name in (
        ("lowest", "min"), ("mean", "mean"), ("median", "p50"), ("90 %", "p90"), ("99 %", "p99"), ("99.9 %", "p999"),
        ("highest", "max"),
    )]  # fmt: skip
    return _table(
        [
            ("stream", lambda row: "all" if row["stream"] == "*" else row["stream"], False),
            ("of", lambda row: "message size" if row["what"] == "size" else "time between messages", False),
            *numbers,
        ],
        shown,
    )


def _subjects_table(rows: Sequence[Row]) -> str:
    return _table(
        [
            ("stream", lambda row: row["stream"], False),
            ("subject", lambda row: row["subject"], False),
            ("messages", lambda row: f"{row['messages']:,}", True),
            ("headers and payload", lambda row: format_bytes(row["data_bytes"] or 0), True),
            ("first", lambda row: f"{row['first_seq']}", True),
            ("last", lambda row: f"{row['last_seq']}", True),
            ("last stored", lambda row: _moment(row["last_ts_ns"]), False),
        ],
        rows,
    )


def _gaps(facts: Facts) -> str:
    whole = facts.streams[0]
    told = ", ".join(f"{whole[kind]:,} {kind}" for kind in REASONS)
    if not facts.gaps:
        return "<p>Every sequence between first and last holds a message.</p>"
    spans = {row["stream"]: (row["first_seq"], row["last_seq"]) for row in facts.streams[1:]}
    shown = [name for name in spans if any(row["stream"] == name for row in facts.gaps)][:12]
    picture = _picture(lambda axes: _plot_gaps(axes, shown, spans, facts.gaps), "where sequences are missing",
                       height=0.9 + 0.4 * len(shown))  # fmt: skip
    return (
        f"<p>Sequences without a message: {told}. The longest ranges:</p>"
        + picture
        + _table(
            [
                ("stream", lambda row: row["stream"], False),
                ("why", lambda row: row["kind"], False),
                ("first", lambda row: f"{row['first_seq']}", True),
                ("last", lambda row: f"{row['last_seq']}", True),
                ("sequences", lambda row: f"{row['sequences']:,}", True),
            ],
            facts.gaps,
        )
    )


def _duplicates(rows: Sequence[Row], total: int) -> str:
    if not rows:
        return "<p>None were found.</p>"
    return f"<p>{total:,} messages repeat an earlier one of their stream. Most often:</p>" + _table(
        [
            ("stream", lambda row: row["stream"], False),
            ("same", lambda row: "Nats-Msg-Id" if row["by"] == "id" else "payload (hash)", False),
            ("value", lambda row: row["value"][:80], False),
            ("messages", lambda row: f"{row['messages']:,}", True),
            ("first", lambda row: f"{row['first_seq']}", True),
            ("last", lambda row: f"{row['last_seq']}", True),
            ("within", lambda row: format_wait(row["seconds"] * 1e9), True),
        ],
        rows,
    )


def _consumers(rows: Sequence[Row]) -> str:
    behind, given_up = sum(row["num_pending"] for row in rows), sum(row["num_given_up"] for row in rows)
    words = f"{len(rows):,} in all, {behind:,} messages behind; {given_up:,} messages were given up."
    shown = f" The {CONSUMERS_SHOWN} that are furthest behind:" if len(rows) > CONSUMERS_SHOWN else ""
    return f"<p>{words}{shown}</p>" + _table(
        [
            ("stream", lambda row: row["stream"], False),
            ("consumer", lambda row: row["consumer"], False),
            ("of", lambda row: ", ".join(row["filters"]) or "all", False),
            ("acks", lambda row: row["ack_policy"], False),
            ("delivered", lambda row: f"{row['delivered_seq']}", True),
            ("acknowledged up to", lambda row: f"{row['ack_floor_seq']}", True),
            ("not acknowledged", lambda row: f"{row['num_ack_pending']:,}", True),
            ("behind", lambda row: f"{row['num_pending']:,}", True),
            ("given up", lambda row: f"{row['num_given_up']:,}", True),
        ],
        rows[:CONSUMERS_SHOWN],
    )


# Pictures.


def _picture(plot: Callable[[Axes], None], what: str, width: float = 11.4, height: float = 2.9) -> str:
    """A plot as an image inside the page."""
    try:
        import matplotlib
    except ImportError:
        raise PenstockError("the report needs matplotlib: pip install 'penstock[report]'") from None
    from matplotlib.figure import Figure

    # Glyphs as text keep the page small and sharp; the page names the same fonts.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "penstock", "font.family": "sans-serif",
                                "font.size": 9}):  # fmt: skip
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        plot(axes)
        _tone(figure, axes)
        out = io.BytesIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    data = base64.b64encode(out.getvalue()).decode()
    return f'<img alt="{escape(what)}" src="data:image/svg+xml;base64,{data}">'


def _tone(figure: Figure, axes: Axes) -> None:
    axes.grid(axis="y" if axes.get_gid() != "across" else "x", color=GREY, alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GREY, labelcolor=GREY)
    for label in (axes.xaxis.label, axes.yaxis.label, axes.title):
        label.set_color(GREY)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GREY)
    legend = axes.get_legend()
    for text in legend.get_texts() if legend is not None else ():
        text.set_color(GREY)


def _plot_rates(axes: Axes, unit: str, rows: Sequence[Row]) -> None:
    """Messages per unit of time; the busiest streams separately, the others summed."""
    dates: Any = import_module("matplotlib.dates")
    step = {"minute": 60, "hour": 3600, "day": 86400}[unit]
    totals: dict[str, int] = {}
    for row in rows:
        totals[row["stream"]] = totals.get(row["stream"], 0) + row["messages"]
    named = sorted(totals, key=lambda name: -totals[name])[:STREAMS_SHOWN]
    low, high = min(row["second"] for row in rows), max(row["second"] for row in rows)
    times = list(range(low, high + step, step))
    series = {name: [0] * len(times) for name in [*named, *(["others"] if len(totals) > len(named) else [])]}
    for row in rows:
        name = row["stream"] if row["stream"] in named else "others"
        series[name][(row["second"] - low) // step] += row["messages"]
    moments: list[float] = [second / 86400 for second in [*times, times[-1] + step]]  # matplotlib counts in days
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    below = [0] * len(times)
    for (name, values), colour in zip(series.items(), COLOURS, strict=False):
        above = [a + b for a, b in zip(below, values, strict=True)]
        axes.fill_between(moments, [*below, below[-1]], [*above, above[-1]], step="post", color=colour, alpha=0.85,
                          linewidth=0, label=_plain(name))  # fmt: skip
        below = above
    axes.set_ylabel(f"messages per {unit}")
    axes.set_xlabel("time (UTC)")
    axes.set_ylim(bottom=0)
    axes.set_xlim(moments[0], moments[-1])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if len(series) > 1:
        axes.legend(frameon=False, ncols=len(series), loc="upper left", bbox_to_anchor=(0, 1.16))


def _plot_histogram(
    axes: Axes, cells: dict[int, Cell], text: Callable[[float], str], label: str, colour: str, base: int = 2
) -> None:  # fmt: skip
    """A histogram with logarithmic bars, each a fraction of a doubling or of a decade wide."""
    parts = 4 if base == 2 else 8
    bars: dict[int, int] = {}
    for count, _size, low, high in cells.values():
        if high:
            at = math.floor(math.log(max((low + high) / 2, 1), base) * parts + 1e-9)
            bars[at] = bars.get(at, 0) + count
    axes.bar([at + 0.5 for at in bars], list(bars.values()), width=0.92, color=colour)
    first, last = min(bars, default=0), max(bars, default=0) + 1
    if last - first < 2 * parts:  # a few values need space beside them
        first, last = first - parts, last + parts
    step = max(1, -(-(last - first) // parts // 6)) * parts
    ticks = [at for at in range(max(first - first % parts, 0), last + parts, step) if first - 1 <= at <= last + 1]
    axes.set_xticks(ticks, [text(base ** (at // parts)) for at in ticks])
    axes.set_xlim(first - 1, last + 1)
    zeros = sum(count for count, _size, _low, high in cells.values() if not high)
    axes.set_xlabel(f"{label}; not shown: {zeros:,} with 0" if zeros else label)
    axes.set_ylabel("messages")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _plot_subjects(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_gid("across")
    names = [_plain(row["subject"]) for row in rows]
    axes.barh(range(len(rows)), [row["messages"] for row in rows], color=BLUE, height=0.7)
    axes.set_yticks(range(len(rows)), [name if len(name) <= 48 else name[:45] + "…" for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("messages")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _plot_gaps(
    axes: Axes, streams: Sequence[str], spans: dict[str, tuple[int, int]], gaps: Sequence[Row]
) -> None:  # fmt: skip
    """Each stream from its first to its last sequence, with what is missing."""
    axes.set_gid("across")
    used: set[str] = set()
    for at, name in enumerate(streams):
        first, last = spans[name]
        axes.barh(at, last - first + 1, left=first, height=0.5, color=BLUE, alpha=0.35)
        for row in gaps:
            if row["stream"] == name:
                label = row["kind"] if row["kind"] not in used else None
                used.add(row["kind"])
                thin = max(row["sequences"], (last - first) / 400)  # else it would not be seen
                axes.barh(at, thin, left=row["first_seq"], height=0.5, color=REASONS[row["kind"]], label=label)
    axes.set_yticks(range(len(streams)), [_plain(name) for name in streams])
    axes.set_xlabel("sequence")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend(frameon=False, ncols=3, loc="upper left", bbox_to_anchor=(0, 1.0 + 0.5 / (len(streams) + 1)))


def _plain(text: str) -> str:
    """A store's text for a plot: without math markup or unprintable characters."""
    return "".join(c if c.isprintable() else "·" for c in text).replace("$", r"\$").replace("_", "_")


# Words.


def format_bytes(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def format_wait(ns: float) -> str:
    for size, unit in ((3600e9, "h"), (60e9, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def _moment(ns: int | None) -> str:
    return format_time(ns // 10**9 * 10**9).replace("T", " ").rstrip("Z") if ns else "–"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: #8883; --soft: #858b95; }}
body {{ font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.6rem; margin: 0; }} h2 {{ font-size: 1.15rem; margin: 2.2rem 0 .6rem; }}
header p {{ color: var(--soft); margin: .2rem 0 1.4rem; }}
.cards {{ display: flex; flex-wrap: wrap; gap: .8rem; }}
.cards div {{ border: 1px solid var(--line); border-radius: 8px; padding: .6rem 1rem; min-width: 8rem; }}
.cards b {{ display: block; font-size: 1.3rem; }} .cards span {{ color: var(--soft); font-size: .85rem; }}
.pair {{ display: flex; flex-wrap: wrap; gap: 1rem; }} .pair img {{ flex: 1 1 22rem; min-width: 0; }}
img {{ width: 100%; height: auto; }} .scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }}
th {{ color: var(--soft); font-weight: 600; }} th, td {{ padding: .25rem .6rem; border-bottom: 1px solid var(--line); }}
.n {{ text-align: right; white-space: nowrap; }} .t {{ text-align: left; overflow-wrap: anywhere; }}
</style></head><body>
<header><h1>{title}</h1><p>{path} · {made}</p></header>
{body}
</body></html>
"""
