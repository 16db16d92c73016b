"""A day of orders, end to end: write, kill -9 in the middle, re-open, read, erase, verify, export, a picture.

    python examples/demo.py [--count 300000] [--out demo-out]

It starts afresh in its folder and ends within a minute. Two processes: a writer that publishes orders and reports each
acknowledgement through a pipe, and this one, which kills it and then looks at what is left.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from story import Story

import penstock

DAY_START = int(datetime(2026, 11, 2, tzinfo=UTC).timestamp())
REGIONS = {"eu": (13.0, 0.42), "us": (19.5, 0.38), "ap": (4.5, 0.20)}  # busiest hour (UTC), share of the orders
SUBJECTS = ["orders.>"]
BATCH = 500
KILL_AT = 0.55  # of the orders
OVERLAP = 2 * BATCH  # what the second writer sends again

Order = tuple[str, bytes, dict[str, str]]


# ---------------------------------------------------------------------------------------------------------- the orders


def order_times(count: int) -> list[tuple[float, str]]:
    """(second of the day, region) of every order, in order of time: each region has its own day."""
    rng = random.Random(7)
    found = []
    for region, (peak, share) in REGIONS.items():
        for _ in range(round(count * share)):
            while True:
                hour = rng.random() * 24
                if rng.random() < 0.06 + 0.94 * (0.5 + 0.5 * math.cos((hour - peak) / 24 * math.tau)) ** 3:
                    break
            found.append((hour * 3600, region))
    return sorted(found)[:count]


def make_orders(count: int) -> Iterator[Order]:
    """The orders of the day, the same in every run: order n is always message n."""
    rng = random.Random(42)
    for number, (second, region) in enumerate(order_times(count), 1):
        customer = int(rng.paretovariate(1.2)) * 7 % 5000
        cents = int(rng.lognormvariate(8.3, 0.7))
        payload = (
            f'{{"order": {number}, "at": {DAY_START + int(second)}, "customer": {customer}, "cents": {cents}, '
            f'"items": {1 + number % 4}, "card": "{rng.getrandbits(53):016d}"}}'
        )
        headers = {
            "Nats-Msg-Id": f"order-{number}",
            "Content-Type": "application/json",
            "Trace-Id": f"{rng.getrandbits(64):016x}",
        }
        yield f"orders.{region}.{customer}", payload.encode(), headers


def write_orders(folder: str, count: int, start: int) -> None:
    """The writer: publish orders from `start` on, and print each batch's acknowledgement once it is given."""
    orders = make_orders(count)
    for _ in range(start - 1):
        next(orders)
    with penstock.open(folder) as db:  # durability "disk": an acknowledged order is on disk
        stream = db.stream("ORDERS", subjects=SUBJECTS)
        while batch := [order for _, order in zip(range(BATCH), orders, strict=False)]:
            began = time.perf_counter()
            acks = stream.publish_many(batch)
            took = time.perf_counter() - began
            new = sum(1 for ack in acks if ack is not None and not ack.duplicate)
            last = acks[-1]
            assert last is not None
            print(last.seq, len(batch), new, f"{time.time():.4f}", f"{took:.6f}", flush=True)


# ----------------------------------------------------------------------------------------------------------- the story


@dataclass
class Acks:
    """What the writers reported."""

    last_seq: int = 0
    duplicates: int = 0
    points: list[tuple[float, int, float]] = field(default_factory=list)  # when, how many, seconds to the ack
    killed_at: float = 0.0


