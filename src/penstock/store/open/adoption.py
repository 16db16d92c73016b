"""Adoption: adds blocks that others have staged to a stream, all of them or none.

Layout and rules: docs/format.md, "Staged blocks". A task stages finished blocks in a store of its own under the
stream's `staging` folder, numbered from 1 (or from a given number). Adoption rewrites their headers for their place in
the stream; nothing else in a block depends on it. The batch is decided once the plan, ADOPT, is written, whole or not
at all: after a crash the next open carries it out. A few messages are appended instead, as tiny blocks slow down every
reader.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.base.disk import Disk
from penstock.errors import CorruptBlock, NewerFormat, StoreError, WriteFailed
from penstock.format.block_header import BlockHeader, decode_front
from penstock.format.block_scan import BlockScan, scan_block
from penstock.format.checked_file import write_checked
from penstock.format.constants import RECORDS_START
from penstock.format.paths import parse_block_name
from penstock.format.small_file import set_aside
from penstock.store.base import Store
from penstock.store.index import loading
from penstock.store.index.ids_and_expiries import IdsAndExpiries, read_ids_and_expiries, rows_with_id_or_ttl
from penstock.store.index.summary import CONTROLS, NAMES, Summary, decode_summary
from penstock.store.open.adopt_plan import check_moves, jobs_of, read_batches, read_plan
from penstock.store.open.block_on_disk import BlockOnDisk, decode_controls
from penstock.store.open.control_records import SKIP, apply_controls
from penstock.store.open.recovery import Recovery
from penstock.store.open.report import Report
from penstock.store.write import engine_blocks
from penstock.store.write.batch import Batch

if TYPE_CHECKING:
    from penstock.store.file_store import FileStore

JOB = "job-"  # name prefix of a batch that is the only one of its query
JOBS_KEPT = 16
SMALL = 4  # a batch smaller than the block size divided by this is appended
IdAndExpiry = tuple[int, int, bytes | None, int]  # seq, time, hash of the message id, expiry


@dataclass(frozen=True, slots=True)
class StagedBlock:
    """A block that a task has finished, with its summary."""

    path: str
    summary: Summary

    @property
    def size(self) -> int:
        return self.summary.data_size


@dataclass(frozen=True, slots=True)
class Adopted:
    """The result of an adoption."""

    first_seq: int
    last_seq: int
    messages: int
    duplicates: int = 0
    was_known: bool = False
    """The batch had been adopted before: nothing was done."""


class BadStage(StoreError):
    """A staged batch that cannot be adopted."""


def staged_blocks(disk: Disk, folder: str, stream_id: bytes) -> list[StagedBlock]:
    """The finished blocks in a task's folder, in order."""
    blocks = os.path.join(folder, "blocks")
    try:
        names = sorted(name for name in os.listdir(blocks) if parse_block_name(name))
    except FileNotFoundError:
        raise BadStage(f"{folder} is gone: the batch was cleaned up, or adopted; run it again") from None
    found = []
    for name in names:
        path = os.path.join(blocks, name)
        sum_path = path.removesuffix(".blk") + ".sum"
        summary = decode_summary(disk.read_file(sum_path), sum_path) if os.path.exists(sum_path) else None
        if summary is None or summary.header.stream_id != stream_id or summary.data_size > os.path.getsize(path):
            raise BadStage(f"{path} is not a finished block of this stream; run the batch again")
        found.append(StagedBlock(path, summary))
    return found


def scan_staged(disk: Disk, block: StagedBlock, header: BlockHeader | None = None) -> tuple[BlockScan, bytes]:
    """The records of a staged block, with every checksum verified, and its bytes."""
    header = header or block.summary.header
    data = disk.read_file(block.path)[: block.size]
    scan = scan_block(
        data, min(RECORDS_START, len(data)), len(data), base_seq=header.base_seq, base_time=header.base_time,
        salt=header.salt, seq_min=header.first_seq,
    )  # fmt: skip
    if scan.damage_count or scan.torn or scan.count != block.summary.count:
        raise CorruptBlock(block.path, scan.stop, "a staged record does not hold; run the batch again")
    return scan, data


def subject_counts(blocks: Sequence[StagedBlock]) -> dict[bytes, int]:
    """Messages per subject in staged blocks."""
    found: dict[bytes, int] = {}
    for block in blocks:
        names, at = bytes(block.summary.section(NAMES)), 0
        while at < len(names):
            count, size = (
                int.from_bytes(names[at + 4 : at + 8], "little"),
                int.from_bytes(names[at + 8 : at + 10], "little"),
            )
            subject = names[at + 10 : at + 10 + size]
            found[subject] = found.get(subject, 0) + count
            at += 10 + size
    return found


