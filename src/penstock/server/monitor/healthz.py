"""Healthz: whether the server, and a stream of it, can be used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import quote
from penstock.server.monitor.page import Page

if TYPE_CHECKING:
    from penstock.api.jetstream import JetStream
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


Trouble = tuple[int, str, list[HealthError]]  # HTTP's code, the status, what is wrong


def make_healthz(server: Server, options: HealthzOptions) -> Healthz:
    trouble = _trouble(server, options)
    if trouble is None:
        return Healthz(status="ok", status_code=200)
    code, status, errors = trouble
    if options.details:
        return Healthz(status="error", status_code=code, errors=errors)
    return Healthz(status=status, status_code=code, error=errors[0].error)


def _trouble(server: Server, options: HealthzOptions) -> Trouble | None:
    if options.stream and not options.account:
        return 400, "error", [_bad_request("account", "stream")]
    if options.consumer and not options.stream:
        return 400, "error", [_bad_request("stream", "consumer")]
    if not server.is_ready:
        text = "failed to be ready for connections after 1ms: server"
        return 500, "error", [HealthError(type="CONNECTION", error=text)]
    if options.js_server_only or not server.options.jetstream.enabled:
        return None
    if server.jetstream is None:
        text = "JetStream not enabled"
        return 503, "unavailable", [HealthError(type="JETSTREAM", error=text)]
    if options.js_enabled or options.js_enabled_only:
        return None
    if broken := list(_broken_streams(server.jetstream, options)):
        return 503, "unavailable", broken
    missing = _missing(server.jetstream, options) if options.account else None
    return (404, "unavailable", [missing]) if missing is not None else None


def _broken_streams(jetstream: JetStream, options: HealthzOptions) -> Iterator[HealthError]:
    """Streams that could not be opened, and streams that cannot write now."""
    for name, account in jetstream.accounts.items():
        if options.account not in ("", name):
            continue
        for stream in account.failed:
            if options.stream in ("", stream):
                yield _stream_error(name, stream, "could not be recovered")
        for stream, endpoint in account.streams.items():
            if options.stream in ("", stream) and (failure := endpoint.stream.store.engine.log.failure()) is not None:
                code, operation, path = failure
                yield _stream_error(name, stream, f"write error: {operation} {path}: {os.strerror(abs(code))}")


def _stream_error(account: str, stream: str, what: str) -> HealthError:
    text = f"JetStream stream '{account} > {stream}' {what}"
    return HealthError(type="STREAM", account=account, stream=stream, error=text)


def _missing(jetstream: JetStream, options: HealthzOptions) -> HealthError | None:
    """The error for a requested account, stream or consumer that does not exist."""
    found = jetstream.accounts.get(options.account)
    # nats-server looks for the account's folder, which exists from its first stream on.
    if found is None or not found.streams:
        text = f"JetStream account {quote(options.account)} not found"
        return HealthError(type="ACCOUNT", account=options.account, error=text)
    if options.stream and options.stream not in found.streams:
        text = f"JetStream stream {quote(options.stream)} not found on account {quote(options.account)}"
        return HealthError(type="STREAM", account=options.account, stream=options.stream, error=text)
    if not options.consumer or options.consumer in found.streams[options.stream].stream.consumers.by_name:
        return None
    text = (
        f"JetStream consumer {quote(options.consumer)} not found for stream {quote(options.stream)} "
        f"on account {quote(options.account)}"
    )
    return HealthError(
        type="CONSUMER", account=options.account, stream=options.stream, consumer=options.consumer, error=text
    )


def _bad_request(missing: str, checked: str) -> HealthError:
    return HealthError(type="BAD_REQUEST", error=f"{quote(missing)} must not be empty when checking {checked} health")
