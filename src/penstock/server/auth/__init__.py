"""Authentication and permissions of connections."""
