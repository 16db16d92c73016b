"""Damage in the last block, which has no summary, before a writer has seen it: a scan tells of it like of any other."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.errors import CorruptBlock


@pytest.mark.parametrize("which", [0, 5, 9])
def test_a_scan_beside_no_writer_tells_of_damage_in_the_last_block(tmp_path: Path, which: int) -> None:
    with penstock.open(tmp_path / "s", durability="os") as db:
        stream = db.stream("S", subjects=["a"])
        stream.publish_many([("a", b"payload number %d" % n) for n in range(10)])
    (block,) = (tmp_path / "s" / "$G" / "S" / "blocks").glob("*.blk")
    data = bytearray(block.read_bytes())
    data[data.index(b"number %d" % which)] ^= 1
    block.write_bytes(data)
    with penstock.open(tmp_path / "s", read_only=True) as db:
        stream = db.get_stream("S")
        scan = stream.scan()
        rows = [row for batch in scan for row in batch.column("seq").to_pylist()]
        assert rows == [n + 1 for n in range(10) if n != which]
        (found,) = scan.damage
        assert (found.path, found.seq_start, found.seq_stop) == (str(block), which + 1, which + 2)
        with pytest.raises(CorruptBlock):
            stream.to_arrow(on_damage="raise")
    with penstock.open(tmp_path / "s") as db:
        stream = db.get_stream("S")
        assert stream.state().lost
        scan = stream.scan()
        assert sum(batch.num_rows for batch in scan) == 9
        assert not scan.damage, "the writer has written it down, and said so"
