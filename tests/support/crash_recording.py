"""A scenario of the crash campaigns, recorded disk call by disk call, and the message that tells how to replay a
failure.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from penstock.testing import CrashDisk, CrashImage
from support.crash_cases import SCENARIOS, Driver, run


def record(scratch: Path, name: str, durability: str, seed: int) -> tuple[Driver, CrashDisk]:
    """Run a scenario on a disk that records its calls; half of the runs also write checkpoints on the way."""
    root = scratch / "run"
    root.mkdir()
    disk = CrashDisk(root)
    driver = Driver(root / "stream", durability, SCENARIOS[name][1], seed, disk, disk.mark)
    try:
        with patch("penstock.store.index.checkpoint_writer.CHECKPOINT_AFTER", 0 if seed % 2 else 1 << 30):
            run(driver, name)
    finally:
        driver.close()
    return driver, disk


def explain(error: BaseException, name: str, durability: str, seed: int, driver: Driver, *images: CrashImage) -> None:
    """How to replay this case."""
    mark = images[0].mark or 0
    steps = [state.what for state in driver.states[max(mark - 3, 0) : mark + 2]]
    error.add_note(f"{name}, {durability}, scenario seed {seed}; steps up to the one under way: {steps}")
    for image in images:
        error.add_note(f"image: {image.description}")
