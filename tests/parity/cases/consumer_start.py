"""Where a consumer begins and what it sees: every deliver policy with every kind of filter, on many streams."""

from __future__ import annotations

import time
from typing import Any

from parity.catalog import add, case
from parity.consumer_steps import NS, consume, fetch, fill, info, no_more, settle, streamed, take
from parity.script import Script

GROUP = "consumer_start"
SUBJECTS = ("t.a", "t.b", "t.a.x", "t.c", "t.a", "t.b", "t.b.y", "t.a.x", "t.d", "t.a")
FILTERS: dict[str, dict[str, Any]] = {
    "no filter": {},
    "one subject": {"filter_subject": "t.a"},
    "a wildcard": {"filter_subject": "t.*"},
    "a tail": {"filter_subject": "t.a.>"},
    "two subjects": {"filter_subjects": ["t.b", "t.d"]},
    "a subject and a wildcard": {"filter_subjects": ["t.c", "t.*.x"]},
    "what is not there": {"filter_subject": "t.none"},
    "everything": {"filter_subject": ">"},
}
STARTS: dict[str, dict[str, Any]] = {
    "all": {},
    "last": {"deliver_policy": "last"},
    "new": {"deliver_policy": "new"},
    "last_per_subject": {"deliver_policy": "last_per_subject"},
    "by_start_sequence": {"deliver_policy": "by_start_sequence", "opt_start_seq": 4},
    "by_start_time": {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
}


def fits(subject: str, filter: str) -> bool:
    tokens, wanted = subject.split("."), filter.split(".")
    if wanted[-1] == ">":
        tokens, wanted = tokens[: len(wanted) - 1], wanted[:-1] if len(tokens) >= len(wanted) else ["no"]
    return len(tokens) == len(wanted) and all(w in ("*", t) for t, w in zip(tokens, wanted, strict=True))


def starting(config: dict[str, Any], holes: bool) -> object:
    def run(s: Script) -> None:
        c = streamed(s, SUBJECTS)
        if holes:
            for seq in (1, 4, 5, 10):
                c.api("STREAM.MSG.DELETE.T", {"seq": seq}, is_kept=False)
        answer = consume(c, is_kept=True, **config)
        if "error" in answer:
            return
        c.sub("p", "1")
        no_more(c)
        more = ("t.a", "t.b", "t.a.x", "t.z")
        fill(c, more, 11)
        filters = config.get("filter_subjects") or [config.get("filter_subject", ">")]
        take(c, sum(any(fits(subject, filter) for filter in filters) for subject in more))
        info(c)

    return run


for start, config in STARTS.items():
    for title, filters in FILTERS.items():
        add(GROUP, f"{start}, {title}", starting(config | filters, False))
    for title in ("no filter", "one subject", "two subjects"):
        add(GROUP, f"{start}, {title}, a stream with holes", starting(config | FILTERS[title], True))


def in_stream(stream: dict[str, Any], messages: tuple[str, ...], steps: list[tuple[str, dict[str, Any]]]) -> object:
    """All policies on a stream of another kind, after some requests."""

    def run(s: Script) -> None:
        c = streamed(s, messages, **stream)
        c.sub("p", "1")
        for subject, body in steps:
            c.api(subject, body, is_kept=False)
        for n, config in enumerate(STARTS.values()):
            more = {"filter_subject": ">"} if config.get("deliver_policy") == "last_per_subject" else {}
            consume(c, is_kept=True, durable_name=f"C{n}", **config, **more)
            no_more(c, consumer=f"C{n}")
        fill(c, ("t.a",), 90)
        for n, config in enumerate(STARTS.values()):
            is_ahead = not messages and not stream and "opt_start_seq" in config
            take(c, 0 if is_ahead else 1, consumer=f"C{n}")
            info(c, f"C{n}")

    return run


PURGE = "STREAM.PURGE.T"
add(GROUP, "an empty stream", in_stream({}, (), []))
add(GROUP, "an empty stream with a first sequence", in_stream({"first_seq": 100}, (), []))
add(GROUP, "a stream that was purged", in_stream({}, SUBJECTS, [(PURGE, {})]))
add(GROUP, "a stream that was purged of the first ones", in_stream({}, SUBJECTS, [(PURGE, {"seq": 7})]))
add(GROUP, "a stream that was purged of a subject", in_stream({}, SUBJECTS, [(PURGE, {"filter": "t.a"})]))
add(GROUP, "a stream in memory", in_stream({"storage": "memory"}, SUBJECTS, []))
add(GROUP, "a stream that keeps one of each subject", in_stream({"max_msgs_per_subject": 1}, SUBJECTS, []))
add(GROUP, "a stream that keeps three", in_stream({"max_msgs": 3}, SUBJECTS, []))
add(
    GROUP,
    "a stream whose last message was deleted",
    in_stream({}, SUBJECTS, [("STREAM.MSG.DELETE.T", {"seq": 10}), ("STREAM.MSG.DELETE.T", {"seq": 9})]),
)


@case(GROUP, "by_start_sequence before, at and after the end")
def sequences(s: Script) -> None:
    c = streamed(s)
    c.api(PURGE, {"seq": 3}, is_kept=False)
    c.sub("p", "1")
    starts = (1, 2, 3, 5, 6, 7, 2**63)
    for n, seq in enumerate(starts):
        consume(c, is_kept=True, durable_name=f"C{n}", deliver_policy="by_start_sequence", opt_start_seq=seq)
        no_more(c, consumer=f"C{n}")
    fill(c, ("t.a", "t.b"), 6)
    for n, seq in enumerate(starts):
        take(c, {7: 1, 2**63: 0}.get(seq, 2), consumer=f"C{n}")


@case(GROUP, "by_start_time of a message, and between two")
def times(s: Script) -> None:
    c = streamed(s, ("t.a",))
    fill(c, ("t.b",), 2)
    fill(c, ("t.c",), 3)
    c.sub("p", "1")
    stored = [c.api("STREAM.MSG.GET.T", {"seq": seq}, is_kept=False)["message"]["time"] for seq in (1, 2, 3)]
    for n, start in enumerate((*stored, "2100-01-01T00:00:00Z")):
        name = f"C{n}"
        config = {
            "durable_name": name,
            "deliver_policy": "by_start_time",
            "opt_start_time": start,
            "ack_policy": "none",
        }
        c.api(f"CONSUMER.CREATE.T.{name}", {"stream_name": "T", "config": config})
        no_more(c, consumer=name)


@case(GROUP, "last_per_subject, with more coming before it is read")
def last_per_subject(s: Script) -> None:
    c = streamed(s, SUBJECTS)
    consume(c, is_kept=True, deliver_policy="last_per_subject", filter_subject="t.>")
    fill(c, ("t.a", "t.d", "t.new"), 11)
    settle(c, 9)
    info(c)
    c.sub("p", "1")
    no_more(c)
    info(c)


@case(GROUP, "last_per_subject of a stream with history")
def last_history(s: Script) -> None:
    c = streamed(s, SUBJECTS, max_msgs_per_subject=2)
    c.sub("p", "1")
    for n, filters in enumerate((["t.a"], ["t.*"], ["t.a", "t.b.y"], ["t.none"])):
        consume(c, is_kept=True, durable_name=f"C{n}", deliver_policy="last_per_subject", filter_subjects=filters)
        no_more(c, consumer=f"C{n}")


@case(GROUP, "last_per_subject, its messages are deleted before it is read")
def last_deleted(s: Script) -> None:
    c = streamed(s, SUBJECTS)
    consume(c, deliver_policy="last_per_subject", filter_subject="t.*")
    c.api("STREAM.MSG.DELETE.T", {"seq": 9}, is_kept=False)
    info(c)
    c.sub("p", "1")
    no_more(c)
    no_more(c)
    info(c)


@case(GROUP, "last with two filters")
def last_filters(s: Script) -> None:
    c = streamed(s, SUBJECTS)
    c.sub("p", "1")
    for n, filters in enumerate((["t.b", "t.c"], ["t.none", "t.c"], ["t.none", "t.also"])):
        consume(c, is_kept=True, durable_name=f"C{n}", deliver_policy="last", filter_subjects=filters)
        no_more(c, consumer=f"C{n}")


@case(GROUP, "filters are updated half way")
def update_filters(s: Script) -> None:
    c = streamed(s, SUBJECTS)
    consume(c, filter_subject="t.b")
    c.sub("p", "1")
    no_more(c)
    for filters in ({"filter_subject": "t.*"}, {"filter_subjects": ["t.a", "t.d"]}, {}, {"filter_subject": "t.none"}):
        consume(c, is_kept=True, **filters)
        info(c)
    fill(c, ("t.none", "t.a"), 11)
    take(c, 1)
    info(c)


@case(GROUP, "replay original keeps the pauses")
def replay(s: Script) -> None:
    c = streamed(s, ("t.a",))
    consume(c, durable_name="W")
    c.sub("p", "1")
    for n in (2, 3):
        c.pub("$JS.API.CONSUMER.MSG.NEXT.T.W", {"batch": 9, "expires": NS // 10}, "p")
        c.read_until_statuses(1, "a pause")
        fill(c, ("t.a",), n)
    consume(c, is_kept=True, replay_policy="original")
    begin = time.monotonic()
    fetch(c, 3)
    s.value("it took its time", time.monotonic() - begin > 0.15)
    fill(c, ("t.a",), 4)
    take(c, 1)


@case(GROUP, "a consumer's messages keep their subjects through a transform")
def transformed(s: Script) -> None:
    c = streamed(s, (), subject_transform={"src": "t.*", "dest": "u.{{wildcard(1)}}"})
    fill(c, ("t.a", "t.b", "t.a.x"))
    c.sub("p", "1")
    for n, filters in enumerate(({}, {"filter_subject": "u.a"}, {"filter_subject": "t.a"}, {"filter_subject": "t.>"})):
        consume(c, is_kept=True, durable_name=f"C{n}", **filters)
        no_more(c, consumer=f"C{n}")


@case(GROUP, "a subject with a wildcard for a token, and filters")
def wild_subject(s: Script) -> None:
    c = streamed(s, ())
    fill(c, ("t.*", "t.a", "t.*.x", "t.b"))
    c.sub("p", "1")
    for n, filters in enumerate(
        ({}, {"filter_subject": "t.*"}, {"filter_subject": "t.a"}, {"filter_subject": "t.*.x"})
    ):
        consume(c, is_kept=True, durable_name=f"C{n}", **filters)
        no_more(c, consumer=f"C{n}")
