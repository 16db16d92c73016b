"""Reads a stream's configuration from its config.json, and checks it against the rules."""

from __future__ import annotations

import json
from typing import Any

from penstock.errors import FeatureMissing
from penstock.format.bounds import SEQ_MAX
from penstock.store.limits import DURABILITIES
from penstock.stream.config import DURABILITY, StreamConfig
from penstock.stream.config_json import decode_config
from penstock.stream.config_rules import validate


def stored_config(config: dict[str, Any], name: str) -> StreamConfig:
    """The stored configuration of the stream in the folder `name`; a ValueError or an ApiError gives the reason if it
    is invalid."""
    found = decode_config(json.dumps(config).encode())
    if found.name != name:
        raise ValueError(f"it is of stream {found.name[:80]!r}")
    if found.storage != "file":
        raise ValueError(f"a stream in {found.storage} has no files")
    if found.first_seq > SEQ_MAX:
        raise ValueError(f"first_seq {found.first_seq} is above {SEQ_MAX}")
    if found.metadata.get(DURABILITY, "disk") not in DURABILITIES:
        raise ValueError(f"durability {found.metadata[DURABILITY][:80]!r} is none of {', '.join(DURABILITIES)}")
    try:
        validate(found)
    except FeatureMissing:
        return found  # another version accepted it and created the stream: its messages must stay readable
    return found
