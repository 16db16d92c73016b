"""Sockets, TLS, auth, configuration, start and stop; wires the layers together."""
