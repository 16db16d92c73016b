"""Stage: messages that a task of a larger job writes beside a stream, to be adopted with those of the other tasks.

A task needs no lock and no other process: it writes finished blocks into a store of its own, in the stream's `staging`
folder. What can be judged there is judged there: subjects, sizes, headers. Whoever writes to the stream adopts them all
or none: adopt.py.
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

FORGOTTEN_S = 7 * 86400  # a job that has staged nothing for so long is dead
QUERY_SIZE_MAX = 255
DISCARDS_MAX = 5  # a task that nobody waits for may still be writing: once its folder is gone it fails
_REFUSED = re.compile(rb"\r\nNats-(?:Rollup|Expected-[A-Za-z-]+|Batch-[A-Za-z-]+|Incr|Schedule[A-Za-z-]*):")


class StagedMessageRefused(PenstockError):
    """A message that cannot be staged: which one, and why."""


class _StageClock(Clock):
    """No time passes in a stage: its messages get the time of the adoption."""

    def now_ns(self) -> int:
        return 1


class Stage:
    """What one task writes. `append` batches, then `finish`; or `discard`.

    Always true: nothing of it is in the stream before it is adopted; a stage that was finished is on disk.
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
        """`root` is the stream's folder. With `start_seq` the sequences are kept at adoption."""
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
        """Take a batch; StagedMessageRefused names the first message that the stream would not take."""
        if batch.has_rules:
            self._refuse_orders(batch)
        refused, duplicates = self.rules.take(batch)
        if refused:
            at, error = refused[0]
            subject = batch.subject(at).decode("utf-8", "backslashreplace")
            raise StagedMessageRefused(f"message #{self.messages + at} on {subject!r} for {self.config.name}: {error}")
        self.duplicates += len(duplicates)
        self.messages += batch.count
        self.store.commit()

    def skip_to(self, seq: int) -> None:
        """The sequences up to `seq` hold no message: the next one has `seq`."""
        last = self.store.index.last_seq
        if seq <= last:
            raise StagedMessageRefused(f"sequence {seq} follows {last}: sequences rise")
        if seq > last + 1:
            self.store.skip(seq - last - 1)

    def _refuse_orders(self, batch: Batch) -> None:
        """What asks about the stream at this moment cannot be answered later, and for many at once."""
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
        """Bring everything to the disk: what the adoption has to know, for JSON."""
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
            self.disk.sync_folder(folder)  # the folders themselves may be new
        return info

    def discard(self) -> None:
        """Leave nothing behind."""
        self.store.abandon()
        remove_tree(self.disk, self.folder)


def discard_job(root: str, job: str, disk: Disk | None = None) -> None:
    """Remove everything that the tasks of a job have staged; unless it is being adopted: then it is the stream's."""
    check_stage_name(job)
    disk, paths = disk or Disk(), StreamPaths(root)
    if job in jobs_being_adopted(disk, paths):
        return
    for _ in range(DISCARDS_MAX):
        if _quietly(lambda: remove_tree(disk, os.path.join(paths.staging, job))):
            break
    if os.path.isdir(paths.staging) and not os.listdir(paths.staging):
        _quietly(lambda: disk.rmdir(paths.staging))


def sweep(root: str, query: str, batch: int, disk: Disk) -> None:
    """Remove what nobody will ask for any more: older batches of this query, and jobs that died long ago."""
    paths = StreamPaths(root)
    for job in sorted(os.listdir(paths.staging)) if os.path.isdir(paths.staging) else ():
        of_query, _, number = job.rpartition("-")
        is_older = bool(query) and of_query == query and number.isdigit() and int(number) <= batch
        if is_older or _age_s(os.path.join(paths.staging, job)) > FORGOTTEN_S:
            discard_job(root, job, disk)


def _age_s(folder: str) -> float:
    """Since when nothing was written in a job's folder."""
    newest = max((os.stat(path).st_mtime for path, _, _ in os.walk(folder)), default=time.time())
    return time.time() - newest


def _quietly(action: Callable[[], None]) -> bool:
    """Whether it was done. Another task may be at work in the folder; what it adds is removed with the next job."""
    try:
        action()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            raise
        return False
    return True


def check_stage_name(name: object) -> None:
    """A job or a task names a folder: nothing that leads out of `staging`, whoever says it."""
    if not isinstance(name, str) or not STAGE_NAME.fullmatch(name):
        raise StoreError(f"{name!r} is no name for a stage: letters, digits, - _ and . (up to 200)")


_Int64 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _StagedTask(msgspec.Struct):
    """What `Stage.finish` tells of a task. One that staged nothing need not have a name, or know a revision."""

    revision: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
    messages: _Int64
    duplicates: _Int64
    has_times: bool
    start_seq: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    task: str = ""


def check_batch(job: object, tasks: object, query: object, batch: object) -> None:
    """Whether this is a job as its tasks have told it; it may come from another process."""
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
    """The stream without the limits that only the whole of it can keep."""
    return msgspec.structs.replace(
        config, max_msgs=-1, max_bytes=-1, max_age=0, max_msgs_per_subject=-1, discard="old",
        discard_new_per_subject=False, first_seq=0, allow_rollup_hdrs=False, retention="limits",
    )  # fmt: skip


__all__ = ["Stage", "StagedMessageRefused", "check_batch", "check_stage_name", "discard_job", "sweep"]
