"""A real Spark cluster on loopback, with the package installed from its wheel: used by test_cluster.py and
test_connect.py.

A master and workers are JVMs of their own; the driver is a process that takes jobs from its standard input
(spark_cluster_driver.py). All of them use a Python that has the wheel and cannot see `src`, and that has no pandas.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import pyspark

from penstock.spark.session import find_java

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
WAIT_S = 300.0  # for an event that always comes, however loaded the machine is
QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"


def until(look: Callable[[], T | None], what: str, seconds: float = WAIT_S) -> T:
    """Poll `look` until it returns something; the error names what was waited for."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"after {seconds:.0f} s: {what}")
        time.sleep(0.03)


# The wheel, and a Python that has it.


def build_wheel(folder: Path) -> Path:
    """A wheel of the tree with the modules that are compiled already; `make wheel` compiles its own, which takes
    minutes.
    """
    tree = folder / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    if (ROOT / "build/cython").exists():
        shutil.copytree(ROOT / "build/cython", tree / "build/cython")
    built = tree / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for kernel in (tree / "src").rglob("*.so"):
        target = built / kernel.relative_to(tree / "src")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(kernel, target)
        os.utime(target)  # newer than its source, so that it is not compiled again
    command = [sys.executable, "setup.py", "-q", "bdist_wheel", "-d", "dist"]
    made = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert made.returncode == 0, made.stdout
    (wheel,) = (tree / "dist").glob("penstock-*.whl")
    return wheel


def make_python(folder: Path, wheel: Path, *, has_pandas: bool = False) -> Path:
    """An interpreter with the wheel; its dependencies come from the packages that are installed here."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    # A directory named in a .pth file is searched, but .pth files inside it are not read: the editable install stays
    # out.
    (packages / "installed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    if not has_pandas:
        (packages / "pandas.py").write_text('raise ImportError("no pandas here: penstock works without")\n')
    install = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", packages, wheel], check=True)
    return venv / "bin/python"


# Processes.


def environment(python: Path, folder: Path) -> dict[str, str]:
    """The environment of every process of the cluster; it has nothing that leads to `src`."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return kept | {
        "JAVA_HOME": find_java(),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_START} -Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def spawn(command: list[str], log: Path, env: Mapping[str, str], **more: Any) -> subprocess.Popen[str]:
    """Start a process that writes to a log, as the leader of its own session, so that it can be killed with its
    children.
    """
    with open(log, "w") as errors:
        where: dict[str, Any] = {"stdout": errors} | more
        return subprocess.Popen(command, stderr=errors, env=dict(env), text=True, start_new_session=True, **where)


def logged(process: subprocess.Popen[str], log: Path, pattern: str) -> str:
    """Wait until a log matches the pattern; returns its first group."""

    def look() -> str | None:
        found = re.search(pattern, log.read_text())
        assert found or process.poll() is None, log.read_text()
        return found[1] if found else None

    return until(look, f"{pattern!r} is not in {log}")


def children() -> dict[int, list[int]]:
    """The children of each process of this machine."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                facts = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # the process has just ended
            if facts[0] != "Z":
                found.setdefault(int(facts[1]), []).append(int(name))
    return found


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    known, found = children(), [pid]
    for one in found:
        found += known.get(one, [])
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(pids: list[int]) -> None:
    """SIGKILL for each, in order; returns when all of them are gone."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    until(lambda: not any(map(is_alive, pids)), f"{pids} do not go")


def python_workers(pid: int) -> list[int]:
    """The Python processes that run tasks below a process: the children of Spark's Python daemons."""
    known = children()
    daemons = [one for one in family(pid) if b"pyspark.daemon" in _command(one)]
    return [child for one in daemons for child in known.get(one, [])]


