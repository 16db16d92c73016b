"""Consumers that chance configures, pulls from, acks, resets and purges; the same for both servers by their seed.

Nothing here goes by the clock. The real server counts what was published a moment later, so a publish waits for that.
Left out is where it errs: the list of last messages does not survive a purge or a message that is too large, a purge
forgets what was nacked, and after it the sequences shown are those it has looked at, not those it has delivered.
"""

from __future__ import annotations

import random
import time
from typing import Any

from parity.cases.consumer_start import fits
from parity.catalog import add
from parity.consumer_steps import NS
from parity.script import Script
from support.wire_client import Frame

GROUP = "random_consumers"
SEEDS = 60
TOKENS = ["a", "b", "c", "d.x", "d.y", "e.f.g"]
FILTERS = [">", "t.>", "t.*", "t.a", "t.d.*", "t.*.x", "t.none", "t.e.f.g"]
SETS = [["t.a", "t.b"], ["t.d.*", "t.c"], ["t.a", "t.e.>", "t.none"]]
COUNTED = ("delivered", "ack_floor", "num_ack_pending", "num_redelivered", "num_waiting", "num_pending")
ACKS = ["+ACK", "+ACK", "+ACK", "", "-NAK", "-NAK", "+TERM", "+TERM why", "+WPI", "-NAK 60s", "x"]


def config(r: random.Random, name: str, retention: str) -> dict[str, Any]:
    chosen: dict[str, Any] = {"durable_name": name, "ack_policy": "explicit", "ack_wait": 600 * NS}
    if retention == "limits":
        chosen["ack_policy"] = r.choice(["explicit", "explicit", "all", "none"])
        start = r.choice(["all", "all", "last", "new", "last_per_subject", "by_start_sequence", "by_start_time"])
        chosen["deliver_policy"] = start
        if start == "by_start_sequence":
            chosen["opt_start_seq"] = r.randrange(1, 15)
        if start == "by_start_time":
            chosen["opt_start_time"] = "2020-01-01T00:00:00Z"
        if start == "last_per_subject":
            chosen["filter_subject"] = r.choice(FILTERS)
    if chosen["ack_policy"] == "none":
        del chosen["ack_wait"]
    if r.random() < 0.6 and retention != "workqueue":
        chosen.pop("filter_subject", None)
        if r.random() < 0.6:
            chosen["filter_subject"] = r.choice(FILTERS)
        else:
            chosen["filter_subjects"] = r.choice(SETS)
    if r.random() < 0.3 and chosen["ack_policy"] == "explicit":
        chosen["max_deliver"] = r.choice([2, 3, 5])
    if r.random() < 0.2:
        chosen["headers_only"] = True
    if r.random() < 0.2:
        chosen["max_batch"] = 4
    return chosen


