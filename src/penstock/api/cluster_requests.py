"""Requests that only a cluster can serve: a single server refuses them."""

from __future__ import annotations

from penstock.api.call import Call, Endpoint, Fields
from penstock.errors import ClusterRequired


def refuse(call: Call) -> Fields:
    raise ClusterRequired


ENDPOINTS = tuple(
    Endpoint(subject, names, reply, refuse, needs_cluster=True)
    for subject, names, reply in (
        ("STREAM.LEADER.STEPDOWN", 1, "stream_leader_stepdown_response"),
        ("STREAM.PEER.REMOVE", 1, "stream_remove_peer_response"),
        ("STREAM.PEER.EVACUATE", 1, "stream_evacuate_peer_response"),
        ("STREAM.CANCEL_MOVE", 1, "stream_cancel_move_response"),
        ("CONSUMER.LEADER.STEPDOWN", 2, "consumer_leader_stepdown_response"),
        ("CONSUMER.PEER.REMOVE", 2, "consumer_remove_peer_response"),
        ("CONSUMER.PEER.EVACUATE", 2, "consumer_evacuate_peer_response"),
    )
)
