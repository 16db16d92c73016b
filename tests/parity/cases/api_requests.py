"""What holds for every request to the API: required level, unknown endpoints, clusters, JetStream that is off."""

from __future__ import annotations

from parity.catalog import add, case
from parity.questions import stream
from parity.script import Script
from support.servers import BASE, JETSTREAM

GROUP = "api_requests"
ENDPOINTS = [
    "INFO",
    "STREAM.CREATE.T",
    "STREAM.UPDATE.T",
    "STREAM.NAMES",
    "STREAM.LIST",
    "STREAM.INFO.T",
    "STREAM.DELETE.T",
    "STREAM.PURGE.T",
    "STREAM.MSG.GET.T",
    "STREAM.MSG.DELETE.T",
    "DIRECT.GET.T",
    "DIRECT.GET.T.t.a",
]


def required_level(endpoint: str) -> object:
    def run(s: Script) -> None:
        c = s.connect()
        c.api("STREAM.CREATE.T", stream(allow_direct=True), is_kept=False)
        c.request("t.a", "x", is_kept=False)
        for level in ("6", "x", "-1", "", "99999999999999999999", "6 "):
            c.request(f"$JS.API.{endpoint}", "", [f"Nats-Required-Api-Level: {level}"])
        for level in ("5", "0", " 5"):
            c.request(f"$JS.API.{endpoint}", "", [f"Nats-Required-Api-Level: {level}"])

    return run


for endpoint in ENDPOINTS:
    add(GROUP, f"a required level: {endpoint}", required_level(endpoint))


@case(GROUP, "a required level in other letters")
def level_case(s: Script) -> None:
    c = s.connect()
    c.request("$JS.API.STREAM.NAMES", "", ["nats-required-api-level: 9"])
    c.request("$JS.API.STREAM.NAMES", "", ["A: 1", "Nats-Required-Api-Level: 9"])


def off_for_account(endpoint: str) -> object:
    def run(s: Script) -> None:
        c = s.connect()
        c.request(f"$JS.API.{endpoint}", {"name": "T"} if "CREATE" in endpoint else "")

    return run


for endpoint in ENDPOINTS:
    add(
        GROUP,
        f"JetStream is off for the account: {endpoint}",
        off_for_account(endpoint),
        account="default_permissions: {}",
    )
    add(GROUP, f"JetStream is off: {endpoint}", off_for_account(endpoint), config=BASE)


UNKNOWN = [
    "NOSUCH",
    "STREAM",
    "STREAM.NOSUCH.T",
    "STREAM.INFO.T.T",
    "INFO.X",
    "STREAM.NAMES.X",
    "STREAM.MSG.GET",
    "",
    "A.B.C.D.E",
]


@case(GROUP, "subjects that are no endpoint are met with silence")
def unknown(s: Script) -> None:
    c = s.connect()
    c.sub("_INBOX.odd", "odd")
    for subject in UNKNOWN:
        c.pub(f"$JS.API.{subject}", "", "_INBOX.odd")
    c.api("INFO")
    c.api("STREAM.NAMES")


@case(GROUP, "endpoints of the system account are met with silence")
def system(s: Script) -> None:
    c = s.connect()
    c.sub("_INBOX.odd", "odd")
    for subject in (
        "META.LEADER.STEPDOWN",
        "SERVER.REMOVE",
        "SERVER.EVACUATE",
        "ACCOUNT.PURGE.A",
        "META.RESCUE",
        "ACCOUNT.STREAM.MOVE.A.T",
        "ACCOUNT.STREAM.CANCEL_MOVE.A.T",
    ):
        c.pub(f"$JS.API.{subject}", "", "_INBOX.odd")
    c.api("INFO")
    c.api("STREAM.NAMES")


@case(GROUP, "endpoints that need a cluster")
def cluster(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.T", stream(), is_kept=False)
    for name in ("T", "NONE"):
        for verb in ("LEADER.STEPDOWN", "PEER.REMOVE", "PEER.EVACUATE", "CANCEL_MOVE"):
            for request in ("", "{}", '{"peer":"x"}', "x"):
                c.api(f"STREAM.{verb}.{name}", request)


@case(
    GROUP,
    "a server without strictness ignores what it does not know",
    config=BASE + 'jetstream { store_dir: "$DIR", strict: false }\n',
)
def not_strict(s: Script) -> None:
    c = s.connect()
    c.api("STREAM.CREATE.NS", {"name": "NS", "foo": 1})
    c.api("STREAM.INFO.NS", {"foo": 1})
    c.api("STREAM.UPDATE.NS", {"name": "NS", "max_msgs": 5, "foo": {"a": [1]}})
    c.api("STREAM.NAMES", {"foo": 1})
    c.api("STREAM.LIST", {"foo": 1})
    c.api("STREAM.PURGE.NS", {"foo": 1})
    c.api("STREAM.MSG.GET.NS", {"seq": 1, "foo": 1})
    c.api("STREAM.MSG.DELETE.NS", {"seq": 1, "foo": 1})
    c.api("STREAM.CREATE.NB", {"name": "NB", "max_msgs": "x"})
    c.api("STREAM.CREATE.NB", {"name": "NB", "retention": "x"})
    c.api("STREAM.DELETE.NS", {"foo": 1})
    c.api("STREAM.DELETE.NS")


DOMAIN = BASE + 'jetstream { store_dir: "$DIR", domain: hub }\n'


@case(GROUP, "a domain", config=DOMAIN, is_alone=True)
def domain(s: Script) -> None:
    c = s.connect()
    c.request("$JS.hub.API.INFO")
    c.request(
        "$JS.hub.API.STREAM.CREATE.DOM", {"name": "DOM", "subjects": ["dom.>", "$KV.dom.>"], "allow_direct": True}
    )
    c.request("dom.a", "x")
    c.request("$JS.hub.API.STREAM.INFO.DOM")
    c.request("$JS.API.STREAM.INFO.DOM")
    c.request("$JS.hub.API.DIRECT.GET.DOM.dom.a")
    c.request("$JS.hub.API.$KV.dom.k", "v")
    c.request("$JS.other.API.INFO")
    c.request("$JS.hub.API.STREAM.NAMES")
    c.request("$JS.hub.API.STREAM.LIST")
    c.request("dom.a", "x", ["Nats-Expected-Last-Sequence: 99"])
    c.request("dom.a", "x", ["Nats-Msg-Id: 1"])
    c.request("dom.a", "x", ["Nats-Msg-Id: 1"])
    c.request("$JS.hub.API.STREAM.DELETE.DOM")


@case(GROUP, "requests are counted", is_alone=True, config=BASE + JETSTREAM)
def counted(s: Script) -> None:
    c = s.connect()
    c.api("INFO")
    c.api("STREAM.CREATE.T", stream(allow_direct=True))
    c.api("STREAM.INFO.NONE")
    c.request("t.a", "x")
    c.request("$JS.API.DIRECT.GET.T.t.a")
    c.api("STREAM.MSG.GET.T", {"seq": 1})
    c.api("STREAM.MSG.GET.T", {"seq": 9})
    c.api("STREAM.NAMES", "{")
    c.pub("$JS.API.NOSUCH")
    c.api("INFO")
    c.api("INFO", "x")
    c.api("INFO", "{}")
    c.api("INFO")
