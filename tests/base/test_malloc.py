"""Heap: memory that is freed again and again is not asked of the system again and again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
from penstock.base.malloc import keep_freed
if sys.argv[1] == "kept":
    assert keep_freed()
def round():
    kept = [bytearray(100_000) for _ in range(8)]  # a block's summary, as many as may wait
for _ in range(5):
    round()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    round()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer's own heap")
def test_freed_memory_is_used_again_without_a_fault() -> None:
    assert faults("kept") < 500 < faults("as ever")
