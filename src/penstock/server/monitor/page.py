"""Page: the structs that monitoring answers with, and their JSON.

A field without a default is always written, one with a default only if it differs: Go's `omitempty`. The order is
nats-server's. A page with one long list names it; its entries are made and encoded a slice at a time, so that ten
thousand of them do not stop the server's loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import msgspec

from penstock.wire import go_json

SLICE = 16  # entries made or encoded before other tasks run: less than a millisecond
LOOK_SLICE = 500  # things only looked at
FEATURE_FLAGS = {
    "js_ack_fc_v2": False,
    "js_api_reply_v2": False,
    "js_raft_delete_range": True,
    "js_snapshot_sources": False,
}


class Page(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A monitoring page, or a part of one. It has no reference cycles, so the garbage collector ignores it."""

    long_list: ClassVar[str] = ""  # the field whose entries may be many


class RequestError(Exception):
    """The request for a page is invalid: HTTP answers 400 with this text, `$SYS` answers 500."""


class NoAnswer(RequestError):
    """A `$SYS` request that this server does not answer."""


def now_text() -> str:
    return go_json.time_text(time.time_ns())


def ns(seconds: float) -> int:
    """Seconds of the options as Go's JSON writes a duration."""
    return round(seconds * 1_000_000_000)


def uptime_text(since_ns: int, now_ns: int) -> str:
    return go_json.uptime(max(0, now_ns - since_ns) // 1_000_000_000)


async def yield_to_loop() -> None:
    """Let other tasks of the loop run."""
    await asyncio.sleep(0)


def is_long(page: Any) -> bool:
    """Whether a page is encoded in pieces."""
    name = page.long_list if isinstance(page, Page) else ""
    return bool(name) and len(getattr(page, name) or ()) > SLICE


async def encode_page(page: Any, indent: int = 0) -> AsyncIterator[bytes]:
    """The page's JSON in pieces, indented as Go's MarshalIndent does it where `indent` is not 0.

    A long list is consumed on the way: freeing ten thousand entries at once would take longer than a slice may.
    """
    if not is_long(page):
        text = go_json.encode(page)
        yield msgspec.json.format(text, indent=indent) if indent else text
        return
    name = page.long_list
    entries = getattr(page, name)
    # Encode the page with one entry in the list, and put the slices in that entry's place.
    mark = msgspec.Raw(b'"\\u0000"')
    text = go_json.encode(msgspec.structs.replace(page, **{name: [mark]}))
    if indent:
        text = msgspec.json.format(text, indent=indent)
    head, tail = text.split(b'"\\u0000"', 1)
    yield head
    margin = b"\n" + b" " * (2 * indent)
    between = b"," + margin if indent else b","
    for start in range(0, len(entries), SLICE):
        parts = [go_json.encode(entry) for entry in entries[start : start + SLICE]]
        if indent:
            parts = [msgspec.json.format(part, indent=indent).replace(b"\n", margin) for part in parts]
        entries[start : start + SLICE] = [None] * len(parts)
        yield (between if start else b"") + between.join(parts)
        await yield_to_loop()
    yield tail


async def page_bytes(page: Any, indent: int = 0) -> bytes:
    """The page's JSON in one piece, as `$SYS` answers carry it."""
    return b"".join([piece async for piece in encode_page(page, indent)])
