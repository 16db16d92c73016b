"""Through Spark Connect: the client has no JVM, the source and the sink run where the server is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.spark.errors import PenstockSparkError
from penstock.spark.session import find_java
from support.spark_cluster import QUICK_START, SPARK_HOME, environment, family, kill, logged, spawn

COUNT = 1000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a server that runs for one test."""
    try:
        find_java()
    except PenstockSparkError as error:
        pytest.skip(str(error))
    conf = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    command = [
        str(SPARK_HOME / "bin/spark-submit"),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
    ]
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    log = tmp_path / "server.log"
    env = environment(Path(sys.executable), tmp_path) | {"SPARK_DAEMON_MEMORY": "640m"}
    process = spawn(command, log, env, cwd=tmp_path)
    try:
        yield "sc://127.0.0.1:" + logged(process, log, r"Spark Connect server started at: [^\s]*:(\d+)")
    finally:
        kill(family(process.pid))
        process.wait()


def make(path: Path, count: int) -> str:
    with penstock.open(path, durability="os") as db:
        db.stream("S", subjects=["a.>"]).publish_many([(f"a.{n % 5}", b"%d" % n) for n in range(count)])
    return str(path)


def test_a_client_without_java_reads_writes_and_follows(server: str, tmp_path: Path) -> None:
    paths = [make(tmp_path / "source", COUNT), make(tmp_path / "copied", 0), make(tmp_path / "followed", 0)]
    client = Path(__file__).parents[1] / "support" / "spark_connect_client.py"
    env = {"JAVA_HOME": str(tmp_path / "none"), "PATH": ""}
    done = subprocess.run(
        [sys.executable, client, server, *paths], env=env, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr + (tmp_path / "server.log").read_text()[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "found": COUNT,
        "count": COUNT,
        "some": {"count(1)": 100, "min(seq)": 504},
        "is_remote": True,
    }
    with penstock.open(paths[1], read_only=True) as db:
        assert [int(message.data) for message in db.get_stream("S").read()] == list(range(503, COUNT, 5))
    with penstock.open(paths[2], read_only=True) as db:
        assert [int(message.data) for message in db.get_stream("S").read()] == list(range(COUNT))
