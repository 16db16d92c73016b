"""The system account: its requests, answers and events."""
