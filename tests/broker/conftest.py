"""The servers' helpers (tests/server, tests/parity) serve here, too; those of delivery are found beside it."""

from __future__ import annotations

import os
import sys

HERE = os.path.dirname(__file__)
sys.path[:0] = [HERE, os.path.join(HERE, "..", "server"), os.path.join(HERE, "..", "parity")]
