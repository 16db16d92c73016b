"""Advertised addresses: where clients are told to connect, if not where the server listens."""

from __future__ import annotations


def parse_advertise(text: str) -> tuple[str, int]:
    """Host and port of "host", "host:port" or "[::1]:port"; port 0 if none is given. ValueError for any other text."""
    name, colon, number = text.rpartition(":")
    if not colon or "]" in number:
        return text.strip("[]"), 0
    if ":" in name and not name.startswith("["):
        raise ValueError(f"address {text}: too many colons in address")
    if not number.removeprefix("-").isdecimal():
        raise ValueError(f'strconv.Atoi: parsing "{number}": invalid syntax')
    return name.strip("[]"), max(int(number), 0)


def advertised(text: str, host: str, port: int) -> tuple[str, int]:
    """The advertised host and port: `text` is "host", "host:port" or empty for the server's own."""
    name, number = parse_advertise(text) if text else (host, port)
    return name, number or port