def run_writer(folder: str, count: int, start: int, acks: Acks, kill_at: int | None) -> None:
    """Run a writer and listen to its acknowledgements; kill it with -9 once `kill_at` orders are acknowledged."""
    command = [
        sys.executable,
        os.path.abspath(__file__),
        "--write",
        folder,
        "--count",
        str(count),
        "--start",
        str(start),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        is_killed = False
        for line in writer.stdout:
            if not line.endswith("\n"):
                break  # cut off by the kill: that one was not reported
            seq, size, new, when, took = line.split()
            acks.points.append((float(when), int(size), float(took)))
            acks.last_seq = max(acks.last_seq, int(seq))
            acks.duplicates += int(size) - int(new)
            if kill_at is not None and acks.last_seq >= kill_at and not is_killed:
                writer.kill()
                is_killed = True
                acks.killed_at = time.time()
    if not is_killed and writer.returncode:
        raise SystemExit(f"the writer failed with exit code {writer.returncode}")


def files_with(folder: str, needle: bytes) -> list[str]:
    """The files below a folder that hold these bytes."""
    found = []
    for where, _, names in os.walk(folder):
        for name in sorted(names):
            with open(os.path.join(where, name), "rb") as file:
                if needle in file.read():
                    found.append(os.path.relpath(os.path.join(where, name), folder))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="A day of orders, end to end.")
    parser.add_argument("--count", type=int, default=int(os.environ.get("PENSTOCK_DEMO_COUNT", "300000")))
    parser.add_argument("--out", default="demo-out")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=1, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.write:
        write_orders(asked.write, asked.count, asked.start)
        return 0
    return tell(max(asked.count, 2 * BATCH), asked.out)


def tell(count: int, out: str) -> int:
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    data = os.path.join(out, "data")
    story, acks = Story(), Acks()
    print(f"Penstock {penstock.__version__}: a day of {count:,} orders in {out}/")

    story.step("Another process publishes orders, with headers and message ids, each batch synced to disk.")
    run_writer(data, count, 1, acks, int(count * KILL_AT))
    story.took(f"killed with -9 after {acks.last_seq:,} acknowledged orders")

    story.step("Re-open what the dead process left.")
    check_acknowledged(data, count, acks, story)

    story.step(f"A new writer begins {OVERLAP:,} orders before the last acknowledgement, to be sure.")
    run_writer(data, count, max(1, acks.last_seq + 1 - OVERLAP), acks, None)
    story.took(f"{acks.duplicates:,} orders came twice, and were stored once: their message ids tell")

    with penstock.open(data) as db:
        orders = db.stream("ORDERS")
        read(orders, story)
        table = summarise(orders, story)
        erase(orders, data, story)

    story.step("Verify: every checksum of every file, as `penstock verify` does.")
    is_ok = verify(data, story)

    story.step("Export, as `penstock export` does.")
    for form in ("parquet", "jsonl"):
        export(data, os.path.join(out, f"orders.{form}"), form, story)

    story.step("A picture.")
    picture = os.path.join(out, "orders.png")
    draw(table, acks, picture)
    story.took(picture)

    print(f"\nDone in {time.perf_counter() - story.began:.1f} s. Look further:")
    print(f"    penstock inspect {data}")
    print(f"    penstock export {data} --subject 'orders.eu.>' --start-seq 100 | head -1")
    print(f"    python -c \"import penstock; print(penstock.open('{data}', read_only=True).stream('ORDERS').last())\"")
    return 0 if is_ok else 1


def check_acknowledged(data: str, count: int, acks: Acks, story: Story) -> None:
    """Is every acknowledged order there, byte for byte?"""
    began = time.perf_counter()
    with penstock.open(data) as db:
        orders = db.stream("ORDERS")
        opened = time.perf_counter() - began
        state = orders.state()
        more = state.last_seq - acks.last_seq
        story.say(f"opened in {opened * 1000:.0f} ms: {state.messages:,} orders, {more} more than acknowledged")
        checked = 0
        stored = orders.read(stop_seq=acks.last_seq + 1)
        for message, (subject, payload, headers) in zip(stored, make_orders(count), strict=False):
            found = message.subject, message.data, message.headers.get("Trace-Id")
            if found != (subject, payload, headers["Trace-Id"]):
                raise SystemExit(f"order {message.seq} is not what was acknowledged")
            checked += 1
        if checked != acks.last_seq:
            raise SystemExit(f"{acks.last_seq - checked} acknowledged orders are missing")
        story.took(f"all {checked:,} acknowledged orders are there, compared one by one")


