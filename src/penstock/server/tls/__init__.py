"""TLS on a connection."""
