"""On a real cluster, from the wheel: what is written is exact when workers, tasks and drivers are killed.

One test with steps, because a cluster takes half a minute to start. Speculation is on for all of it.
"""

from __future__ import annotations

import faulthandler
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

import penstock
from penstock.db.adopt import root_of
from penstock.spark.errors import PenstockSparkError
from penstock.spark.session import find_java
from support.spark_cluster import (
    Cluster,
    Driver,
    Gate,
    build_wheel,
    cluster_with,
    is_alive,
    kill,
    make_python,
    python_workers,
    until,
)

COUNT = 9000
PER_TRIGGER = 3000
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.efficiency.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",  # so that some of a part is staged before all of it is read
}


class Stores:
    """A store that is read, and fresh ones to write to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.source = folder, folder / "source"
        with penstock.open(self.source, durability="os") as db:
            stream = db.stream("S", subjects=["a.>"])
            stream.publish_many([(f"a.{n % 5}", b"%d" % n) for n in range(COUNT)])

    def target(self, name: str) -> Path:
        with penstock.open(self.folder / name, durability="os") as db:
            db.stream("S", subjects=["a.>"])
        return self.folder / name

    def gate(self, name: str, row: int, attempts: str = "all") -> Gate:
        return Gate(self.folder / name, row, attempts)

    def job(self, path: Path, *gates: Gate) -> dict[str, object]:
        """What a streaming job is given."""
        return self.copy(path, *gates) | {"checkpoint": f"{path}-checkpoint", "per_trigger": PER_TRIGGER}

    def copy(self, path: Path, *gates: Gate) -> dict[str, object]:
        """What a batch job is given."""
        return {"source": str(self.source), "path": str(path), "gates": [gate.describe() for gate in gates]}


def staged(path: Path) -> list[str]:
    """Everything that stands in the staging folder."""
    staging = Path(root_of(path, "S"), "staging")
    return [str(one.relative_to(staging)) for one in staging.rglob("*")]


def assert_exact(path: Path) -> None:
    """Every message once, in order, nothing else, nothing left to be adopted or cleaned up."""
    with penstock.open(path, read_only=True) as db:
        found = [int(message.data) for message in db.get_stream("S").read()]
    assert len(found) == len(set(found)), f"{len(found) - len(set(found))} rows came twice"
    assert found == list(range(COUNT)), f"{COUNT - len(found)} rows are missing, or they are not in order"
    assert staged(path) == []


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        find_java()
    except PenstockSparkError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("wheel")
    return make_python(folder, build_wheel(folder))


@pytest.fixture
def steps(pytestconfig: pytest.Config, subtests: pytest.Subtests) -> Callable[[str], AbstractContextManager[None]]:
    """A step may take as long as a test may before it counts as one that hangs: together they take longer."""
    seconds = float(pytestconfig.getini("faulthandler_timeout") or 0)
    may_exit = bool(pytestconfig.getini("faulthandler_exit_on_timeout"))

    @contextmanager
    def step(name: str) -> Iterator[None]:
        if seconds > 0:
            faulthandler.dump_traceback_later(seconds, exit=may_exit, file=sys.__stderr__)
        with subtests.test(name):
            yield

    return step


def test_on_a_cluster(python: Path, tmp_path: Path, steps: Callable[[str], AbstractContextManager[None]]) -> None:
    stores = Stores(tmp_path)
    for cluster in cluster_with(tmp_path, python, workers=2):
        driver = Driver(cluster, "driver", SPECULATION)
        try:
            with steps("the tasks run the package of the wheel"):
                run_the_wheel(cluster, driver)
            with steps("a batch read is shared out, and skips what it can"):
                read_in_parallel(driver, stores)
            with steps("a streaming read into a streaming write is exact"):
                stream_through(driver, stores)
            with steps("a task whose processes are killed is run again, and counts once"):
                kill_a_task(cluster, driver, stores)
            with steps("of a task that runs twice at once one counts, and the other leaves nothing"):
                run_a_task_twice(driver, stores)
            with steps("workers are killed while a batch is staged: the result is exact"):
                kill_workers(cluster, driver, stores)
            with steps("the driver is killed in the middle of a batch: another goes on, exactly"):
                driver = kill_the_driver(cluster, driver, stores)
        finally:
            driver.stop()


def run_the_wheel(cluster: Cluster, driver: Driver) -> None:
    cluster.wait_for_executors(2)
    found = driver.run("where")
    packages = cluster.python.parents[1] / "lib"
    assert found["files"] == [found["driver"]] and found["driver"].startswith(str(packages)), found


def read_in_parallel(driver: Driver, stores: Stores) -> None:
    whole = driver.run("read", path=str(stores.source), minPartitions="4")
    assert whole == {
        "parts": 4,
        "count": COUNT,
        "seqs": COUNT * (COUNT + 1) // 2,
        "bytes": sum(len(str(n)) for n in range(COUNT)),
        "subjects": 5,
    }
    some = driver.run("read", path=str(stores.source), only="subject = 'a.3' and seq > 6000", minPartitions="2")
    assert (some["count"], some["subjects"]) == (600, 1)


def stream_through(driver: Driver, stores: Stores) -> None:
    path = stores.target("plain")
    assert driver.run("stream", **stores.job(path)) == {"batches": math.ceil(COUNT / PER_TRIGGER), "rows": COUNT}
    assert_exact(path)


def kill_a_task(cluster: Cluster, driver: Driver, stores: Stores) -> None:
    path, gate = stores.target("task"), stores.gate("task-gate", 5000)
    driver.begin("write", **stores.copy(path, gate))
    pid = gate.wait()
    until(lambda: [name for name in staged(path) if name.endswith(".blk")], "nothing is staged")
    kill(python_workers(cluster.worker_of(pid).pid))
    gate.open()
    driver.answer()
    assert not is_alive(pid) and len(gate.waiting()) > 1, "it was run again"
    assert_exact(path)


def run_a_task_twice(driver: Driver, stores: Stores) -> None:
    """The first attempt waits until all is over, and then goes on."""
    path, gate = stores.target("twice"), stores.gate("twice-gate", 4400, "first")
    assert driver.run("stream", **stores.job(path, gate))["rows"] >= COUNT
    pid = gate.wait()
    assert_exact(path)
    gate.open()
    until(lambda: not is_alive(pid) or gate.passed(), "the first attempt neither goes on nor ends")
    assert_exact(path)


def kill_workers(cluster: Cluster, driver: Driver, stores: Stores) -> None:
    """First the one whose task has not finished; then, in a later batch, one whose task has."""
    path = stores.target("worker")
    first, second = stores.gate("first-gate", 4400), stores.gate("second-gate", 8999)
    driver.begin("stream", **stores.job(path, first, second))
    pid = first.wait()
    until(lambda: [name for name in staged(path) if name.endswith(".blk")], "nothing is staged")
    cluster.kill_worker(cluster.worker_of(pid))
    cluster.start_worker()
    cluster.wait_for_executors(2)
    first.open()
    pid = second.wait()
    assert len(first.waiting()) > 1, "the task was run again"
    # The other tasks of this batch are done; their worker goes, with all that it knew.
    until(lambda: len({name.split("/")[1][:6] for name in staged(path) if name.endswith(".sum")}) == 3, "three parts")
    (other,) = (worker for worker in cluster.workers if worker is not cluster.worker_of(pid))
    cluster.kill_worker(other)
    cluster.start_worker()
    second.open()
    assert driver.answer()["rows"] >= COUNT
    assert_exact(path)


def kill_the_driver(cluster: Cluster, driver: Driver, stores: Stores) -> Driver:
    """With it go the query's process and its planner; tasks of it still run for a moment."""
    path, gate = stores.target("driver"), stores.gate("driver-gate", 5000)
    driver.begin("stream", **stores.job(path, gate))
    gate.wait()
    driver.kill()
    again = Driver(cluster, "again", SPECULATION)
    gate.open()
    again.run("stream", **stores.job(path))
    assert_exact(path)
    return again