def _command(pid: int) -> bytes:
    try:
        return Path("/proc", str(pid), "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


# The cluster.


class Cluster:
    """A master and its workers.

    Always true: every process in `_running` was started here, and ends with `stop`.
    """

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder, self.python = folder, python
        self.env = environment(python, folder)
        self.url = self.web = ""
        self._running: list[subprocess.Popen[str]] = []
        self.workers: list[subprocess.Popen[str]] = []

    def start(self, workers: int) -> None:
        """Start the master, then the workers; they connect while the caller goes on."""
        options = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = self._java("master", "org.apache.spark.deploy.master.Master", *options)
        self.url = logged(master, self.folder / "master.log", r"Starting Spark master at (spark://[\d.:]+)")
        port = logged(master, self.folder / "master.log", r"'MasterUI' on port (\d+)")
        self.web = f"http://127.0.0.1:{port}"
        for _ in range(workers):
            self.start_worker()

    def _java(self, name: str, *command: str, host: str = "127.0.0.1") -> subprocess.Popen[str]:
        env = self.env | {"SPARK_LOCAL_IP": host}
        start = [str(SPARK_HOME / "bin/spark-class"), *command]
        process = spawn(start, self.folder / f"{name}.log", env, cwd=self.folder)
        self._running.append(process)
        return process

    def start_worker(self) -> subprocess.Popen[str]:
        """Start one more worker, with one core."""
        number = len(self._running)
        name, host = f"worker{number}", f"127.0.0.{number + 1}"  # speculation needs a second host
        options = ["--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0"]
        options += ["--work-dir", str(self.folder / name), self.url]
        worker = self._java(name, "org.apache.spark.deploy.worker.Worker", *options, host=host)
        self.workers.append(worker)
        return worker

    def state(self) -> dict[str, Any]:
        """The state that the master reports; its port opens before its pages are served."""
        return until(self._page, "the master's page is not there")

    def _page(self) -> dict[str, Any] | None:
        try:
            with urllib.request.urlopen(f"{self.web}/json/", timeout=30) as answer:
                if "json" not in answer.headers.get("Content-Type", ""):
                    return None  # the HTML page exists first, and answers for all paths below it
                page: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return None
        return page

    def wait_for_executors(self, count: int) -> None:
        """Until `count` workers run an executor."""
        until(
            lambda: sum(1 for one in self.state()["workers"] if one["state"] == "ALIVE" and one["coresused"]) == count,
            f"there are not {count} workers with an executor: {self.state()}",
        )

    def worker_of(self, pid: int) -> subprocess.Popen[str]:
        """The worker whose descendant a process is."""
        return next(worker for worker in self.workers if pid in family(worker.pid))

    def kill_worker(self, worker: subprocess.Popen[str]) -> None:
        """SIGKILL for a worker's JVM, its executors and their Python processes."""
        self.workers.remove(worker)
        kill(family(worker.pid))
        worker.wait()

    def stop(self) -> None:
        for process in reversed(self._running):
            kill(family(process.pid))
            process.wait()


class Driver:
    """A driver of the cluster in a process of its own: jobs and answers are lines of JSON."""

    def __init__(self, cluster: Cluster, name: str, conf: Mapping[str, str]) -> None:
        settings = {
            "spark.master": cluster.url,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": QUICK_START,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": QUICK_START,
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(cluster.folder / "warehouse"),
            **conf,
        }
        self.log = cluster.folder / f"{name}.log"
        script = Path(__file__).with_name("spark_cluster_driver.py")
        command = [str(cluster.python), str(script), json.dumps(settings)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "cwd": cluster.folder}
        self.process = spawn(command, self.log, cluster.env, **pipes)

    def begin(self, job: str, **given: Any) -> None:
        """Submit a job; `answer` waits for its result."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"job": job} | given) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        out = self.process.stdout
        assert out is not None
        until(lambda: select.select([out], [], [], 0.5)[0], f"the driver does not answer: {self.log}")
        line = out.readline()
        assert line, f"the driver ended: {self.log.read_text()[-4000:]}"
        told = json.loads(line)
        assert "error" not in told, told["error"]
        return told["ok"]

    def run(self, job: str, **given: Any) -> Any:
        self.begin(job, **given)
        return self.answer()

    def kill(self) -> None:
        """SIGKILL for the driver, its JVM and its Python processes."""
        kill(family(self.process.pid))
        self._close()

    def stop(self) -> None:
        """Let the driver end its session, so that the executors are released."""
        if self.process.stdin is not None and self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                kill(family(self.process.pid))
        self._close()

    def _close(self) -> None:
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()


class Gate:
    """A point where a task waits for the test. It is a folder: a task writes a file named after its process there, and
    continues once the gate is open.
    """

    def __init__(self, folder: Path, row: int, attempts: str = "all") -> None:
        """Tasks wait when they reach the message with number `row`: all attempts, or only the first one to reach it."""
        folder.mkdir()
        self.folder, self.row, self.attempts = folder, row, attempts

    def describe(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "row": self.row, "attempts": self.attempts}

    def waiting(self) -> list[int]:
        """The processes that have reached the gate."""
        return [int(path.name.removeprefix("at-")) for path in self.folder.glob("at-*")]

    def wait(self) -> int:
        """The first process that reaches the gate."""
        return until(self.waiting, f"no task came to row {self.row}")[0]

    def passed(self) -> list[int]:
        """The processes that have passed the gate."""
        return [int(path.name.removeprefix("passed-")) for path in self.folder.glob("passed-*")]

    def open(self) -> None:
        (self.folder / "open").touch()


def cluster_with(folder: Path, python: Path, workers: int) -> Iterator[Cluster]:
    """A cluster that is stopped at the end in any case."""
    cluster = Cluster(folder, python)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()
