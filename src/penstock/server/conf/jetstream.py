"""The `jetstream` block of a server, and that of an account."""

from __future__ import annotations

from typing import Any

from penstock.server.conf.tree import Node
from penstock.server.conf.values import (
    Fault,
    Findings,
    Handler,
    checked,
    duration_of,
    flag_of,
    go_type,
    int_of,
    into,
    keys,
    parse_duration,
    quote,
    shown,
    size_of,
    text_of,
)
from penstock.server.options import DURABILITIES, JetStreamLimits, JetStreamOptions

CONCURRENT_IO = (4, 8192)


def _switch(node: Node) -> bool | None:
    """True or False if a word or a boolean switches JetStream; None for a map."""
    value = node.value
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        if value.lower() in ("enabled", "enable", "disabled", "disable"):
            return value.lower().startswith("enable")
        raise Fault(node, f"Expected 'enabled' or 'disabled' for string value, got '{value}'")
    if isinstance(value, dict):
        return None
    raise Fault(node, f"Expected map, bool or string to define JetStream, got {go_type(value)}")


def durability_of(node: Node) -> str:
    """Penstock's own key: when a publish is acknowledged."""
    if node.value not in DURABILITIES:
        raise Fault(node, f"durability must be one of {', '.join(DURABILITIES)}, got {shown(node.value)}")
    return text_of(node)


def read_jetstream(node: Node, options: JetStreamOptions, findings: Findings) -> None:
    switch = _switch(node)
    if switch is not None:
        options.enabled = switch
        return
    assert isinstance(node.value, dict), "neither a boolean nor a word"
    options.enabled = True
    findings.walk(node.value, keys(_handlers(options, findings)))


def _handlers(options: JetStreamOptions, findings: Findings) -> dict[str, Handler]:
    def strict(inner: Node) -> None:
        if not isinstance(inner.value, bool):
            raise Fault(inner, f"Expected 'true' or 'false' for bool value, got '{shown(inner.value)}'")
        options.strict = inner.value

    def store_dir(inner: Node) -> None:
        if options.store_dir:
            raise Fault(inner, "Duplicate 'store_dir' configuration")
        options.store_dir = text_of(inner)

    def sync(key: str) -> Handler:
        def handler(inner: Node) -> None:
            if isinstance(inner.value, str) and inner.value.lower() == "always":
                options.sync_always = True
            else:
                options.sync_interval = duration_of(inner, key, findings)

        return handler

    def encryption(inner: Node) -> None:
        findings.refuse(inner, "encryption of the store (key, prev_key, cipher, tpm)")

    def limits(inner: Node) -> None:
        _read_limits(inner, options, findings)

    def absolute(key: str) -> Handler:
        def handler(inner: Node) -> None:
            is_text = key == "meta_compact_size" and isinstance(inner.value, str)
            if (size_of(inner, key) if is_text else _count(inner, "size")) < 0:
                raise Fault(inner, f"Expected an absolute size for {quote(key)}, got {shown(inner.value)}")

        return handler

    def concurrent_io(inner: Node) -> None:
        low, high = CONCURRENT_IO
        if not isinstance(inner.value, int) or not low <= inner.value <= high:
            text = f'Expected an absolute size for "max_concurrent_io" between {low} and {high}, got'
            raise Fault(inner, f"{text} {shown(inner.value)}")

    return {
        "strict": strict,
        "store store_dir storedir": store_dir,
        "sync": sync("sync"),
        "sync_interval": sync("sync_interval"),
        "max_memory_store max_mem_store max_mem": into(options, "max_memory", lambda n: size_of(n, "max_mem_store")),
        "max_file_store max_file": into(options, "max_storage", lambda n: size_of(n, "max_file_store")),
        "domain": into(options, "domain", text_of),
        "enable enabled": into(options, "enabled", flag_of),
        "durability": into(options, "durability", durability_of),
        "key ek encryption_key prev_key prev_ek prev_encryption_key cipher tpm": encryption,
        "extension_hint": checked(text_of),
        "limits": limits,
        "unique_tag": into(options, "unique_tag", lambda n: text_of(n).strip().lower()),
        "request_queue_limit": into(options, "request_queue_limit", lambda n: _count(n, "size") or 10_000),
        "max_buffered_size": into(options, "max_buffered_size", lambda n: max(size_of(n, "max_buffered_size"), 0)),
        "max_buffered_msgs": into(options, "max_buffered_msgs", lambda n: max(_count(n, "size"), 0)),
        # These configure replication and nats-server's buffers; they have no effect here.
        "max_outstanding_catchup": checked(lambda n: size_of(n, "max_outstanding_catchup")),
        "meta_compact": absolute("meta_compact"),
        "meta_compact_size": absolute("meta_compact_size"),
        "info_queue_limit": checked(lambda n: _count(n, "size")),
        "meta_compact_sync": checked(flag_of),
        "max_concurrent_io": concurrent_io,
    }


