"""The file fuzzer's modules lie beside its test."""

from __future__ import annotations

import os
import sys

sys.path[:0] = [os.path.dirname(__file__)]
