"""Sections of features that this server does not have yet. Their keys are known, so that a misspelt key is reported.

cluster, gateway, leafnodes and mqtt are named in one warning, and the server starts without them.
"""

from __future__ import annotations

from penstock.server.conf.tree import Node
from penstock.server.conf.values import Fault, Findings, Handler, go_type, quote


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TLS = _names(
    "cert_file key_file ca_file insecure verify verify_and_map verify_cert_and_check_known_urls "
    "allow_insecure_cipher_suites cipher_suites curve_preferences timeout connection_rate_limit pinned_certs "
    "cert_store cert_match_by cert_match ca_certs_match handshake_first first immediate cert_match_skip_invalid "
    "ocsp_peer certs certificates min_version"
)
_COMMON = "listen port host net tls authorization write_deadline write_timeout "
_LOGIN = "user username pass password token timeout users default_permission default_permissions permissions "
# The keys of each section, and below the keys of the maps in its lists.
SECTIONS: dict[str, frozenset[str]] = {
    "cluster": _names(
        _COMMON + "name routes cluster_advertise advertise no_advertise connect_retries connect_backoff "
        "permissions pool_size accounts compression ping_interval ping_max"
    ),
    "gateway": _names(
        _COMMON + "name advertise connect_retries connect_backoff gateways reject_unknown reject_unknown_cluster"
    ),
    "leafnodes": _names(
        _COMMON + "remotes reconnect reconnect_delay reconnect_interval dial_timeout "
        "leafnode_advertise advertise "
        "no_advertise min_version minimum_version compression isolate_leafnode_interest isolate"
    ),
    "mqtt": _names(
        "listen port host net tls authorization authentication no_auth_user ack_wait ackwait js_api_timeout "
        "api_timeout max_ack_pending max_pending max_inflight js_domain stream_replicas consumer_replicas "
        "consumer_memory_storage consumer_inactive_threshold consumer_auto_cleanup reject_qos2_publish "
        "downgrade_qos2_subscribe"
    ),
}
_WITHIN: dict[str, frozenset[str]] = {
    "authorization": _names(_LOGIN + "nkey account auth_callout auth_hook proxy_required"),
    "authentication": _names(_LOGIN),
    "gateways": _names("name tls url urls"),
    "remotes": _names(
        "no_randomize dont_randomize url urls account local creds credentials nkey seed "
        "tls hub deny_imports "
        "deny_import deny_exports deny_export ws_compress ws_compression websocket_compress websocket_compression "
        "ws_no_masking websocket_no_masking jetstream_cluster_migrate js_cluster_migrate "
        "isolate_leafnode_interest isolate request_isolation compression first_info_timeout dial_timeout disabled "
        "proxy ignore_discovered_servers"
    ),
}


_WRONG_TYPE = {
    "cluster": "Expected map to define cluster",
    "gateway": "Expected gateway to be a map",
    "leafnodes": "Expected map to define a leafnode",
    "mqtt": "Expected mqtt to be a map",
}


def unsupported_section(name: str, findings: Findings) -> Handler:
    """A handler that checks the section's keys and notes that the section was given."""

    def handler(node: Node) -> None:
        if not isinstance(node.value, dict):
            raise Fault(node, f"{_WRONG_TYPE[name]}, got {go_type(node.value)}")
        findings.unsupported.append(name)
        _check(node.value, SECTIONS[name], findings)

    return handler


def _check(tree: dict[str, Node], known: frozenset[str], findings: Findings) -> None:
    for key, node in tree.items():
        name = key.lower()
        if name not in known:
            if not node.is_used:
                findings.errors.append(f"{node.place}: unknown field {quote(key)}")
        elif name == "tls" and isinstance(node.value, dict):
            for inner_key, inner in node.value.items():
                if inner_key.lower() not in _TLS:
                    text = f"error parsing tls config, unknown field {quote(inner_key)}"
                    findings.errors.append(f"{inner.place}: {text}")
        elif name == "name" and isinstance(node.value, str) and " " in node.value:
            findings.errors.append(f"{node.place}: cluster name cannot contain spaces")
        elif name in _WITHIN:
            entries = node.value if isinstance(node.value, list) else [node]
            for entry in entries:
                if isinstance(entry.value, dict):
                    _check(entry.value, _WITHIN[name], findings)
