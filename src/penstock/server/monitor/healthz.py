"""Healthz: whether the server, and a stream of it, can be used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import quote
from penstock.server.monitor.page import Page

if TYPE_CHECKING:
    from penstock.server.monitor.query import Query
    from penstock.server.server import Server


@dataclass(slots=True)
class HealthzOptions:
    js_enabled: bool = False
    js_enabled_only: bool = False
    js_server_only: bool = False
    js_meta_only: bool = False
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False

    @classmethod
    def of_query(cls, query: Query) -> HealthzOptions:
        return cls(
            js_enabled=query.boolean("js-enabled"),
            js_enabled_only=query.boolean("js-enabled-only"),
            js_server_only=query.boolean("js-server-only"),
            js_meta_only=query.boolean("js-meta-only"),
            details=query.boolean("details"),
            account=query.text("account"),
            stream=query.text("stream"),
            consumer=query.text("consumer"),
        )


class HealthError(Page, kw_only=True):
    type: str
    account: str = ""
    stream: str = ""
    consumer: str = ""
    error: str = ""


class Healthz(Page, kw_only=True):
    status: str
    status_code: int = 0
    error: str = ""
    errors: list[HealthError] = []


def make_healthz(server: Server, options: HealthzOptions) -> Healthz:
    trouble = _trouble(server, options)
    if trouble is None:
        return Healthz(status="ok", status_code=200)
    code, status, error = trouble
    if options.details:
        return Healthz(status="error", status_code=code, errors=[error])
    return Healthz(status=status, status_code=code, error=error.error)


def _trouble(server: Server, options: HealthzOptions) -> tuple[int, str, HealthError] | None:
    """The first thing that is wrong: HTTP's code for it, the status it gives, and the error."""
    if options.stream and not options.account:
        return 400, "error", _bad_request("account", "stream")
    if options.consumer and not options.stream:
        return 400, "error", _bad_request("stream", "consumer")
    if not server.is_ready:
        text = "failed to be ready for connections after 1ms: server"
        return 500, "error", HealthError(type="CONNECTION", error=text)
    if options.js_server_only or not server.options.jetstream.enabled:
        return None
    if server.jetstream is None:
        text = "JetStream not enabled"
        return 503, "unavailable", HealthError(type="JETSTREAM", error=text)
    if options.js_enabled or options.js_enabled_only:
        return None
    return _asset_trouble(server, options)


def _asset_trouble(server: Server, options: HealthzOptions) -> tuple[int, str, HealthError] | None:
    assert server.jetstream is not None
    for name, account in server.jetstream.accounts.items():
        if options.account not in ("", name):
            continue
        for stream, reason in account.failed.items():
            if options.stream in ("", stream):
                text = f"JetStream stream '{name} > {stream}' could not be recovered: {reason}"
                return 503, "unavailable", HealthError(type="STREAM", account=name, stream=stream, error=text)
    if not options.account:
        return None
    where = {"account": options.account}
    # An account has a place on the disk, which is what the reference looks for, from its first stream on.
    found = server.jetstream.accounts.get(options.account)
    if found is None or not found.streams:
        text = f"JetStream account {quote(options.account)} not found"
        return 404, "unavailable", HealthError(type="ACCOUNT", error=text, **where)
    if not options.stream:
        return None
    where["stream"] = options.stream
    if options.stream not in found.streams:
        text = f"JetStream stream {quote(options.stream)} not found on account {quote(options.account)}"
        return 404, "unavailable", HealthError(type="STREAM", error=text, **where)
    if not options.consumer:
        return None
    text = (
        f"JetStream consumer {quote(options.consumer)} not found for stream {quote(options.stream)} "
        f"on account {quote(options.account)}"
    )
    return 404, "unavailable", HealthError(type="CONSUMER", consumer=options.consumer, error=text, **where)


def _bad_request(missing: str, checked: str) -> HealthError:
    return HealthError(type="BAD_REQUEST", error=f"{quote(missing)} must not be empty when checking {checked} health")
