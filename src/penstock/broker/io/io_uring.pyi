class SendRing:
    """Many sends in one system call."""

    def __init__(self) -> None: ...
