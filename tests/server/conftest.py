"""The parity tests' servers and raw client (tests/parity) serve here; helpers of these tests are found beside them."""

from __future__ import annotations

import os
import sys

HERE = os.path.dirname(__file__)
sys.path[:0] = [HERE, os.path.join(HERE, "..", "parity")]
