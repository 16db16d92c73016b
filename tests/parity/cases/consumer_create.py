"""CONSUMER.CREATE in all its forms: a consumer of each kind, one request for each error; again, updates, limits.

The questions stand in tables/consumer_questions.py; tests/consumer asks all of them without a server. Here are
one for each error and its text, and the good ones whose whole answer is worth comparing.
"""

from __future__ import annotations

from typing import Any

from parity.catalog import add, case
from parity.consumer_steps import FIVE, MS, NS, consume, fill, info, streamed
from parity.questions import CONSUMERS, ConsumerQuestion
from parity.script import Script
from support.servers import BASE

GROUP = "consumer_create"
REFUSED = (
    "name and durable differ, at the name",
    "a durable at the ephemeral endpoint",
    "a bad name at the ephemeral endpoint",
    "a name with a slash at the ephemeral endpoint",
    "the durable endpoint without a durable",
    "a durable of 256 bytes",
    "another stream in the request",
    "a stream that is not there",
    "replicas on a stream that is not there",
    "another filter in the subject",
    "filters and one in the subject",
    "a filter with an empty token",
    "an empty filter in the list",
    "filters that are equal",
    "both kinds of filters",
    "a description that is too long",
    "metadata that is too much",
    "opt_start_seq of zero",
    "the zero start time without its policy",
    "last per subject without a filter",
    "ack wait below zero",
    "backoff below zero",
    "backoff longer than max deliver",
    "rate limit of a pull consumer",
    "sampling below zero",
    "sampling of a fraction",
    "max waiting of a push consumer",
    "max ack pending without acks, push",
    "flow control without heartbeats",
    "flow control of a pull consumer",
    "heartbeats below 100 ms",
    "heartbeats of a pull consumer",
    "max expires below 1 ms",
    "a deliver subject with wildcards",
    "a deliver subject with an empty token",
    "a deliver subject of the stream",
    "replicas below zero",
    "direct, pull",
    "direct, durable",
    "priority policy none",
    "priority policy overflow without groups",
    "priority policy overflow, push",
    "priority timeout without a policy",
    "group ''",
    "group 'a b'",
    "flow control acks, pull",
    "flow control acks with ack wait",
    "flow control acks with max deliver",
    "flow control acks without bounds",
    "flow control acks, pedantic",
    "flow control acks, pedantic, other heartbeat",
    "pedantic: max_deliver of -2",
    "pedantic: max_waiting of -1",
    "pedantic: max_ack_pending of -2",
    "pedantic: max_batch of -1",
    "pedantic: max_expires of -1",
    "pedantic: max_bytes of -1",
    "pedantic: idle_heartbeat of -1",
    "pedantic: inactive_threshold of -1",
    "pedantic: priority_timeout of -1",
    "pedantic: backoff without ack wait",
    "stream limits: the default is the limit, pedantic",
    "stream limits: too many pending",
    "stream limits: too long inactive",
    "stream limits: too long inactive, odd",
    "stream limits: an ephemeral under a short threshold, pedantic",
    "stream limits: consumers",
    "stream limits: update of one that is not there",
    "pull, all, acks none, workqueue",
    "pull, all, acks all, workqueue",
    "pull, last, acks explicit, workqueue",
    "last with opt_start_seq",
    "new with opt_start_seq",
    "workqueue: a second one without filters",
    "workqueue: a second one with a filter",
    "workqueue: an update of the ack policy",
    "action 'create': another description",
    "update of a pull consumer: deliver_policy",
    "update of a pull consumer: replay_policy",
    "update of a pull consumer: max_waiting",
    "update of a pull consumer: deliver_subject",
    "update of a pull consumer: mem_storage",
    "update of a pull consumer: sourcing",
    "update of a pull consumer back from deliver_subject",
    "update of a push consumer: flow_control",
    "update of a push consumer: idle_heartbeat",
    "update of the deliver subject that is heard",
    "update of the start",
    "update of the start time",
    "JSON: durable_name as 5",
    'JSON: opt_start_time as "yesterday"',
    'JSON: deliver_policy as "x"',
    "JSON: deliver_policy as null",
    'JSON: priority_policy as "x"',
    "JSON: an unknown field",
    "JSON: an unknown action",
    "JSON: a half object",
    "JSON: a comma too many",
)
TAKEN = (
    "an empty configuration",
    "a durable and nothing else",
    "a name and nothing else",
    "a pull consumer",
    "a push consumer",
    "an ordered consumer",
    "a push consumer without a name",
    "a queue group",
    "name and durable differ",
    "the subject names another one",
    "the subject names what the request does not",
    "a name at the ephemeral endpoint",
    "the durable endpoint",
    "the durable endpoint with another name",
    "a durable of 255 bytes",
    "a name of 256 bytes",
    "a name that is not ASCII",
    "the filter in the subject",
    "a filter with wildcards in the subject",
    "a filter outside the stream",
    "two filters",
    "one of many filters",
    "metadata",
    "metadata of the server",
    "metadata that needs level 1",
    "the zero start time",
    "a start time in the future",
    "backoff takes the place of ack wait",
    "sampling with a percent sign",
    "max waiting below zero",
    "max ack pending -1",
    "flow control",
    "headers only",
    "max bytes",
    "inactive threshold of an ephemeral",
    "memory",
    "direct",
    "direct and sourcing by name, workqueue",
    "paused",
    "paused in the past",
    "priority policy overflow",
    "priority policy pinned_client",
    "priority policy prioritized",
    "two groups",
    "flow control acks",
    "pedantic and good",
    "stream limits: within",
    "stream limits: an ephemeral",
    "pull, all, acks all, interest",
    "push, last_per_subject, acks explicit, limits",
    "push, all, acks flow_control, workqueue",
    "workqueue: another filter",
    "workqueue: an update to filters that are free",
    "action '': the same again",
    "action '': another description",
    "action '': an ephemeral becomes durable",
    "action '': a pause is not updated",
    "action 'create': the same again",
    "action 'update': another description",
    "action 'update': filters in another order",
    "update of a pull consumer: backoff",
    "update of a pull consumer: filter_subjects",
    "update of a pull consumer back from ack_wait",
    "update of a push consumer: rate_limit_bps",
    "update of the deliver subject, the new one heard",
    "update to priorities",
    "update of the priority policy",
    "update at the legacy endpoint",
    "update at the ephemeral endpoint",
    "JSON: no configuration",
    "JSON: the configuration null",
    "JSON: two objects",
    "JSON: names in other cases",
)


