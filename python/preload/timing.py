# SPDX-License-Identifier: Apache-2.0
"""How long each step of an engine's start took."""

from __future__ import annotations

import time
from contextlib import contextmanager


class Timing:
    """Milliseconds by step, in order."""

    def __init__(self):
        self.steps: dict[str, float] = {}

    def add(self, step: str, milliseconds: float) -> None:
        self.steps[step] = self.steps.get(step, 0.0) + milliseconds

    @contextmanager
    def step(self, name: str):
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, (time.perf_counter() - start) * 1000)

    @property
    def total_ms(self) -> float:
        return sum(self.steps.values())

    def __str__(self) -> str:
        return ", ".join(f"{step} {ms:.1f} ms" for step, ms in self.steps.items())

    def __repr__(self) -> str:
        return f"<Timing {self}>"
