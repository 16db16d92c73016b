"""nats-server's configuration format, read and checked."""
