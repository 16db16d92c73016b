"""The server's lines."""
