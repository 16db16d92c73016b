"""TLS: what INFO says, plain clients on a TLS port, handshake first, certificates of clients."""

from __future__ import annotations

import atexit
import datetime
import shutil
import ssl
import tempfile
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from parity.catalog import add, case
from parity.script import Connection, Script
from support.servers import BASE

GROUP = "tls"


def made(
    directory: Path, name: str, signer: tuple[x509.Name, ec.EllipticCurvePrivateKey] | None
) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
    """A key and a certificate in PEM files, signed by `signer` or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer[0] if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
    )
    if signer:
        names = [x509.DNSName("localhost"), x509.RFC822Name(f"{name}@example.org")]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(signer[1] if signer else key, hashes.SHA256())
    (directory / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / f"{name}.key").write_bytes(private)
    return subject, key


@cache
def certificates() -> Path:
    """A directory with an authority, a server, a client, and a stranger that the authority does not know."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-parity-tls-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    authority = made(directory, "ca", None)
    made(directory, "server", authority)
    made(directory, "client", authority)
    made(directory, "stranger", made(directory, "otherca", None))
    return directory


def config(more: str = "", outside: str = "") -> str:
    d = certificates()
    return BASE + outside + f'tls {{ cert_file: "{d}/server.pem", key_file: "{d}/server.key", {more} timeout: 1 }}\n'


def verified(more: str = "") -> str:
    return f'ca_file: "{certificates()}/ca.pem", verify: true, {more}'


def secure(c: Connection, name: str = "") -> None:
    """The client's side of the handshake, with a certificate if it has one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(certificates() / "ca.pem")
    if name:
        context.load_cert_chain(certificates() / f"{name}.pem", certificates() / f"{name}.key")
    c.secure(context)


def talk(c: Connection, options: str = "") -> None:
    c.tell(f'CONNECT {{"verbose":false,"protocol":0{options}}}\r\nSUB me 1\r\nPUB me 2\r\nhi\r\n')


def plain(s: Script) -> None:
    c = s.open()
    c.show_info = True
    c.read(1)
    c.send('CONNECT {"verbose":false}\r\nPING\r\n')
    c.expect_close()


def upgraded(name: str = "", options: str = "") -> object:
    def run(s: Script) -> None:
        c = s.open()
        c.show_info = True
        c.read(1)
        secure(c, name)
        talk(c, options)

    return run


def first(name: str = "") -> object:
    def run(s: Script) -> None:
        c = s.open()
        c.show_info = True
        secure(c, name)
        c.read(1)
        talk(c)

    return run


add(GROUP, "a plain client is refused", plain, config=config)
add(GROUP, "after INFO", upgraded(), config=config)
add(GROUP, "handshake first", first(), config=lambda: config("handshake_first: true,"))
add(
    GROUP,
    "a plain client where the handshake comes first",
    lambda s: silent(s),
    config=lambda: config("handshake_first: true,"),
)
add(GROUP, "handshake first, if the client begins", first(), config=lambda: config('handshake_first: "300ms",'))
add(GROUP, "handshake first, but the client waits", upgraded(), config=lambda: config('handshake_first: "100ms",'))
add(
    GROUP,
    "plain clients are allowed",
    lambda s: plain_allowed(s),
    config=lambda: config(outside="allow_non_tls: true\n"),
)
add(
    GROUP,
    "plain clients are allowed, and one that is not",
    upgraded(),
    config=lambda: config(outside="allow_non_tls: true\n"),
)
add(GROUP, "a client's certificate is wanted", upgraded("client"), config=lambda: config(verified()))
add(GROUP, "a client's certificate is wanted, there is none", upgraded(), config=lambda: config(verified()))
add(GROUP, "a client's certificate is a stranger's", upgraded("stranger"), config=lambda: config(verified()))
MAPPED = 'authorization { users: [ {user: "client@example.org"} ] }\n'
OTHERS = 'authorization { users: [ {user: "other@example.org"} ] }\n'
BY_NAME = 'authorization { users: [ {user: "CN=client"} ] }\n'
for title, users in (("its mail", MAPPED), ("its name", BY_NAME), ("another's", OTHERS)):
    add(
        GROUP,
        f"a user by certificate: {title}",
        upgraded("client"),
        config=lambda users=users: config(verified("verify_and_map: true,"), users),
    )
PASSWORD = "authorization { user: u, password: p }\n"
add(GROUP, "a password over TLS", upgraded("", ',"user":"u","pass":"p"'), config=lambda: config(outside=PASSWORD))
add(GROUP, "a wrong password over TLS", upgraded("", ',"user":"u","pass":"x"'), config=lambda: config(outside=PASSWORD))


def silent(s: Script) -> None:
    c = s.open()
    c.show_info = True
    c.send('CONNECT {"verbose":false}\r\nPING\r\n')
    c.expect_close()


def plain_allowed(s: Script) -> None:
    c = s.open()
    c.show_info = True
    c.read(1)
    talk(c)


@case(GROUP, "nobody begins the handshake", config=config)
def no_handshake(s: Script) -> None:
    c = s.open()
    c.show_info = True
    c.read(1)
    c.expect_close()
