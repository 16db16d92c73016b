"""Streams and their consumers against a simple model: deliveries, pending messages, and what remains in the
stream.

Publishes, deliveries, acks of every kind, deletes, purges, a clock that jumps, clean restarts, and kills (a copy of the
files while everything is open). Every step is flushed; the model predicts exactly what a consumer gets.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.base.subject import Filters
from penstock.consumer.config import make_config
from penstock.consumer.consumer import Consumer
from penstock.consumer.rules import admit
from penstock.db.database import Database
from penstock.db.stream import Stream
from penstock.testing.clock import FakeClock

SUBJECTS = ("s.a", "s.b", "s.c")
FILTERS: tuple[tuple[str, ...], ...] = ((), ("s.a",), ("s.*",), ("s.a", "s.b"), ("s.c",))
WAIT = 100


@dataclass
class Model:
    """One consumer, and what it must deliver."""

    filters: tuple[str, ...]
    policy: str
    max_deliver: int
    max_ack_pending: int
    backoff: tuple[int, ...]
    next_seq: int
    first: list[int] = field(default_factory=list)  # last per subject: the rest of the initial list
    pending: dict[int, list[int]] = field(default_factory=dict)  # seq -> [deliveries, deadline]
    given_up: set[int] = field(default_factory=set)
    consumer_seq: int = 0
    resume: int = 0  # last per subject: where it continues after the list
    delivered: int = 0

    def wants(self, subject: str) -> bool:
        return Filters(list(self.filters)).match(subject.encode()) if self.filters else True

    def unseen(self, messages: dict[int, str]) -> list[int]:
        listed = [seq for seq in self.first if seq in messages]
        return listed + [seq for seq, subject in messages.items() if seq >= self.next_seq and self.wants(subject)]

    def deadline(self, deliveries: int, now: int) -> int:
        return now + (self.backoff[min(deliveries, len(self.backoff)) - 1] if self.backoff else WAIT)

    def take(self, most: int, messages: dict[int, str], now: int) -> list[tuple[int, int, int, int]]:
        """(seq, deliveries, consumer sequence, pending) of each delivery."""
        got: list[tuple[int, int, int, int]] = []
        while len(got) < most:
            due = sorted((deadline, seq) for seq, (_, deadline) in self.pending.items() if deadline <= now)
            if due:
                seq = due[0][1]
                if 0 < self.max_deliver <= self.pending[seq][0]:
                    del self.pending[seq]
                    self.given_up.add(seq)
                    continue
                self.pending[seq][0] += 1
                self.pending[seq][1] = self.deadline(self.pending[seq][0], now)
                self.consumer_seq += 1
                got.append((seq, self.pending[seq][0], self.consumer_seq, len(self.unseen(messages))))
                continue
            unseen = self.unseen(messages)
            if not unseen or (self.policy != "none" and 0 < self.max_ack_pending <= len(self.pending)):
                break
            seq = unseen[0]
            self.first = [one for one in self.first if one > seq]
            self.delivered = seq
            if seq >= self.next_seq:
                self.next_seq = seq + 1
            self.consumer_seq += 1
            if self.policy != "none":
                self.pending[seq] = [1, self.deadline(1, now)]
            got.append((seq, 1, self.consumer_seq, len(unseen) - 1))
        return got

    def ack(self, seq: int) -> list[int]:
        """Remove an acknowledged message."""
        if self.policy == "explicit":
            if seq in self.given_up:
                self.given_up.discard(seq)
                return [seq]
            return [seq] if self.pending.pop(seq, None) else []
        if self.policy == "all" and seq in self.pending:
            done = [one for one in self.pending if one <= seq]
            for one in done:
                del self.pending[one]
            return done
        return []

    def needs(self, seq: int, subject: str) -> bool:
        if not self.wants(subject):
            return False
        return seq >= self.next_seq or seq in self.first or seq in self.pending or seq in self.given_up

    def lose(self, seq: int) -> None:
        self.pending.pop(seq, None)
        self.given_up.discard(seq)


class ConsumersMachine(RuleBasedStateMachine):
    """One stream, up to four consumers."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.clock = FakeClock(10**18)
        self.models: dict[str, Model] = {}
        self.messages: dict[int, str] = {}
        self.last_seq = self.created = 0

    @initialize(retention=st.sampled_from(["limits", "workqueue", "interest"]), per_subject=st.sampled_from([-1, 1, 2]))
    def begin(self, retention: str, per_subject: int) -> None:
        self.retention, self.per_subject = retention, per_subject
        self.open()
        self.db.stream("S", subjects=["s.>"], retention=retention, max_msgs_per_subject=per_subject)

    def open(self) -> None:
        self.db = Database(self.folder, durability="os", clock=self.clock)

    @property
    def stream(self) -> Stream:
        return self.db.get_stream("S")

    def teardown(self) -> None:
        self.db.close()
        shutil.rmtree(self.folder)

    def lose(self, *seqs: int) -> None:
        for seq in seqs:
            if self.messages.pop(seq, None):
                for model in self.models.values():
                    model.lose(seq)

    def retire(self, seqs: list[int]) -> None:
        """Remove the messages from the stream that no consumer needs any more."""
        if self.retention != "limits":
            self.lose(*(seq for seq in seqs if seq in self.messages and not self.is_needed(seq)))

    def is_needed(self, seq: int) -> bool:
        return any(model.needs(seq, self.messages[seq]) for model in self.models.values())

    # Operations.

    @rule(subjects=st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=6))
    def publish(self, subjects: list[str]) -> None:
        acks = self.stream.publish_many([(subject, b"x") for subject in subjects])
        for subject, ack in zip(subjects, acks, strict=True):
            assert ack is not None
            self.last_seq += 1
            assert ack.seq == self.last_seq
            if self.retention == "interest" and not any(model.wants(subject) for model in self.models.values()):
                continue
            self.messages[self.last_seq] = subject
            same = [seq for seq, one in self.messages.items() if one == subject]
            if self.per_subject > 0:
                self.lose(*same[: -self.per_subject])

    @precondition(lambda self: len(self.models) < 4)
    @rule(
        filters=st.sampled_from(FILTERS),
        policy=st.sampled_from(["explicit", "explicit", "all", "none"]),
        deliver=st.sampled_from(["all", "all", "new", "last", "last_per_subject", "by_start_sequence"]),
        max_deliver=st.sampled_from([-1, 1, 2]),
        max_ack_pending=st.sampled_from([1, 3, 1000]),
        backoff=st.sampled_from([(), (50, 300)]),
        seq=st.integers(1, 30),
    )
    def create(
        self, filters: tuple[str, ...], policy: str, deliver: str, max_deliver: int, max_ack_pending: int,
        backoff: tuple[int, ...], seq: int,
    ) -> None:  # fmt: skip
        if self.retention == "interest":
            seq = min(seq, self.last_seq + 1)  # messages before a later start are kept until the next open
        if self.retention == "workqueue":
            policy, deliver = "explicit", "all"
            if self.models:
                return  # one is enough: the rules decide which others a work queue may have
        if deliver == "last_per_subject" and not filters:
            filters = ("s.*",)
        if backoff and max_deliver != -1:
            max_deliver = 2
        self.created += 1
        name = f"c{self.created}"
        config = make_config(
            name,
            filter_subjects=filters,
            ack_policy=policy,
            deliver_policy=deliver,
            max_deliver=max_deliver,
            max_ack_pending=max_ack_pending if policy != "none" else None,
            opt_start_seq=seq if deliver == "by_start_sequence" else None,
            ack_wait=WAIT / 1e9,
            backoff=[one / 1e9 for one in backoff] or None,
        )
        consumers = self.stream.consumers
        consumers.create(admit(config, self.stream.config, consumers.configs))
        consumers.flush()
        matches = [seq for seq, subject in self.messages.items() if self.matches(filters, subject)]
        first: list[int] = []
        start = {"new": self.last_seq + 1, "by_start_sequence": seq}.get(deliver, 1)
        if deliver == "last":
            start = (matches[-1] if matches else 1) if filters else max(self.last_seq, 1)
        elif deliver == "last_per_subject":
            newest = {self.messages[seq]: seq for seq in matches}
            first, start = sorted(newest.values()), self.last_seq + 1
        model = Model(filters, policy, max_deliver, max_ack_pending, backoff, start, first)
        if deliver == "last_per_subject" and self.per_subject != 1:
            model.resume, model.delivered = start, (first or [start])[0] - 1
        elif deliver == "last_per_subject":
            model.first, model.next_seq = [], 1  # each message is the last of its subject
        self.models[name] = model

    @staticmethod
    def matches(filters: tuple[str, ...], subject: str) -> bool:
        return Filters(list(filters)).match(subject.encode()) if filters else True

    def pick(self, data: st.DataObject) -> tuple[str, Model, Consumer]:
        name = data.draw(st.sampled_from(sorted(self.models)))
        return name, self.models[name], self.stream.consumers.by_name[name]

    @precondition(lambda self: self.models)
    @rule(data=st.data(), most=st.integers(1, 8))
    def take(self, data: Any, most: int) -> None:
        _, model, consumer = self.pick(data)
        now = self.clock.now_ns()
        expected = model.take(most, self.messages, now)
        got = consumer.engine.take(now, most)
        assert [(one.message.seq, one.deliveries, one.consumer_seq, one.pending) for one in got] == expected
        assert all(one.message.subject == self.messages[one.message.seq] for one in got)
        self.flush(consumer)
        if model.policy == "none":
            self.retire([seq for seq, *_ in expected])

    def flush(self, consumer: Consumer) -> None:
        self.stream.consumers.touch(consumer)
        self.stream.consumers.flush()

    @precondition(lambda self: self.models)
    @rule(data=st.data(), how=st.sampled_from(["ack", "ack", "ack", "term", "nak", "later", "progress"]))
    def settle(self, data: Any, how: str) -> None:
        _, model, consumer = self.pick(data)
        known = sorted(model.pending.keys() | model.given_up) or [1]
        seq = data.draw(st.sampled_from(known) | st.integers(1, 40))
        now, engine = self.clock.now_ns(), consumer.engine
        if how in ("ack", "term"):
            (engine.ack if how == "ack" else engine.term)(seq, 0, now)
            done = model.ack(seq)
            self.flush(consumer)
            self.retire(done)
            return
        if how == "progress":
            changed = engine.progress(seq, now)
        else:
            changed = engine.nak(seq, now if how == "nak" else now + 250)
        assert bool(changed) == (seq in model.pending)
        if seq in model.pending:
            deliveries = model.pending[seq][0]
            model.pending[seq][1] = {"nak": now, "later": now + 250}.get(how, model.deadline(deliveries, now))
        self.flush(consumer)

    @rule(ns=st.sampled_from([1, 60, 100, 1000]))
    def wait(self, ns: int) -> None:
        self.clock.advance(ns)

    @precondition(lambda self: self.messages)
    @rule(data=st.data())
    def delete(self, data: Any) -> None:
        seq = data.draw(st.sampled_from(sorted(self.messages)))
        assert self.stream.delete(seq)
        self.lose(seq)

    @rule(subject=st.sampled_from(["", "s.a", "s.*"]), keep=st.integers(0, 2))
    def purge(self, subject: str, keep: int) -> None:
        matches = [seq for seq, one in self.messages.items() if not subject or self.matches((subject,), one)]
        gone = matches[: len(matches) - keep] if keep else matches
        assert self.stream.purge(subject, keep=keep) == len(gone)
        self.lose(*gone)
        first = min(self.messages, default=self.last_seq + 1)
        for model in self.models.values():  # whose messages it was about goes on at the stream's beginning
            if not subject or (model.filters and all(self.covers(subject, one) for one in model.filters)):
                model.next_seq = max(model.next_seq, first)

    @staticmethod
    def covers(subject: str, filter_: str) -> bool:
        return subject == "s.*" or subject == filter_

    @precondition(lambda self: self.models)
    @rule(data=st.data())
    def remove(self, data: Any) -> None:
        name, _, _ = self.pick(data)
        self.stream.consumers.delete(name)
        self.stream.consumers.flush()
        del self.models[name]
        if self.retention == "interest":
            self.retire(list(self.messages))

    def list_again(self) -> None:
        """The initial list of last-per-subject is not stored: it is built again from the messages that exist."""
        for model in self.models.values():
            if model.resume:
                newest = {
                    subject: seq
                    for seq, subject in self.messages.items()
                    if seq < model.resume and model.wants(subject)
                }
                model.first = sorted(seq for seq in newest.values() if seq > model.delivered)

    @rule()
    def restart(self) -> None:
        self.db.close()
        self.open()
        self.list_again()

    @rule()
    def kill(self) -> None:
        """The files that a killed process leaves: a copy of them as they are now."""
        image = tempfile.mkdtemp()
        about_to_be_renamed = shutil.ignore_patterns("*.tmp")
        shutil.copytree(self.folder, image, dirs_exist_ok=True, ignore=about_to_be_renamed)
        self.db.close()
        shutil.rmtree(self.folder)
        self.folder = image
        self.open()
        self.list_again()

    # Invariants.

    @invariant()
    def everything_counts_equal(self) -> None:
        if not hasattr(self, "db"):
            return
        state = self.stream.state()
        assert (state.messages, state.last_seq) == (len(self.messages), self.last_seq)
        consumers = self.stream.consumers.by_name
        assert set(consumers) == set(self.models)
        for name, model in self.models.items():
            engine = consumers[name].engine
            assert engine.num_pending == len(model.unseen(self.messages)), name
            assert engine.num_ack_pending == len(model.pending), name
            redelivered = sum(deliveries > 1 for deliveries, _ in model.pending.values()) + len(model.given_up)
            assert engine.num_redelivered == redelivered, name
            assert engine.table.delivered_consumer_seq == model.consumer_seq


RUNS = int(os.environ.get("N") or 60)  # `make machine` raises it
# Shrinking such a run takes minutes: `--hypothesis-seed` replays it, and its steps are printed.
TestConsumers = ConsumersMachine.TestCase
TestConsumers.settings = settings(max_examples=RUNS, stateful_step_count=40, deadline=None, phases=[Phase.generate])
