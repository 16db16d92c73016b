"""The subjects of a block, collected as its messages are appended: equal to those of its rows, whatever happened."""

from __future__ import annotations

import errno
import struct
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.bloom_filter import FilterBuilder
from penstock.errors import StoreError
from penstock.store.file_store import FileStore
from penstock.store.index.summary import FILTER, NAMES, SUBJECTS, decode_summary
from penstock.store.limits import Limits
from penstock.store.write.batch import Batch
from penstock.testing.crash_disk import CrashDisk

STREAM_ID = bytes(16)
BLOCK = 1500
SUBJECTS_TAKEN = st.sampled_from([f"{a}.{b}.{n}" for a in "ab" for b in "xyz" for n in range(8)])
STEPS = st.lists(
    st.one_of(
        st.lists(SUBJECTS_TAKEN, min_size=1, max_size=60),
        st.just("fail"),  # the next commit fails, and is rolled back
        st.just("reopen"),
    ),
    max_size=25,
)


@given(STEPS, st.sampled_from([-1, 1, 3]))
@settings(max_examples=150, deadline=None)
def test_names_are_those_of_the_rows(steps: list[list[str] | str], per_subject: int) -> None:
    with TemporaryDirectory() as folder:
        root, disk, expected = Path(folder, "s"), CrashDisk(folder), dict[int, str]()
        limits = Limits(block_size=BLOCK, max_msgs_per_subject=per_subject)
        store = FileStore(root, STREAM_ID, limits=limits, durability="disk", disk=disk)
        for step in steps:
            if step == "reopen":
                disk.clear_faults()
                store.stop()
                store = FileStore(root, STREAM_ID, limits=limits, durability="disk", disk=disk)
            elif step == "fail":
                disk.fail_at(1, errno.EIO, kinds=("sync_file",))
            else:
                assert isinstance(step, list)
                batch = Batch.of([(subject, bytes(20)) for subject in step])
                try:
                    store.append(batch)
                    store.commit()
                    expected |= dict(zip(batch.seqs(), step, strict=True))
                except StoreError:
                    disk.clear_faults()
        disk.clear_faults()
        store.stop()
        for path in root.glob("blocks/*.sum"):
            found = named(path)
            assert found == {seq: expected[seq] for seq in found}


def named(path: Path) -> dict[int, str]:
    """The subjects of a sealed block's rows according to its summary, whose names and filter are checked against the
    rows.
    """
    summary = decode_summary(path.read_bytes(), str(path))
    assert summary is not None and summary.is_dense
    names_of = bytes(summary.section(NAMES))
    numbers = struct.unpack(f"<{summary.count}I", summary.section(SUBJECTS))
    names: dict[int, str] = {}
    counts: dict[int, int] = {}
    at, builder = 0, FilterBuilder()
    while at < len(names_of):
        number, count, size = struct.unpack_from("<IIH", names_of, at)
        names[number] = names_of[at + 10 : at + 10 + size].decode()
        counts[number] = count
        builder.put(names[number])
        at += 10 + size
    assert counts == Counter(numbers)
    assert list(names) == list(dict.fromkeys(numbers))  # in the order of their first rows
    assert summary.section(FILTER) == builder.finish()
    return {summary.seq_base + n: names[number] for n, number in enumerate(numbers)}
