"""A client's certificate: the names in it that may identify a user, and what monitoring shows of it.

Distinguished names are compared as nats-server compares them: by attributes, in their order or any other. Parsing needs
`cryptography`, which is slow to import, so a certificate is parsed only when it is needed.
"""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

# Attributes of a name by object id, as nats-server spells them.
ATTRIBUTES = {
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.17": "POSTALCODE",
    "0.9.2342.19200300.100.1.25": "DC",
}
# Go writes a subject in this order, whatever the certificate's is.
SUBJECT_ORDER = ("SERIALNUMBER", "CN", "POSTALCODE", "STREET", "ST", "L", "OU", "O", "C")
ESCAPED = frozenset(',+"\\<>;')

Attribute = tuple[str, str]  # type in upper case, value
DistinguishedName = list[frozenset[Attribute]]  # one set of attributes per relative name, the most specific first


@dataclass(frozen=True)
class PeerCertificate:
    """The certificate that a client presented, as bytes."""

    der: bytes

    @cached_property
    def parsed(self) -> x509.Certificate:
        from cryptography import x509

        return x509.load_der_x509_certificate(self.der)

    @cached_property
    def names(self) -> list[str]:
        """Email addresses, DNS names and URIs that it is for, in the order in which they are tried as user names."""
        from cryptography import x509

        try:
            found = self.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return []
        return [
            name
            for kind in (x509.RFC822Name, x509.DNSName, x509.UniformResourceIdentifier)
            for name in found.get_values_for_type(kind)
        ]

    @cached_property
    def distinguished_name(self) -> DistinguishedName | None:
        """The distinguished name; None if it has an unknown attribute."""
        found: DistinguishedName = []
        for relative in reversed(self.parsed.subject.rdns):
            attributes = []
            for attribute in relative:
                kind = ATTRIBUTES.get(attribute.oid.dotted_string)
                if kind is None or not isinstance(attribute.value, str):
                    return None
                attributes.append((kind, attribute.value))
            found.append(frozenset(attributes))
        return found

    @cached_property
    def domain_components(self) -> str:
        """`DC=example,DC=com`, in the certificate's order; the subject as Go writes it leaves them out."""
        return ",".join(f"DC={value}" for kind, value in self._attributes() if kind == "DC")

    @cached_property
    def subject(self) -> str:
        """The subject as Go writes it."""
        values: dict[str, list[str]] = {}
        for kind, value in self._attributes():
            values.setdefault(kind, []).append(value)
        # There is one serial number and one common name in Go's: the last.
        single = {"SERIALNUMBER", "CN"}
        parts = []
        for kind in SUBJECT_ORDER:
            given = values.get(kind, [])
            if kind in single:
                given = given[-1:]
            if given:
                parts.append("+".join(f"{kind}={escape(value)}" for value in given))
        return ",".join(parts)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.der).hexdigest()

    @cached_property
    def key_sha256(self) -> str:
        """Of its public key; `pinned_certs` lists these."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        key = self.parsed.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(key).hexdigest()

    def _attributes(self) -> list[Attribute]:
        return [
            (ATTRIBUTES[attribute.oid.dotted_string], str(attribute.value))
            for relative in self.parsed.subject.rdns
            for attribute in relative
            if attribute.oid.dotted_string in ATTRIBUTES
        ]


def peer_certificate(tls: ssl.SSLObject | None) -> PeerCertificate | None:
    """The certificate that the client of a TLS connection presented; None if there is none."""
    der = tls.getpeercert(binary_form=True) if tls is not None else None
    return PeerCertificate(der) if der else None


def escape(value: str) -> str:
    """A value in a subject as Go writes it."""
    last = len(value) - 1
    return "".join(
        "\\" + char if char in ESCAPED or (char == " " and at in (0, last)) or (char == "#" and at == 0) else char
        for at, char in enumerate(value)
    )


def parse_name(text: str) -> DistinguishedName | None:
    """A distinguished name from text such as `CN=a,OU=b`, by RFC 4514; None if the text is not one."""
    found: DistinguishedName = []
    attributes: list[Attribute] = []
    kind, buffer, trailing = "", bytearray(), 0
    raw = text.encode()
    at = 0

    def taken() -> str:
        nonlocal trailing
        value = bytes(buffer[: len(buffer) - trailing])
        buffer.clear()
        trailing = 0
        return value.decode("utf-8", "replace")

    while at < len(raw):
        char = raw[at : at + 1]
        if char == b"\\":
            trailing = 0
            escaped = raw[at + 1 : at + 2]
            if escaped and escaped in b' "#+,;<=>\\':
                buffer += escaped
                at += 1
            else:
                try:
                    buffer += bytes.fromhex(raw[at + 1 : at + 3].decode("ascii"))
                except ValueError:
                    return None
                at += 2
        elif char == b"=":
            kind = taken().upper()
            if raw[at + 1 : at + 2] == b"#":
                return None  # the value in BER
        elif char in b",+":
            if not kind:
                return None
            attributes.append((kind, taken()))
            kind = ""
            if char == b",":
                found.append(frozenset(attributes))
                attributes = []
        elif char != b" " or buffer:
            trailing = trailing + 1 if char == b" " else 0
            buffer += char
        at += 1
    if buffer:
        if not kind:
            return None
        attributes.append((kind, taken()))
        found.append(frozenset(attributes))
    return found


def same_parts(a: DistinguishedName, b: DistinguishedName) -> bool:
    """Whether both have the same relative names, in any order."""
    left = list(b)
    for relative in a:
        if relative not in left:
            return False
        left.remove(relative)
    return not left
