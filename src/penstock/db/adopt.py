"""adopt: adds what the tasks of a job have staged to its stream, exactly once. See store/open/adoption.py.

Limits and message ids are checked here, where the whole batch and the whole stream are known. The process that writes
to the store performs the adoption: `adopt` sends it a request through its control socket, or takes the write lock
itself for a moment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.db.control_socket import ask
from penstock.db.database import Database, open_database
from penstock.db.stage import Stage, check_batch, check_stage_name, discard_job, sweep
from penstock.errors import (
    MaxBytesExceeded,
    MaxMsgsExceeded,
    MaxMsgsPerSubjectExceeded,
    StoreError,
    StoreLocked,
    StreamSealed,
)
from penstock.format.paths import StreamPaths
from penstock.store.file_store import FileStore
from penstock.store.open.adopt_plan import read_batches
from penstock.store.open.adoption import (
    Adopted,
    Adoption,
    BadStage,
    StagedBlock,
    scan_staged,
    staged_blocks,
    subject_counts,
)
from penstock.store.write.batch import Batch

if TYPE_CHECKING:
    from penstock.db.stream import Stream

WAIT_S = 60.0  # how long to wait for a writer that is opening or closing
WRITER_RETRY_S = 0.02  # until the next attempt to open a store that another process has open
Info = dict[str, Any]
T = TypeVar("T")


def adopt_staged(stream: Stream, job: str, tasks: Sequence[Info], query: str = "", batch: int = 0) -> Adopted:
    """Adopt what `tasks` (as `Stage.finish` returned them) have staged; the caller holds the stream's lock.

    With a query, its batches are numbered: a batch not above the last adopted one was adopted before, and nothing is
    done.
    """
    check_batch(job, tasks, query, batch)
    store = stream.rules.store
    if not isinstance(store, FileStore):
        raise StoreError(f"stream {stream.name} is kept in memory: nothing can be staged for it")
    if store.engine.log.failure() is not None:
        store.retry()
    if query:
        known = read_batches(store.disk, store.paths).get(query)
        if known is not None and batch <= known["batch"]:
            discard_job(store.paths.root, job, store.disk)
            is_same = batch == known["batch"]
            first, last = (known["first_seq"], known["last_seq"]) if is_same else (0, 0)
            return Adopted(first, last, last - first + 1 if is_same else 0, was_known=True)
    if stream.config.sealed:
        raise StreamSealed
    for info in tasks:
        if info["revision"] != stream.identity.revision:
            raise BadStage(f"the configuration of {stream.name} was changed while the batch was written; run it again")
    keep_seqs = any(info["start_seq"] > 1 for info in tasks)
    has_times = any(info["has_times"] for info in tasks)
    check_stage_name(job)
    staged = [_staged(store, job, info) for info in tasks if info["messages"]]
    duplicates = sum(info["duplicates"] for info in tasks)
    staged, dropped = _without_duplicates(stream, store, job, staged, has_times, keep_seqs)
    duplicates += dropped
    counted = [block for task in staged for block in task]
    _check_limits(store, counted)
    if not counted and not query:
        discard_job(store.paths.root, job, store.disk)
        return Adopted(store.index.last_seq + 1, store.index.last_seq, 0, duplicates)
    messages = sum(block.summary.count for block in counted)
    first, last, marks = Adoption(store).adopt(
        staged, query=query, batch=batch, has_times=has_times, keep_seqs=keep_seqs
    )
    for seq, stored, hashed, _ in marks:
        if hashed is not None:
            stream.rules.remember_id(hashed, seq, stored)
    stream.rules._last_id = None
    stream.consumers.drop_unneeded()
    discard_job(store.paths.root, job, store.disk)
    sweep(store.paths.root, query, batch, store.disk)
    return Adopted(first, last, messages, duplicates)


def _staged(store: FileStore, job: str, info: Info) -> list[StagedBlock]:
    """The blocks that a task staged; raises BadStage unless all of its messages are there."""
    check_stage_name(info["task"])
    folder = os.path.join(store.paths.staging, job, info["task"])
    blocks = staged_blocks(store.disk, folder, store.stream_id)
    found = sum(block.summary.count for block in blocks)
    if found != info["messages"]:  # a network file system may list a folder as it was earlier
        raise BadStage(f"{folder} holds {found} messages of the {info['messages']} that were staged; run it again")
    return blocks


def _without_duplicates(
    stream: Stream, store: FileStore, job: str, staged: list[list[StagedBlock]], has_times: bool, keep_seqs: bool
) -> tuple[list[list[StagedBlock]], int]:
    """The staged blocks without messages whose ids are already in the stream or earlier in the batch, and how many were
    left out."""
    rules, now = stream.rules, store.clock.now_ns()
    if not rules.config.duplicate_window or not any(block.summary.ids for task in staged for block in task):
        return staged, 0
    seen: set[bytes] = set()
    dropped: dict[str, set[int]] = {}
    for task in staged:
        for block in task:
            for row, _time, hashed in block.summary.ids:
                if hashed in seen or rules.dedupe.lookup(hashed, now) is not None:
                    dropped.setdefault(block.path, set()).add(row)
                seen.add(hashed)
    if not dropped:
        return staged, 0
    if keep_seqs:
        raise BadStage(f"{sum(map(len, dropped.values()))} message ids are in {stream.name} already: is this its copy?")
    # Write the blocks again, without the duplicates.
    again = Stage(store.paths.root, job, f"again-{os.urandom(4).hex()}", has_times=has_times, disk=store.disk)
    try:
        again.rules.dedupe.window_ns = 0
        for task in staged:
            for block in task:
                scan, data = scan_staged(store.disk, block)
                part = Batch.of_scan(scan, data, dropped.get(block.path, ()), has_times)
                again.store.append(part)
                _carry_ids_and_expiries(again.store, scan, data, part, dropped.get(block.path, set()))
                again.store.commit()
        again.messages = again.store.index.messages
        again.finish()
    except BaseException:
        again.discard()
        raise
    blocks = staged_blocks(store.disk, again.folder, store.stream_id) if again.messages else []
    return [blocks], sum(map(len, dropped.values()))


def _carry_ids_and_expiries(target: FileStore, scan: Any, data: bytes, part: Batch, without: set[int]) -> None:
    """Record the ids and expiries of the messages that were written again."""
    from penstock.store.index.ids_and_expiries import read_ids_and_expiries, rows_with_id_or_ttl

    seqs = dict(zip((row for row in range(scan.count) if row not in without), part.seqs(), strict=True))
    rows = [row for row in rows_with_id_or_ttl(scan, data) if row[0] in seqs]
    for row, (_, stored, hashed, expiry) in zip(rows, read_ids_and_expiries(rows), strict=True):
        target.note_id_and_expiry(seqs[row[0]], stored, hashed, expiry)


def _check_limits(store: FileStore, blocks: Sequence[StagedBlock]) -> None:
    """With discard "new", refuse a batch as a whole if it does not fit."""
    limits, index = store.limits, store.index
    if not limits.discard_new:
        return
    messages = index.messages + sum(block.summary.count for block in blocks)
    size = index.bytes + sum(block.summary.message_bytes for block in blocks)
    if 0 < limits.max_msgs < messages:
        raise MaxMsgsExceeded
    if 0 < limits.max_bytes < size:
        raise MaxBytesExceeded
    if limits.discard_new_per_subject and limits.max_msgs_per_subject > 0:
        for subject, count in subject_counts(blocks).items():
            there = store.query.totals([subject]).get(subject.decode("utf-8", "surrogateescape"), 0)
            if there + count > limits.max_msgs_per_subject:
                raise MaxMsgsPerSubjectExceeded


def adopt(
    path: str | os.PathLike[str],
    stream: str,
    job: str,
    tasks: Sequence[Info],
    *,
    query: str = "",
    batch: int = 0,
    account: str = "$G",
) -> Adopted:
    """Adopt a job's tasks into a stream of the store at `path`, whichever process writes to it now."""
    request = {"op": "adopt", "account": account, "stream": stream, "job": job, "tasks": list(tasks), "query": query,
               "batch": batch}  # fmt: skip
    return as_writer(
        path,
        account,
        lambda db: db.get_stream(stream).adopt(job, tasks, query=query, batch=batch),
        lambda: Adopted(**ask(path, request)),
    )


def as_writer(path: str | os.PathLike[str], account: str, do: Callable[[Database], T], ask_for: Callable[[], T]) -> T:
    """Open the store for writing and call `do`, or call `ask_for` if another process has the store open.

    While a writer is just opening or closing, neither works: wait and try again.
    """
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            db = open_database(path, account=account)
        except StoreLocked:
            try:
                return ask_for()
            except ConnectionError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(WRITER_RETRY_S)
            continue
        with db:
            return do(db)


def create_stream(path: str | os.PathLike[str], stream: str, config: dict[str, Any], *, account: str = "$G") -> None:
    """Create a stream in the store at `path`, whichever process writes to it now; an existing stream stays as it is."""
    request = {"op": "create", "account": account, "stream": stream, "config": config}

    def make(db: Database) -> None:
        if stream not in db:
            db.stream(stream, **config)

    as_writer(path, account, make, lambda: ask(path, request) and None)


def root_of(path: str | os.PathLike[str], stream: str, account: str = "$G") -> str:
    """The folder of a stream."""
    return StreamPaths(os.path.join(os.path.abspath(os.fspath(path)), account, stream)).root


__all__ = ["Adopted", "adopt", "adopt_staged", "create_stream", "root_of"]
