"""class_archive: a class data sharing (CDS) archive of Spark's Java classes, so that a session starts faster.

A JVM loads, verifies and lays out some 17,000 classes before Spark's first query completes. With class data sharing it
can map the result of that work from an archive; neither the JVM nor Spark creates one on its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from penstock.spark.errors import PenstockSparkError
from penstock.spark.session import archive_path, find_java

PATH_MARK = "class path: "
# A job that makes the JVM load the classes of typical use: a batch read, and a streaming query into files.
TRIAL = """
import sys, penstock, penstock.spark
folder, class_list = sys.argv[1:]
with penstock.open(folder + "/store", durability="os") as db:
    db.stream("TRIAL", subjects=["trial"]).publish_many([("trial", b"x", {"A": "b"})] * 1000)
spark = penstock.spark.session(**{"spark.driver.extraJavaOptions": "-Xshare:off -XX:DumpLoadedClassList=" + class_list})
print("class path: " + spark._jvm.java.lang.System.getProperty("java.class.path"))
read = spark.read.format("penstock").load(folder + "/store")
read.groupBy("subject").count().orderBy("count").collect()
live = spark.readStream.format("penstock").load(folder + "/store").writeStream
live = live.format("parquet").option("checkpointLocation", folder + "/check").option("path", folder + "/out")
live.trigger(availableNow=True).start().awaitTermination()
assert spark.read.parquet(folder + "/out").count() == 1000
spark.stop()
"""


@dataclass(frozen=True, slots=True)
class Made:
    """An archive that was created."""

    path: str
    size: int
    classes: int


def make_archive() -> Made:
    """Run a small job to list the classes that Spark loads, and have the JVM archive them. Takes a minute or two."""
    java = str(Path(find_java(), "bin", "java"))
    target = archive_path(java)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="penstock-warm-") as folder:
        class_list = Path(folder, "classes.lst")
        said = _run([sys.executable, "-c", TRIAL, folder, str(class_list)], "the trial job")
        class_path = next((line.removeprefix(PATH_MARK) for line in said.splitlines() if PATH_MARK in line), "")
        return write_archive(java, class_list, class_path, target)


def write_archive(java: str, class_list: Path, class_path: str, target: Path) -> Made:
    """Have `java` write the archive of the listed classes; `target` appears complete or not at all."""
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    words = [java, "-Xshare:dump", "-XX:+UseParallelGC", "-Xlog:disable", "-Xlog:all=error:stderr"]
    words += [f"-XX:SharedClassListFile={class_list}", f"-XX:SharedArchiveFile={fresh}", "-cp", class_path]
    try:
        _run(words, "java -Xshare:dump")
        if not fresh.exists():
            raise PenstockSparkError(f"{java} wrote no archive of classes: this Java cannot do it")
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
    names = [line for line in class_list.read_text(errors="replace").splitlines() if line and line[0] not in "#@"]
    return Made(str(target), target.stat().st_size, len(names))


def _run(words: list[str], what: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PenstockSparkError(f"{what} failed with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout
