"""Stage: messages that one task of a larger job writes beside a stream, to be adopted together with the other tasks'
messages.

A task needs no lock and no other process: it writes finished blocks into a store of its own, in the stream's `staging`
folder. The stage already checks what it can: subjects, sizes, headers. The process that writes to the stream adopts all
stages of a job or none: adopt.py.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import msgspec

from penstock.base.clock import Clock
from penstock.base.disk import Disk
from penstock.errors import PenstockError, StoreError
from penstock.format.identity import read_identity
from penstock.format.paths import STAGE_NAME, StreamPaths
from penstock.store.file_store import FileStore
from penstock.store.index import loading
from penstock.store.open.adopt_plan import jobs_being_adopted
from penstock.store.open.adoption import BadStage, remove_tree
from penstock.store.write.batch import Batch
from penstock.stream.config import StreamConfig
from penstock.stream.config_json import decode_config
from penstock.stream.stream import StreamRules, limits_of

FORGOTTEN_S = 7 * 86400  # a job that has staged nothing for this long is abandoned
QUERY_SIZE_MAX = 255
DISCARDS_MAX = 5  # an abandoned task may still be writing; it fails once its folder is gone
_REFUSED = re.compile(rb"\r\nNats-(?:Rollup|Expected-[A-Za-z-]+|Batch-[A-Za-z-]+|Incr|Schedule[A-Za-z-]*):")


class StagedMessageRefused(PenstockError):
    """A message that cannot be staged; the text names it and gives the reason."""


class _StageClock(Clock):
    """A clock that stands still: staged messages get the time of their adoption."""

    def now_ns(self) -> int:
        return 1


class Stage:
    """The messages of one task: `append` batches, then `finish` or `discard`.

    Always true: nothing of a stage is in the stream before the adoption; a finished stage is on disk.
    """

    def __init__(
        self,
        root: str,
        job: str,
        task: str,
        *,
        start_seq: int = 1,
        has_times: bool = False,
        disk: Disk | None = None,
    ) -> None:
        """`root` is the stream's folder. With `start_seq`, the adoption keeps the sequences."""
        check_stage_name(job)
        check_stage_name(task)
        self.paths = StreamPaths(root)
        self.disk = disk or Disk()
        self.job, self.task, self.start_seq, self.has_times = job, task, start_seq, has_times
        identity = read_identity(self.disk, self.paths)
        self.config = decode_config(json.dumps(identity.config).encode())
        self.revision = identity.revision
        self.folder = os.path.join(self.paths.staging, job, task)
        for folder in (self.paths.staging, os.path.dirname(self.folder), self.folder):
            self.disk.mkdir(folder)
        self.store = FileStore(
            self.folder,
            identity.stream_id,
            name=self.config.name,
            limits=limits_of(_unlimited(self.config)),
            durability="lazy",
            disk=self.disk,
            clock=_StageClock(),
        )
        if start_seq > 1:
            loading.set_ends(self.store.index, start_seq, start_seq - 1)
            self.store.engine.log.start_at(start_seq - 1)
        self.rules = StreamRules(_unlimited(self.config), self.store)
        self.messages = 0
        self.duplicates = 0

    def append(self, batch: Batch) -> None:
        """Append a batch; StagedMessageRefused names the first message that the stream would refuse."""
        if batch.has_rules:
            self._refuse_unsupported_headers(batch)
        refused, duplicates = self.rules.take(batch)
        if refused:
            at, error = refused[0]
            subject = batch.subject(at).decode("utf-8", "backslashreplace")
            raise StagedMessageRefused(f"message #{self.messages + at} on {subject!r} for {self.config.name}: {error}")
        self.duplicates += len(duplicates)
        self.messages += batch.count
        self.store.commit()

    def skip_to(self, seq: int) -> None:
        """Leave the sequences below `seq` without messages: the next message gets `seq`."""
        last = self.store.index.last_seq
        if seq <= last:
            raise StagedMessageRefused(f"sequence {seq} follows {last}: sequences rise")
        if seq > last + 1:
            self.store.skip(seq - last - 1)

    def _refuse_unsupported_headers(self, batch: Batch) -> None:
        """Refuse headers that depend on the stream's state at this moment: at adoption it is too late to evaluate
        them."""
        at = batch.next_rule(0)
        while at < batch.count:
            found = _REFUSED.search(batch.headers(at) or b"")
            if found:
                header = found[0][2:-1].decode()
                raise StagedMessageRefused(
                    f"message #{self.messages + at} for {self.config.name} has the header {header}, which a bulk write "
                    "cannot honour; leave it out, or publish the message"
                )
            at = batch.next_rule(at + 1)

    def finish(self) -> dict[str, Any]:
        """Sync everything to the disk; returns what the adoption has to know, ready for JSON."""
        self.store.engine.seal_active()
        stored = self.store.index.messages
        self.store.stop()
        info = {
            "job": self.job,
            "task": self.task,
            "revision": self.revision,
            "messages": stored,
            "duplicates": self.duplicates,
            "has_times": self.has_times,
            "start_seq": self.start_seq,
        }
        for folder in (os.path.dirname(self.folder), self.paths.staging, self.paths.root):
            self.disk.sync_folder(folder)  # the folders may be new
        return info

    def discard(self) -> None:
        """Remove the stage."""
        self.store.abandon()
        remove_tree(self.disk, self.folder)


