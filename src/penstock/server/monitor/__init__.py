"""What the server says about itself: the HTTP monitoring pages, and the makers that `$SYS` requests share with them.

One module per page makes a struct from the server; `http` speaks HTTP; `monitor` puts the two together.
"""

from penstock.server.monitor.monitor import Monitor

__all__ = ["Monitor"]
