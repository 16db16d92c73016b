class Subscriber:
    """Who hears messages in compiled code."""
