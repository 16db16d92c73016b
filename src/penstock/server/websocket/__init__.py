"""NATS through WebSocket frames."""
