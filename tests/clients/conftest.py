"""The parity tests' servers (tests/parity) serve here; certificates are those of tests/server."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "parity"), str(HERE.parent / "server")]
