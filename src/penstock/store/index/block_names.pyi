class BlockNames:
    """The subjects of the active block as they come; compiled code alone uses it."""
