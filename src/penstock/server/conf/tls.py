"""A `tls` block: its keys, and the check that its files can be used."""

from __future__ import annotations

import re
from typing import Any

from penstock.server.conf.tree import Node
from penstock.server.conf.values import (
    Fault,
    Findings,
    go_type,
    into,
    keys,
    map_of,
    parse_duration,
    quote,
    seconds_of,
    shown,
    text_of,
)
from penstock.server.options import TlsOptions

FALLBACK_DELAY = 0.05  # "auto": how long to wait for a client that starts the handshake
CURVES = ("CurveP256", "CurveP384", "CurveP521", "X25519", "X25519MLKEM768", "SecP256r1MLKEM768", "SecP384r1MLKEM1024")
_PAIRS = ("ECDHE_RSA", "ECDHE_ECDSA")
CIPHERS = frozenset(
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"]
    + [f"TLS_{pair}_WITH_{rest}" for pair in _PAIRS for rest in ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384")]
    + [f"TLS_{pair}_WITH_CHACHA20_POLY1305{rest}" for pair in _PAIRS for rest in ("", "_SHA256")]
    + [f"TLS_{pair}_WITH_AES_{bits}_CBC_SHA" for pair in _PAIRS for bits in (128, 256)]
)
WEAK_CIPHERS = frozenset(
    [f"TLS_RSA_WITH_{rest}" for rest in ("RC4_128_SHA", "3DES_EDE_CBC_SHA", "AES_128_CBC_SHA", "AES_256_CBC_SHA")]
    + [f"TLS_RSA_WITH_AES_{rest}" for rest in ("128_CBC_SHA256", "128_GCM_SHA256", "256_GCM_SHA384")]
    + ["TLS_ECDHE_ECDSA_WITH_RC4_128_SHA", "TLS_ECDHE_RSA_WITH_RC4_128_SHA", "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"]
    + [f"TLS_{pair}_WITH_AES_128_CBC_SHA256" for pair in _PAIRS]
)


def _bad(node: Node, text: str) -> Fault:
    return Fault(node, f"error parsing tls config, {text}")


def read_tls(node: Node, findings: Findings) -> TlsOptions:
    """The block's options. Files that cannot be used are refused here, before the server listens."""
    tls = TlsOptions()
    weak: list[str] = []
    is_weak_allowed = False

    def filename(key: str) -> Any:
        def read(inner: Node) -> str:
            if not isinstance(inner.value, str):
                raise _bad(inner, f"expected '{key}' to be filename")
            return inner.value

        return into(tls, key, read)

    def boolean(key: str) -> Any:
        def read(inner: Node) -> bool:
            if not isinstance(inner.value, bool):
                raise _bad(inner, f"expected '{key}' to be a boolean")
            return inner.value

        return read

    def verify_and_map(inner: Node) -> None:
        tls.verify_and_map = boolean("verify_and_map")(inner)
        tls.verify = tls.verify or tls.verify_and_map

    def known_urls(inner: Node) -> None:
        if boolean("verify_cert_and_check_known_urls")(inner):
            raise Fault(inner, "verify_cert_and_check_known_urls not supported in this context")

    def allow_weak(inner: Node) -> None:
        nonlocal is_weak_allowed
        is_weak_allowed = boolean("allow_insecure_cipher_suites")(inner)

    def ciphers(inner: Node) -> None:
        tls.cipher_suites = _names(inner, "cipher_suites", CIPHERS | WEAK_CIPHERS, "cipher")
        weak.extend(name for name in tls.cipher_suites if name in WEAK_CIPHERS)

    def curves(inner: Node) -> None:
        tls.curve_preferences = _names(inner, "curve_preferences", frozenset(CURVES), "curve preference")

    def rate_limit(inner: Node) -> None:
        if isinstance(inner.value, bool) or not isinstance(inner.value, int):
            raise _bad(inner, "'connection_rate_limit' wrong type")
        tls.connection_rate_limit = inner.value

    def ocsp_peer(inner: Node) -> None:
        if inner.value is not False:
            findings.refuse(inner, "ocsp_peer")

    def min_version(inner: Node) -> None:
        if not isinstance(inner.value, str):
            raise Fault(inner, f"error parsing tls config: 'min_version' wrong type: {shown(inner.value)}")
        if inner.value not in ("1.0", "1.1", "1.2", "1.3"):
            raise Fault(inner, f"error parsing tls config: unknown version: {inner.value}")
        if inner.value < "1.2":
            raise Fault(inner, f"error parsing tls config: unsupported TLS version: TLS {inner.value}")
        tls.min_version = inner.value

    findings.walk(
        map_of(node),
        keys(
            {
                "cert_file": filename("cert_file"),
                "key_file": filename("key_file"),
                "ca_file": filename("ca_file"),
                "insecure": into(tls, "insecure", boolean("insecure")),
                "verify": lambda inner: setattr(tls, "verify", boolean("verify")(inner) or tls.verify_and_map),
                "verify_and_map": verify_and_map,
                "verify_cert_and_check_known_urls": known_urls,
                "allow_insecure_cipher_suites": allow_weak,
                "cipher_suites": ciphers,
                "curve_preferences": curves,
                "timeout": into(tls, "timeout", lambda inner: seconds_of(inner, "tls") or 2.0),
                "connection_rate_limit": rate_limit,
                "pinned_certs": into(tls, "pinned_certs", _pinned),
                "handshake_first first immediate": lambda inner: _handshake_first(inner, tls),
                "ocsp_peer": ocsp_peer,
                "certs certificates": lambda inner: _pairs(inner, tls, findings),
                "min_version": min_version,
                "cert_store cert_match_by cert_match ca_certs_match cert_match_skip_invalid": lambda inner: (
                    findings.refuse(inner, "a certificate store")
                ),
            }
        ),
        unknown="error parsing tls config, unknown field {}",
    )
    if weak and not is_weak_allowed:
        text = "insecure cipher suites configured without 'allow_insecure_cipher_suites' option set"
        raise Fault(node, f"{text}: {', '.join(weak)}")
    why = why_unusable(tls)
    if why:
        raise Fault(node, why)
    return tls


def _names(node: Node, key: str, known: frozenset[str], what: str) -> list[str]:
    if not isinstance(node.value, list):
        raise Fault(node, f"interface conversion: interface {{}} is {go_type(node.value)}, not []interface {{}}")
    if not node.value:
        raise _bad(node, f"'{key}' cannot be empty")
    for item in node.value:
        if text_of(item) not in known:
            raise Fault(item, f"unrecognized {what} {item.value}")
    return [text_of(item) for item in node.value]


def _pinned(node: Node) -> frozenset[str]:
    what = "hex-encoded sha256 of DER encoded SubjectPublicKeyInfo"
    if not isinstance(node.value, list):
        raise _bad(node, f"expected 'pinned_certs' to be a list of {what}")
    for item in node.value:
        if not re.fullmatch("[0-9a-fA-F]{64}", text_of(item)):
            raise _bad(item, f"'pinned_certs' key {text_of(item).lower()} does not look like {what}")
    return frozenset(text_of(item).lower() for item in node.value)


def _handshake_first(node: Node, tls: TlsOptions) -> None:
    value = node.value
    if isinstance(value, bool):
        tls.handshake_first = value
        return
    if not isinstance(value, str):
        raise Fault(node, f'field "handshake_first" should be a boolean or a string, got {go_type(value)}')
    word = value.lower()
    if word in ("true", "on", "false", "off"):
        tls.handshake_first = word in ("true", "on")
        return
    try:
        tls.handshake_first_fallback = FALLBACK_DELAY if word in ("auto", "auto_fallback") else parse_duration(value)
    except ValueError:
        raise Fault(node, f'field "handshake_first"\'s value {quote(value)} is invalid') from None
    tls.handshake_first = True


def _pairs(node: Node, tls: TlsOptions, findings: Findings) -> None:
    """`certs`: one pair is the same as cert_file and key_file; a choice among several is not supported."""
    if not isinstance(node.value, list) or not all(isinstance(item.value, dict) for item in node.value):
        raise Fault(node, f"error parsing certificates config: unsupported type {go_type(node.value)}")
    if tls.cert_file:
        raise _bad(node, "cannot combine 'cert_file' option with 'certs' option")
    if len(node.value) > 1:
        findings.refuse(node, "more than one pair of certificates")
        return
    for item in node.value:
        for key, inner in map_of(item).items():
            if key not in ("cert_file", "key_file"):
                raise Fault(inner, f"error parsing tls certs config, unknown field {quote(key)}")
            if not isinstance(inner.value, str):
                raise Fault(inner, f"error parsing certificates config: unsupported type {go_type(inner.value)}")
            setattr(tls, key, inner.value)
        if not tls.cert_file or not tls.key_file:
            text = "both 'cert_file' and 'cert_key' options are required"
            raise Fault(item, f"error parsing certificates config: {text}")


def why_unusable(tls: TlsOptions) -> str:
    """Why the files of a TLS block cannot be used; empty if they can."""
    if tls.cert_file and not tls.key_file:
        return "missing 'key_file' in TLS configuration"
    if tls.key_file and not tls.cert_file:
        return "missing 'cert_file' in TLS configuration"
    if not tls.cert_file and not tls.ca_file:
        return ""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for path, what in ((tls.cert_file, _PAIR), (tls.key_file, _PAIR), (tls.ca_file, "")):
        try:
            if path:
                with open(path, "rb"):
                    pass
        except OSError as error:
            return f"{what}open {path}: {(error.strerror or str(error)).lower()}"
    try:
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file, password="")
    except (ssl.SSLError, OSError) as error:
        return f"{_PAIR}{error}"
    try:
        if tls.ca_file:
            context.load_verify_locations(tls.ca_file)
    except (ssl.SSLError, OSError):
        return "failed to parse root ca certificate"
    return ""


_PAIR = "error parsing X509 certificate/key pair: "