def discard_job(root: str, job: str, disk: Disk | None = None) -> None:
    """Remove everything that the tasks of a job have staged, unless it is being adopted and so belongs to the
    stream."""
    check_stage_name(job)
    disk, paths = disk or Disk(), StreamPaths(root)
    if job in jobs_being_adopted(disk, paths):
        return
    for _ in range(DISCARDS_MAX):
        if _succeeds(lambda: remove_tree(disk, os.path.join(paths.staging, job))):
            break
    if os.path.isdir(paths.staging) and not os.listdir(paths.staging):
        _succeeds(lambda: disk.rmdir(paths.staging))


def sweep(root: str, query: str, batch: int, disk: Disk) -> None:
    """Remove stages that are no longer needed: older batches of this query, and abandoned jobs."""
    paths = StreamPaths(root)
    for job in sorted(os.listdir(paths.staging)) if os.path.isdir(paths.staging) else ():
        of_query, _, number = job.rpartition("-")
        is_older = bool(query) and of_query == query and number.isdigit() and int(number) <= batch
        if is_older or _age_s(os.path.join(paths.staging, job)) > FORGOTTEN_S:
            discard_job(root, job, disk)


def _age_s(folder: str) -> float:
    """Seconds since the last write in a job's folder."""
    newest = max((os.stat(path).st_mtime for path, _, _ in os.walk(folder)), default=time.time())
    return time.time() - newest


def _succeeds(action: Callable[[], None]) -> bool:
    """Whether `action` succeeded. Another task may be working in the folder; what it adds is removed with the next
    job."""
    try:
        action()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            raise
        return False
    return True


def check_stage_name(name: object) -> None:
    """Check the name of a job or task, which names a folder: it must not lead out of `staging`, whoever sends it."""
    if not isinstance(name, str) or not STAGE_NAME.fullmatch(name):
        raise StoreError(f"{name!r} is no name for a stage: letters, digits, - _ and . (up to 200)")


_Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _StagedTask(msgspec.Struct):
    """What `Stage.finish` returned for a task. A task that staged nothing may lack a name and a revision."""

    revision: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
    messages: _Int64
    duplicates: _Int64
    has_times: bool
    start_seq: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    task: str = ""


def check_batch(job: object, tasks: object, query: object, batch: object) -> None:
    """Check that this is a job as its tasks reported it; it may come from another process."""
    check_stage_name(job)
    if not isinstance(query, str) or len(query) > QUERY_SIZE_MAX or not query.isprintable():
        raise BadStage(f"{query!r:.100} is no name for a query: printable text of up to {QUERY_SIZE_MAX} characters")
    if not isinstance(batch, int) or isinstance(batch, bool) or not 0 <= batch < 2**63:
        raise BadStage(f"{batch!r:.100} is no number for a batch: 0 to 2^63 - 1")
    if not isinstance(tasks, Iterable) or isinstance(tasks, str | bytes):
        raise BadStage(f"the tasks of {job} are a list of what Stage.finish gave, not {type(tasks).__name__}")
    for at, info in enumerate(tasks):
        try:
            task = msgspec.convert(info, _StagedTask)
        except msgspec.ValidationError as error:
            raise BadStage(f"task #{at} of {job} is not what Stage.finish gave: {error}") from None
        if task.messages or task.task:
            check_stage_name(task.task)


def _unlimited(config: StreamConfig) -> StreamConfig:
    """The stream's configuration without the limits that can be applied only to the whole stream."""
    return msgspec.structs.replace(
        config, max_msgs=-1, max_bytes=-1, max_age=0, max_msgs_per_subject=-1, discard="old",
        discard_new_per_subject=False, first_seq=0, allow_rollup_hdrs=False, retention="limits",
    )  # fmt: skip


__all__ = ["Stage", "StagedMessageRefused", "check_batch", "check_stage_name", "discard_job", "sweep"]
