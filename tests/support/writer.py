"""A process that writes; its arguments say what: writer.py STORE DURABILITY TASK [NUMBER].

It prints a line for each event that the test waits for, and reads a line where it waits for the test.
"""

from __future__ import annotations

import sys

import penstock
import penstock.stream.config


def payload(n: int) -> bytes:
    return b"%d " % n * (5 + n % 20)


def say(*words: object) -> None:
    print(*words, flush=True)


def publish_forever(stream: penstock.Stream) -> None:
    """Publish batch after batch, from where the last writer stopped, and print each acknowledged sequence."""
    n = stream.state().last_seq
    while True:
        acks = stream.publish_many([("keep.x", payload(k)) for k in range(n, n + 10)])
        say(acks[-1].seq)
        n += 10


def churn(stream: penstock.Stream, count: int) -> None:
    """Publish `count` messages that stay, among others that are deleted, erased and purged while readers watch."""
    n = 0
    batches = 0
    while n < count:
        batch = []
        for _ in range(100):
            batch.append(("keep.x", payload(n)))
            n += 1
            if n % 3 == 0:
                batch.append((f"junk.{n % 7}", b"junk %d" % n * 10))
        acks = stream.publish_many(batch)
        junk = [ack.seq for ack, (subject, _) in zip(acks, batch, strict=True) if subject.startswith("junk")]
        batches += 1
        stream.delete_many(junk[:5])
        stream.delete(junk[6])
        stream.erase(junk[7])
        if batches % 10 == 0:
            stream.purge("junk.>", keep=3)
        if batches == 2:
            say("under way")
    stream.publish("end", b"")
    say("done", n)


def main() -> None:
    root, durability, task = sys.argv[1:4]
    number = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    penstock.stream.config.BLOCK_SIZE_MAX = 32_000  # blocks are rolled often
    with penstock.open(root, durability=durability) as db:
        limits = {"max_bytes": 100_000} if task == "limited" else {}
        stream = db.stream("S", subjects=["keep.*", "junk.*", "end"], **limits)
        say("ready")
        sys.stdin.readline()
        if task == "forever":
            publish_forever(stream)
        elif task in ("churn", "limited"):
            churn(stream, number)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
