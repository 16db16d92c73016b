"""The pages on the library are correct: their examples run one after the other, as a reader would type them. So does
the example of a job queue.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", ["library-consumers.md", "kv.md"])
def test_the_examples_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / page).read_text()
    names: dict[str, object] = {"__name__": page}
    count = 0
    for found in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        lines_before = text[: found.start(1)].count("\n")
        # so that an error names the page's line
        code = compile("\n" * lines_before + found[1], str(DOCS / page), "exec")
        exec(code, names)
        count += 1
    assert count > 3


def test_the_job_queue_survives_its_worker(tmp_path: Path) -> None:
    order = [sys.executable, str(ROOT / "examples" / "jobs.py"), "--count", "300", "--out", str(tmp_path / "data")]
    said = subprocess.run(order, capture_output=True, text=True, timeout=120, check=False)
    assert said.returncode == 0, said.stderr
    assert "300 results; 0 jobs left" in said.stdout
