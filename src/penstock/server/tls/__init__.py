"""TLS for client connections."""
