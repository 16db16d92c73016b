"""A job queue with no server: threads that share a durable consumer, jobs that fail, a process that is killed.

    python examples/jobs.py [--count 2000] [--out DIRECTORY]

This process puts jobs into a work queue. A second one works on them with four threads, and is killed with -9 half way;
a third goes on where it was. A job is done when its result stands in a key-value bucket: then it is acknowledged, and
gone. In the end every job has a result, and the queue is empty.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

from story import Story

import penstock

THREADS = 4
HOPELESS = 50  # one job in so many always fails
CLUMSY = 7  # one job in so many fails at its first try


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--out", default="")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.out)
        return
    root = options.out or tempfile.mkdtemp(prefix="penstock-jobs-")
    try:
        tell(Story(), root, options.count)
    finally:
        if not options.out:
            shutil.rmtree(root)


def tell(story: Story, root: str, count: int) -> None:
    story.step(f"{count:,} jobs into a work queue")
    with penstock.open(root) as db:
        jobs = db.stream("JOBS", subjects=["jobs.>"], retention="workqueue")
        jobs.publish_many([(f"jobs.{n}", b"%d" % n) for n in range(count)])
        jobs.consumer("workers", ack_wait="1s", max_deliver=20, max_ack_pending=200)
        db.key_value("results")
        story.took(f"{jobs.state().messages:,} wait")

    story.step("a process works on them, and is killed half way")
    worker = start(root)
    try:
        while len(worker_results(root)) < count // 2 and worker.poll() is None:
            time.sleep(0.02)
    finally:
        worker.kill()
        worker.wait()
    with penstock.open(root, read_only=True) as db:
        info = db.stream("JOBS").consumer("workers").info()
        left = db.stream("JOBS").state().messages
    story.took(
        f"{len(worker_results(root)):,} results; {left:,} jobs left, {info.num_ack_pending} of them in its hands"
    )

    story.step("another goes on where it was")
    worker = start(root)
    assert worker.wait(120) == 0, "the worker ends when there is nothing left"
    results = worker_results(root)
    with penstock.open(root) as db:
        left = db.stream("JOBS").state().messages
        tries = [int(value.partition(b" ")[0]) for value in results.values()]
    story.took(f"{len(results):,} results; {left} jobs left; {sum(n > 1 for n in tries):,} took more than one try")
    assert sorted(map(int, results)) == list(range(count)) and left == 0, "every job has a result, and none is left"


def start(root: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), "--work", "--out", root])


def worker_results(root: str) -> dict[str, bytes]:
    """The results so far, read beside the worker."""
    with penstock.open(root, read_only=True) as db:
        entries = iter(db.key_value("results").watch(timeout=0))
        return {entry.key: entry.value for entry in iter(entries.__next__, None)}


def work(root: str) -> None:
    with penstock.open(root, durability="os") as db:
        threads = [threading.Thread(target=do_jobs, args=(db, random.Random(n))) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def do_jobs(db: penstock.Database, rng: random.Random) -> None:
    """Until nothing has come for longer than a message that another process had in its hands takes to come again."""
    results = db.key_value("results")
    for job in db.stream("JOBS").consumer("workers").messages(timeout=2):
        number = int(job.data)
        time.sleep(rng.random() / 500)
        if number % HOPELESS == 13:
            results.put(str(number), b"%d hopeless" % job.deliveries)
            job.term("it is a hopeless one")
        elif number % CLUMSY == 3 and job.deliveries == 1:
            job.nak(delay=0.05)
        else:
            results.put(str(number), b"%d done" % job.deliveries)
            job.ack()


if __name__ == "__main__":
    main()
