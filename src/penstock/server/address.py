"""Addresses: the socket that listens on one, and the form in which a client's address is shown.

As in nats-server, every port has one socket. For all of the machine's addresses (`0.0.0.0`, `::`) it accepts IPv6 and
IPv4. A host name with several addresses is bound to one, preferably IPv4.
"""

from __future__ import annotations

import asyncio
import socket

EVERYWHERE = ("", "0.0.0.0", "::")
MAPPED = "::ffff:"  # prefix of an IPv4 client's address on a socket that accepts both


async def listening_socket(host: str, port: int) -> socket.socket:
    """A socket bound to the address, not yet listening; port 0 or less: any."""
    if host in EVERYWHERE:
        if socket.has_dualstack_ipv6():
            return _bound(socket.AF_INET6, ("::", max(port, 0)))
        return _bound(socket.AF_INET, ("0.0.0.0", max(port, 0)))
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, max(port, 0), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return _bound(family, address)


def _bound(family: int, address: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address[0] == "::" else 1)
        made.bind(address)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def shown_ip(ip: str) -> str:
    """A client's address as people write it: an IPv4 address without the IPv6 prefix."""
    return ip.removeprefix(MAPPED) if "." in ip else ip