def asking(question: ConsumerQuestion) -> object:
    def run(s: Script) -> None:
        c = streamed(s, () if question.bound else FIVE, **question.stream)
        for config in question.before:
            consume(c, **{"durable_name": "", "ack_policy": "none"} | config)
        for n, subject in enumerate(question.bound):
            c.sub(subject, f"bound{n}")
        c.flush()
        answer = c.api(question.subject, question.request)
        if "error" not in answer:
            info(c, answer["name"])
        c.api("CONSUMER.NAMES.T")

    return run


for title in (*REFUSED, *TAKEN):
    add(GROUP, title, asking(CONSUMERS[title]))
LIMITS = {
    "account limits: too many pending": "jetstream: {max_ack_pending: 50}",
    "account limits: the default is lowered": "jetstream: {max_ack_pending: 50}",
    "account limits: pending without bounds": "jetstream: {max_ack_pending: 50}",
    "account limits: consumers": "jetstream: {max_consumers: 1}",
    "account limits: the one there is": "jetstream: {max_consumers: 1}",
}
for title, limits in LIMITS.items():
    add(GROUP, title, asking(CONSUMERS[title]), account=limits)
SERVER = BASE + 'jetstream { store_dir: "$DIR", limits: {max_ack_pending: 100, max_request_batch: 20} }\n'


@case(GROUP, "server limits", config=SERVER)
def server_limits(s: Script) -> None:
    c = streamed(s)
    titles = [title for title, question in CONSUMERS.items() if question.server.get("max_request_batch")]
    for n, title in enumerate(title for title in titles if not CONSUMERS[title].account):
        config: dict[str, Any] = dict(CONSUMERS[title].config or {})
        config["durable_name"] = f"C{n}"
        body = {"stream_name": "T", "config": config, **CONSUMERS[title].envelope}
        c.api(f"CONSUMER.CREATE.T.C{n}", body)
    c.api("STREAM.DELETE.T", is_kept=False)


