"""Which Penstock this is. pyproject.toml reads it from here."""

VERSION = "0.1.0"
