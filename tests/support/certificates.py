"""Certificates for tests: an authority, a server certificate for localhost, and client certificates with names of all
kinds.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOCALHOST = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


def name_of(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])


class Authority:
    """Signs certificates and writes them to a directory as `<name>.pem` and `<name>.key`; its own certificate is
    ca.pem.
    """

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = name_of((NameOID.COMMON_NAME, f"authority {name}"))
        self._write(name, self._signed(self._subject, self._key, is_authority=True), self._key)
        self.path = directory / f"{name}.pem"

    def server(self, name: str = "server") -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = name_of((NameOID.COMMON_NAME, "localhost"))
        made = self._signed(subject, key, LOCALHOST, ExtendedKeyUsageOID.SERVER_AUTH)
        self._write(name, made, key)

    def client(self, name: str, subject: x509.Name, *names: x509.GeneralName) -> x509.Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._signed(subject, key, list(names), ExtendedKeyUsageOID.CLIENT_AUTH)
        self._write(name, made, key)
        return made

    def client_context(self, name: str | None = None) -> ssl.SSLContext:
        """A context for a client that trusts this authority and presents the named certificate."""
        context = ssl.create_default_context(cafile=str(self.path))
        if name is not None:
            context.load_cert_chain(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        return context

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        names: list[x509.GeneralName] | None = None,
        usage: x509.ObjectIdentifier | None = None,
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, made: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        (self.directory / f"{name}.pem").write_bytes(made.public_bytes(Encoding.PEM))
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.directory / f"{name}.key").write_bytes(secret)
