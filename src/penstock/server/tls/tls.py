"""TLS contexts from the options, and the facts of a connection's TLS under Go's names.

As in Go, cipher suites of TLS 1.3 are not configurable. Python passes only one curve to OpenSSL, so the first known one
of `curve_preferences` is used: never one that is not listed.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from penstock.errors import PenstockError
from penstock.server.auth.certificate import PeerCertificate, peer_certificate
from penstock.server.options import TlsOptions

HANDSHAKE = 0x16  # the first byte of a TLS connection; no command begins with it
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
# Go's name → OpenSSL's, in the order in which nats-server prefers them; those of TLS 1.3 have one name.
CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
}
DEFAULT_CIPHERS = list(CIPHERS)[:6]
TLS_13_CIPHERS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
GO_NAMES = {theirs: ours for ours, theirs in reversed(CIPHERS.items())}
CURVES = {
    "X25519": "X25519",
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
}


class BadTls(PenstockError):
    """The options or files do not give a usable TLS context."""


def make_context(options: TlsOptions) -> ssl.SSLContext:
    """A server's context. A reload makes a new one; open connections keep theirs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[options.min_version or "1.2"]
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if not options.cert_file or not options.key_file:
        raise BadTls("tls: cert_file and key_file are both needed")
    load_pair(context, options.cert_file, options.key_file)
    if options.verify or options.verify_and_map:
        context.verify_mode = ssl.CERT_REQUIRED
        load_authorities(context, options.ca_file)
    choose_ciphers(context, options.cipher_suites)
    choose_curve(context, options.curve_preferences)
    return context


def not_after(options: TlsOptions) -> str:
    """When the server's certificate expires, as monitoring shows it."""
    from cryptography import x509

    with open(options.cert_file, "rb") as file:
        certificate = x509.load_pem_x509_certificate(file.read())
    return certificate.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ")


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    for path in (certificate, key):
        try:
            with open(path, "rb") as file:
                file.read(1)
        except OSError as error:
            raise BadTls(f"tls: open {path}: {(error.strerror or str(error)).lower()}") from error
    try:
        # Never ask for a password on the terminal: an encrypted key is an error.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, OSError) as error:
        raise BadTls(f"tls: {certificate} and {key} are no certificate and its key: {error}") from error


def load_authorities(context: ssl.SSLContext, path: str) -> None:
    """Load the authorities that may sign certificates of clients: from the file, else the machine's list."""
    if not path:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    try:
        context.load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise BadTls(f"tls: ca_file {path} has no certificate that can be read: {error}") from error


def choose_ciphers(context: ssl.SSLContext, names: list[str]) -> None:
    unknown = [name for name in names if name not in CIPHERS and name not in TLS_13_CIPHERS]
    if unknown:
        raise BadTls(f"tls: unrecognized cipher {unknown[0]}")
    wanted = [CIPHERS[name] for name in names or DEFAULT_CIPHERS if name in CIPHERS]
    if not wanted:
        return
    try:
        context.set_ciphers(":".join(wanted))
    except ssl.SSLError as error:
        raise BadTls(f"tls: {ssl.OPENSSL_VERSION} has none of the cipher_suites {', '.join(names)}") from error


def choose_curve(context: ssl.SSLContext, names: list[str]) -> None:
    if not names:
        return
    for name in names:
        if name in CURVES:
            context.set_ecdh_curve(CURVES[name])
            return
    raise BadTls(f"tls: {ssl.OPENSSL_VERSION} has none of the curve_preferences {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """The facts of a connection's TLS."""

    version: str  # 1.2 or 1.3
    cipher: str  # as Go spells it
    certificate: PeerCertificate | None
    is_first: bool = False  # the handshake came before INFO

    @property
    def certificates(self) -> list[bytes]:
        """The certificates that the client presented, as DER, for monitoring."""
        return [self.certificate.der] if self.certificate is not None else []


def peer_facts(tls: ssl.SSLObject, is_first: bool = False) -> PeerFacts:
    cipher = tls.cipher()
    name = cipher[0] if cipher is not None else ""
    version = (tls.version() or "").removeprefix("TLSv")
    return PeerFacts(version, GO_NAMES.get(name, name), peer_certificate(tls), is_first)


def is_pinned(options: TlsOptions, certificate: PeerCertificate | None) -> bool:
    """Whether the key of the client's certificate is in `pinned_certs`; True without such a list."""
    if not options.pinned_certs:
        return True
    return certificate is not None and certificate.key_sha256 in options.pinned_certs
