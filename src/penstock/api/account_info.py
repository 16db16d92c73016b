"""INFO: an account's use of JetStream, and its limits."""

from __future__ import annotations

from dataclasses import asdict

from penstock.api.call import Call, Endpoint, Fields
from penstock.wire.info import API_LEVEL


def info(call: Call) -> Fields:
    account = call.account
    usage = account.usage
    fields: Fields = {
        "memory": usage.memory,
        "storage": usage.storage,
        "reserved_memory": usage.reserved_memory,
        "reserved_storage": usage.reserved_storage,
        "streams": len(account.streams),
        "consumers": account.consumer_count,
        "limits": asdict(account.limits),
    }
    if account.jetstream.domain:
        fields["domain"] = account.jetstream.domain
    fields["api"] = {"level": API_LEVEL, "total": account.api_total, "errors": account.api_errors}
    return fields


ENDPOINTS = (Endpoint("INFO", 0, "account_info_response", info),)
