from os import PathLike

from typing_extensions import Buffer

from penstock.kernel.disk import Disk

class LateFile:
    """The bytes that a file will have."""

    def __init__(self, disk: Disk, path: str | PathLike[str], data: Buffer) -> None: ...
    @property
    def path(self) -> bytes: ...
    @property
    def is_done(self) -> bool: ...
    def check(self) -> None: ...
