"""The plan of an adoption (ADOPT) and the last batch of each query (BATCHES), as they are read. Layout:
docs/format.md, "Staged blocks".

Whoever follows a plan moves files and removes folders by the names in it. So a plan is held against the files first:
every name has the
shape that a stage gives its files, none of them leads out of the stream's folder, and each block is what the plan
says. A plan that is not so is not followed, in no part.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Annotated, Any, Literal

import msgspec

from penstock.base.disk import Disk
from penstock.errors import CorruptBlock
from penstock.format.block_header import BlockHeader, decode_front
from penstock.format.bounds import ID_MAX, INT64_MAX, INT64_MIN, SEQ_MAX
from penstock.format.checked_file import read_checked
from penstock.format.constants import RECORDS_START
from penstock.format.paths import STAGE_NAME, StreamPaths, parse_block_name
from penstock.store.index.summary import decode_summary

Note = dict[str, int]  # batch, first_seq, last_seq
_Seq = Annotated[int, msgspec.Meta(ge=0, le=SEQ_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=SEQ_MAX)]
_Batch = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
_Name = Annotated[str, msgspec.Meta(max_length=1024)]
_Id = Annotated[int, msgspec.Meta(ge=1, le=ID_MAX)]
_Size = Annotated[int, msgspec.Meta(ge=RECORDS_START, le=2**32 - 1)]
_SHAPE = re.compile(r"staging/([^/]+)/([^/]+)/blocks/([^/]+)")


class _Plan(msgspec.Struct):
    """What stands in ADOPT."""

    query: str
    batch: _Batch
    first_seq: Annotated[int, msgspec.Meta(ge=1, le=SEQ_MAX)]
    has_times: bool
    mode: Literal["blocks", "append"]
    last_seq: _Seq = 0
    moves: list[tuple[_Name, _Id, _Size]] = []
    blocks: list[_Name] = []
    count: _Count = 0


class _Note(msgspec.Struct):
    batch: _Batch
    first_seq: _Seq
    last_seq: _Seq


def read_plan(disk: Disk, paths: StreamPaths) -> dict[str, Any] | None:
    """The plan in ADOPT; None when there is none, CorruptBlock when it cannot be one."""
    found = read_checked(disk, paths.adopt, _Plan)
    if found is None:
        return None
    for name in [name for name, _, _ in found.moves] + found.blocks:
        check_name(paths, name)
    plan: dict[str, Any] = msgspec.to_builtins(found)
    return plan


def check_name(paths: StreamPaths, name: str) -> None:
    """CorruptBlock unless it is staging/JOB/TASK/blocks/NNNNNN.blk, and there is no other way to where it leads."""
    parts = _SHAPE.fullmatch(name)
    if (
        parts is None
        or not STAGE_NAME.fullmatch(parts[1])
        or not STAGE_NAME.fullmatch(parts[2])
        or parse_block_name(parts[3]) is None
    ):
        raise CorruptBlock(paths.adopt, 0, f"it names {name[:80]!r}, which is no staged block")
    path = paths.root
    for part in name.split("/"):
        path = os.path.join(path, part)
        if os.path.islink(path):
            raise CorruptBlock(paths.adopt, 0, f"{path} is a link: a staged block is a file of the stream")


def check_moves(disk: Disk, paths: StreamPaths, stream_id: bytes, plan: dict[str, Any]) -> None:
    """CorruptBlock unless every block of the plan is there, here or where it goes, and they follow each other as it
    says.

    The headers were written for the places before the plan was: what has another header is another file.
    """
    moves = plan["moves"]
    if len({name for name, _, _ in moves}) < len(moves):
        raise CorruptBlock(paths.adopt, 0, "it names a block twice")
    block_id, next_seq = 0, plan["first_seq"]
    for name, wanted_id, size in moves:
        source, target = os.path.join(paths.root, name), paths.block(wanted_id)
        if os.path.lexists(source) and os.path.lexists(target):
            raise CorruptBlock(paths.adopt, 0, f"{target} is there already: {name} cannot take its place")
        path = source if os.path.lexists(source) else target
        header = _header(disk, paths, path, size)
        if (header.stream_id, header.block_id) != (stream_id, wanted_id) or (block_id and wanted_id != block_id + 1):
            raise CorruptBlock(paths.adopt, 0, f"{path} is not block {wanted_id} of this stream")
        if next_seq not in (0, header.first_seq):
            raise CorruptBlock(paths.adopt, 0, f"{path} begins at {header.first_seq}, not at {next_seq}")
        block_id, next_seq = wanted_id, _next_seq(disk, source, header)
    if next_seq not in (0, plan["last_seq"] + 1):
        raise CorruptBlock(paths.adopt, 0, f"its blocks end at {next_seq - 1}, not at {plan['last_seq']}")


def _header(disk: Disk, paths: StreamPaths, path: str, size: int) -> BlockHeader:
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        raise CorruptBlock(path, 0, "it was to be adopted, and is gone, here and in staging") from None
    if not stat.S_ISREG(facts.st_mode) or facts.st_size < size:
        raise CorruptBlock(paths.adopt, 0, f"{path} is no file of {size} bytes")
    fd = disk.open(path)
    try:
        header = decode_front(disk.read(fd, RECORDS_START), path)
    finally:
        disk.close(fd)
    if header is None or header.generation != 1:
        raise CorruptBlock(path, 0, "it was to be adopted, and no header of it holds")
    return header


def _next_seq(disk: Disk, source: str, header: BlockHeader) -> int:
    """The sequence after a block, by the summary that its task wrote, which stays in staging; 0: not known."""
    name = source.removesuffix(".blk") + ".sum"
    summary = decode_summary(disk.read_file(name), name) if os.path.isfile(name) else None
    if summary is None or summary.header.salt != header.salt:
        return 0
    return summary.last_seq + 1 + header.first_seq - summary.header.first_seq


def jobs_of(plan: dict[str, Any]) -> set[str]:
    """The jobs whose staged files a plan names."""
    names = plan["blocks"] if plan["mode"] == "append" else [name for name, _, _ in plan["moves"]]
    return {name.split("/")[1] for name in names}  # staging/JOB/TASK/blocks/…


def jobs_being_adopted(disk: Disk, paths: StreamPaths) -> set[str]:
    """The jobs whose staged files an adoption that is decided, but not done, still needs."""
    try:
        plan = read_plan(disk, paths)
    except CorruptBlock:
        return set()  # nobody will follow it: see Adoption.before_open
    return jobs_of(plan) if plan else set()


def read_notes(disk: Disk, path: str) -> dict[str, Note] | None:
    """What one copy of BATCHES says; None when there is none, CorruptBlock when it does not hold."""
    found = read_checked(disk, path, dict[str, _Note])
    notes: dict[str, Note] | None = msgspec.to_builtins(found)
    return notes


def read_batches(disk: Disk, paths: StreamPaths) -> dict[str, Note]:
    """The last batch of each query that was adopted: from the file, else from its copy."""
    try:
        found = read_notes(disk, paths.batches)
    except CorruptBlock as damage:
        try:
            found = read_notes(disk, paths.batches_copy)
        except CorruptBlock:
            found = None
        if found is None:
            raise CorruptBlock(
                paths.batches,
                0,
                f"{damage.reason}, and there is no copy that holds: which batches were written is not known. "
                "Remove both to go on; the last batch of a query may then be written twice",
            ) from damage
    return found or {}
