"""penstock inspect."""

from __future__ import annotations

from pathlib import Path

import penstock
from support.cli_cases import Run, block, flip, writer


def test_people_see_streams_blocks_and_subjects(run: Run, root: Path) -> None:
    done = run("inspect", root)
    assert done.code == 0 and done.err == ""
    for text in ("2 streams", "nobody writes to it now", "ORDERS", "orders.>", "max_age 720h0m0s", "big.a", "000001"):
        assert text in done.text
    assert "\x1b" not in done.text, "no colour in a pipe"
    assert max(map(len, done.text.splitlines())) <= 80 or str(root) in done.text


def test_the_json_has_everything(run: Run, root: Path) -> None:
    done = run("inspect", root, "--json", "--top", "3")
    found = done.json
    assert found["writer"] is None
    big, orders = found["streams"]
    assert (big["messages"], len(big["blocks"])) == (60, 2)
    assert [one["has_summary"] for one in big["blocks"]] == [True, False]
    assert sum(one["rows"] for one in big["blocks"]) == 60
    assert orders["messages"] == 98 and orders["deleted"] == 2 and orders["lost"] == []
    assert orders["subject_count"] == 10 and len(orders["subjects_top"]) == 3
    assert orders["blocks"][0]["live"] == 98


def test_a_filter_counts_only_what_matches(run: Run, root: Path) -> None:
    found = run("inspect", root, "--stream", "ORDERS", "--subject", "orders.eu.*", "--json").json
    (orders,) = found["streams"]
    assert orders["subject_messages"] == 48  # 50 odd ones, without 7 and 9
    assert "no subject matches" in run("inspect", root, "-s", "BIG", "--subject", "small.>").text


def test_a_bad_filter(run: Run, root: Path) -> None:
    done = run("inspect", root, "--subject", "a.>.b")
    assert done.code == 2 and done.err.startswith("penstock: --subject 'a.>.b': ")


def test_beside_a_writer_it_says_who_writes(run: Run, root: Path) -> None:
    with writer(root) as process:
        for _ in range(3):
            found = run("inspect", root, "--json").json
            assert found["writer"]["pid"] == process.pid
            orders = found["streams"][1]
            assert orders["messages"] > 98 and orders["lost"] == []
        assert f"pid {process.pid}" in run("inspect", root).text


def test_damage_is_shown(run: Run, root: Path) -> None:
    flip(block(root, "ORDERS"), b"order 50")
    done = run("inspect", root, "-s", "ORDERS")
    assert done.code == 0
    assert "damaged records" in done.text and "lost sequences" in done.text


def test_a_stream_that_cannot_be_opened_does_not_hide_the_others(run: Run, root: Path) -> None:
    for name in ("config.json", "config.copy.json"):
        (root / "$G" / "BIG" / name).write_text("{}")
    done = run("inspect", root)
    assert done.code == 1
    assert "cannot be opened" in done.text and "orders.>" in done.text


def test_an_empty_store(run: Run, tmp_path: Path) -> None:
    penstock.open(tmp_path / "data").close()
    assert "0 streams" in run("inspect", tmp_path / "data").text


def test_retention_and_what_the_summaries_take_are_shown(run: Run, root: Path) -> None:
    with penstock.open(root, durability="os") as db:
        db.stream("WORK", subjects=["work.>"], retention="workqueue")
    found = {one["name"]: one for one in run("inspect", root, "--json").json["streams"]}
    assert (found["WORK"]["retention"], found["BIG"]["retention"]) == ("workqueue", "limits")
    blocks = root / "$G" / "BIG" / "blocks"
    on_disk = sum(path.stat().st_size for path in blocks.glob("*.sum"))
    assert on_disk == found["BIG"]["summary_bytes"] > 0
    text = run("inspect", root, "-s", "BIG").text
    assert "retention limits" in text.replace("\n", " ") and "in their summaries" in text
