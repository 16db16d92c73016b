class Subscriber:
    """Receives messages in compiled code."""