def read(orders: penstock.Stream, story: Story) -> None:
    story.step("Read, filter, look up.")
    state = orders.state()
    began = time.perf_counter()
    size = sum(len(message.data) for message in orders.read())
    rate = state.messages / (time.perf_counter() - began)
    story.say(f"read {state.messages:,} orders, {size / 1e6:.0f} MB of payload, {rate / 1e6:.1f} M/s")
    customer, number = max(orders.subjects("orders.us.*").items(), key=lambda item: item[1])
    story.say(f"{state.num_subjects:,} subjects; the busiest in the us: {customer} with {number:,} orders")
    newest = orders.last(customer)
    assert newest is not None
    story.took(f"its newest: #{newest.seq}, trace {newest.headers.get('Trace-Id')}: {newest.data.decode()[:60]}…")


def summarise(orders: penstock.Stream, story: Story) -> Any:
    """Orders and revenue by region, by Arrow."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json as pj

    story.step("The stream is a table: to_arrow(), then pyarrow.compute.")
    table = orders.to_arrow(columns=["seq", "subject", "payload"])
    story.took(f"{table.num_rows:,} rows, {table.nbytes / 1e6:.0f} MB")
    lines = pa.py_buffer(b"\n".join(table["payload"].to_pylist()))
    body = pj.read_json(pa.BufferReader(lines))
    region = pc.list_element(pc.split_pattern(table["subject"], "."), 1)
    table = pa.table({"region": region, "at": pc.cast(body["at"], pa.int64()), "cents": body["cents"]})
    by_region = table.group_by("region").aggregate([("cents", "count"), ("cents", "sum"), ("cents", "mean")])
    for row in sorted(by_region.to_pylist(), key=lambda row: -row["cents_sum"]):
        number, total, mean = row["cents_count"], row["cents_sum"] / 100, row["cents_mean"] / 100
        story.say(f"{row['region']}  {number:>8,} orders  {total:>14,.2f} €  {mean:6.2f} € each")
    return table


def erase(orders: penstock.Stream, data: str, story: Story) -> None:
    story.step("A customer asks to be forgotten: erase one order.")
    customer = min(orders.subjects("orders.eu.*"))
    message = orders.last(customer)
    assert message is not None
    orders.sync()
    card = message.data[message.data.index(b'"card"') :]
    trace = (message.headers.get("Trace-Id") or "").encode()
    story.say(f"#{message.seq} of {customer}: its card number is in {', '.join(files_with(data, card))}")
    orders.erase(message.seq)
    left = files_with(data, card) + files_with(data, message.data) + files_with(data, trace)
    if left:
        raise SystemExit(f"the erased order is still in {left}")
    story.took("erased: no file of the store holds its payload, card number or trace id any more (all searched)")


def verify(data: str, story: Story) -> bool:
    from penstock.check.store import check_store

    found = check_store(data)
    for stream in found.streams:
        records = f"{stream.messages:,} messages and {stream.controls} control records"
        story.say(f"{stream.name}: {records} in {stream.blocks} blocks")
        for note in stream.notes:
            story.say(f"note: {note}")
    for problem in found.damage:
        story.say(f"DAMAGE {problem.path} at byte {problem.offset}: {problem.text}")
    story.took("every checksum holds" if found.is_ok else "damage was found")
    return found.is_ok


def export(data: str, path: str, form: str, story: Story) -> None:
    from penstock.cli.export import export as export_stream

    sys.stdout.flush()
    began = time.perf_counter()
    with open(os.devnull, "w") as quiet:
        errors, sys.stderr = sys.stderr, quiet
        try:
            code = export_stream(data, ["ORDERS"], form, path, [], None, None, None)  # type: ignore[arg-type]
        finally:
            sys.stderr = errors
    if code:
        raise SystemExit(f"the export to {path} is not whole")
    story.say(f"{path}  {os.path.getsize(path) / 1e6:.1f} MB  [{time.perf_counter() - began:.2f} s]")


# --------------------------------------------------------------------------------------------------------- the picture


def draw(table: Any, acks: Acks, path: str) -> None:
    """Orders per minute by region; below, how the publishing went, with the kill in the middle."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter

    colours = {"eu": "#2f6fb5", "us": "#d98032", "ap": "#4a9a6b"}
    names = {"eu": "Europe", "us": "Americas", "ap": "Asia-Pacific"}
    style: dict[Any, Any] = {
        "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
        "axes.titleweight": "bold", "axes.titlesize": 11, "axes.grid": True, "grid.alpha": 0.25, "axes.axisbelow": True,
    }  # fmt: skip
    with plt.rc_context(style):
        figure = plt.figure(figsize=(11, 7.4), dpi=130, layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=(1.15, 1))
        top, bottom = parts
        day = top.subplots()
        minutes = per_minute(table)
        for region in REGIONS:
            smooth = rolling(minutes[region], 15)
            day.fill_between([n / 60 for n in range(1440)], smooth, color=colours[region], alpha=0.12, linewidth=0)
            day.plot([n / 60 for n in range(1440)], smooth, color=colours[region], linewidth=1.8, label=names[region])
        day.set_title("Orders per minute by region (15-minute mean)")
        day.set_xlim(0, 24)
        day.set_ylim(bottom=0)
        day.set_xticks(range(0, 25, 3), [f"{hour:02d}:00" for hour in range(0, 25, 3)])
        day.set_xlabel("2 November 2026, UTC")
        day.legend(frameon=False, ncols=3, loc="upper left")
        rate, latency = bottom.subplots(1, 2, width_ratios=(1.6, 1))
        draw_rate(rate, acks)
        rate.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:,.0f}k"))
        draw_latency(latency, acks)
        latency.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        figure.savefig(path)
        plt.close(figure)


