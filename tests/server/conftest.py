"""The parity tests' servers and raw client (tests/parity) serve here, too."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "parity"))
