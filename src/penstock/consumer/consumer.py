"""Consumer: one consumer of a stream, as both the library and the server use it: its configuration, its progress, and
what the log stores about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec

from penstock.base.duration import INT64_MAX
from penstock.base.subject import Filters
from penstock.consumer.ack_table import ALL, EXPLICIT, NONE, AckTable
from penstock.consumer.config import ConsumerConfig
from penstock.consumer.engine import ConsumerEngine
from penstock.consumer.rules import NOT_IN_NAMES
from penstock.format.bounds import LEAP_MAX, SEQ_MAX

if TYPE_CHECKING:
    from penstock.store.base import Store
    from penstock.store.read.block_cache import BlockCache

POLICIES = {"none": NONE, "explicit": EXPLICIT, "all": ALL, "flow_control": ALL}


_Seq = Annotated[int, msgspec.Meta(ge=0, le=SEQ_MAX)]


class Meta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the log stores about a consumer besides its state."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    created_ns: Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
    config: ConsumerConfig
    resume_seq: _Seq = 0  # last per subject: where it continues after the list; 0: there is no list
    replay_to: _Seq = 0  # replay original: up to this sequence


_DECODER = msgspec.json.Decoder(Meta)


def encode_meta(meta: Meta) -> bytes:
    return msgspec.json.encode(meta)


def decode_meta(raw: bytes) -> Meta:
    """Decode what `encode_meta` wrote; ValueError if it is something else, or describes an impossible consumer."""
    try:
        meta = _DECODER.decode(raw)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if set(meta.name) & NOT_IN_NAMES:
        raise ValueError(f"no consumer is called {meta.name[:80]!r}")
    if meta.config.opt_start_seq >= 2**64 or meta.config.rate_limit_bps >= 2**64:
        raise ValueError("a number is above 64 bits")
    Filters(meta.config.filters)
    return meta


def table_of(meta: Meta, state: bytes, notes: list[bytes], last_seq: int = SEQ_MAX) -> AckTable:
    """The deliveries that the log records, with the machine clock's times. Raises ValueError if they are impossible in
    a stream whose last sequence is `last_seq`."""
    table = AckTable.decode(state, POLICIES[meta.config.ack_policy])
    for note in notes:
        table.apply(note)
    if table.delivered_consumer_seq and table.delivered_stream_seq > last_seq + LEAP_MAX:
        raise ValueError(f"message {table.delivered_stream_seq} was delivered, and the stream ends at {last_seq}")
    return table


def wait_max_ns(config: ConsumerConfig) -> int:
    """The longest time that a message waits for its ack before it is delivered again."""
    return max(config.ack_wait, *config.backoff, 0)


def last_seqs(store: Store, filters: Sequence[str], upto: int) -> list[int]:
    """The last sequence of each subject that matches, at or below `upto`."""
    return (store.query.last_seqs(filters, upto=upto) or []) if upto else []


class Consumer:
    """One consumer. Its engine knows what comes next. Everything here is used under the stream's lock."""

    __slots__ = (
        "config", "created_ns", "engine", "is_deleted", "keepers", "last_active_ns", "made_ns", "meta", "name",
        "number",
    )  # fmt: skip

    def __init__(
        self,
        meta: Meta,
        number: int,
        store: Store,
        table: AckTable,
        windows: BlockCache,
        lasts: Sequence[int] | None = None,
    ) -> None:
        """`lasts` is the list that ends at `meta.resume_seq`, if it is known already."""
        self.meta = meta
        self.name = meta.name
        self.config = meta.config
        self.created_ns = meta.created_ns
        self.number = number  # its number in the log; 0: it is not stored there
        self.is_deleted = False
        self.keepers = 0  # the library's open handles: while there are any, it is not inactive
        self.last_active_ns = 0  # when one of the handles last used it
        self.made_ns = 0  # when this process created it; 0: it existed before
        self.engine = ConsumerEngine(store.engine, table, self.config.filters, windows)
        self._configure(is_change=False)  # the deadlines in the table are those of this configuration
        if meta.resume_seq:
            if lasts is None:
                lasts = last_seqs(store, self.config.filters, meta.resume_seq - 1)
            delivered = table.delivered_stream_seq
            self.engine.start_with([seq for seq in lasts if seq > delivered], max(meta.resume_seq, delivered + 1))
        if meta.replay_to:
            self.engine.replay(meta.replay_to)

    def _configure(self, *, is_change: bool) -> None:
        config = self.config
        self.engine.configure(
            config.filters,
            config.ack_wait,
            config.backoff,
            config.max_deliver,
            config.max_ack_pending,
            config.headers_only,
            config.ack_policy != "flow_control",
            is_change,
        )
        pause = config.pause_until
        self.engine.paused_until_ns = min(max(pause.ns, 0), INT64_MAX) if pause is not None else 0

    def use(self, config: ConsumerConfig) -> None:
        """Apply a changed configuration."""
        self.config = config
        self.meta = msgspec.structs.replace(self.meta, config=config)
        self._configure(is_change=True)

    @property
    def table(self) -> AckTable:
        return self.engine.table

    def wall_ns(self, at_ns: int) -> int:
        """A time of a delivery in the machine clock's time; 0, which means never, stays 0."""
        return at_ns + self.engine.offset_ns if at_ns else 0

    def is_paused(self, now_ns: int) -> bool:
        return self.engine.is_paused(now_ns)

    def __repr__(self) -> str:
        return f"<Consumer {self.name}>"
