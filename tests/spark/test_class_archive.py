"""The class archive: a session takes it where it is there, and starts all the same where it is of no use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from penstock.spark.class_archive import TRIAL, write_archive
from penstock.spark.errors import PenstockSparkError
from penstock.spark.session import archive_path, find_java

JAVA = os.path.join(find_java(), "bin", "java")
ASK = """
import penstock.spark
spark = penstock.spark.session()
bean = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
print([one for one in bean.getInputArguments() if "SharedArchiveFile" in one], spark.range(3).count())
"""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The archive's place in a cache of its own."""
    with patch.dict(os.environ, {"XDG_CACHE_HOME": str(tmp_path)}):
        path = archive_path(os.path.join(find_java(), "bin", "java"))
    path.parent.mkdir(exist_ok=True)
    return path


def ask(cache: Path) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "XDG_CACHE_HOME": str(cache.parent.parent)}
    return subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True, env=given)


def small_list(folder: Path) -> Path:
    """The classes that Java itself begins with."""
    path = folder / "classes.lst"
    subprocess.run(
        [JAVA, "-Xshare:off", f"-XX:DumpLoadedClassList={path}", "-version"], check=True, capture_output=True
    )
    return path


def test_a_session_starts_with_the_archive_of_its_java(cache: Path, tmp_path: Path) -> None:
    made = write_archive(JAVA, small_list(tmp_path), "", cache)
    assert made.path == str(cache) and made.size == cache.stat().st_size and made.classes > 100
    assert os.listdir(cache.parent) == [cache.name], "nothing half done is left"
    assert ask(cache).stdout == f"['-XX:SharedArchiveFile={cache}'] 3\n"


def test_an_archive_that_does_not_fit_is_passed_over_without_a_word(cache: Path) -> None:
    cache.write_bytes(b"not an archive" * 1000)
    done = ask(cache)
    assert done.stdout.endswith("] 3\n")
    assert "cds" not in done.stderr.lower() and "archive" not in done.stderr.lower()


def test_a_list_that_cannot_be_read_is_an_error_and_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(PenstockSparkError, match="-Xshare:dump failed"):
        write_archive(JAVA, tmp_path / "not there", "", cache)
    assert not list(cache.parent.glob("*.jsa*"))


def test_the_trial_job_runs_and_lists_the_classes_of_a_query(tmp_path: Path) -> None:
    path = tmp_path / "classes.lst"
    done = subprocess.run(
        [sys.executable, "-c", TRIAL, str(tmp_path), str(path)], capture_output=True, text=True, check=True
    )
    assert "pyspark/jars" in done.stdout
    assert "org/apache/spark/sql/execution/datasources/parquet/ParquetFileFormat" in path.read_text()