class Model:
    """What a seed's conversation has in hand."""

    def __init__(self, s: Script, r: random.Random) -> None:
        self.script, self.r, self.c = s, r, s.connect()
        self.retention = r.choice(["limits", "limits", "interest", "workqueue"])
        self.names = ["C"] if self.retention == "workqueue" else ["C", "D"]
        self.configs: dict[str, dict[str, Any]] = {}
        self.held: list[Frame] = []
        self.count = 0
        self.is_purged = self.has_nacked = False

    def begin(self) -> None:
        stream = {"name": "T", "subjects": ["t.>"], "retention": self.retention}
        stream["storage"] = self.r.choice(["file", "memory"])
        self.c.api("STREAM.CREATE.T", stream, is_kept=False)
        if self.retention == "limits":
            for _ in range(self.r.randrange(0, 12)):
                self.publish()
        for name in self.names:
            self.create(name)
        self.c.sub("p", "1")

    def create(self, name: str) -> None:
        self.configs[name] = config(self.r, name, self.retention)
        self.c.api(f"CONSUMER.CREATE.T.{name}", {"stream_name": "T", "config": self.configs[name]})

    def pending(self, name: str) -> int:
        answer = self.c.api(f"CONSUMER.INFO.T.{name}", is_kept=False)
        return int(answer["num_pending"])

    def has_list(self, name: str) -> bool:
        return self.configs[name].get("deliver_policy") == "last_per_subject"

    def publish(self) -> None:
        subject = f"t.{self.r.choice(TOKENS)}"
        wanted = {}
        for name, made in self.configs.items():
            filters = made.get("filter_subjects") or [made.get("filter_subject", ">")]
            ahead = made.get("opt_start_seq", 0) > self.count + 1  # begins after this one
            wanted[name] = self.pending(name) + (not ahead and any(fits(subject, f) for f in filters))
        self.count += 1
        headers = ["A: 1"] if self.r.random() < 0.2 else None
        self.c.request(subject, f"m{self.count}", headers, is_kept=False)
        for name, count in wanted.items():
            self.c.until(f"CONSUMER.INFO.T.{name}", "", lambda a, n=count: a["num_pending"] == n, 1, is_kept=False)

    def fetch(self) -> None:
        name = self.r.choice(self.names)
        batch = self.r.randrange(1, 6)
        body: dict[str, Any] = {"batch": batch, "no_wait": True}
        if self.r.random() < 0.3 and not self.has_list(name):
            body["max_bytes"] = self.r.choice([100, 150, 200, 5000])
        self.c.pub(f"$JS.API.CONSUMER.MSG.NEXT.T.{name}", body, "p")
        left = [batch]

        def is_last(frame: Frame) -> bool:
            if frame.headers is not None and frame.headers.startswith(b"NATS/1.0 "):
                return True
            left[0] -= 1
            return left[0] == 0 and "max_bytes" not in body

        self.held += [f for f in self.c._read_until(f"fetch {body} of {name}", is_last) if f.reply is not None]

    def ack(self) -> None:
        if not self.held:
            return
        frame = self.r.choice(self.held)
        assert frame.reply is not None
        name = frame.reply.decode().split(".")[3]
        if self.configs[name]["ack_policy"] == "none":
            return
        body = self.r.choice(ACKS)
        self.has_nacked = self.has_nacked or body == "-NAK"
        self.c.request(frame.reply.decode(), body)

    def change(self) -> None:
        name = self.r.choice(self.names)
        kind = self.r.randrange(6)
        if kind < 2 and not self.has_nacked and not any(self.has_list(name) for name in self.names):
            seq = {"seq": self.r.randrange(1, self.count + 3)}
            self.c.api("STREAM.PURGE.T", {"filter": self.r.choice(FILTERS)} if kind else seq)
            self.is_purged = True
        elif kind == 2 and self.retention == "limits" and not self.has_list(name):
            made = {k: v for k, v in self.configs[name].items() if not k.startswith("filter_subject")}
            made["filter_subject"] = self.r.choice(FILTERS)
            self.configs[name] = made
            request = {"stream_name": "T", "config": made}
            self.c.api(f"CONSUMER.CREATE.T.{name}", request, is_kept=not self.is_purged)
        elif kind == 3 and self.configs[name].get("deliver_policy", "all") == "all":
            self.c.api(f"CONSUMER.RESET.T.{name}", {"seq": self.r.randrange(1, self.count + 2)})
            self.held = [frame for frame in self.held if f".{name}." not in (frame.reply or b"").decode()]
        elif kind == 4:
            self.c.api(f"CONSUMER.DELETE.T.{name}", is_kept=False)
            self.held = [frame for frame in self.held if f".{name}." not in (frame.reply or b"").decode()]
            del self.configs[name]
            self.settle()
            self.create(name)

    def settle(self) -> dict[str, Any]:
        """The stream's state when it does not change any more."""
        last: dict[str, Any] = {}
        for _ in range(100):
            state = self.c.api("STREAM.INFO.T", {"subjects_filter": ">"}, is_kept=False)["state"]
            if state == last:
                break
            last = state
            time.sleep(0.01)
        return last


def step(m: Model) -> None:
    kind = m.r.randrange(12)
    if kind < 4:
        m.publish()
    elif kind < 7:
        m.fetch()
    elif kind < 10:
        m.ack()
    elif kind < 11:
        m.change()
    for name in m.names:
        answer = m.c.api(f"CONSUMER.INFO.T.{name}", is_kept=False)
        told = {key: answer[key] for key in COUNTED}
        if m.is_purged:
            told = {key: value for key, value in told.items() if isinstance(value, int)}
        m.script.value(name, told)


def conversation(seed: int) -> object:
    def run(s: Script) -> None:
        m = Model(s, random.Random(seed))
        m.begin()
        for _ in range(25):
            step(m)
        s.value("the stream in the end", m.settle())

    return run


for seed in range(SEEDS):
    add(GROUP, f"seed {seed}", conversation(seed))
