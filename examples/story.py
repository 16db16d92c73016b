"""Story: numbered steps with their times, for the three parts of the demo."""

from __future__ import annotations

import time


class Story:
    """Numbered steps, going on from `number`."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.began = self.last = time.perf_counter()

    def step(self, title: str) -> None:
        self.number += 1
        self.last = time.perf_counter()
        print(f"\n{self.number:2}. {title}", flush=True)

    def say(self, text: str) -> None:
        print(f"    {text}", flush=True)

    def took(self, text: str) -> None:
        self.say(f"{text}  [{time.perf_counter() - self.last:.2f} s]")
