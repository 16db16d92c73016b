"""Golden consumer logs: files of each version, read by the code of today. Made by tools/make_golden_consumers.py, kept
for good."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.base.disk import Disk
from penstock.consumer.consumer import decode_meta, table_of
from penstock.store.consumer_log.consumer_log import ConsumerLog
from penstock.store.open.report import Report
from penstock.store.write.committer import Committer

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.glob("consumers-*") if path.is_dir())


def test_there_is_a_golden_log_of_every_version() -> None:
    assert VERSIONS == ["consumers-1"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_golden_log_is_read_whole_and_goes_on(version: str, tmp_path: Path) -> None:
    shutil.copytree(HERE / version, tmp_path / "golden")
    told = json.loads((tmp_path / "golden" / "manifest.json").read_text(encoding="utf-8"))
    folder, committer = str(tmp_path / "golden" / "consumers"), Committer()
    for _ in range(2):
        report = Report()
        log = ConsumerLog(Disk(), folder, bytes.fromhex(told["stream_id"]), "disk", committer, report)
        assert not report.findings and log.next_number == told["next_number"]
        found: dict[str, Any] = {}
        everyone: list[tuple[int, bytes, bytes]] = []
        for number, entry in log.entries.items():
            meta = decode_meta(entry.meta)
            table = table_of(meta, entry.state, entry.notes)
            state = table.state()
            assert state.deadlines is not None
            found[meta.name] = {
                "ack_policy": meta.config.ack_policy,
                "delivered": [state.delivered_consumer_seq, state.delivered_stream_seq],
                "ack_floor": [state.ack_floor_consumer_seq, state.ack_floor_stream_seq],
                "pending": [[seq, *one, state.deadlines[seq]] for seq, one in state.pending.items()],
                "redelivered": [list(one) for one in state.redelivered.items()],
            }
            everyone.append((number, entry.meta, table.encode()))
        assert found == told["consumers"]
        log.fold(everyone)
        log.close()
    committer.stop()
