"""penstock inspect: the contents of a store by block and by subject. Works beside a running writer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from penstock.check.open_store import OpenStore
from penstock.cli.arguments import check_filters
from penstock.cli.output import (
    DAMAGED,
    OK,
    console,
    count,
    escape,
    inclusive,
    moment,
    print_json,
    print_table,
    short_path,
    size,
    table,
)
from penstock.consumer.overview import ConsumerOverview, read_consumers
from penstock.db.lock import holder_of
from penstock.errors import PenstockError
from penstock.store.open.report import Report, format_ranges
from penstock.store.open.stream_folders import StreamFolder, shown_names
from penstock.store.read.snapshot import Snapshot

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.db.stream import Stream

BLOCKS_MAX = 24  # rows of the table on a terminal; --json has all


def inspect(root: str, names: Sequence[str], account: str | None, subject: str | None, top: int, as_json: bool) -> int:
    """Show a store; 1 when a stream of it could not be opened."""
    check_filters([subject or ">"], "--subject")
    with OpenStore(root, account) as store:
        folders = store.pick(names)
        facts: dict[str, Any] = {"store": store.path, "writer": holder_of(store.path), "streams": []}
        for one in folders:
            facts["streams"].append(_stream_facts(store, one, subject or ">", top))
        shown = [shown_names(store.folders)[one] for one in folders]
    if as_json:
        print_json(facts)
    else:
        _print(facts, shown, is_whole=not names)
    return DAMAGED if any("error" in stream for stream in facts["streams"]) else OK


def _stream_facts(store: OpenStore, folder: StreamFolder, subject: str, top: int) -> dict[str, Any]:
    try:
        return {"account": folder.account} | _facts_of(store.stream(folder), subject, top)
    except (PenstockError, OSError) as error:
        return {"account": folder.account, "name": folder.name, "error": str(error)}


def _facts_of(stream: Stream, subject: str, top: int) -> dict[str, Any]:
    store, config = stream.store, stream.config
    assert isinstance(store, Snapshot)
    # As of the snapshot: sequences above its HEAD are not lost, they were written meanwhile.
    committed = store.head.committed_seq if store.head is not None else store.index.last_seq
    lost = [[first, min(last, committed)] for first, last in store.lost.ranges() if first <= committed]
    findings = [one for one in stream.findings if not one.seqs or one.seqs[0][0] <= committed]
    report = Report()
    consumers = read_consumers(store, report)
    findings += report.findings
    state = stream.state()
    totals = stream.subjects(subject)
    most = nlargest(top, totals.items(), key=lambda item: item[1])
    limits = ("max_msgs", "max_bytes", "max_age", "max_msgs_per_subject", "max_msg_size")
    head = store.head
    blocks = [_block_facts(store, block) for block in store.query.blocks()]
    return {
        "name": stream.name,
        "subjects": list(config.subjects),
        "retention": config.retention,
        "limits": {name: getattr(config, name) for name in limits if getattr(config, name) > 0},
        "created_ns": stream.identity.created_ns,
        "messages": state.messages,
        "bytes": state.bytes,
        "disk_bytes": state.disk_bytes,
        "summary_bytes": sum(block["summary_size"] for block in blocks),
        "first_seq": state.first_seq,
        "last_seq": state.last_seq,
        "first_time_ns": state.first_time_ns,
        "last_time_ns": state.last_time_ns,
        "deleted": state.num_deleted,
        "lost": lost,
        "epoch": store.epoch,
        "is_stopped": head.is_stopped if head is not None else None,
        "blocks": blocks,
        "consumers": [_consumer_facts(one) for one in consumers],
        "subject_filter": subject,
        "subject_count": len(totals),
        "subject_messages": sum(totals.values()),
        "subjects_top": [{"subject": name, "messages": total} for name, total in most],
        "findings": [
            {
                "kind": one.kind,
                "file": one.path,
                "offset": one.offset,
                "size": one.size,
                "seqs": inclusive(one.seqs),
                "text": one.text,
            }
            for one in findings
        ],
    }  # fmt: skip


def _block_facts(store: Snapshot, block: dict[str, int]) -> dict[str, Any]:
    path = store.block_path(block["id"])
    try:
        summary_size = os.path.getsize(path.removesuffix(".blk") + ".sum")
    except FileNotFoundError:
        summary_size = 0
    return {
        "file": path,
        "rows": block["rows"],
        "live": block["live"],
        "size": block["size"],
        "first_seq": block["first_seq"],
        "last_seq": block["last_seq"],
        "first_time_ns": block["time_min"] if block["rows"] else 0,
        "last_time_ns": block["time_max"] if block["rows"] else 0,
        "has_summary": summary_size > 0,
        "summary_size": summary_size,
    }


def _consumer_facts(one: ConsumerOverview) -> dict[str, Any]:
    return asdict(one) | {"filters": list(one.filters), "given_up": list(one.given_up)}


def _print(facts: dict[str, Any], shown: list[str], is_whole: bool) -> None:
    out = console()
    writer = facts["writer"]
    out.print(f"[bold]{escape(facts['store'])}[/]  {count(len(facts['streams']), 'stream')}", soft_wrap=True)
    if writer is None:
        out.print("nobody writes to it now")
    else:
        out.print(
            f"open for writing: pid {writer.get('pid', '?')} on {escape(str(writer.get('host', '?')))} since "
            f"{writer.get('since', '?')}, {escape(str(writer.get('command', '?')))}",
            soft_wrap=True,
        )
    if is_whole and len(facts["streams"]) > 1:
        overview = table(
            "stream", "messages", "bytes", "first", "last", "newest", right=("messages", "bytes", "first", "last")
        )
        for name, stream in zip(shown, facts["streams"], strict=True):
            if "error" in stream:
                overview.add_row(escape(name), "[red]cannot be opened[/]")
                continue
            taken = stream["disk_bytes"] + stream["summary_bytes"]
            overview.add_row(
                escape(name), f"{stream['messages']:,}", size(taken), str(stream["first_seq"]),
                str(stream["last_seq"]), moment(stream["last_time_ns"]),
            )  # fmt: skip
        print_table(out, overview)
    for name, stream in zip(shown, facts["streams"], strict=True):
        _print_stream(out, name, stream, facts["store"])


def _print_stream(out: Console, name: str, stream: dict[str, Any], root: str) -> None:
    out.print()
    out.print(f"[bold cyan]{escape(name)}[/]", soft_wrap=True)
    if "error" in stream:
        out.print(f"  [red]cannot be opened:[/] {escape(stream['error'])}", soft_wrap=True)
        return
    limits = ", ".join(f"{name} {_limit(name, value)}" for name, value in stream["limits"].items())
    held = f"{stream['messages']:,} ({size(stream['bytes'])})"
    lines = [
        ("subjects", ", ".join(map(escape, stream["subjects"]))),
        ("retention", stream["retention"]),
        ("limits", limits or "none"),
        ("messages", f"{held}, sequences {stream['first_seq']} to {stream['last_seq']}"),
        ("times", f"{moment(stream['first_time_ns'])} to {moment(stream['last_time_ns'])} UTC"),
        (
            "on disk",
            f"{size(stream['disk_bytes'] + stream['summary_bytes'])}: {size(stream['disk_bytes'])} in "
            f"{count(len(stream['blocks']), 'block')}, {size(stream['summary_bytes'])} in their summaries; "
            f"epoch {stream['epoch']}",
        ),
    ]
    if stream["deleted"]:
        lines.append(("deleted", count(stream["deleted"], "sequence")))
    if stream["lost"]:
        lost = [(first, last + 1) for first, last in stream["lost"]]
        lines.append(("lost", f"[red]{format_ranges(lost)}[/]"))
    for label, text in lines:
        out.print(f"  [dim]{label:<9}[/] {text}", soft_wrap=True)
    _print_blocks(out, stream["blocks"], root)
    _print_subjects(out, stream)
    _print_consumers(out, stream["consumers"])
    for finding in stream["findings"]:
        colour = "red" if finding["kind"] in ("damaged records", "lost sequences", "set aside") else "yellow"
        where = escape(short_path(finding["file"], root))
        out.print(f"  [{colour}]{finding['kind']}[/]  {where}: {escape(finding['text'])}", soft_wrap=True)


def _print_blocks(out: Console, blocks: list[dict[str, Any]], root: str) -> None:
    if not blocks:
        return
    made = table("block", "rows", "live", "size", "sequences", "first time", "sum", right=("rows", "live", "size"))
    shown = blocks if len(blocks) <= BLOCKS_MAX else blocks[: BLOCKS_MAX // 2] + blocks[-BLOCKS_MAX // 2 :]
    for at, block in enumerate(shown):
        if len(shown) < len(blocks) and at == BLOCKS_MAX // 2:
            made.add_row(f"… {len(blocks) - len(shown)} more", "", "", "", "", "", "")
        made.add_row(
            os.path.basename(block["file"]).removesuffix(".blk"),
            f"{block['rows']:,}", f"{block['live']:,}", size(block["size"]),
            f"{block['first_seq']}-{block['last_seq']}", moment(block["first_time_ns"])[:16],
            "yes" if block["has_summary"] else "-",
        )  # fmt: skip
    print_table(out, made)


def _print_subjects(out: Console, stream: dict[str, Any]) -> None:
    top, total = stream["subjects_top"], stream["subject_count"]
    if not total:
        if stream["subject_filter"] != ">":
            out.print(f"  no subject matches {escape(stream['subject_filter'])}", soft_wrap=True)
        return
    made = table("subject", "messages", right=("messages",))
    for row in top:
        made.add_row(escape(row["subject"]), f"{row['messages']:,}")
    if total > len(top):
        rest = stream["subject_messages"] - sum(row["messages"] for row in top)
        made.add_row(f"[dim]… {total - len(top):,} more[/]", f"[dim]{rest:,}[/]")
    print_table(out, made)


def _print_consumers(out: Console, consumers: list[dict[str, Any]]) -> None:
    if not consumers:
        return
    numbers = ("delivered", "acked", "pending", "behind", "given up")
    made = table("consumer", "of", "acks", *numbers, right=numbers)
    for one in consumers:
        made.add_row(
            escape(one["name"]), escape(", ".join(one["filters"]) or "all"), one["ack_policy"],
            f"{one['delivered_stream_seq']:,}", f"{one['ack_floor_stream_seq']:,}", f"{one['num_ack_pending']:,}",
            f"{one['num_pending']:,}", f"{len(one['given_up']):,}",
        )  # fmt: skip
    print_table(out, made)


def _limit(name: str, value: int) -> str:
    from penstock.base.duration import format_duration

    if name == "max_age":
        return format_duration(value)
    return size(value) if name in ("max_bytes", "max_msg_size") else f"{value:,}"


__all__ = ["inspect"]
