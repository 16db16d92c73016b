class Hearer:
    """Who hears messages in compiled code."""