@case(GROUP, "a thousand consumers and no more", config=BASE + 'jetstream { store_dir: "$DIR" }\n')
def thousand(s: Script) -> None:
    c = streamed(s, storage="memory")
    request = {"stream_name": "T", "config": {"ack_policy": "none", "mem_storage": True, "inactive_threshold": 60 * NS}}
    for n in range(999):
        c.pub(f"$JS.API.CONSUMER.CREATE.T.c{n:04d}", request | {"config": request["config"] | {"name": f"c{n:04d}"}})
    c.until("STREAM.INFO.T", "", lambda a: a["state"]["consumer_count"] == 999)
    consume(c, durable_name="C", is_kept=True)
    consume(c, durable_name="D", is_kept=True)
    c.api("CONSUMER.DELETE.T.C")
    consume(c, durable_name="D", is_kept=True)
    c.api("STREAM.DELETE.T", is_kept=False)


@case(GROUP, "the API's subjects in forms that are odd")
def odd_subjects(s: Script) -> None:
    c = streamed(s)
    c.sub("_INBOX.odd", "odd")
    config = {"durable_name": "C", "ack_policy": "explicit"}
    for subject in (
        "CREATE",
        "CREATE.",
        "CREATE.T.",
        "CREATE..C",
        "DURABLE.CREATE.T",
        "DURABLE.CREATE.T.C.x",
        "CREATE.*",
    ):
        c.pub(f"$JS.API.CONSUMER.{subject}", {"stream_name": "T", "config": config}, "_INBOX.odd")
    c.api("CONSUMER.CREATE.T.LAST", {"stream_name": "T", "config": {"durable_name": "LAST"}})
    c.api("CONSUMER.NAMES.T")


@case(GROUP, "wildcards for a stream and a consumer")
def wild_subjects(s: Script) -> None:
    c = streamed(s)
    for subject in ("CREATE.*.C", "CREATE.T.*", "CREATE.T.>", "DURABLE.CREATE.T.*"):
        c.request(f"$JS.API.CONSUMER.{subject}", {"stream_name": "T", "config": {"durable_name": "C"}})


@case(GROUP, "without a reply the consumer is made nevertheless")
def no_reply(s: Script) -> None:
    c = streamed(s)
    c.pub("$JS.API.CONSUMER.CREATE.T.C", {"stream_name": "T", "config": {"durable_name": "C"}})
    c.until("CONSUMER.INFO.T.C", "", lambda answer: "error" not in answer)


@case(GROUP, "a request with headers, and with a level")
def with_headers(s: Script) -> None:
    c = streamed(s)
    request = {"stream_name": "T", "config": {"durable_name": "C"}}
    c.request("$JS.API.CONSUMER.CREATE.T.C", request, ["A: 1"])
    for level in ("0", "5", "6", "x"):
        c.request("$JS.API.CONSUMER.CREATE.T.D", request, [f"Nats-Required-Api-Level: {level}"])
        c.request("$JS.API.CONSUMER.DURABLE.CREATE.T.D", request, [f"Nats-Required-Api-Level: {level}"])


