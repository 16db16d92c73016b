"""staging: write messages, with their sequences and times, into a stage, in the task that reads them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from penstock.db.stage import Stage
from penstock.errors import StoreError
from penstock.store.write.batch import Batch

BATCH_MAX = 1000
BATCH_BYTES_MAX = 8 << 20
Message = tuple[int, int, str, bytes | None, bytes]
"""seq, time_ns, subject, headers, payload"""


def stage_messages(root: str, job: str, part: int, floor: int, messages: Iterable[Message]) -> dict[str, Any]:
    """Stage messages above `floor` in rising order, skip the gaps between them, and return what the adoption needs.

    As in a migration by one process, only the validity of each message is checked: the stream had them all once.
    """
    # A random name: a task may run twice, even at the same time.
    stage = Stage(root, job, f"{part:06d}-{uuid.uuid4().hex}", start_seq=floor + 1, has_times=True)
    try:
        first_seq, next_seq, size = 0, floor + 1, 0
        batch: list[Message] = []
        for message in messages:
            first_seq = first_seq or message[0]
            if message[0] != next_seq or len(batch) == BATCH_MAX or size >= BATCH_BYTES_MAX:
                _append(stage, batch)
                batch, size = [], 0
                stage.skip_to(message[0])
            batch.append(message)
            size += len(message[4])
            next_seq = message[0] + 1
        _append(stage, batch)
        return stage.finish() | {"part": part, "first_seq": first_seq}
    except BaseException:
        stage.discard()
        raise


def _append(stage: Stage, batch: list[Message]) -> None:
    if not batch:
        return
    packed, store = Batch.raw(batch), stage.store
    if store.engine.append(packed, 0, packed.count, store.clock.now_ns()) != packed.count:
        index, status = packed.refused(0, packed.count)[0]
        raise StoreError(f"{stage.config.name}: sequence {batch[index][0]} was refused with status {status}")
    stage.messages += packed.count
    store.commit()
