"""How a stream gets its consumers: from their log when it is opened for writing, or from a snapshot of that log beside
a writer."""

from __future__ import annotations

from penstock.consumer.consumers import Consumers
from penstock.store.consumer_log.consumer_log import ConsumerLog, read_entries
from penstock.store.file_store import FileStore
from penstock.store.open.report import Report
from penstock.store.read.snapshot import Snapshot
from penstock.store.write.committer import Committer
from penstock.stream.stream import StreamRules


def open_consumers(rules: StreamRules, committer: Committer | None) -> Consumers:
    """The consumers of a stream that is opened for writing, or kept in memory."""
    store = rules.store
    if not isinstance(store, FileStore):
        return Consumers(rules, None)
    assert committer is not None, "a reader writes no log"
    kept = ConsumerLog(store.disk, store.paths.consumers, store.stream_id, store.durability, committer, store.report)
    return Consumers(rules, kept)


def consumers_beside(rules: StreamRules, store: Snapshot) -> Consumers:
    """A snapshot of the consumers in the writer's log; it is not kept up to date."""
    entries = read_entries(store.disk, store.paths.consumers, store.stream_id, Report())
    store.refresh()  # after the log: a consumer is never ahead of its stream
    found = Consumers(rules, None, entries)
    for consumer in found:
        consumer.engine.reconcile()  # deleted messages are no longer pending, even if the log does not say so yet
    found.stop_counting()
    return found
