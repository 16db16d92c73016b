"""What consumer.py asks a real server: consumers created and updated.

A request is a dict, or text where the JSON itself is the question. Besides the written cases there are those that
chance writes from a fixed seed: fields in combinations nobody thinks of, which show the order of the checks.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

Config = dict[str, Any]
MS = 1_000_000
NS = 1_000_000_000
LONG = "x" * 256
TIME = "2026-01-02T03:04:05.6Z"


@dataclass(frozen=True)
class Question:
    """One request to create or update a consumer, and what is there before it.

    `before` are consumers made first, as configurations; `bound` are subjects that somebody subscribes to meanwhile;
    `account` and `server` are limits.
    """

    case: str
    config: Config | None = None
    stream: Config = field(default_factory=dict)
    before: tuple[Config, ...] = ()
    at: str | None = None
    body: Config | str | None = None
    envelope: Config = field(default_factory=dict)
    bound: tuple[str, ...] = ()
    account: Config = field(default_factory=dict)
    server: Config = field(default_factory=dict)

    @property
    def subject(self) -> str:
        return self.at if self.at is not None else subject_of(self.config or {})

    @property
    def request(self) -> Config | str:
        if self.body is not None:
            return self.body
        return {"stream_name": "T", "config": self.config, **self.envelope}


def subject_of(config: Config) -> str:
    """The endpoint that clients of today use for a configuration."""
    name = config.get("name") or config.get("durable_name")
    if not isinstance(name, str) or not name or set(name) & set(" \t\r\n.*>"):
        return "CONSUMER.CREATE.T"
    return f"CONSUMER.CREATE.T.{name}"


def pull(**fields: Any) -> Config:
    return {"durable_name": "C", "ack_policy": "explicit", **fields}


def push(**fields: Any) -> Config:
    return {"durable_name": "C", "ack_policy": "explicit", "deliver_subject": "d", **fields}


def ordered(**fields: Any) -> Config:
    """As clients make an ordered consumer."""
    return {
        "name": "O",
        "deliver_subject": "d",
        "ack_policy": "none",
        "max_deliver": 1,
        "flow_control": True,
        "idle_heartbeat": 5 * NS,
        "mem_storage": True,
        "num_replicas": 1,
        **fields,
    }


def flow(**fields: Any) -> Config:
    return {"durable_name": "C", "ack_policy": "flow_control", "deliver_subject": "d", **fields}


POLICIES = ("all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject")
ACKS = ("none", "all", "explicit", "flow_control")
STARTS = {"by_start_sequence": {"opt_start_seq": 3}, "by_start_time": {"opt_start_time": TIME}}

CREATE: list[Question] = [
    Question("an empty configuration", {}),
    Question("a durable and nothing else", {"durable_name": "C"}),
    Question("a name and nothing else", {"name": "C"}),
    Question("a pull consumer", pull()),
    Question("a push consumer", push()),
    Question("an ordered consumer", ordered()),
    Question("a push consumer without a name", {"deliver_subject": "d"}),
    Question("a queue group", push(deliver_group="q")),
    Question("a queue group of a pull consumer", pull(deliver_group="q")),
    Question("a queue group with a blank", push(deliver_group="a b")),
    Question("name and durable agree", pull(name="C")),
    Question("name and durable differ", {"durable_name": "C", "name": "D"}, at="CONSUMER.CREATE.T.C"),
    Question("name and durable differ, at the name", {"durable_name": "C", "name": "D"}, at="CONSUMER.CREATE.T.D"),
    Question("the subject names another one", {"name": "C"}, at="CONSUMER.CREATE.T.D"),
    Question("the subject names another durable", {"durable_name": "C"}, at="CONSUMER.CREATE.T.D"),
    Question("the subject names what the request does not", {}, at="CONSUMER.CREATE.T.D"),
    Question("a durable at the ephemeral endpoint", pull(), at="CONSUMER.CREATE.T"),
    Question("a name at the ephemeral endpoint", {"name": "C"}, at="CONSUMER.CREATE.T"),
    Question("a bad name at the ephemeral endpoint", {"name": "a.b"}, at="CONSUMER.CREATE.T"),
    Question("a name with a slash at the ephemeral endpoint", {"name": "a/b"}, at="CONSUMER.CREATE.T"),
    Question("a name with a slash", {"name": "a/b"}, at="CONSUMER.CREATE.T.a/b"),
    Question("a name with a backslash", {"durable_name": "a\\b"}, at="CONSUMER.CREATE.T.a\\b"),
    Question("a name with a blank inside", {"name": "a b"}, at="CONSUMER.CREATE.T"),
    Question("a bad durable at the durable endpoint", {"durable_name": "a.b"}, at="CONSUMER.DURABLE.CREATE.T.C"),
    Question("the durable endpoint", pull(), at="CONSUMER.DURABLE.CREATE.T.C"),
    Question("the durable endpoint without a durable", {}, at="CONSUMER.DURABLE.CREATE.T.C"),
    Question("the durable endpoint with a name", {"name": "C"}, at="CONSUMER.DURABLE.CREATE.T.C"),
    Question("the durable endpoint with another name", pull(name="D"), at="CONSUMER.DURABLE.CREATE.T.C"),
    Question("the durable endpoint with another durable", pull(), at="CONSUMER.DURABLE.CREATE.T.D"),
    Question("the durable endpoint with a slash", {"durable_name": "a/b"}, at="CONSUMER.DURABLE.CREATE.T.a/b"),
    Question("a durable of 255 bytes", {"durable_name": "x" * 255}),
    Question("a durable of 256 bytes", {"durable_name": LONG}),
    Question("a name of 255 bytes", {"name": "x" * 255}),
    Question("a name of 256 bytes", {"name": LONG}),
    Question("a name that is not ASCII", {"name": "größe"}),
    Question("names with a percent sign", {"durable_name": "a%d"}),
    Question("another stream in the request", body={"stream_name": "U", "config": pull()}, at="CONSUMER.CREATE.T.C"),
    Question("no stream in the request", body={"config": pull()}, at="CONSUMER.CREATE.T.C"),
    Question("a stream that is not there", body={"stream_name": "U", "config": pull()}, at="CONSUMER.CREATE.U.C"),
    Question(
        "replicas on a stream that is not there",
        body={"stream_name": "U", "config": pull(num_replicas=3)},
        at="CONSUMER.CREATE.U.C",
    ),
    Question(
        "a bad configuration on a stream that is not there",
        body={"stream_name": "U", "config": pull(ack_wait=-1)},
        at="CONSUMER.CREATE.U.C",
    ),
    Question("the filter in the subject", pull(filter_subject="t.a"), at="CONSUMER.CREATE.T.C.t.a"),
    Question("a filter with wildcards in the subject", pull(filter_subject="t.>"), at="CONSUMER.CREATE.T.C.t.>"),
    Question("another filter in the subject", pull(filter_subject="t.a"), at="CONSUMER.CREATE.T.C.t.b"),
    Question("a filter only in the subject", pull(), at="CONSUMER.CREATE.T.C.t.b"),
    Question("filters and one in the subject", pull(filter_subjects=["t.b"]), at="CONSUMER.CREATE.T.C.t.b"),
    Question("a filter of the stream's own subject", pull(filter_subject="t.>")),
    Question("a filter outside the stream", pull(filter_subject="x.y")),
    Question("a filter that is wider than the stream", pull(filter_subject=">")),
    Question("a filter with an empty token", pull(filter_subject="t..a")),
    Question("a filter with a blank", pull(filter_subject="t. a")),
    Question("a filter that goes on after >", pull(filter_subject="t.>.a")),
    Question("one of many filters", pull(filter_subjects=["t.a"])),
    Question("two filters", pull(filter_subjects=["t.a", "t.b"])),
    Question("no filters in the list", pull(filter_subjects=[])),
    Question("an empty filter in the list", pull(filter_subjects=[""])),
    Question("an empty filter after a good one", pull(filter_subjects=["t.a", ""])),
    Question("an empty filter beside a bad one", pull(filter_subjects=["t..a", ""])),
    Question("filters that are equal", pull(filter_subjects=["t.a", "t.a"])),
    Question("filters of which one has the other", pull(filter_subjects=["t.a", "t.*"])),
    Question("filters of which one has the other, first", pull(filter_subjects=["t.>", "t.*"])),
    Question("filters that only cross", pull(filter_subjects=["t.*.b", "t.a.*"])),
    Question("a bad filter in the list", pull(filter_subjects=["t.a", "t..b"])),
    Question("a bad filter among equal ones", pull(filter_subjects=["t.a", "t.a", "t..b"])),
    Question("both kinds of filters", pull(filter_subject="t.a", filter_subjects=["t.b"])),
    Question("both kinds of filters, one empty", pull(filter_subject="", filter_subjects=["t.b"])),
    Question("a filter null", pull(filter_subject=None, filter_subjects=None)),
    Question("filters outside the stream", pull(filter_subjects=["x.y", "t.a"])),
    Question("a description", pull(description="x" * 4096)),
    Question("a description that is too long", pull(description="x" * 4097)),
    Question("a description of letters with two bytes", pull(description="ä" * 2049)),
    Question("a description with marks", pull(description='<b>&"\u2028')),
    Question("metadata", pull(metadata={"b": "1", "a": "2"})),
    Question("metadata of 128 KiB", pull(metadata={"k": "x" * (131072 - 17)})),
    Question("metadata that is too much", pull(metadata={"k": "x" * 131072})),
    Question("metadata of the server", pull(metadata={"_nats.ver": "9", "_nats.level": "9", "_nats.req.level": "9"})),
    Question("metadata that needs level 1", pull(pause_until="2126-01-01T00:00:00Z", metadata={"a": "b"})),
    Question("deliver policy undefined", pull(deliver_policy="undefined")),
    Question("opt_start_seq of zero", pull(deliver_policy="by_start_sequence", opt_start_seq=0)),
    Question("opt_start_seq of zero without its policy", pull(opt_start_seq=0)),
    Question("opt_start_seq 2^64-1", pull(deliver_policy="by_start_sequence", opt_start_seq=2**64 - 1)),
    Question("the zero start time", pull(deliver_policy="by_start_time", opt_start_time="0001-01-01T00:00:00Z")),
    Question("the zero start time without its policy", pull(opt_start_time="0001-01-01T00:00:00Z")),
    Question("a start time null", pull(opt_start_time=None)),
    Question("a start time in the future", pull(deliver_policy="by_start_time", opt_start_time="2126-01-01T00:00:00Z")),
    Question(
        "a start time with a zone", pull(deliver_policy="by_start_time", opt_start_time="2026-01-02T03:04:05+02:00")
    ),
    Question(
        "a start time with zone zero", pull(deliver_policy="by_start_time", opt_start_time="2026-01-02T03:04:05+00:00")
    ),
    Question("last per subject without a filter", pull(deliver_policy="last_per_subject")),
    Question("last per subject with filters", pull(deliver_policy="last_per_subject", filter_subjects=["t.a", "t.b"])),
    Question("last per subject with an empty list", pull(deliver_policy="last_per_subject", filter_subjects=[])),
    Question("ack wait", pull(ack_wait=NS)),
    Question("ack wait of a nanosecond", pull(ack_wait=1)),
    Question("ack wait without acks", pull(ack_policy="none", ack_wait=NS)),
    Question("ack wait below zero", pull(ack_wait=-1)),
    Question("max deliver", pull(max_deliver=5)),
    Question("max deliver zero", pull(max_deliver=0)),
    Question("max deliver below -1", pull(max_deliver=-7)),
    Question("max deliver without acks", pull(ack_policy="none", max_deliver=3)),
    Question("backoff", pull(backoff=[NS, 2 * NS])),
    Question("backoff takes the place of ack wait", pull(backoff=[NS, 2 * NS], ack_wait=5 * NS)),
    Question("backoff without acks", pull(ack_policy="none", backoff=[NS])),
    Question("backoff of zero", pull(backoff=[0, 0])),
    Question("backoff below zero", pull(backoff=[NS, -1])),
    Question("backoff below zero first", pull(backoff=[-1, NS])),
    Question("backoff empty", pull(backoff=[])),
    Question("backoff as long as max deliver", pull(backoff=[NS, NS], max_deliver=2)),
    Question("backoff longer than max deliver", pull(backoff=[NS, NS, NS], max_deliver=2)),
    Question("replay original", pull(replay_policy="original")),
    Question("rate limit of a push consumer", push(rate_limit_bps=1024)),
    Question("rate limit of a pull consumer", pull(rate_limit_bps=1024)),
    Question("sampling", pull(sample_freq="30")),
    Question("sampling with a percent sign", pull(sample_freq="30%")),
    Question("sampling of all and more", pull(sample_freq="1000%")),
    Question("sampling zero", pull(sample_freq="0")),
    Question("sampling with a plus", pull(sample_freq="+5")),
    Question("sampling below zero", pull(sample_freq="-5")),
    Question("sampling of a fraction", pull(sample_freq="5.5")),
    Question("sampling of words", pull(sample_freq="often")),
    Question("sampling of nothing but %", pull(sample_freq="%")),
    Question("sampling with a blank", pull(sample_freq=" 5")),
    Question("sampling with two signs", pull(sample_freq="5%%")),
    Question("sampling with an underscore", pull(sample_freq="1_0")),
    Question("sampling beyond 64 bits", pull(sample_freq="99999999999999999999")),
    Question("sampling with a quote", pull(sample_freq='"\n')),
    Question("sampling beyond 32 bits", pull(sample_freq="4294967296")),
    Question("max waiting", pull(max_waiting=1)),
    Question("max waiting below zero", pull(max_waiting=-1)),
    Question("max waiting of a push consumer", push(max_waiting=5)),
    Question("max waiting below zero of a push consumer", push(max_waiting=-5)),
    Question("max ack pending", pull(max_ack_pending=7)),
    Question("max ack pending -1", pull(max_ack_pending=-1)),
    Question("max ack pending below -1", pull(max_ack_pending=-9)),
    Question("max ack pending without acks", pull(ack_policy="none", max_ack_pending=7)),
    Question("max ack pending without acks, push", push(ack_policy="none", max_ack_pending=7)),
    Question("max ack pending -1 without acks, push", push(ack_policy="none", max_ack_pending=-1)),
    Question("flow control", push(flow_control=True, idle_heartbeat=NS)),
    Question("flow control without heartbeats", push(flow_control=True)),
    Question("flow control of a pull consumer", pull(flow_control=True)),
    Question("heartbeats", push(idle_heartbeat=NS)),
    Question("heartbeats below 100 ms", push(idle_heartbeat=99 * MS)),
    Question("heartbeats below zero", push(idle_heartbeat=-1)),
    Question("heartbeats of a pull consumer", pull(idle_heartbeat=NS)),
    Question("headers only", pull(headers_only=True)),
    Question("max batch", pull(max_batch=10)),
    Question("max batch below zero", pull(max_batch=-10)),
    Question("max batch of a push consumer", push(max_batch=10)),
    Question("max expires", pull(max_expires=NS)),
    Question("max expires below 1 ms", pull(max_expires=MS - 1)),
    Question("max expires below zero", pull(max_expires=-1)),
    Question("max expires of a push consumer", push(max_expires=1)),
    Question("max bytes", pull(max_bytes=1000)),
    Question("max bytes below zero", pull(max_bytes=-1)),
    Question("a deliver subject with wildcards", push(deliver_subject="d.*")),
    Question("a deliver subject with > alone", push(deliver_subject=">")),
    Question("a deliver subject with a star in a token", push(deliver_subject="d*")),
    Question("a deliver subject with an empty token", push(deliver_subject="d..x")),
    Question("a deliver subject with a blank", push(deliver_subject="d x")),
    Question("a deliver subject of the stream", push(deliver_subject="t.x")),
    Question("inactive threshold", pull(inactive_threshold=60 * NS)),
    Question("inactive threshold of an ephemeral", {"inactive_threshold": 60 * NS}),
    Question("inactive threshold below zero", pull(inactive_threshold=-1)),
    Question("inactive threshold below zero of an ephemeral", {"inactive_threshold": -1}),
    Question("one replica", pull(num_replicas=1)),
    Question("three replicas", pull(num_replicas=3)),
    Question("replicas below zero", pull(num_replicas=-1)),
    Question("replicas below zero on an interest stream", pull(num_replicas=-1), stream={"retention": "interest"}),
    Question("memory", pull(mem_storage=True)),
    Question("direct, pull", {"direct": True}),
    Question("direct, durable", push(direct=True)),
    Question("direct", {"direct": True, "deliver_subject": "d"}),
    Question("direct and sourcing", {"direct": True, "sourcing": True, "deliver_subject": "d"}),
    *(
        Question(
            f"direct and sourcing by name, {retention}{' again' if before else ''}",
            {"name": "S", "direct": True, "sourcing": True, "deliver_subject": "d", "ack_wait": NS, "max_deliver": 1},
            stream={"retention": retention},
            before=before,
        )
        for retention, before in (
            ("limits", ()),
            ("interest", ()),
            ("workqueue", ()),
            ("workqueue", ({"name": "S", "direct": True, "sourcing": True, "deliver_subject": "d"},)),
        )
    ),
    Question("sourcing, durable pull", pull(sourcing=True)),
    Question("sourcing, durable", flow(sourcing=True)),
    Question("paused", pull(pause_until="2126-01-01T00:00:00Z")),
    Question("paused with a zone", pull(pause_until="2126-01-01T00:00:00+01:00")),
    Question("paused in the past", pull(pause_until="2020-01-01T00:00:00Z")),
    Question("paused at the zero time", pull(pause_until="0001-01-01T00:00:00Z")),
    Question("paused null", pull(pause_until=None)),
    *(
        Question(f"priority policy {policy}", pull(priority_policy=policy, priority_groups=["A"]))
        for policy in ("none", "overflow", "pinned_client", "prioritized")
    ),
    *(
        Question(f"priority policy {policy} without groups", pull(priority_policy=policy))
        for policy in ("none", "overflow", "pinned_client", "prioritized")
    ),
    *(
        Question(f"priority policy {policy}, push", push(priority_policy=policy, priority_groups=["A"]))
        for policy in ("none", "overflow", "pinned_client", "prioritized")
    ),
    *(
        Question(
            f"priority timeout with {policy}", pull(priority_policy=policy, priority_groups=["A"], priority_timeout=NS)
        )
        for policy in ("overflow", "pinned_client", "prioritized")
    ),
    Question("groups without a policy", pull(priority_groups=["A"])),
    Question("no groups without a policy", pull(priority_groups=[])),
    Question("groups of a push consumer without a policy", push(priority_groups=["A"])),
    Question("priority timeout without a policy", pull(priority_timeout=NS)),
    Question("priority timeout below zero without a policy", pull(priority_timeout=-NS)),
    Question(
        "priority timeout below zero", pull(priority_policy="pinned_client", priority_groups=["A"], priority_timeout=-1)
    ),
    *(
        Question(f"group {group!r}", pull(priority_policy="overflow", priority_groups=[group]))
        for group in ("", "a b", "x" * 16, "x" * 17, "a/b_c=d-e", "a.b", "a+b", "ä", "a\n", ")")
    ),
    Question("two groups", pull(priority_policy="overflow", priority_groups=["A", "B"])),
    Question("a bad group after a good one", pull(priority_policy="overflow", priority_groups=["A", "", "b c"])),
    Question("the same group twice", pull(priority_policy="overflow", priority_groups=["A", "A"])),
    Question("flow control acks", flow()),
    Question("flow control acks with another heartbeat", flow(idle_heartbeat=5 * NS)),
    Question("flow control acks, pull", pull(ack_policy="flow_control")),
    Question("flow control acks with ack wait", flow(ack_wait=NS)),
    Question("flow control acks with backoff", flow(backoff=[NS])),
    Question("flow control acks with max deliver", flow(max_deliver=3)),
    Question("flow control acks without bounds", flow(max_ack_pending=-1)),
    Question("flow control acks, pedantic", flow(), envelope={"pedantic": True}),
    Question(
        "flow control acks, pedantic and whole", flow(flow_control=True, idle_heartbeat=NS), envelope={"pedantic": True}
    ),
    Question(
        "flow control acks, pedantic, other heartbeat",
        flow(flow_control=True, idle_heartbeat=2 * NS),
        envelope={"pedantic": True},
    ),
    *(
        Question(f"pedantic: {name} of {value}", pull(**{name: value}), envelope={"pedantic": True})
        for name, value in (
            ("max_deliver", -2),
            ("max_deliver", 0),
            ("max_waiting", -1),
            ("max_ack_pending", -2),
            ("max_batch", -1),
            ("max_expires", -1),
            ("max_bytes", -1),
            ("idle_heartbeat", -1),
            ("inactive_threshold", -1),
            ("priority_timeout", -1),
        )
    ),
    Question("pedantic and good", pull(), envelope={"pedantic": True}),
    Question("pedantic: backoff without ack wait", pull(backoff=[NS]), envelope={"pedantic": True}),
    Question("pedantic: backoff with its ack wait", pull(backoff=[NS], ack_wait=NS), envelope={"pedantic": True}),
    Question("pedantic: backoff of the default", pull(backoff=[30 * NS]), envelope={"pedantic": True}),
    # What the stream, the account and the server allow.
    *(
        Question(
            f"stream limits: {title}{', pedantic' if pedantic else ''}",
            config,
            stream={"consumer_limits": limits},
            envelope={"pedantic": pedantic},
        )
        for (title, config, limits), pedantic in itertools.product(
            (
                ("the default is the limit", pull(), {"max_ack_pending": 5, "inactive_threshold": 7 * NS}),
                (
                    "within",
                    pull(max_ack_pending=4, inactive_threshold=NS),
                    {"max_ack_pending": 5, "inactive_threshold": 7 * NS},
                ),
                ("too many pending", pull(max_ack_pending=6), {"max_ack_pending": 5}),
                ("pending without bounds", pull(max_ack_pending=-1), {"max_ack_pending": 5}),
                ("too long inactive", pull(inactive_threshold=8 * NS), {"inactive_threshold": 7 * NS}),
                ("too long inactive, odd", pull(inactive_threshold=8 * NS), {"inactive_threshold": 7 * NS + 1_500_000}),
                ("an ephemeral", {}, {"max_ack_pending": 5, "inactive_threshold": 7 * NS}),
                ("an ephemeral under a short threshold", {}, {"inactive_threshold": NS}),
                ("push without acks", push(ack_policy="none"), {"max_ack_pending": 5}),
                ("pending of none with pull", pull(ack_policy="none"), {"max_ack_pending": 5}),
                ("many", pull(), {"max_ack_pending": 5000}),
            ),
            (False, True),
        )
    ),
    *(
        Question(f"account limits: {title}", config, account=limits)
        for title, config, limits in (
            ("the default is lowered", pull(), {"max_ack_pending": 50}),
            ("within", pull(max_ack_pending=50), {"max_ack_pending": 50}),
            ("too many pending", pull(max_ack_pending=51), {"max_ack_pending": 50}),
            ("pending without bounds", pull(max_ack_pending=-1), {"max_ack_pending": 50}),
            ("acks none", pull(ack_policy="none"), {"max_ack_pending": 50}),
        )
    ),
    Question("account limits: consumers", {"name": "D"}, before=({"name": "C"},), account={"max_consumers": 1}),
    Question("account limits: the one there is", {"name": "C"}, before=({"name": "C"},), account={"max_consumers": 1}),
    Question(
        "account limits: consumers before the stream's",
        {"name": "D"},
        before=({"name": "C"},),
        stream={"max_consumers": 1},
        account={"max_consumers": 5},
    ),
    Question("stream limits: consumers", {"name": "D"}, before=({"name": "C"},), stream={"max_consumers": 1}),
    Question(
        "stream limits: a consumer that is not counted",
        {"name": "D"},
        before=({"name": "C", "direct": True, "deliver_subject": "d"},),
        stream={"max_consumers": 1},
    ),
    Question(
        "stream limits: a direct one is not refused",
        {"name": "D", "direct": True, "deliver_subject": "d"},
        before=({"name": "C"},),
        stream={"max_consumers": 1},
    ),
    *(
        Question(
            f"stream limits: {kind} beside one",
            {"name": "D", "deliver_subject": "d", kind: True},
            before=({"name": "C"},),
            stream={"max_consumers": 1},
        )
        for kind in ("direct", "sourcing")
    ),
    *(
        Question(
            f"stream limits: one beside {kind}",
            {"name": "D"},
            before=({"name": "C", "deliver_subject": "d", kind: True},),
            stream={"max_consumers": 1},
        )
        for kind in ("direct", "sourcing")
    ),
    Question(
        "stream limits: a bad one is bad first",
        {"name": "D", "ack_wait": -1},
        before=({"name": "C"},),
        stream={"max_consumers": 1},
    ),
    Question(
        "stream limits: update of one that is not there",
        {"name": "D"},
        before=({"name": "C"},),
        stream={"max_consumers": 1},
        envelope={"action": "update"},
    ),
    *(
        Question(f"server limits: {title}", config, server={"max_ack_pending": 100, "max_request_batch": 20}, **more)
        for title, config, more in (
            ("the defaults are lowered", pull(), {}),
            ("push", push(), {}),
            ("too many pending", pull(max_ack_pending=101), {}),
            ("too much of a batch", pull(max_batch=21), {}),
            ("too much of a batch and pending", pull(max_batch=21, max_ack_pending=101), {}),
            ("a batch of push", push(max_batch=21), {}),
            ("pedantic", pull(), {"envelope": {"pedantic": True}}),
            ("pedantic and whole", pull(max_batch=3), {"envelope": {"pedantic": True}}),
            ("the account's are lower", pull(), {"account": {"max_ack_pending": 10}}),
            ("the account's are passed", pull(max_ack_pending=11), {"account": {"max_ack_pending": 10}}),
            ("both are passed", pull(max_ack_pending=101), {"account": {"max_ack_pending": 10}}),
            ("the stream's default is too much", pull(), {"stream": {"consumer_limits": {"max_ack_pending": 500}}}),
        )
    ),
    *(
        Question(
            f"server limits: {title}",
            {"name": "D"},
            before=({"name": "A"}, {"name": "B"}),
            server={"default_max_consumers": 2},
            **more,
        )
        for title, more in (
            ("consumers by default", {}),
            ("consumers of the stream", {"stream": {"max_consumers": 3}}),
            ("consumers of the account", {"account": {"max_consumers": 3}}),
            ("consumers of both", {"stream": {"max_consumers": 3}, "account": {"max_consumers": 4}}),
        )
    ),
]

# Every deliver policy, ack policy and kind of stream.
CREATE += [
    Question(
        f"{kind.__name__}, {policy}, acks {acks}, {retention}",
        kind(deliver_policy=policy, ack_policy=acks, filter_subject="t.a", **STARTS.get(policy, {})),
        stream={"retention": retention},
    )
    for kind, policy, acks, retention in itertools.product(
        (pull, push), POLICIES, ACKS, ("limits", "interest", "workqueue")
    )
    if policy in ("all", "new") or acks == "explicit"
]
CREATE += [
    Question(
        f"{policy} with {', '.join(start) or 'nothing'}", pull(deliver_policy=policy, filter_subject="t.a", **start)
    )
    for policy, start in itertools.product(
        POLICIES, ({}, {"opt_start_seq": 1}, {"opt_start_time": TIME}, {"opt_start_seq": 1, "opt_start_time": TIME})
    )
]
WORKQUEUE = {"retention": "workqueue"}
CREATE += [
    Question(f"workqueue: {title}", config, stream=WORKQUEUE, before=before)
    for title, config, before in (
        ("a second one without filters", {"name": "D", "ack_policy": "explicit"}, (pull(),)),
        ("a second one with a filter", {"name": "D", "ack_policy": "explicit", "filter_subject": "t.a"}, (pull(),)),
        ("an unfiltered one after a filter", {"name": "D", "ack_policy": "explicit"}, (pull(filter_subject="t.a"),)),
        (
            "another filter",
            {"name": "D", "ack_policy": "explicit", "filter_subject": "t.b"},
            (pull(filter_subject="t.a"),),
        ),
        (
            "a wider filter",
            {"name": "D", "ack_policy": "explicit", "filter_subject": "t.>"},
            (pull(filter_subject="t.a"),),
        ),
        (
            "a crossing filter",
            {"name": "D", "ack_policy": "explicit", "filter_subject": "t.*.b"},
            (pull(filter_subject="t.a.*"),),
        ),
        (
            "filters, one of them taken",
            {"name": "D", "ack_policy": "explicit", "filter_subjects": ["t.b", "t.c"]},
            (pull(filter_subjects=["t.a", "t.c"]),),
        ),
        (
            "filters, none taken",
            {"name": "D", "ack_policy": "explicit", "filter_subjects": ["t.b", "t.d"]},
            (pull(filter_subjects=["t.a", "t.c"]),),
        ),
        ("acks none of a direct one", {"name": "D", "direct": True, "deliver_subject": "d"}, (pull(),)),
        (
            "beside a direct one",
            {"name": "E", "ack_policy": "explicit"},
            ({"name": "D", "direct": True, "deliver_subject": "d"},),
        ),
        (
            "an update that takes another's filter",
            pull(filter_subject="t.b"),
            (pull(filter_subject="t.a"), {"name": "D", "ack_policy": "explicit", "filter_subject": "t.b"}),
        ),
        (
            "an update to no filter",
            pull(),
            (pull(filter_subject="t.a"), {"name": "D", "ack_policy": "explicit", "filter_subject": "t.b"}),
        ),
        (
            "an update to filters that are free",
            pull(filter_subjects=["t.a", "t.c"]),
            (pull(filter_subject="t.a"), {"name": "D", "ack_policy": "explicit", "filter_subject": "t.b"}),
        ),
        ("an update of the ack policy", pull(ack_policy="all"), (pull(),)),
        ("an update to no acks", pull(ack_policy="none"), (pull(),)),
    )
]

# Actions, and what may change.
CREATE += [
    Question(f"action {action!r}: {title}", config, before=before, envelope={"action": action})
    for action, (title, config, before) in itertools.product(
        ("", "create", "update"),
        (
            ("new", pull(), ()),
            ("the same again", pull(), (pull(),)),
            ("the same, said in full", pull(max_ack_pending=1000, ack_wait=30 * NS, max_deliver=-1), (pull(),)),
            ("another description", pull(description="x"), (pull(),)),
            ("an ephemeral again", {"name": "E"}, ({"name": "E"},)),
            (
                "an ephemeral with its threshold again",
                {"name": "E", "inactive_threshold": NS * 9},
                ({"name": "E", "inactive_threshold": NS * 9},),
            ),
            ("an ephemeral becomes durable", {"durable_name": "E"}, ({"name": "E"},)),
            ("a durable becomes ephemeral", {"name": "C", "ack_policy": "explicit"}, (pull(),)),
            ("metadata of the server", pull(metadata={"_nats.req.level": "7", "_nats.ver": "x"}), (pull(),)),
            ("other metadata", pull(metadata={"a": "b"}), (pull(),)),
            ("an empty list", pull(priority_groups=[]), (pull(),)),
            ("another need that is nothing", pull(priority_timeout=-1), (pull(),)),
            ("a pause is not updated", pull(pause_until="2126-01-01T00:00:00Z"), (pull(),)),
            ("a pause is kept", pull(), (pull(pause_until="2126-01-01T00:00:00Z"),)),
            ("a bad one", pull(ack_wait=-1), (pull(),)),
            ("filters in another form", pull(filter_subjects=["t.a"]), (pull(filter_subject="t.a"),)),
            ("filters in another order", pull(filter_subjects=["t.b", "t.a"]), (pull(filter_subjects=["t.a", "t.b"]),)),
            (
                "the start time in another zone",
                pull(deliver_policy="by_start_time", opt_start_time="2026-01-02T05:04:05.6+02:00"),
                (pull(deliver_policy="by_start_time", opt_start_time=TIME),),
            ),
        ),
    )
]
PULL_CHANGES: dict[str, Any] = {
    "description": "x", "deliver_policy": "new", "opt_start_seq": 5, "opt_start_time": TIME, "ack_policy": "all",
    "ack_wait": NS, "max_deliver": 4, "backoff": [NS, NS], "filter_subject": "t.x", "filter_subjects": ["t.x", "t.y"],
    "replay_policy": "original", "sample_freq": "10%", "max_waiting": 3, "max_ack_pending": 9, "headers_only": True,
    "max_batch": 3, "max_expires": NS, "max_bytes": 99, "deliver_subject": "d", "deliver_group": "q",
    "inactive_threshold": NS, "num_replicas": 1, "mem_storage": True, "metadata": {"a": "b"},
    "priority_timeout": NS, "priority_groups": ["A"], "priority_policy": "overflow", "sourcing": True,
}  # fmt: skip
PUSH_CHANGES: dict[str, Any] = {
    "rate_limit_bps": 1000, "flow_control": True, "idle_heartbeat": 2 * NS, "deliver_subject": "e",
    "deliver_group": "q", "ack_policy": "none", "direct": True, "max_ack_pending": -1, "headers_only": True,
}  # fmt: skip
CREATE += [
    Question(f"update of a pull consumer: {name}", pull(**{name: value}), before=(pull(),))
    for name, value in PULL_CHANGES.items()
]
CREATE += [
    Question(f"update of a pull consumer back from {name}", pull(), before=(pull(**{name: value}),))
    for name, value in PULL_CHANGES.items()
    if not name.startswith(("priority", "opt_start")) and name != "sourcing"
]
CREATE += [
    Question(
        f"update of a push consumer: {name}",
        push(idle_heartbeat=NS, **{name: value}),
        before=(push(idle_heartbeat=NS),),
    )
    for name, value in PUSH_CHANGES.items()
    if name != "idle_heartbeat"
]
CREATE += [
    Question("update of a push consumer: idle_heartbeat", push(idle_heartbeat=NS), before=(push(),)),
    Question("update of a push consumer: pull", pull(), before=(push(),)),
    Question("update of the deliver subject that is heard", push(deliver_subject="e"), before=(push(),), bound=("d",)),
    Question(
        "update of the deliver subject, the new one heard", push(deliver_subject="e"), before=(push(),), bound=("e",)
    ),
    Question(
        "update of the deliver subject heard by a wildcard", push(deliver_subject="e"), before=(push(),), bound=("*",)
    ),
    Question("update of the deliver subject into the stream", push(deliver_subject="t.e"), before=(push(),)),
    Question("update to priorities", pull(priority_policy="overflow", priority_groups=["A"]), before=(pull(),)),
    Question("update from priorities", pull(), before=(pull(priority_policy="overflow", priority_groups=["A"]),)),
    Question(
        "update of the priority policy",
        pull(priority_policy="pinned_client", priority_groups=["B"]),
        before=(pull(priority_policy="overflow", priority_groups=["A"]),),
    ),
    Question(
        "update of the start",
        pull(deliver_policy="by_start_sequence", opt_start_seq=6),
        before=(pull(deliver_policy="by_start_sequence", opt_start_seq=5),),
    ),
    Question(
        "update of the start time",
        pull(deliver_policy="by_start_time", opt_start_time="2026-02-02T03:04:05Z"),
        before=(pull(deliver_policy="by_start_time", opt_start_time=TIME),),
    ),
    Question(
        "update of backoff beyond max deliver", pull(max_deliver=1, backoff=[NS, NS]), before=(pull(max_deliver=1),)
    ),
    Question(
        "update of max deliver below backoff", pull(max_deliver=1, backoff=[NS, NS]), before=(pull(backoff=[NS, NS]),)
    ),
    Question(
        "update at the legacy endpoint", pull(description="x"), before=(pull(),), at="CONSUMER.DURABLE.CREATE.T.C"
    ),
    Question(
        "update at the ephemeral endpoint",
        {"name": "E", "description": "x"},
        before=({"name": "E"},),
        at="CONSUMER.CREATE.T",
    ),
    Question(
        "update that forgets an ephemeral's threshold", {"name": "E"}, before=({"name": "E", "inactive_threshold": NS},)
    ),
    Question(
        "update of an interest stream's replicas",
        pull(num_replicas=1),
        before=(pull(),),
        stream={"retention": "interest"},
    ),
]

# JSON that is not what it should be. {} stands for the fields of the configuration.
FIELDS = {
    "string": ("durable_name", "description", "filter_subject", "sample_freq", "deliver_subject", "deliver_group"),
    "number": ("opt_start_seq", "ack_wait", "max_deliver", "rate_limit_bps", "max_waiting", "max_ack_pending",
               "max_batch", "max_expires", "max_bytes", "idle_heartbeat", "inactive_threshold", "num_replicas",
               "priority_timeout"),
    "list": ("backoff", "filter_subjects", "priority_groups"),
    "bool": ("flow_control", "headers_only", "mem_storage", "direct", "sourcing"),
    "time": ("opt_start_time", "pause_until"),
    "enum": ("deliver_policy", "ack_policy", "replay_policy", "priority_policy"),
    "map": ("metadata",),
}  # fmt: skip
OTHER_KINDS = {
    "string": ("5", "true", "[]", "{}", "null"),
    "number": ('"5"', "true", "1.5", "1e3", "99999999999999999999", "[]", "null"),
    "list": ('"x"', "5", "{}", "[5]", '["x"]', "[null]", "[1.5]", "[true]", "null"),
    "bool": ('"true"', "1", "null"),
    "time": (
        '"yesterday"',
        '""',
        "5",
        "{}",
        "true",
        '"2026-01-02"',
        '"2026-01-02T03:04:05"',
        "null",
        '"2026-13-02T03:04:05Z"',
    ),
    "enum": ('"x"', '""', "1", "null", '"ALL"', "true", "{}", "[1]", '"<é>"'),
    "map": ('"x"', "[]", '{"a":1}', '{"a":null}', "null"),
}
BODIES: list[tuple[str, str]] = [
    (f"{name} as {value}", f'{{"stream_name": "T", "config": {{"name": "N", "{name}": {value}}}}}')
    for kind, names in FIELDS.items()
    for name in names
    for value in OTHER_KINDS[kind]
    if not (name == "durable_name" and value == "null")
]
BODIES += [
    ("nothing", ""),
    ("blanks", "  "),
    ("an empty object", "{}"),
    ("null", "null"),
    ("a list", "[]"),
    ("text", '"x"'),
    ("no configuration", '{"stream_name": "T"}'),
    ("the configuration null", '{"stream_name": "T", "config": null}'),
    ("the configuration a list", '{"stream_name": "T", "config": []}'),
    ("the configuration text", '{"stream_name": "T", "config": "x"}'),
    ("an unknown field", '{"stream_name": "T", "config": {}, "foo": 1}'),
    ("an unknown field of the configuration", '{"stream_name": "T", "config": {"foo": 1}}'),
    ("two unknown fields", '{"foo": 1, "stream_name": "T", "config": {"bar": 1}}'),
    ("names in other cases", '{"Stream_Name": "T", "CONFIG": {"Name": "N", "Ack_Policy": "explicit"}}'),
    ("a repeated field", '{"stream_name": "T", "config": {"name": "N", "max_batch": 1, "max_batch": 2}}'),
    ("pedantic text", '{"stream_name": "T", "config": {"name": "N"}, "pedantic": "yes"}'),
    ("pedantic null", '{"stream_name": "T", "config": {"name": "N"}, "pedantic": null}'),
    ("an unknown action", '{"stream_name": "T", "config": {"name": "N"}, "action": "delete"}'),
    ("an action in capitals", '{"stream_name": "T", "config": {"name": "N"}, "action": "CREATE"}'),
    ("an action that is a number", '{"stream_name": "T", "config": {"name": "N"}, "action": 1}'),
    ("an action null", '{"stream_name": "T", "config": {"name": "N"}, "action": null}'),
    ("a stream that is a number", '{"stream_name": 5, "config": {"name": "N"}}'),
    ("two objects", '{"stream_name": "T"} {"config": {"name": "N"}}'),
    ("a half object", '{"stream_name": "T", "config": {"name": "N"'),
    ("a comma too many", '{"stream_name": "T", "config": {"name": "N",}}'),
    ("a config where a request should be", '{"name": "N", "ack_policy": "explicit"}'),
    ("two faults: the first is told", '{"stream_name": "T", "config": {"name": "N", "ack_wait": "x", "backoff": 5}}'),
    ("a fault and an unknown field", '{"stream_name": "T", "config": {"name": "N", "ack_wait": "x", "foo": 5}}'),
    (
        "an enum's fault after another",
        '{"stream_name": "T", "config": {"name": "N", "ack_wait": "x", "ack_policy": "x"}}',
    ),
    (
        "an enum's fault before another",
        '{"stream_name": "T", "config": {"name": "N", "ack_policy": "x", "ack_wait": "x"}}',
    ),
]
CREATE += [Question(f"JSON: {title}", at="CONSUMER.CREATE.T.N", body=body) for title, body in BODIES]

VALUES: dict[str, list[Any]] = {
    "name": ["C", "D", "a.b", "", " ", "é"],
    "description": ["x", "x" * 4097],
    "deliver_policy": list(POLICIES),
    "opt_start_seq": [0, 1, 2**64 - 1],
    "opt_start_time": [
        TIME,
        "0001-01-01T00:00:00Z",
        "2026-01-01T00:00:00-03:30",
        "9999-12-31T23:59:59.999999999Z",
        "1970-01-01T00:00:00Z",
        None,
    ],
    "ack_policy": list(ACKS),
    "ack_wait": [NS, -1, 0],
    "max_deliver": [-2, -1, 0, 1, 2, 5],
    "backoff": [[NS], [NS, 2 * NS], [-1], [0], [30 * NS]],
    "filter_subject": ["t.a", "t..", "t.*", ">", "x", "t.>.a", "*.t"],
    "filter_subjects": [
        ["t.a", "t.b"],
        [""],
        ["t.*", "t.a"],
        ["t..a"],
        ["t.a", "t..b", "t.a"],
        ["*.a", "t.*"],
        ["x y"],
        ["t.>.a", "t.b"],
        ["t.b", "t.>.a"],
        [">", "t"],
    ],
    "replay_policy": ["instant", "original"],
    "rate_limit_bps": [0, 1000],
    "sample_freq": ["10%", "x", "", "100", "%", "-1", "1e1"],
    "max_waiting": [-1, 3],
    "max_ack_pending": [-2, -1, 5, 5000],
    "flow_control": [True],
    "headers_only": [True],
    "max_batch": [-1, 5],
    "max_expires": [-1, 5, NS],
    "max_bytes": [-1, 5],
    "deliver_subject": ["d", "d", "d", "d.*", "t.d", "d..e", "", " ", "$JS.API.x", "a.>b"],
    "deliver_group": ["q"],
    "idle_heartbeat": [-1, 5, NS],
    "inactive_threshold": [-1, NS, 100 * NS],
    "num_replicas": [-1, 0, 1, 3],
    "mem_storage": [True],
    "direct": [True],
    "metadata": [{"a": "b"}, {"a": "x" * 131072}, {"_nats.req.level": "9"}, {}],
    "pause_until": [
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00Z",
        "2020-01-01T00:00:00+05:45",
        "1066-10-14T09:00:00Z",
    ],
    "priority_groups": [["A"], ["A", "B"], [""], ["a b"], ["A" * 17]],
    "priority_policy": ["overflow", "pinned_client", "prioritized"],
    "priority_timeout": [-1, NS],
}
STREAMS: list[Config] = [
    {},
    {},
    {"retention": "interest"},
    {"retention": "workqueue"},
    {"consumer_limits": {"max_ack_pending": 50, "inactive_threshold": 10 * NS}},
]


def chance(seed: int, creates: int, updates: int) -> list[Question]:
    """Configurations that chance puts together."""
    rng = random.Random(seed)

    def some(low: int, high: int) -> Config:
        names = rng.sample(sorted(VALUES), rng.randint(low, high))
        return {name: rng.choice(VALUES[name]) for name in sorted(names)}

    found = []
    for index in range(creates):
        config = {"durable_name": "C"} if rng.random() < 0.7 else {}
        found.append(
            Question(
                f"chance {index}",
                config | some(2, 7),
                at=rng.choice(["CONSUMER.CREATE.T.C", "CONSUMER.CREATE.T", "CONSUMER.DURABLE.CREATE.T.C"]),
                stream=rng.choice(STREAMS),
                envelope={"pedantic": True} if rng.random() < 0.2 else {},
            )
        )
    for index in range(updates):
        first = rng.choice((pull, push, flow, ordered))(name="C")
        found.append(
            Question(
                f"chance {index}, an update",
                first | some(1, 3),
                at="CONSUMER.CREATE.T.C",
                before=(first,),
                envelope={"action": rng.choice(("", "", "create", "update"))},
            )
        )
    return found


CREATE += chance(5, 400, 250)
