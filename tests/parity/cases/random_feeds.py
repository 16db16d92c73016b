"""Who waits is served: push consumers and pull requests that chance opens, acks, nacks and closes, by their seed.

The case knows how many messages must come after each step, reads so many, and compares what they are.
"""

from __future__ import annotations

import random
from typing import Any

from parity.cases.consumer_start import fits
from parity.catalog import add
from parity.consumer_steps import NS, consume
from parity.script import Script
from support.wire_client import Frame

GROUP = "random_feeds"
SEEDS = 40
TOKENS = ["a", "b", "c", "d.x"]
FILTERS = [[], [], ["t.a"], ["t.*"], ["t.a", "t.d.>"]]
COUNTED = ("delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_pending", "push_bound")


class WatchSource:
    """One consumer, and what we know of it: enough to say how many messages come next."""

    def __init__(self, s: Script, seed: int) -> None:
        self.script, self.r = s, random.Random(seed)
        self.c, self.listener = s.connect(), s.connect("b")
        self.is_push = self.r.random() < 0.5
        self.filters = self.r.choice(FILTERS)
        self.most = self.r.choice([-1, -1, 2, 4])
        self.count = 0  # published
        self.unseen: list[int] = []  # match, and were not delivered
        self.pending: dict[int, Frame] = {}
        self.again: list[int] = []  # nacked, and still to come
        self.room = 0  # how many more those who wait take
        self.is_bound = False
        self.inbox = 0

    def begin(self) -> None:
        config: dict[str, Any] = {"ack_wait": 600 * NS, "max_ack_pending": self.most}
        if len(self.filters) == 1:
            config["filter_subject"] = self.filters[0]
        elif self.filters:
            config["filter_subjects"] = self.filters
        if self.is_push:
            config["deliver_subject"] = "d"
            if self.r.random() < 0.3:
                config["deliver_group"] = "q"
        if self.r.random() < 0.2:
            config["headers_only"] = True
        self.queue = config.get("deliver_group", "")
        stream = {"name": "T", "subjects": ["t.>"], "retention": self.r.choice(["limits", "limits", "workqueue"])}
        self.c.api("STREAM.CREATE.T", stream, is_kept=False)
        consume(self.c, is_kept=True, **config)

    def serve(self) -> None:
        """Read what must come now."""
        expected = []
        pending = set(self.pending)
        while self.is_bound if self.is_push else self.room > len(expected):
            if self.again:
                expected.append(self.again.pop(0))
            elif self.unseen and (self.most < 0 or len(pending) < self.most):
                expected.append(self.unseen.pop(0))
                pending.add(expected[-1])
            else:
                break
        self.room -= len(expected)
        if expected:
            for frame in self.listener.read(len(expected), f"messages {expected}"):
                assert frame.reply is not None
                self.pending[int(frame.reply.split(b".")[5])] = frame

    def publish(self) -> None:
        subject = f"t.{self.r.choice(TOKENS)}"
        headers = ["A: 1"] if self.r.random() < 0.2 else None
        self.c.request(subject, f"m{self.count + 1}", headers, is_kept=False)
        self.count += 1
        if not self.filters or any(fits(subject, one) for one in self.filters):
            self.unseen.append(self.count)
        self.serve()
        pending = len(self.unseen)
        self.c.until("CONSUMER.INFO.T.C", "", lambda a: a["num_pending"] == pending, 2, is_kept=False)

    def ask(self) -> None:
        """Listen, or stop listening; or one more request."""
        if not self.is_push:
            batch = self.r.randrange(1, 4)
            self.inbox += 1
            self.room += batch
            self.listener.sub(f"q.{self.inbox}", f"q{self.inbox}")
            body: Any = str(batch) if self.r.random() < 0.3 else {"batch": batch, "expires": 600 * NS}
            self.listener.pub("$JS.API.CONSUMER.MSG.NEXT.T.C", body, f"q.{self.inbox}")
        elif self.is_bound and self.r.random() < 0.4:
            self.listener.unsub("1")
            self.listener.flush()
            self.is_bound = False
            self.c.until("CONSUMER.INFO.T.C", "", lambda a: not a.get("push_bound"), 2, is_kept=False)
        elif not self.is_bound:
            self.listener.sub("d", "1", self.queue)
            self.is_bound = True
            self.serve()
            self.c.until("CONSUMER.INFO.T.C", "", lambda a: a.get("push_bound", False), 2, is_kept=False)
        self.serve()

    def ack(self) -> None:
        held = [seq for seq in self.pending if seq not in self.again]
        if not held:
            return
        seq = self.r.choice(held)
        body = self.r.choice(["+ACK", "+ACK", "", "-NAK", "+TERM", "+WPI"])
        frame = self.pending[seq]
        assert frame.reply is not None
        self.c.request(frame.reply.decode(), body)
        if body == "-NAK":
            self.again.append(seq)
        elif body != "+WPI":
            del self.pending[seq]
        self.serve()


def conversation(seed: int) -> object:
    def run(s: Script) -> None:
        feed = WatchSource(s, seed)
        feed.begin()
        for _ in range(40):
            feed.r.choice([feed.publish, feed.publish, feed.ask, feed.ack, feed.ack])()
            answer = feed.c.api("CONSUMER.INFO.T.C", is_kept=False)
            s.value("C", {key: answer[key] for key in COUNTED if key in answer})

    return run


for seed in range(SEEDS):
    add(GROUP, f"seed {seed}", conversation(seed))
