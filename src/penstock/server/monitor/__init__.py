"""The HTTP monitoring pages, and the functions that make them, which `$SYS` requests share.

One module per page makes a struct from the server; `http` speaks HTTP; `monitor` puts the two together.
"""

from penstock.server.monitor.monitor import Monitor

__all__ = ["Monitor"]