@case(GROUP, "a stream's identity, for those who source it")
def identity(s: Script) -> None:
    c = streamed(s)
    request = {"stream_name": "T", "config": {"direct": True, "deliver_subject": "d", "name": "S"}}
    answer = c.request("$JS.API.CONSUMER.CREATE.T.S", request, ["Nats-Stream-Identity: wrong"])
    assert answer is not None
    found = answer.payload.split(b"does not match: ")[-1].split(b'"')[0].decode()
    c.request("$JS.API.CONSUMER.CREATE.T.S", request, [f"Nats-Stream-Identity: {found}"])
    consume(c)
    plain = {"stream_name": "T", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    c.request("$JS.API.CONSUMER.CREATE.T.C", plain, ["Nats-Stream-Identity: wrong"])
    c.request("$JS.API.CONSUMER.RESET.T.C", "", ["Nats-Stream-Identity: wrong"])


@case(GROUP, "an account without JetStream", account="jetstream: disabled")
def no_jetstream(s: Script) -> None:
    c = s.connect()
    create = {"stream_name": "T", "config": {"durable_name": "C"}}
    for endpoint in ("CREATE.T.C", "DURABLE.CREATE.T.C", "CREATE.T"):
        c.request(f"$JS.API.CONSUMER.{endpoint}", create)
    for endpoint in ("NAMES.T", "LIST.T", "INFO.T.C", "DELETE.T.C", "PAUSE.T.C", "LEADER.STEPDOWN.T.C"):
        c.request(f"$JS.API.CONSUMER.{endpoint}")
    c.request("$JS.API.CONSUMER.UNPIN.T.C", {"group": "g"})


@case(GROUP, "created again after it was deleted")
def deleted(s: Script) -> None:
    c = streamed(s)
    consume(c, is_kept=True)
    c.api("CONSUMER.DELETE.T.C")
    consume(c, is_kept=True, deliver_policy="new", ack_policy="none")


@case(GROUP, "names of two streams are their own")
def two_streams(s: Script) -> None:
    c = streamed(s)
    c.api("STREAM.CREATE.U", {"name": "U", "subjects": ["u"]}, is_kept=False)
    consume(c)
    c.api("CONSUMER.INFO.U.C")
    c.api("CONSUMER.CREATE.U.C", {"stream_name": "U", "config": {"durable_name": "C"}})
    c.api("CONSUMER.DELETE.T.C")
    c.api("CONSUMER.INFO.U.C")
    c.api("CONSUMER.INFO.T.C")


@case(GROUP, "every field at once, pull")
def every_field(s: Script) -> None:
    c = streamed(s)
    consume(
        c,
        is_kept=True,
        description="d <&>",
        deliver_policy="by_start_sequence",
        opt_start_seq=2,
        ack_wait=60 * NS,
        max_deliver=9,
        backoff=[NS, 2 * NS],
        filter_subjects=["t.b", "t.a"],
        replay_policy="original",
        sample_freq="50%",
        max_waiting=7,
        max_ack_pending=5,
        headers_only=True,
        max_batch=10,
        max_expires=10 * NS,
        max_bytes=1000,
        inactive_threshold=3600 * NS,
        num_replicas=1,
        mem_storage=True,
        metadata={"z": "1", "a": "2"},
        pause_until="2100-01-02T03:04:05Z",
        priority_groups=["g"],
        priority_policy="pinned_client",
        priority_timeout=30 * NS,
    )
    info(c)


@case(GROUP, "every field at once, push")
def every_push_field(s: Script) -> None:
    c = streamed(s)
    consume(
        c,
        is_kept=True,
        deliver_policy="by_start_time",
        opt_start_time="2020-01-01T00:00:00.5Z",
        deliver_subject="d",
        deliver_group="q",
        filter_subject="t.*",
        rate_limit_bps=1_000_000,
        flow_control=True,
        idle_heartbeat=500 * MS,
    )
    info(c)


@case(GROUP, "num_pending of each kind")
def num_pending(s: Script) -> None:
    c = streamed(s)
    configs: list[dict[str, Any]] = [
        {},
        {"filter_subject": "t.a"},
        {"filter_subjects": ["t.a", "t.c"]},
        {"filter_subject": "t.none"},
        {"deliver_policy": "last"},
        {"deliver_policy": "last", "filter_subject": "t.a"},
        {"deliver_policy": "new"},
        {"deliver_policy": "last_per_subject", "filter_subject": "t.*"},
        {"deliver_policy": "last_per_subject", "filter_subjects": ["t.a", "t.b"]},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 3},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 3, "filter_subject": "t.b"},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 9},
        {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
        {"deliver_policy": "by_start_time", "opt_start_time": "2100-01-01T00:00:00Z"},
    ]
    for n, config in enumerate(configs):
        consume(c, is_kept=True, durable_name=f"C{n}", **config)
    fill(c, ("t.a", "t.b"))
    for n, _ in enumerate(configs):
        info(c, f"C{n}")
