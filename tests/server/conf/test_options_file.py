"""A configuration file becomes Options; what the server cannot obey it names, or refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.server.conf.conf import ConfError
from penstock.server.conf.options_file import BadConf, load_options
from penstock.server.conf.validation import complete_options
from penstock.server.options import (
    AccountLimits,
    JetStreamLimits,
    Options,
    Permissions,
    ResponsePermission,
    SubjectPermission,
    User,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def load(folder: Path, text: str) -> Options:
    (folder / "s.conf").write_text(text)
    options, warnings = load_options(str(folder / "s.conf"), {})
    assert warnings == []
    return complete_options(options)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfError) as caught:
        load(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


def test_defaults_are_the_reference_s(folder: Path) -> None:
    options = load(folder, "port: 0")
    assert (options.host, options.port, options.http_host, options.http_port) == ("0.0.0.0", 4222, "0.0.0.0", 0)
    assert (options.max_payload, options.max_control_line, options.max_pending) == (1048576, 4096, 64 * 1024 * 1024)
    assert (options.ping_interval, options.ping_max, options.write_deadline) == (120.0, 2, 10.0)
    assert (options.auth_timeout, options.lame_duck_duration, options.lame_duck_grace_period) == (2.0, 120.0, 10.0)
    assert not options.jetstream.enabled
    assert options.warnings == []


def test_monitoring_listens_where_clients_do_unless_told_otherwise(folder: Path) -> None:
    assert load(folder, "host: 127.0.0.1\nhttp_port: 8222").http_host == "127.0.0.1"
    assert load(folder, "host: 127.0.0.1\nhttp: 0.0.0.0:8222").http_host == "0.0.0.0"


def test_every_block_finds_its_options(folder: Path) -> None:
    options = load(
        folder,
        """
        listen: "127.0.0.1:-1"
        server_name: one, client_advertise: "a.example:4222"
        http: 8222
        http_base_path: /nats
        MAX_PAYLOAD: 2MB
        max_conn: 0, max_subs: 10, max_sub_tokens: 8, max_control_line: 8kb, max_pending: 16MB
        ping_interval: "20s", ping_max: 5, write_deadline: "3s", max_closed_clients: 7
        lame_duck_duration: "60s", lame_duck_grace_period: "5s"
        no_header_support: true, disable_sublist_cache: yes, no_fast_producer_stall: on
        debug: true, trace_verbose: true, logtime: false, logtime_utc: true, log_file: "x.log"
        log_size_limit: 1MB, log_max_num: 3, pid_file: "x.pid", ports_file_dir: "/tmp", max_traced_msg_len: 10
        server_tags: [a, "b:c"], server_metadata { rack: r1 }
        jetstream {
          store_dir: "/data", max_mem: 1GB, max_file: "2G", domain: hub, durability: os, sync: always, strict: no
          unique_tag: " AZ ", request_queue_limit: 5
          limits { max_ack_pending: 6, max_request_batch: 7, duplicate_window: "1m", max_ha_assets: 8
                   default_max_consumers: 9 }
        }
        websocket {
          listen: "127.0.0.1:-1", no_tls: true, same_origin: true, allowed_origins: "https://a.example"
          compression: true, handshake_timeout: "1s", user_cookie: u, pass_cookie: p, token_cookie: t
          headers { X-A: b }, advertise: "a.example:443"
        }
        """,
    )
    assert (options.host, options.port, options.server_name) == ("127.0.0.1", -1, "one")
    assert (options.http_host, options.http_port, options.http_base_path) == ("127.0.0.1", 8222, "/nats")
    assert (options.max_payload, options.max_connections, options.max_subscriptions) == (2 * 1024**2, -1, 10)
    assert (options.max_sub_tokens, options.max_control_line, options.max_pending) == (8, 8192, 16 * 1024**2)
    assert (options.ping_interval, options.ping_max, options.write_deadline) == (20.0, 5, 3.0)
    assert (options.max_closed_clients, options.lame_duck_duration, options.lame_duck_grace_period) == (7, 60.0, 5.0)
    assert options.no_header_support and options.disable_sublist_cache and options.no_fast_producer_stall
    assert options.debug and options.trace and options.trace_verbose and options.logtime_utc and not options.logtime
    assert (options.log_file, options.log_size_limit, options.log_max_num) == ("x.log", 1024**2, 3)
    assert (options.pid_file, options.ports_file_dir, options.max_traced_msg_len) == ("x.pid", "/tmp", 10)
    assert (options.server_tags, options.server_metadata) == (["a", "b:c"], {"rack": "r1"})
    js = options.jetstream
    assert (js.enabled, js.store_dir, js.max_memory, js.max_storage) == (True, "/data", 1024**3, 2 * 1024**3)
    assert (js.domain, js.durability, js.sync_always, js.strict, js.unique_tag) == ("hub", "os", True, False, "az")
    assert (js.request_queue_limit, js.max_ack_pending, js.max_request_batch) == (5, 6, 7)
    assert (js.duplicate_window, js.max_ha_assets, js.default_max_consumers) == (60.0, 8, 9)
    ws = options.websocket
    assert (ws.host, ws.port, ws.no_tls, ws.same_origin, ws.compression) == ("127.0.0.1", -1, True, True, True)
    assert (ws.allowed_origins, ws.headers, ws.handshake_timeout) == (["https://a.example"], {"X-A": "b"}, 1.0)
    assert (ws.user_cookie, ws.pass_cookie, ws.token_cookie, ws.advertise) == ("u", "p", "t", "a.example:443")


NKEY = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR"


def test_users_have_their_permissions_or_the_default_ones(folder: Path) -> None:
    options = load(
        folder,
        f"""authorization {{
          default_permissions {{ subscribe: "public.>" }}
          users: [
            {{ user: a, password: $2a$11$abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzab }}
            {{ nkey: {NKEY}, permissions {{ publish: ["x", "y"], subscribe {{ allow: "z q", deny: ["w"] }} }},
               allowed_connection_types: ["standard", WEBSOCKET ] }}
            {{ user: r, permissions {{ allow_responses {{ max: 5, expires: "1m" }} }} }}
            {{ user: s, permissions {{ publish: p, allow_responses: true }} }}
          ] }}""",
    )
    a, n, r, s = options.users
    assert a.permissions == Permissions(subscribe=SubjectPermission(["public.>"]))
    assert (n.nkey, n.username, n.connection_types) == (NKEY, "", frozenset({"STANDARD", "WEBSOCKET"}))
    assert n.permissions == Permissions(SubjectPermission(["x", "y"]), SubjectPermission(["z q"], ["w"]))
    assert r.permissions == Permissions(SubjectPermission([]), None, ResponsePermission(5, 60.0))
    assert s.permissions == Permissions(SubjectPermission(["p"]), None, ResponsePermission())


def test_accounts_have_users_limits_and_a_share_of_jetstream(folder: Path) -> None:
    options = load(
        folder,
        """accounts {
          A { users: [{user: a}], jetstream { max_mem: 1KB, max_file: 2KB, max_streams: 3, max_consumers: 4
              max_ack_pending: 5, max_bytes_required: true, mem_max_stream_bytes: 6, disk_max_stream_bytes: 7 } }
          B { users: [{user: b}], jetstream: enabled, default_permissions { publish: x }
              limits { max_connections: 1, max_subs: 2, max_payload: 3, max_leafnodes: 4 } }
          C { jetstream: disabled } }
        system_account: C""",
    )
    a, b, c = options.accounts.values()
    assert a.jetstream == JetStreamLimits(1024, 2048, 3, 4, 5, 6, 7, True)
    assert (b.jetstream, c.jetstream) == (JetStreamLimits(), None)
    assert b.limits == AccountLimits(1, 2, 3, 4)
    assert b.users == [User("b", account="B", permissions=Permissions(SubjectPermission(["x"])))]
    assert [user.username for user in options.every_user()] == ["a", "b"]
    assert options.system_account == "C"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("operator: x", "operator"),
        ("resolver: MEMORY", "resolver"),
        ("resolver_preload { A: b }", "resolver_preload"),
        ("trusted_keys: x", "trusted_keys"),
        ("authorization { auth_callout { issuer: x } }", "auth_callout"),
        ("accounts { A { imports: [] } }", "imports"),
        ("accounts { A { exports: [] } }", "exports"),
        ("accounts { A { mappings {} } }", "mappings"),
        ("mappings { a: b }", "mappings"),
        ("jetstream { key: secret }", "encryption of the store"),
        ("proxy_protocol: true", "proxy_protocol"),
        ("ocsp: true", "ocsp"),
        ("tls { ocsp_peer: true }", "ocsp_peer"),
    ],
)
def test_what_decides_who_may_do_what_is_refused_while_it_is_not_there(folder: Path, text: str, what: str) -> None:
    told = refusal(folder, f"port: 1\n{text}")
    assert told.startswith("s.conf:2:")
    assert what in told and "is not supported yet" in told


def test_features_that_are_not_there_are_named_in_one_line_and_the_server_starts(folder: Path) -> None:
    options = load(
        folder, "leafnodes { port: 1 }\ncluster { port: 2 }\ngateway { name: x }\nmqtt { port: 3 }\nprof_port: 1"
    )
    assert options.warnings == [
        "Not supported yet, the server runs without: cluster, gateway, leafnodes, mqtt",
        "Accepted without effect: prof_port",
    ]


def test_all_mistakes_of_a_file_are_told_at_once(folder: Path) -> None:
    (folder / "s.conf").write_text("foo: 1\nport: x\nping_interval: 5\ntls { bar: 1 }\n")
    with pytest.raises(BadConf) as caught:
        load_options(str(folder / "s.conf"), {})
    assert [line.replace(f"{folder}/", "") for line in str(caught.value).splitlines()] == [
        's.conf:3:1: invalid use of field "ping_interval": ping_interval should be converted to a duration',
        's.conf:1:0: unknown field "foo"',
        "s.conf:2:1: interface conversion: interface {} is string, not int64",
        's.conf:4:7: error parsing tls config, unknown field "bar"',
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_payload: 100mb\nmax_pending: 1mb", "max_payload (104857600) cannot be higher than max_pending (1048576)"),
        ("no_auth_user: x", 'no_auth_user: "x" present, but users/nkeys are not defined'),
        (
            "no_auth_user: x\nauthorization { users: [{user: a}] }",
            'no_auth_user: "x" not present as user or nkey in authorization block or account configuration',
        ),
        ("system_account: NONE", "error resolving system account: account missing: NONE"),
        ("jetstream { domain: 'a.b' }", "invalid domain name: may not contain ., * or >"),
        ("websocket { port: 80 }", "websocket requires TLS configuration"),
        (
            "websocket { port: 80, no_tls: true, headers { Upgrade: x } }",
            'websocket: invalid header "Upgrade" not allowed',
        ),
        ("port: 70000", 'Error listening on port: 0.0.0.0:70000, "listen tcp: address 70000: invalid port"'),
        ("http: 1\nhttps: 2", "Can't start monitoring: can't specify both HTTP (1) and HTTPs (2) ports"),
        ("https_port: 2", "Can't start monitoring: TLS cert and key required for HTTPS"),
        (
            "lame_duck_duration: '30s'\nlame_duck_grace_period: '1m'",
            "lame duck grace period (1m0s) should be strictly lower than lame duck duration (30s)",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused_as_in_the_reference(folder: Path, text: str, told: str) -> None:
    assert refusal(folder, text) == told


@pytest.mark.parametrize(
    ("text", "is_warned"),
    [
        ("authorization { user: a, password: b }", True),
        ("authorization { users: [ {user: a, password: b} ] }", True),
        ("authorization { user: a, password: $2a$11$abcdefghijklmnopqrstuv }", False),
        (f"authorization {{ users: [ {{nkey: {NKEY} }} ] }}", False),
        ("authorization { token: x }", False),
        ("accounts { A { users: [{user: a, password: b}] } }", True),
    ],
)
def test_passwords_in_plain_text_are_warned_about(folder: Path, text: str, is_warned: bool) -> None:
    warned = "Plaintext passwords detected, use nkeys or bcrypt" in load(folder, text).warnings
    assert warned == is_warned


def test_a_durability_that_is_none_is_refused(folder: Path) -> None:
    told = refusal(folder, "jetstream { durability: maybe }")
    assert told == "s.conf:1:12: durability must be one of disk, os, lazy, got maybe"


@pytest.mark.parametrize(
    "text", ["jetstream { store_dir: a }\nstore_dir: b", "store_dir: b\njetstream { store_dir: a }"]
)
def test_a_store_directory_is_said_once(folder: Path, text: str) -> None:
    assert "Duplicate 'store_dir' configuration" in refusal(folder, text)


def test_an_account_of_whose_events_nobody_can_be_told_is_named(folder: Path) -> None:
    """Its name would stand in the subject of the event, and a blank would end that."""
    text = 'accounts { "A B" { users: [{user: a, password: b}] }, "C\tD" {}, E {} }'
    (warning,) = [line for line in load(folder, text).warnings if "events" in line]
    assert warning.endswith(r'the system account hears no events of "A B", "C\tD"')
