"""All consumers of a stream in one append-only log."""
