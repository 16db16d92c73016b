"""The commands on a store with accounts: the one that docs/server.md's own configuration makes."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any

import nats
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.db.database import Database
from support.cli_cases import Run, flip

PAGE = Path(__file__).parents[2] / "docs" / "server.md"
pytestmark = pytest.mark.nats_py


def sample(store: Path) -> str:
    """The configuration that the page shows, on any port and with this store."""
    text = PAGE.read_text()
    found = re.search(r"^    listen: .*?^    system_account: SYS$", text, re.MULTILINE | re.DOTALL)
    assert found is not None, "the page has its sample no more"
    text = found[0].replace("0.0.0.0:4222", "127.0.0.1:-1").replace("    http: 8222\n", "")
    assert "APP {" in text
    return text.replace("/var/lib/penstock", str(store))


def serve_orders(store: Path, conf: Path) -> None:
    """A client of account APP makes a stream, publishes, and has a consumer."""
    conf.write_text(sample(store))

    async def work(url: str) -> None:
        client = await nats.connect(url, user="app", password="secret")
        jetstream = client.jetstream()
        await jetstream.add_stream(name="ORDERS", subjects=["orders.>"])
        for n in range(1, 41):
            await jetstream.publish(f"orders.{n % 3}", b"order %03d" % n)
        await jetstream.pull_subscribe("orders.>", durable="billing")
        await client.close()

    with penstock.Server(config=conf) as server:
        asyncio.run(work(server.url))


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("APP_PASSWORD", "secret")
    serve_orders(tmp_path / "data", tmp_path / "nats.conf")
    return tmp_path / "data"


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """ORDERS in two accounts, and a stream that only one has."""
    path = tmp_path / "data"
    with penstock.open(path, durability="os") as db, Database(path, account="APP", root=db.root) as app:
        db.stream("ORDERS", subjects=["o.>"]).publish_many([("o.a", b"of all %d" % n) for n in range(10)])
        app.stream("ORDERS", subjects=["o.>"]).publish_many([("o.a", b"of app %d" % n) for n in range(20)])
        app.stream("BILLS", subjects=["b.>"]).publish("b.x", b"bill")
    return path


def block(root: Path, account: str, stream: str) -> Path:
    return root / account / stream / "blocks" / "000001.blk"


def test_damage_in_an_account_is_seen_mended_and_its_messages_erased_and_exported(run: Run, served: Path) -> None:
    assert run("verify", served).code == 0
    at = flip(block(served, "APP", "ORDERS"), b"order 017")
    done = run("verify", served, "--json")
    assert done.code == 1
    (stream,) = done.json["streams"]
    assert (stream["account"], stream["name"], stream["messages"]) == ("APP", "ORDERS", 39)
    (problem,) = stream["problems"]
    assert problem["seqs"] == [[17, 17]] and problem["offset"] <= at < problem["offset"] + problem["size"]
    assert "APP/ORDERS" in run("verify", served).text
    assert run("repair", served, "--dry-run").code == 1
    done = run("repair", served)
    assert done.code == 0 and "lost  APP/ORDERS: 1 message: 17" in done.text
    assert run("verify", served).code == 0
    assert not (served / "$G" / "ORDERS").exists()

    assert run("erase", served, "18").code == 0
    assert b"order 018" not in block(served, "APP", "ORDERS").read_bytes()
    lines = run("export", served).lines
    assert [line["seq"] for line in lines] == [*range(1, 17), *range(19, 41)]
    assert {line["stream"] for line in lines} == {"APP/ORDERS"}
    assert "billing" in run("inspect", served).text
    assert "caught_up" not in run("why", served, "ORDERS", "billing").text


def test_the_pipelines_see_every_account(run: Run, served: Path, spark: Any, tmp_path: Path) -> None:
    done = run("pipeline", "verify", served, "--json")
    assert done.code == 0
    assert [(one["account"], one["stream"], one["messages"]) for one in done.json["streams"]] == [
        ("APP", "APP/ORDERS", 40)
    ]
    flip(block(served, "APP", "ORDERS"), b"order 017")
    done = run("pipeline", "verify", served, "--json")
    assert done.code == 1 and [one["seqs"] for one in done.json["problems"]] == [[[17, 17]]]
    assert run("pipeline", "verify", served, "-s", "ORDERS").code == 1
    assert run("repair", served).code == 0
    assert run("pipeline", "verify", served).code == 0

    state = run("pipeline", "state", served, "--json").json
    assert {one["stream"]: one["messages"] for one in state["streams"]} == {"*": 39, "APP/ORDERS": 39}
    assert [(one["consumer"], one["created"][-6:]) for one in state["consumers"]] == [("billing", "+00:00")]
    for _ in range(2):  # exactly once
        assert run("pipeline", "lake", served, tmp_path / "lake").code == 0
    frame = penstock.spark.table(spark, served, lake=tmp_path / "lake")
    assert frame.count() == 39 and {row.stream for row in frame.collect()} == {"APP/ORDERS"}
    with Database(served, account="APP") as db:
        db.stream("COPY", subjects=["copy.>"])
    done = run("pipeline", "replay", served, served, "-s", "APP/ORDERS", "--to-stream", "APP/COPY",
               "--where", "seq <= 5", "--transform", f"{transform(tmp_path)}:move")  # fmt: skip
    assert done.code == 0, done.err
    with penstock.open(served, account="APP", read_only=True) as db:
        assert db.get_stream("COPY").state().messages == 5


def transform(folder: Path) -> Path:
    path = folder / "move.py"
    path.write_text("def move(frame):\n    return frame.selectExpr(\"'copy.x' AS subject\", 'payload')\n")
    return path


@pytest.fixture(scope="module")
def spark() -> Any:
    pytest.importorskip("pyspark")
    from penstock.spark import session

    found = session(**{"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2})
    yield found
    found.stop()


def test_spark_reads_and_writes_accounts(spark: Any, both: Path) -> None:
    read = spark.read.format("penstock")
    counted = {row["stream"]: row["count"] for row in read.load(str(both)).groupBy("stream").count().collect()}
    assert counted == {"ORDERS": 10, "APP/ORDERS": 20, "APP/BILLS": 1}
    assert read.load(str(both)).where("stream = 'APP/ORDERS'").count() == 20
    assert {row.stream for row in read.option("account", "APP").load(str(both)).collect()} == {"ORDERS", "BILLS"}
    streams = spark.read.format("penstock").option("table", "streams").load(str(both))
    assert {(row.account, row.stream) for row in streams.collect()} == {
        ("$G", "ORDERS"), ("APP", "APP/ORDERS"), ("APP", "APP/BILLS"),
    }  # fmt: skip
    with pytest.raises(Exception, match=r"ORDERS' is in 2 accounts.*\$G/ORDERS or APP/ORDERS"):
        spark.read.format("penstock").option("stream", "ORDERS").load(str(both)).count()
    with pytest.raises(Exception, match=r"account 'NONE' not found.*\$G, APP"):
        spark.read.format("penstock").option("account", "NONE").load(str(both)).count()
    rows = spark.createDataFrame([("b.y", bytearray(b"more"))], "subject string, payload binary")
    rows.write.format("penstock").option("path", str(both)).option("stream", "BILLS").mode("append").save()
    with penstock.open(both, account="APP", read_only=True) as db:
        assert db.get_stream("BILLS").state().messages == 2
    assert spark.read.format("penstock").option("stream", "BILLS").load(str(both)).count() == 2


def test_a_streaming_query_follows_every_account(spark: Any, both: Path, tmp_path: Path) -> None:
    query = (
        spark.readStream.format("penstock").load(str(both)).writeStream.format("memory").queryName("accounts")
        .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    counted = {row["stream"]: row["count"] for row in spark.table("accounts").groupBy("stream").count().collect()}
    assert counted == {"ORDERS": 10, "APP/ORDERS": 20, "APP/BILLS": 1}


def test_every_account_is_named_where_there_are_several(run: Run, both: Path) -> None:
    for command in ("verify", "inspect"):
        text = run(command, both).text
        assert "$G/ORDERS" in text and "APP/ORDERS" in text and "APP/BILLS" in text
    one = run("verify", both, "--account", "APP", "--json").json
    assert [(stream["account"], stream["name"]) for stream in one["streams"]] == [("APP", "BILLS"), ("APP", "ORDERS")]
    names = [(stream["account"], stream["name"]) for stream in run("inspect", both, "--json").json["streams"]]
    assert names == [("$G", "ORDERS"), ("APP", "BILLS"), ("APP", "ORDERS")]


@pytest.mark.parametrize(
    "command", [["verify", "-s"], ["repair", "-s"], ["inspect", "-s"], ["export", "-s"], ["erase", "1", "-s"]]
)
def test_a_name_that_two_accounts_have_must_be_said_in_full(run: Run, both: Path, command: list[str]) -> None:
    name, *rest = command
    done = run(name, both, *rest, "ORDERS")
    assert done.code == 2 and done.out == b""
    assert "stream 'ORDERS' is in 2 accounts" in done.err and "$G/ORDERS or APP/ORDERS" in done.err
    assert run(name, both, *rest, "APP/ORDERS").code == 0
    assert run(name, both, *rest, "ORDERS", "--account", "$G").code == 0
    assert run(name, both, *rest, "BILLS").code == 0, "one account only has it"
    done = run(name, both, *rest, "BILLS", "--account", "$G")
    assert done.code == 2 and "not found in account $G" in done.err and "there are: ORDERS" in done.err
    done = run(name, both, *rest, "BILLS", "--account", "APQ")
    assert done.code == 2 and "account 'APQ' not found" in done.err and "$G, APP" in done.err


def test_only_the_named_account_is_erased(run: Run, both: Path) -> None:
    done = run("erase", both, "3", "--stream", "APP/ORDERS")
    assert done.code == 0 and "1 message of APP/ORDERS erased" in done.text
    assert b"of app 2" not in block(both, "APP", "ORDERS").read_bytes()
    assert b"of all 2" in block(both, "$G", "ORDERS").read_bytes()
    assert run("erase", both, "1").code == 2, "which one?"


def test_why_finds_a_stream_in_any_account(run: Run, both: Path) -> None:
    assert "stored" in run("why", both, "BILLS", "1").text
    assert run("why", both, "ORDERS", "1").code == 2
    assert run("why", both, "APP/ORDERS", "15").code == 0
    assert "never" in run("why", both, "ORDERS", "15", "--account", "$G").text


def test_an_export_of_all_accounts_comes_back_as_it_was(run: Run, both: Path, tmp_path: Path) -> None:
    assert run("export", both, "-o", tmp_path / "all.jsonl").code == 0
    for _ in range(2):
        done = run("import", tmp_path / "new", tmp_path / "all.jsonl", "--skip-existing")
        assert done.code == 0, done.err
    assert run("export", tmp_path / "new").out == (tmp_path / "all.jsonl").read_bytes()
    assert run("export", both, "--account", "APP", "-o", tmp_path / "app.jsonl").code == 0
    assert run("import", tmp_path / "other", tmp_path / "app.jsonl", "--account", "OTHER").code == 0
    assert sorted(os.listdir(tmp_path / "other" / "OTHER")) == ["BILLS", "ORDERS"]


def test_an_import_does_not_guess_an_account(run: Run, both: Path, tmp_path: Path) -> None:
    line = b'{"stream": "BILLS", "seq": 2, "time_ns": 2000000000000000000, "subject": "b.y", "headers_b64": null, ' \
           b'"payload_b64": "aGk="}\n'  # fmt: skip
    (tmp_path / "lines").write_bytes(line)
    done = run("import", both, tmp_path / "lines")
    assert done.code == 2 and "APP/BILLS" in done.err and "--account" in done.err
    assert run("import", both, tmp_path / "lines", "--stream", "BILLS").code == 0, "as an option it is looked for"
    with penstock.open(both, account="APP", read_only=True) as db:
        assert db.get_stream("BILLS").state().last_seq == 2
    assert run("import", both, tmp_path / "lines", "--account", "$G").code == 0
    with penstock.open(both, read_only=True) as db:
        assert db.streams() == ["BILLS", "ORDERS"]


def test_parquet_is_one_file_or_a_file_for_each_stream(run: Run, both: Path, tmp_path: Path) -> None:
    assert run("export", both, "-f", "parquet", "-o", tmp_path / "all.parquet").code == 0
    rows = pq.read_table(tmp_path / "all.parquet").group_by("stream").aggregate([("seq", "count")]).to_pylist()
    assert {row["stream"]: row["seq_count"] for row in rows} == {"ORDERS": 10, "APP/ORDERS": 20, "APP/BILLS": 1}
    assert run("export", both, "-f", "parquet", "-o", f"{tmp_path}/each/").code == 0
    files = sorted(str(path.relative_to(tmp_path / "each")) for path in (tmp_path / "each").rglob("*.parquet"))
    assert files == ["APP/BILLS.parquet", "APP/ORDERS.parquet", "ORDERS.parquet"]


def test_a_migration_goes_into_an_account(run: Run, tmp_path: Path) -> None:
    for number, (name, options) in enumerate([("ORDERS", ["--account", "APP"]), ("BILLS", ["--stream", "APP/BILLS"])]):
        folder = tmp_path / f"old{number}" / name
        folder.mkdir(parents=True)
        (folder / "messages.jsonl").write_text(
            json.dumps(
                {"sequence": 1, "subject": f"{name}.a", "payloadBase64": "aGk=", "timestampUtc": "2024-05-01T00:00:01Z"}
            )
        )
        done = run("migrate", tmp_path / "data", folder / "messages.jsonl", *options)
        assert done.code == 0, done.err
    with penstock.open(tmp_path / "data", account="APP", read_only=True) as db:
        assert db.streams() == ["BILLS", "ORDERS"] and db.get_stream("BILLS").get(1).data == b"hi"


@pytest.mark.parametrize("command", ["verify", "repair", "inspect", "export"])
def test_a_store_without_streams_says_so(run: Run, tmp_path: Path, command: str) -> None:
    penstock.open(tmp_path / "data").close()
    done = run(command, tmp_path / "data")
    assert done.code == 0
    assert "no streams" in (done.text + done.err) or "0 streams" in done.text
    assert "[green]" not in done.text and "every checksum" not in done.text
    done = run(command, tmp_path / "nowhere")
    assert done.code == 2 and "is not a Penstock store: there is no such directory" in done.err
    assert not (tmp_path / "nowhere").exists()
