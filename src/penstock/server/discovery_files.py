"""The files by which other programs find a running server: its pid, and the ports that it listens on."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.errors import PenstockError

SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface


class FileError(PenstockError):
    """One of these files cannot be written."""


def write_pid(path: str) -> None:
    """Write the process id, and nothing after it."""
    try:
        _write(path, str(os.getpid()), 0o640)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileError(f"Could not write pidfile: open {path}: {reason}") from error


@dataclass(frozen=True, slots=True)
class Listener:
    """One listening address: "nats", "monitoring" or "websocket", with its scheme."""

    name: str
    scheme: str
    host: str
    port: int


def ports_path(folder: str) -> str:
    """The path of the ports file; tools that start `nats-server` look for this name."""
    return os.path.join(folder, f"nats-server_{os.getpid()}.ports")


def write_ports(folder: str, listeners: Iterable[Listener]) -> str:
    """Write all addresses by listener as JSON, atomically; returns the file's path."""
    path = ports_path(folder)
    ports = {one.name: [f"{one.scheme}://{at}" for at in _addresses(one.host, one.port)] for one in listeners}
    try:
        _write(path, json.dumps(ports, separators=(",", ":")), 0o666)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileError(f"Error writing ports file ({path}): open {path}: {reason}") from error
    return path


def _write(path: str, text: str, mode: int) -> None:
    """Write under another name first: a tool that waits for the file reads all of it, or nothing."""
    draft = f"{path}.{os.getpid()}.tmp"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with open(fd, "w") as file:
            file.write(text)
        os.rename(draft, path)
    except OSError:
        os.unlink(draft)
        raise


def _addresses(host: str, port: int) -> list[str]:
    hosts = local_addresses() if host in ("0.0.0.0", "::", "") else [host]
    return [f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in hosts]


def local_addresses() -> list[str]:
    """The addresses of this machine's interfaces: IPv4 first, then IPv6."""
    import fcntl

    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue  # an interface without an address
            found.append(socket.inet_ntoa(answer[20:24]))
    try:
        with open("/proc/net/if_inet6") as file:
            found += [socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line.split()[0])) for line in file]
    except FileNotFoundError:
        pass  # a machine without IPv6
    return found
