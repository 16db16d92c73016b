"""FileStore: a stream in block files. Layout: docs/format.md. What is durable when: ARCHITECTURE.md, "Commit".

base.py has all that does not touch files. The parts that do: open/opening.py (from files to a store),
write/block_files.py (block files and summaries), write/rollback.py (a commit that fails), deletes/block_removal.py
(dead blocks go), index/checkpoint_writer.py, write/truncation.py.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Callable, Iterable, Iterator

from penstock.base.clock import SYSTEM, Clock
from penstock.base.disk import Disk
from penstock.base.subject import Filters
from penstock.errors import StoreError, WriteFailed
from penstock.format.block_header import BlockHeader, boot_id
from penstock.format.constants import REASONS
from penstock.format.paths import StreamPaths
from penstock.store.base import MAX_MSGS_PER_SUBJECT, USER, Store, forget_block_memory
from penstock.store.deletes.block_removal import BlockRemoval
from penstock.store.deletes.deletes_file import BY_USER
from penstock.store.deletes.recorder import DeletesRecorder
from penstock.store.index.checkpoint_writer import CheckpointWriter
from penstock.store.index.ids_and_expiries import IdsAndExpiries
from penstock.store.index.index import Index
from penstock.store.limits import DURABILITIES, Limits
from penstock.store.open.deferred_writes import DeferredWrites
from penstock.store.open.opening import Opening
from penstock.store.write import engine_blocks
from penstock.store.write.batch import Batch
from penstock.store.write.block_files import BlockFiles
from penstock.store.write.commit_log import CommitLog
from penstock.store.write.committer import Committer
from penstock.store.write.engine import StreamEngine
from penstock.store.write.rollback import Rollback
from penstock.store.write.truncation import Truncation


class FileStore(Store):
    """A stream's messages in files; open until `stop`.

    Always true: the files tell the state up to the last commit, whatever moment the process ends at.
    """

    type = "file"
    active_ids: IdsAndExpiries
    has_void_plan = False  # an ADOPT that nobody may follow could not be removed

    def __init__(
        self,
        path: str | os.PathLike[str],
        stream_id: bytes,
        *,
        name: str = "",
        limits: Limits | None = None,
        durability: str = "disk",
        disk: Disk | None = None,
        clock: Clock | None = None,
        committer: Committer | None = None,
    ) -> None:
        if durability not in DURABILITIES:
            raise ValueError(f"durability {durability!r}: one of {', '.join(DURABILITIES)}")
        self.paths = StreamPaths(os.fspath(path))
        self.stream_id = stream_id
        self.disk = disk or Disk()
        self.durability = durability
        self.own_committer = committer is None
        self.committer = committer or Committer()
        self.boot_id = boot_id()
        self.epoch = 0
        self.unerased: set[int] = set()  # deleted by an erase that has not overwritten their bytes yet
        self.sealed_seen = 0  # sealed blocks whose memory was given back
        self.files = BlockFiles(self)
        self.rollback = Rollback(self)
        self.removal = BlockRemoval(self)
        self.checkpoints = CheckpointWriter(self)
        self.truncation = Truncation(self)
        self.deletes = DeletesRecorder(self)
        self.opening = Opening(self)
        self.deferred_writes = DeferredWrites(self)
        limits = limits or Limits()
        super().__init__(name or os.path.basename(self.paths.root), clock or SYSTEM, self.new_engine(), limits)
        try:
            self.opening.open(limits)
        except BaseException as error:
            self.engine.log.detach()
            self._close()
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self.paths.root  # a call on a descriptor does not know its name
            raise

    def new_engine(self) -> StreamEngine:
        """An empty engine for these files."""
        log = CommitLog(self.disk, self.paths.blocks, DURABILITIES.index(self.durability), self.committer)
        engine = StreamEngine(self, Index(), log)
        engine.index.loader = self.files.load_section
        return engine

    @property
    def headers(self) -> dict[int, BlockHeader]:
        return self.files.headers

    @property
    def filters(self) -> dict[int, bytes]:
        return self.files.filters

    def block_path(self, block_id: int) -> str:
        return self.files.path(block_id)

    # What the engine asks for.

    def new_block(self, first_seq: int, time: int) -> tuple[int, bytes, bytes, int]:
        return self.files.name_new(first_seq, time)

    def block_sealed(self, block_id: int, spans: list[tuple[int, int]]) -> None:
        self.files.seal(block_id, spans)
        forget_block_memory(self.engine)

    def commit_failed(self, position: int) -> None:
        """A commit did not succeed: roll back, and tell those whose messages were in it."""
        if self.engine.log.failure() is not None:
            self.rollback.run()
        self.check_position(position)

    def undo_failed(self, error: BaseException) -> None:
        """An append or a delete did not come to its end: what was not committed goes, and its owners are told."""
        self.rollback.after_error(error)

    def retry(self) -> None:
        """Before the next append after a failure."""
        if self.deferred_writes.is_done:
            self.rollback.retry()
        else:
            self.deferred_writes.resume()

    # Commit.

    def commit(self) -> None:
        if self.has_deferred_writes and not self.engine.log.has_uncommitted:
            return  # a commit of nothing must not pass for one that works
        self.engine.commit()
        self.after_commit()

    @property
    def needs_cleanup(self) -> bool:
        return self.removal.is_due or self.engine.sealed_count != self.sealed_seen

    def after_commit(self) -> None:
        """Housekeeping that a commit makes possible: dead blocks go, images of sealed blocks too, a checkpoint
        when it is due. What was committed stays so, whatever happens here."""
        if self.engine.is_closed:
            return  # while somebody waited for the commit
        self.removal.after_commit()
        if self.engine.sealed_count != self.sealed_seen:
            self.sealed_seen = self.engine.sealed_count
            forget_block_memory(self.engine)
            self.checkpoints.write_if_due()

    def clean_up(self, action: Callable[[], object]) -> None:
        """A step that may fail for the same cause as what came before it: then the next open does it."""
        try:
            action()
        except (OSError, StoreError) as error:
            self.report.add("clean-up", self.paths.root, f"left for the next open: {error}")

    def note_id_and_expiry(
        self, seq: int, time: int, id_hash: bytes | None, expiry: int, now: int | None = None
    ) -> None:
        super().note_id_and_expiry(seq, time, id_hash, expiry, now)
        block_id = engine_blocks.sealed_block_of(self.engine, seq)
        if block_id:
            self.files.add_to_summary(block_id, (seq, time, id_hash, expiry))
        else:
            self.active_ids.append(seq, time, id_hash, expiry)

    def recent_ids_and_expiries(self, since_ns: int) -> IdsAndExpiries:
        """Those of messages stored since a time, and perhaps of older ones, by rising sequence; after an open, once."""
        return self.files.recent_ids_and_expiries(since_ns)

    def lose_up_to(self, seq: int) -> None:
        """Somebody has seen sequences up to `seq`: those above our last are lost, and never given out again."""
        self.opening.lose_up_to(seq)

    def limit_adopted(self, subjects: Iterable[bytes]) -> None:
        """Bring the stream within its limits after blocks with messages on these subjects have come in."""
        now, limit = self.clock.now_ns(), self.limits.max_msgs_per_subject
        self.end_future(now)
        if limit > 0:  # first: message by message it comes before the others too
            for subject in subjects:
                alone = Filters([subject], exact=True)
                self.engine.delete_matching(alone, 1, 2**63 - 1, limit, 2**63 - 1, MAX_MSGS_PER_SUBJECT, now)
        self.engine.append(Batch(), 0, 0, now)
        self.expire(now)
        self.commit()
        self.checkpoints.write_if_due()

    @property
    def has_deferred_writes(self) -> bool:
        """The files are not in order yet (deferred_writes.py): the stream can be read, and takes no writes."""
        return self.deferred_writes.is_waiting

    def defer_nothing(self) -> None:
        """The files are about to be recovered once more: what cannot be written is an error from now on."""
        self.deferred_writes = DeferredWrites(self, is_strict=True)

    def write_failure(self) -> WriteFailed:
        """Why the store takes no writes."""
        return self.rollback.failure()

    def flush_all_pending(self) -> None:
        """Write everything to the files."""
        if self.has_deferred_writes:
            return  # nothing was appended
        if self.engine.write_out() < 0:
            raise self.rollback.failure()

    def sync(self) -> None:
        """Write everything to the files and through to the disk."""
        if self.has_deferred_writes and not self.engine.log.has_uncommitted:
            return
        if self.engine.sync() < 0:
            raise self.rollback.failure()

    def raise_floor(self, seq: int, reason: int, now: int) -> int:
        is_by_user = REASONS[reason] in BY_USER and seq > self.index.floor
        taken = self.deletes.alive_below(seq) if is_by_user else None
        purged = super().raise_floor(seq, reason, now)
        if taken is not None:
            self.deletes.note_floor(reason, seq, taken)
        return purged

    # Erase.

    def erase(self, seq: int) -> bool:
        """Delete one message and overwrite its headers and payload on disk: first the record that says so, then
        the bytes."""
        if not 0 < seq < 2**63:
            return False
        self.expire_if_due()
        now = self.clock.now_ns()
        if self.engine.delete(seq, USER, now):
            self.engine.log_erase(seq, now)
            self.engine.commit()
            self.unerased.add(seq)
        elif seq not in self.unerased:
            return False
        self.sync()
        self.overwrite(seq)
        self.after_commit()  # not before: a block that goes may come back after a power cut, with what it said
        return True

    def overwrite(self, seq: int) -> None:
        """The second half of an erase; may be repeated."""
        try:
            found = engine_blocks.overwrite(self.engine, seq, os.urandom)
            if found is not None:
                block_id, offset, data = found
                fd = engine_blocks.descriptor(self.engine, block_id)
                self.disk.write(fd, data, offset)
                self.disk.sync(fd)
        except OSError as error:
            raise WriteFailed("erase", self.paths.blocks, error.errno or errno.EIO) from error
        self.unerased.discard(seq)

    # Truncate and checkpoint.

    def truncate(self, seq: int) -> None:
        """Delete everything above `seq`; the next sequence follows it. 0 begins anew. The epoch rises."""
        if not 0 <= seq < 2**63:
            raise ValueError(f"sequence {seq}: sequences are below 2^63")
        if seq < self.index.last_seq:
            self.truncation.truncate(seq)

    def reset(self) -> None:
        """Begin anew: nothing stored, the next sequence is 1."""
        self.truncate(0)

    @property
    def is_checkpoint_due(self) -> bool:
        return self.checkpoints.is_due

    def write_checkpoint(self) -> None:
        """Sync everything, then write the state as of now."""
        self.sync()
        try:
            self.checkpoints.write()
        except OSError as error:
            raise WriteFailed("write", self.paths.checkpoint, error.errno or errno.EIO) from error

    def prepare_checkpoint(self) -> None:
        self.clean_up(self.files.summaries.sync)

    # The end.

    def stop(self) -> None:
        """Commit, write the checkpoint, say in HEAD that all is in order. Writes are refused from now on."""
        if self.engine.is_closed:
            return
        self._renew_parts()
        failed: StoreError | None = None
        self.engine.log.detach()
        try:
            if self.has_deferred_writes and not self._resume():
                return  # nothing was written: the next open finds the files as this one did
            if self.engine.log.failure() is not None:
                self.retry()
            self.sync()
            self.removal.carry_out()
            self.write_checkpoint()
            self.engine.log.publish_head(*engine_blocks.last_position(self.engine), True)
            self.engine.log.sync_head()
        except OSError as error:
            failed = WriteFailed("close", self.paths.root, error.errno or errno.EIO)
            failed.__cause__ = error
        except StoreError as error:
            failed = error
        finally:
            self._close()
        if failed is not None:
            raise failed

    def _renew_parts(self) -> None:
        """Refer to this store from its parts anew: the garbage collector has cleared their weak references if it is
        what closes a dropped database."""
        for part in (
            self.files,
            self.rollback,
            self.removal,
            self.checkpoints,
            self.truncation,
            self.deletes,
            self.opening,
            self.deferred_writes,
        ):
            part.store = weakref.proxy(self)

    def _resume(self) -> bool:
        try:
            self.deferred_writes.resume()
        except WriteFailed:
            return False
        return True

    def _close(self) -> None:
        self.engine.is_closed = True
        self.deferred_writes.forget()
        self.files.summaries.close()
        self.release()
        self.files.close()
        if self.own_committer:
            self.committer.stop()

    def abandon(self) -> None:
        """Let go of the files without writing anything: as a crash would, but for the memory."""
        if not self.engine.is_closed:
            self.engine.log.detach()
            self._close()

    def delete(self) -> None:
        """Remove the stream's blocks and state for good."""
        self.engine.log.detach()
        self._close()
        for path in self._files():
            self.disk.unlink(path)
        self.disk.rmdir(self.paths.blocks)

    def _files(self) -> Iterator[str]:
        for name in sorted(os.listdir(self.paths.blocks), reverse=True):
            yield os.path.join(self.paths.blocks, name)
        paths = self.paths
        for path in (
            paths.checkpoint, paths.head, paths.truncate, paths.adopt, paths.batches, paths.batches_copy, paths.deletes
        ):  # fmt: skip
            if os.path.exists(path):
                yield path
