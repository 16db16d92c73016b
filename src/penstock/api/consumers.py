"""CONSUMER: there are none yet. Lists are empty, a named one is not found, and creating one is refused by name."""

from __future__ import annotations

from penstock.api.call import Call, Endpoint, Fields
from penstock.errors import ConsumerNotFound, ConsumersMissing, InvalidJson
from penstock.wire.go_decode import Struct, decode_one

LIST_MAX = 256
NAMES_MAX = 1024
_PAGE = Struct("server.JSApiConsumersRequest", {"offset": "int"})
_PAUSE = Struct("server.JSApiConsumerPauseRequest", {"pause_until": "time.Time"})
_UNPIN = Struct("server.JSApiConsumerUnpinRequest", {"group": "string"})
_NOT_PAUSED = {"paused": False, "pause_until": "0001-01-01T00:00:00Z"}
_NO_PAGE = {"total": 0, "offset": 0, "limit": 0, "consumers": []}


def _empty(call: Call, limit: int) -> Fields:
    if call.is_json:
        call.decode(_PAGE)
    call.account.stream(call.names[0])
    return {"total": 0, "offset": 0, "limit": limit, "consumers": []}


def names(call: Call) -> Fields:
    return _empty(call, NAMES_MAX)


def listing(call: Call) -> Fields:
    return _empty(call, LIST_MAX)


def find(call: Call) -> Fields:
    call.refuse_body()
    call.account.stream(call.names[0])
    raise ConsumerNotFound


def pause(call: Call) -> Fields:
    if call.is_json:
        call.decode(_PAUSE)
    call.account.stream(call.names[0])
    raise ConsumerNotFound


def unpin(call: Call) -> Fields:
    if not decode_one(call.payload, _UNPIN).get("group"):
        raise InvalidJson("consumer group not specified")
    call.account.stream(call.names[0])
    raise ConsumerNotFound


def create(call: Call) -> Fields:
    call.account.stream(call.names[0])
    raise ConsumersMissing


ENDPOINTS = (
    Endpoint("CONSUMER.NAMES", 1, "consumer_names_response", names, _NO_PAGE),
    Endpoint("CONSUMER.LIST", 1, "consumer_list_response", listing, _NO_PAGE),
    Endpoint("CONSUMER.INFO", 2, "consumer_info_response", find),
    Endpoint("CONSUMER.DELETE", 2, "consumer_delete_response", find),
    Endpoint("CONSUMER.PAUSE", 2, "consumer_pause_response", pause, _NOT_PAUSED),
    Endpoint("CONSUMER.UNPIN", 2, "consumer_unpin_response", unpin),
    Endpoint("CONSUMER.CREATE", 1, "consumer_create_response", create, takes_more=True),
    Endpoint("CONSUMER.DURABLE.CREATE", 2, "consumer_create_response", create),
)
