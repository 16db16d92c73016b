"""Usage and limits: the memory and disk that streams use and reserve, per account and per server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import (
    InvalidConfig,
    MaxBytesRequired,
    MaxConsumersReached,
    MaxStreamBytesExceeded,
    MaxStreamsReached,
    MemoryExceeded,
    PedanticError,
    StorageExceeded,
)
from penstock.stream.config import StreamConfig
from penstock.stream.config_rules import DUPLICATE_WINDOW_NS
from penstock.wire.go_json import go_duration

if TYPE_CHECKING:
    from penstock.db.stream import Stream
    from penstock.server.options import JetStreamLimits

SHARE = 0.75  # of the memory or of the free disk, if no limit is configured
# The size of a message besides its subject, headers and payload, by nats-server's formula.
OVERHEAD = {"file": 30, "memory": 16}


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes stored, and bytes that streams have reserved with max_bytes."""

    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.memory + other.memory,
            self.storage + other.storage,
            self.reserved_memory + other.reserved_memory,
            self.reserved_storage + other.reserved_storage,
        )

    def used(self, storage: str) -> int:
        return self.memory if storage == "memory" else self.storage

    def reserved(self, storage: str) -> int:
        return self.reserved_memory if storage == "memory" else self.reserved_storage


def usage_of(streams: Iterable[Stream]) -> Usage:
    """The usage of these streams together."""
    memory = storage = reserved_memory = reserved_storage = 0
    for stream in streams:
        config = stream.config
        if config.storage == "memory":
            memory += stream.store.index.bytes
            reserved_memory += max(config.max_bytes, 0)
        else:
            storage += stream.store.index.bytes
            reserved_storage += max(config.max_bytes, 0)
    return Usage(memory, storage, reserved_memory, reserved_storage)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits on all accounts together."""

    max_memory: int
    max_storage: int

    def of(self, storage: str) -> int:
        return self.max_memory if storage == "memory" else self.max_storage


def server_limits(max_memory: int, max_storage: int, store_dir: str) -> ServerLimits:
    """The configured limits; below 0: a share of the machine's memory or free disk."""
    if max_memory < 0:
        max_memory = int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * SHARE)
    if max_storage < 0:
        max_storage = int(shutil.disk_usage(store_dir).free * SHARE)
    return ServerLimits(max_memory, max_storage)


def account_limit(limits: JetStreamLimits, storage: str) -> int:
    return limits.max_memory if storage == "memory" else limits.max_storage


def check_counts(limits: JetStreamLimits, config: StreamConfig, others: int) -> None:
    """Raise if there may not be one more stream, or not one with this many consumers."""
    if 0 < limits.max_streams <= others:
        raise MaxStreamsReached
    check_consumers(limits, config)


def check_consumers(limits: JetStreamLimits, config: StreamConfig) -> None:
    if config.max_consumers > 0 and 0 < limits.max_consumers < config.max_consumers:
        raise MaxConsumersReached


def check_max_bytes(limits: JetStreamLimits, config: StreamConfig) -> None:
    """Check the account's rules about a stream's max_bytes."""
    most = limits.memory_max_stream_bytes if config.storage == "memory" else limits.storage_max_stream_bytes
    if limits.max_bytes_required and config.max_bytes <= 0:
        raise MaxBytesRequired
    if 0 < most < config.max_bytes:
        raise MaxStreamBytesExceeded


def within_window(config: StreamConfig, most_ns: int, *, pedantic: bool) -> StreamConfig:
    """The configuration with the server's longest duplicate window (0: any), if it does not set one."""
    if config.duplicate_window or not 0 < most_ns < DUPLICATE_WINDOW_NS:
        return config
    if pedantic:
        raise PedanticError("duplicate window limits are higher than current limits")
    if 0 < config.max_age < most_ns:
        return config  # the age is shorter
    return msgspec.structs.replace(config, duplicate_window=most_ns)


def check_window(config: StreamConfig, most_ns: int) -> None:
    if 0 < most_ns < config.duplicate_window:
        raise InvalidConfig(f"duplicates window can not be larger then server limit of {go_duration(most_ns)}")


def check_reservation(
    limits: JetStreamLimits,
    server: ServerLimits,
    config: StreamConfig,
    added: int,
    account_reserved: int,
    server_reserved: int,
) -> None:
    """Raise if `added` bytes cannot be reserved in addition to the reserved ones."""
    added = 1 if added < 0 else added
    error = MemoryExceeded if config.storage == "memory" else StorageExceeded
    most = account_limit(limits, config.storage)
    if most >= 0 and added > most - account_reserved:
        raise error
    if added > server.of(config.storage) - server_reserved:
        raise error
