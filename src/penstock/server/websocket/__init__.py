"""NATS over WebSocket."""
