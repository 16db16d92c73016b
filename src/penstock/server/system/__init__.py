"""The system account: its requests, replies and events."""
