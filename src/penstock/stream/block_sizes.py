"""The size of a stream's blocks, which follows from its limits as in nats-server."""

from __future__ import annotations

from penstock.base.subject import is_literal_filter
from penstock.stream.config import StreamConfig

BLOCK_SIZE_MIN = 32_000
BLOCK_SIZE_MEDIUM = 4 * 1024 * 1024
BLOCK_SIZE_MAX = 8 * 1024 * 1024


def block_size(config: StreamConfig, payload_size_max: int = 1024 * 1024) -> int:
    """The size at which a block of this stream is sealed."""
    if config.max_bytes > 0:
        total = config.max_bytes
    elif config.max_msgs > 0:
        total = config.max_msgs * _record_size_estimate(config, payload_size_max)
    elif config.max_msgs_per_subject > 0 or config.retention != "limits":
        return BLOCK_SIZE_MEDIUM
    else:
        return BLOCK_SIZE_MAX
    size = -(-(total // 4 + 1) // 100) * 100
    if size <= BLOCK_SIZE_MIN:
        return BLOCK_SIZE_MIN
    return BLOCK_SIZE_MAX if size >= BLOCK_SIZE_MAX else BLOCK_SIZE_MEDIUM


def _record_size_estimate(config: StreamConfig, payload_size_max: int) -> int:
    """The most bytes that one message may take, estimated as nats-server does."""
    literal = [len(subject.encode()) for subject in config.subjects if is_literal_filter(subject)]
    payload = config.max_msg_size if config.max_msg_size > 0 else payload_size_max
    return 22 + 8 + max(literal, default=256) + 4 + payload