def _without_old_jobs(known: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Forget old one-time jobs. The newest JOBS_KEPT stay: the callers of older ones must know the result by now."""
    jobs = sorted((query for query in known if query.startswith(JOB)), key=lambda query: known[query]["last_seq"])
    return {query: facts for query, facts in known.items() if query not in jobs[: 1 - JOBS_KEPT]}


class Adoption:
    """Adds staged blocks to one store. The caller holds the stream's lock, and has checked limits and message ids."""

    def __init__(self, store: FileStore) -> None:
        self.store, self.disk, self.paths = store, store.disk, store.paths

    def adopt(
        self,
        tasks: Sequence[Sequence[StagedBlock]],
        *,
        query: str = "",
        batch: int = 0,
        has_times: bool = False,
        keep_seqs: bool = False,
    ) -> tuple[int, int, list[IdAndExpiry]]:
        """Add the blocks of the tasks, in order. Returns (first sequence, last sequence, ids and expiries)."""
        store = self.store
        store.expire_if_due()
        blocks = [block for task in tasks for block in task]
        self._check_controls(blocks, keep_seqs)
        count = sum(block.summary.count for block in blocks)
        first_seq = store.index.last_seq + 1
        plan = {"query": query, "batch": batch, "first_seq": first_seq, "has_times": has_times}
        size = sum(block.size - RECORDS_START for block in blocks)
        if not keep_seqs and size < store.limits.block_size // SMALL:
            plan |= {"mode": "append", "count": count, "blocks": [self._relative(block.path) for block in blocks]}
            write = self._append
        else:
            for block in blocks:
                scan_staged(self.disk, block)  # before the plan is written: a damaged record fails only the batch
            plan |= self._place(tasks, first_seq, has_times, keep_seqs)
            write = self._take_in
        try:
            write_checked(self.disk, self.paths.adopt, plan)
        except OSError as error:
            self._forget_plan(error)
        try:
            entries = write(plan)
            self._remember(plan)
        except (OSError, StoreError) as error:
            self._hold(error)
        last_seq = store.index.last_seq
        store.limit_adopted(subject_counts(blocks) if store.limits.max_msgs_per_subject > 0 else ())
        return first_seq, last_seq, entries

    # Whole blocks.

    def _place(
        self, tasks: Sequence[Sequence[StagedBlock]], first_seq: int, has_times: bool, keep_seqs: bool
    ) -> dict[str, Any]:
        """Write every block's header. Returns the rest of the plan: where each file is moved to."""
        store = self.store
        store.sync()
        store.engine.seal_active()
        store.sync()
        now = max(store.clock.wall_ns(), store.engine.last_time)
        block_id, next_seq, moves = store.files.next_block_id, first_seq, []
        for task in tasks:
            if not task:
                continue
            shift = 0 if keep_seqs else next_seq - task[0].summary.header.first_seq
            for block in task:
                old = block.summary.header
                if old.first_seq + shift != next_seq:
                    raise BadStage(f"{block.path} begins at {old.first_seq + shift}, the stream goes on at {next_seq}")
                header = replace(
                    old,
                    block_id=block_id,
                    epoch=store.epoch,
                    base_seq=old.base_seq + shift,
                    first_seq=old.first_seq + shift,
                    base_time=old.base_time if has_times else now,
                )
                fd = self.disk.open(block.path, "w")
                try:
                    self.disk.write(fd, header.encode_front())
                    self.disk.sync(fd)
                finally:
                    self.disk.close(fd)
                moves.append([self._relative(block.path), block_id, block.size])
                next_seq = block.summary.last_seq + shift + 1
                block_id += 1
        for folder in sorted({os.path.dirname(block.path) for task in tasks for block in task}):
            self.disk.sync_folder(folder)
        return {"mode": "blocks", "moves": moves, "last_seq": next_seq - 1}

    def move(self, plan: dict[str, Any]) -> None:
        """Move the files to their places in the plan. May be repeated."""
        check_moves(self.disk, self.paths, self.store.stream_id, plan)
        folders = [self.paths.blocks]
        for name, block_id, _size in plan["moves"]:
            source, target = os.path.join(self.paths.root, name), self.paths.block(block_id)
            if os.path.exists(source):
                self.disk.rename(source, target)
            folders.append(os.path.dirname(source))
        for folder in dict.fromkeys(folders):  # both ends of a rename
            if os.path.isdir(folder):
                self.disk.sync_folder(folder)

    def _take_in(self, plan: dict[str, Any]) -> list[IdAndExpiry]:
        """Move the blocks and add them to the index."""
        store = self.store
        entries: list[IdAndExpiry] = []
        self.move(plan)
        reader = Recovery(self.disk, self.paths, store.stream_id, store.engine, Report(), store.headers)
        for _name, block_id, size in plan["moves"]:
            store.files.next_block_id = max(store.files.next_block_id, block_id + 1)
            if block_id in store.headers:
                continue  # a second attempt
            path = self.paths.block(block_id)
            fd = self.disk.open(path)
            try:
                header = decode_front(self.disk.read(fd, RECORDS_START), path)
            finally:
                self.disk.close(fd)
            if header is None:
                raise CorruptBlock(path, 0, "no header of it holds")
            block = BlockOnDisk(path, header, size)
            reader.scan(block, 2**63 - 1)
            assert block.scan is not None
            if block.scan.damage_count or block.scan.torn:
                raise CorruptBlock(path, block.scan.stop, "a record of an adopted block does not hold")
            reader.place(block)
            loading.fill_from_scan(store.index, block_id, block.scan, block.data)
            block.ids_and_expiries = IdsAndExpiries.of_scan(block.scan, block.data)
            loading.count_rows(store.index, block_id, 0)
            apply_controls([block], store.skips, store.lost, store.index, 0)
            if block.scan.count:
                store.engine.last_time = max(store.engine.last_time, store.query.block(block_id)["time_max"])
            store.files.write_summary(block_id, block.all_controls, block.ids_and_expiries, [])
            for entry in block.ids_and_expiries:
                Store.note_id_and_expiry(store, *entry)
            entries += block.ids_and_expiries
        loading.set_ends(store.index, store.index.floor, plan["last_seq"])
        store.engine.log.start_at(plan["last_seq"])
        store.engine.log.publish_head(*engine_blocks.last_position(store.engine), False)
        return entries

    # A few messages.

    def _append(self, plan: dict[str, Any]) -> list[IdAndExpiry]:
        """Append the messages in the plan, from where an earlier attempt stopped."""
        store, entries = self.store, []
        staged = [self._staged(os.path.join(self.paths.root, name)) for name in plan["blocks"]]
        count = sum(block.summary.count for block in staged)
        if count != plan["count"] or len(set(plan["blocks"])) < len(staged):
            raise BadStage(f"{self.paths.adopt} speaks of {plan['count']} messages, and {count} are staged")
        if plan["first_seq"] > store.index.last_seq + 1:
            raise BadStage(
                f"{self.paths.adopt} begins at {plan['first_seq']}, the stream ends at {store.index.last_seq}"
            )
        # A power cut may have lost messages that HEAD counts: their sequences are used, but the messages are missing.
        done = sum(
            seq not in store.skips and seq not in store.lost
            for seq in range(plan["first_seq"], min(store.index.last_seq + 1, plan["first_seq"] + plan["count"]))
        )
        time = max(store.clock.wall_ns(), store.engine.last_time)
        now = store.clock.now_ns()
        try:
            for block in staged:
                header = block.summary.header if plan["has_times"] else replace(block.summary.header, base_time=time)
                scan, data = scan_staged(self.disk, block, header)
                without = range(min(done, scan.count))
                done -= len(without)
                batch = Batch.of_scan(scan, data, without, plan["has_times"])
                store.engine.append(batch, 0, batch.count, now)
                if batch.refused(0, batch.count):
                    raise BadStage(f"{block.path}: the store refused a message that was staged for it")
                seqs = dict(enumerate(batch.seqs(), len(without)))
                rows = [row for row in rows_with_id_or_ttl(scan, data) if row[0] in seqs]
                for row, (_, stored, hashed, expiry) in zip(rows, read_ids_and_expiries(rows), strict=True):
                    entry = (seqs[row[0]], stored, hashed, expiry)
                    store.note_id_and_expiry(*entry)
                    entries.append(entry)
            store.commit()
            store.sync()
        except (OSError, StoreError) as error:
            if store.engine.log.failure() is None and store.engine.log.has_uncommitted:
                store.rollback.run(error if isinstance(error, StoreError) else None)
            if store.index.last_seq < plan["first_seq"]:
                self._drop_plan()  # rolled back: nothing was adopted
            raise
        return entries

    def _staged(self, path: str) -> StagedBlock:
        for block in staged_blocks(self.disk, os.path.dirname(os.path.dirname(path)), self.store.stream_id):
            if block.path == path:
                return block
        raise BadStage(f"{path} is gone: it was to be adopted")

    # The plan.

    def _remember(self, plan: dict[str, Any]) -> None:
        """The batch is in the stream: record it for its query, durably, and remove the plan."""
        if plan["query"]:
            known = _without_old_jobs(read_batches(self.disk, self.paths))
            last_seq = plan["last_seq"] if plan["mode"] == "blocks" else self.store.index.last_seq
            known[plan["query"]] = {"batch": plan["batch"], "first_seq": plan["first_seq"], "last_seq": last_seq}
            write_checked(self.disk, self.paths.batches, known)
            write_checked(self.disk, self.paths.batches_copy, known)
        self._drop_plan()

    def _drop_plan(self) -> None:
        if os.path.exists(self.paths.adopt):
            self.disk.unlink(self.paths.adopt)
            self.disk.sync_folder(self.paths.root)

    def _forget_plan(self, cause: OSError) -> None:
        """The plan was not written whole: nothing of it may be left for the next open to carry out."""
        failed = WriteFailed("write", self.paths.adopt, cause.errno or errno.EIO)
        try:
            self._drop_plan()
        except OSError:
            self.store.has_void_plan = True
            self.store.engine.log.hold(cause.errno or errno.EIO, self.paths.adopt)
        raise failed from cause

    def _hold(self, error: Exception) -> None:
        """The adoption is decided but not finished: hold all writes until `resume` has finished it."""
        if os.path.exists(self.paths.adopt):
            self.store.engine.log.hold(getattr(error, "errno", None) or errno.EIO, self.paths.adopt)
        if isinstance(error, StoreError):
            raise error
        raise WriteFailed("adopt", self.paths.root, getattr(error, "errno", None) or errno.EIO) from error

    def before_open(self) -> None:
        """Move the blocks of an interrupted adoption to their places, before the open lists the files."""
        try:
            plan = read_plan(self.disk, self.paths)
            if plan is not None and plan["mode"] == "blocks":
                self.move(plan)
        except (CorruptBlock, NewerFormat) as damage:
            self._give_up(damage)

    def after_open(self, is_moved: bool = True) -> None:
        """Finish an interrupted adoption: append its messages and record the batch.

        Blocks that could not be moved before are moved and added now.
        """
        plan = read_plan(self.disk, self.paths)
        if plan is None:
            return
        try:
            if plan["mode"] == "append":
                self.store.files.recovered_ids.extend(self._append(plan))
            elif not is_moved:
                self._take_in(plan)
        except (BadStage, CorruptBlock, NewerFormat) as damage:
            self._give_up(damage)
            return
        try:
            self._remember(plan)
        except CorruptBlock as damage:
            # Its messages are in the stream. The plan stays: carried out again, it records the batch once BATCHES is
            # repaired.
            self.store.report.add("rebuilt", damage.path, f"{damage.reason}: the batch is in, and is not noted yet")
            return
        self._clear(plan)

    def _give_up(self, damage: StoreError) -> None:
        """Set aside a plan that is damaged or names damaged blocks.

        The batch was not acknowledged, so its query will stage it again.
        """
        if os.path.exists(self.paths.adopt):
            set_aside(self.disk, self.paths.adopt)
        self.store.report.add("set aside", self.paths.adopt, f"{damage}: an unfinished batch is left out")

    def resume(self) -> None:
        """Finish an adoption that failed half way in this process, or forget one that was never decided."""
        if self.store.has_void_plan:
            try:
                self._drop_plan()
            except OSError as error:
                self._hold(error)
            self.store.has_void_plan = False
        plan = read_plan(self.disk, self.paths)
        if plan is None:
            return
        try:
            if plan["mode"] == "append":
                self._append(plan)
            else:
                self._take_in(plan)
            self._remember(plan)
        except (OSError, StoreError) as error:
            self._hold(error)
        self._clear(plan)
        self.store.enforce_limits()

    def _clear(self, plan: dict[str, Any]) -> None:
        """Remove the rest of a batch that was finished late from staging: its job has given it up."""
        try:
            for job in sorted(jobs_of(plan)):
                remove_tree(self.disk, os.path.join(self.paths.staging, job))
            if os.path.isdir(self.paths.staging) and not os.listdir(self.paths.staging):
                self.disk.rmdir(self.paths.staging)
        except OSError as error:  # the batch is in the stream; the rest takes disk space until its job is swept
            self.store.report.add("unknown file", self.paths.staging, f"{error}: it is left over")

    # Checks of staged blocks.

    def _check_controls(self, blocks: Collection[StagedBlock], keep_seqs: bool) -> None:
        """A staged block may hold messages, and skips if sequences are kept; no records that concern other blocks."""
        for block in blocks:
            controls = bytes(block.summary.section(CONTROLS))
            if not controls:
                continue
            on_disk = BlockOnDisk(block.path, block.summary.header, block.size, controls=controls)
            if not keep_seqs or any(record["kind"] != SKIP for record in decode_controls(on_disk)):
                raise BadStage(f"{block.path} holds records that a staged block may not hold")

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.paths.root)


def remove_tree(disk: Disk, folder: str) -> None:
    """Remove one of our folders with everything in it; for a symbolic link only the link."""
    if os.path.islink(folder):
        disk.unlink(folder)
    if not os.path.isdir(folder):
        return
    for entry in sorted(os.listdir(folder)):
        path = os.path.join(folder, entry)
        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(disk, path)
        else:
            disk.unlink(path)
    disk.rmdir(folder)
