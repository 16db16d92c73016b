"""Test doubles: a disk that fails on demand, the images that a crash of it could leave, a clock that tests advance.

A crash test runs the store on a CrashDisk and then opens each image that a crash could leave:

    disk = CrashDisk(root)                                # the directory's current contents count as durable
    ...                                                   # run the store; disk.mark(seq) after each sync
    for image in crash_images(disk, out, count=500, seed=1):
        ...                                               # open image.path with a plain Disk: image.mark must be there
        image.remove()
"""

from penstock.testing.clock import FakeClock
from penstock.testing.crash_disk import FAULT_KINDS, KINDS, READ_KINDS, SPACE_KINDS, SYNC_KINDS, CrashDisk, Op
from penstock.testing.crash_images import MODES, CrashImage, crash_image, crash_images

__all__ = [
    "FAULT_KINDS",
    "KINDS",
    "MODES",
    "READ_KINDS",
    "SPACE_KINDS",
    "SYNC_KINDS",
    "CrashDisk",
    "CrashImage",
    "FakeClock",
    "Op",
    "crash_image",
    "crash_images",
]
