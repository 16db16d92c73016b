"""A consumer on the server: acks and pull requests in, messages out."""