def _count(node: Node, what: str) -> int:
    if isinstance(node.value, bool) or not isinstance(node.value, int):
        raise Fault(node, f"Expected a parseable {what}, got {shown(node.value)}")
    return node.value


def _read_limits(node: Node, options: JetStreamOptions, findings: Findings) -> None:
    if not isinstance(node.value, dict):
        raise Fault(node, f"Expected a map to define JetStreamLimits, got {go_type(node.value)}")

    def batch(inner: Node) -> None:
        if not isinstance(inner.value, dict):
            raise Fault(inner, f"Expected a map to define batch limits, got {go_type(inner.value)}")
        findings.walk(
            inner.value,
            keys(
                {
                    "max_inflight_per_stream max_inflight_total max_msgs": checked(int_of),
                    "timeout": checked(_duration),
                }
            ),
        )

    findings.walk(
        node.value,
        {
            "max_ack_pending": into(options, "max_ack_pending", int_of),
            "max_ha_assets": into(options, "max_ha_assets", int_of),
            "max_request_batch": into(options, "max_request_batch", int_of),
            "duplicate_window": into(options, "duplicate_window", _duration),
            "default_max_consumers": into(options, "default_max_consumers", int_of),
            "batch": batch,
        },
    )


def _duration(node: Node) -> float:
    try:
        return parse_duration(text_of(node))
    except ValueError as error:
        raise Fault(node, str(error)) from None


def read_account_jetstream(node: Node, findings: Findings) -> JetStreamLimits | None:
    """An account's limits; None if JetStream stays off for it."""
    switch = _switch(node)
    if switch is not None:
        return JetStreamLimits() if switch else None
    assert isinstance(node.value, dict), "neither a boolean nor a word"
    limits = JetStreamLimits()

    def bound(key: str) -> Any:
        def read(inner: Node) -> int:
            if isinstance(inner.value, bool) or not isinstance(inner.value, int):
                raise Fault(inner, f"Expected a parseable size for {quote(key)}, got {shown(inner.value)}")
            return inner.value

        return read

    def bytes_required(inner: Node) -> None:
        if not isinstance(inner.value, bool):
            raise Fault(inner, f'Expected a parseable bool for "max_bytes_required", got {shown(inner.value)}')
        limits.max_bytes_required = inner.value

    def cluster_traffic(inner: Node) -> None:
        if inner.value not in ("system", "owner", ""):
            text = "Expected either 'system' or 'owner' string value for \"cluster_traffic\", got"
            raise Fault(inner, f"{text} {shown(inner.value)}")

    findings.walk(
        node.value,
        keys(
            {
                "max_memory max_mem mem memory": into(limits, "max_memory", bound("max_memory")),
                "max_store max_file max_disk store disk": into(limits, "max_storage", bound("max_store")),
                "max_streams streams": into(limits, "max_streams", bound("max_streams")),
                "max_consumers consumers": into(limits, "max_consumers", bound("max_consumers")),
                "max_bytes_required max_stream_bytes max_bytes": bytes_required,
                "mem_max_stream_bytes memory_max_stream_bytes": into(
                    limits, "memory_max_stream_bytes", bound("mem_max_stream_bytes")
                ),
                "disk_max_stream_bytes store_max_stream_bytes": into(
                    limits, "storage_max_stream_bytes", bound("disk_max_stream_bytes")
                ),
                "max_ack_pending": into(limits, "max_ack_pending", bound("max_ack_pending")),
                "cluster_traffic": cluster_traffic,
            }
        ),
    )
    return limits
