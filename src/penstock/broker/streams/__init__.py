"""A stream on the server: what it ingests, what publishers are answered, direct gets."""
