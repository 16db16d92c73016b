"""Where the files of a stream lie, and what they are called. Layout: docs/format.md, beginning."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from penstock.format.bounds import ID_MAX

STAGE_NAME = re.compile(r"(?!.*\.\.)[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")  # of a job and of a task
_BLOCK_NAME = re.compile(r"(\d{6,})(?:\.(\d+))?\.blk")


@dataclass(frozen=True, slots=True)
class StreamPaths:
    """The files of one stream."""

    root: str

    @property
    def blocks(self) -> str:
        return os.path.join(self.root, "blocks")

    @property
    def consumers(self) -> str:
        return os.path.join(self.root, "consumers")

    @property
    def head(self) -> str:
        return os.path.join(self.root, "HEAD")

    @property
    def checkpoint(self) -> str:
        return os.path.join(self.root, "CHECKPOINT")

    @property
    def truncate(self) -> str:
        return os.path.join(self.root, "TRUNCATE")

    @property
    def staging(self) -> str:
        return os.path.join(self.root, "staging")

    @property
    def adopt(self) -> str:
        return os.path.join(self.root, "ADOPT")

    @property
    def batches(self) -> str:
        return os.path.join(self.root, "BATCHES")

    @property
    def batches_copy(self) -> str:
        return os.path.join(self.root, "BATCHES.copy")

    @property
    def deletes(self) -> str:
        return os.path.join(self.root, "DELETES")

    @property
    def config(self) -> str:
        return os.path.join(self.root, "config.json")

    @property
    def config_copy(self) -> str:
        return os.path.join(self.root, "config.copy.json")

    @property
    def legacy(self) -> str:
        return os.path.join(self.root, "messages.jsonl")

    def block(self, block_id: int, generation: int = 1) -> str:
        return os.path.join(self.blocks, block_name(block_id, generation))

    def summary(self, block_id: int, generation: int = 1) -> str:
        return self.block(block_id, generation).removesuffix(".blk") + ".sum"


def parse_block_name(name: str) -> tuple[int, int] | None:
    """(block id, generation) of a block file's name, or None: also for one that no writer gives a block."""
    found = _BLOCK_NAME.fullmatch(name)
    if found is None:
        return None
    block_id, generation = int(found[1]), int(found[2] or 1)
    if not 0 < block_id <= ID_MAX or not 0 < generation < 2**32 or block_name(block_id, generation) != name:
        return None
    return block_id, generation


def block_name(block_id: int, generation: int) -> str:
    """What a block's file is called."""
    return f"{block_id:06d}.blk" if generation == 1 else f"{block_id:06d}.{generation}.blk"