def draw_rate(axes: Any, acks: Acks) -> None:
    """Acknowledged orders per second over the run; the kill leaves a gap."""
    start = acks.points[0][0]
    end = acks.points[-1][0]
    width = max((end - start) / 80, 0.02)
    bins = [0.0] * (int((end - start) / width) + 1)
    for when, size, _ in acks.points:
        bins[int((when - start) / width)] += size / width
    axes.bar([n * width for n in range(len(bins))], bins, width=width, align="edge", color="#5b6b8c", linewidth=0)
    killed = acks.killed_at - start
    resumed = min((when - start for when, _, _ in acks.points if when > acks.killed_at), default=killed)
    axes.axvspan(killed, resumed, color="#c0392b", alpha=0.10, linewidth=0)
    axes.axvline(killed, color="#c0392b", linewidth=1.2)
    axes.text(
        killed, max(bins) * 1.08, " kill -9, re-open,\n compare all, restart", color="#c0392b", va="top", fontsize=9
    )
    axes.set_ylim(0, max(bins) * 1.12)
    axes.set_xlim(0, end - start)
    axes.set_title("Acknowledged orders per second (durable)")
    axes.set_xlabel("seconds since the first acknowledgement")


def draw_latency(axes: Any, acks: Acks) -> None:
    """How long a batch waited for its acknowledgement: the share of batches by milliseconds."""
    took = sorted(1000 * seconds for _, _, seconds in acks.points)
    shares = [100 * (n + 1) / len(took) for n in range(len(took))]
    axes.plot(took, shares, color="#5b6b8c", linewidth=1.8)
    for share in (50, 99):
        value = took[min(len(took) - 1, len(took) * share // 100)]
        axes.plot([value], [share], "o", color="#c0392b", markersize=5)
        axes.annotate(
            f"p{share}: {value:.1f} ms", (value, share), xytext=(-8 if share == 99 else 8, -14), fontsize=9,
            textcoords="offset points", ha="right" if share == 99 else "left",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(0, 102)
    axes.set_title(f"Batch of {BATCH}: wait for the ack")
    axes.set_xlabel("milliseconds")
    axes.set_ylabel("% of batches")


def per_minute(table: Any) -> dict[str, list[int]]:
    import pyarrow.compute as pc

    found = {region: [0] * 1440 for region in REGIONS}
    minute = pc.divide(pc.subtract(table["at"], DAY_START), 60)
    counted = table.append_column("minute", minute).group_by(["region", "minute"]).aggregate([("at", "count")])
    for row in counted.to_pylist():
        found[row["region"]][row["minute"]] = row["at_count"]
    return found


def rolling(values: list[int], width: int) -> list[float]:
    """The mean of the `width` values around each."""
    half = width // 2
    return [sum(part) / len(part) for n in range(len(values)) if (part := values[max(0, n - half) : n + half + 1])]


if __name__ == "__main__":
    sys.exit(main())
