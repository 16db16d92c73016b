"""Make a golden consumer log: what this version writes, to be read by every later one. Run once per format version.

    .venv/bin/python tools/make_golden_consumers.py tests/golden/consumers-1

The salt is random, so the file differs from run to run; what it holds does not. An existing folder is left alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from penstock.base.disk import Disk
from penstock.consumer.ack_table import AckTable
from penstock.consumer.config import make_config
from penstock.consumer.consumer import POLICIES, Meta, encode_meta
from penstock.store.consumer_log.consumer_log import ConsumerLog
from penstock.store.open.report import Report
from penstock.store.write.commit_log import Committer

SECOND = 10**9
STREAM_ID = bytes.fromhex("00112233445566778899aabbccddeeff")
CONSUMERS: dict[str, dict[str, Any]] = {
    "orders": {"ack_policy": "explicit", "ack_wait": "30s", "max_deliver": 3, "filter_subject": "orders.>"},
    "audit": {"ack_policy": "all", "filter_subjects": ["orders.eu", "orders.us"], "metadata": {"team": "größe"}},
    "tail": {"ack_policy": "none", "deliver_policy": "new"},
    "gone": {"ack_policy": "explicit"},
}


def live(tables: dict[str, AckTable]) -> None:
    """Every kind of change that a note can hold."""
    now = 1_793_491_200 * SECOND
    orders, audit, tail = tables["orders"], tables["audit"], tables["tail"]
    for table in (orders, audit, tail):
        for seq in [*range(1, 9), 12, 15, 18]:
            table.deliver(seq, now + seq, now + seq + 30 * SECOND)
    for seq in (1, 2, 3, 5, 15):
        orders.ack(seq)
    orders.set_deadline(4, now + 90 * SECOND)
    orders.redeliver(6, now + 40 * SECOND, now + 70 * SECOND)
    orders.give_up(6)
    orders.drop(7, 9)
    audit.ack_all(5, 5)
    audit.redeliver(7, now + 40 * SECOND, now + 70 * SECOND)
    audit.purge(7)
    tail.rewind(15)


def main(target: Path) -> None:
    if target.exists():
        sys.exit(f"{target} is there already: golden files are kept for good")
    target.mkdir()
    committer, report = Committer(), Report()
    log = ConsumerLog(Disk(), str(target / "consumers"), STREAM_ID, "disk", committer, report)
    metas = {name: Meta(name, 1_793_491_100 * SECOND, make_config(name, **one)) for name, one in CONSUMERS.items()}
    tables = {name: AckTable(POLICIES[meta.config.ack_policy]) for name, meta in metas.items()}
    numbers = {name: number for number, name in enumerate(CONSUMERS, 1)}
    told = [(numbers[name], encode_meta(metas[name]), tables[name].encode()) for name in CONSUMERS]
    for one in told:
        log.put(*one)
    log.fold(told)
    for table in tables.values():
        table.logged = True
    live(tables)
    for name, table in tables.items():
        log.note(numbers[name], table.changes())
    tables["orders"].ack(12)
    log.note(numbers["orders"], tables["orders"].changes())
    log.remove(numbers["gone"])
    log.close()
    committer.stop()
    wanted = {name: manifest(tables[name], CONSUMERS[name]) for name in CONSUMERS if name != "gone"}
    text = json.dumps({"stream_id": STREAM_ID.hex(), "next_number": 5, "consumers": wanted}, indent=1)
    (target / "manifest.json").write_text(text + "\n", encoding="utf-8")


def manifest(table: AckTable, config: dict[str, Any]) -> dict[str, Any]:
    state = table.state()
    assert state.deadlines is not None
    return {
        "ack_policy": config["ack_policy"],
        "delivered": [state.delivered_consumer_seq, state.delivered_stream_seq],
        "ack_floor": [state.ack_floor_consumer_seq, state.ack_floor_stream_seq],
        "pending": [[seq, *one, state.deadlines[seq]] for seq, one in state.pending.items()],
        "redelivered": [list(one) for one in state.redelivered.items()],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
