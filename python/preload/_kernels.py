# SPDX-License-Identifier: Apache-2.0
"""GPU code that models' constructors need, loaded before they need it."""

from __future__ import annotations

import threading

import torch


class KernelLoader:
    """Runs what a rotary table is computed with on a thread of its own, on tables of a few elements.

    torch loads each kernel's code at its first launch, 5 to 50 ms at a time and without holding the
    interpreter: the 100 ms that a model's first table takes for it pass beside whatever else goes on.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype):
        self._device, self._dtype = device, dtype
        self.error: BaseException | None = None  # of no consequence: the constructor meets it too
        self._thread = threading.Thread(target=self._run, name="preload-kernels")
        self._thread.start()

    def wait(self) -> None:
        """Until it is done, so that what follows has the device's memory to itself."""
        self._thread.join()

    _started: KernelLoader | None = None
    _starting = threading.Lock()

    @classmethod
    def started(cls, device: torch.device, dtype: torch.dtype) -> KernelLoader:
        """The one of this process: what it loads is the process's, whichever model asks."""
        with cls._starting:
            if cls._started is None:
                cls._started = cls(device, dtype)
            return cls._started

    def _run(self) -> None:
        try:
            with torch.inference_mode(), self._device:
                _small_tables(self._dtype)
        except Exception as error:  # noqa: BLE001
            self.error = error


def _small_tables(dtype: torch.dtype) -> list:
    """The operators of plain, Llama 3's and YaRN's rotary tables, as those compute them."""
    dim, positions = 8, 4
    steps = torch.arange(0, dim, 2, dtype=torch.float) / dim
    frequencies = 1.0 / (10000.0**steps)
    angles = torch.einsum("i,j -> ij", torch.arange(positions, dtype=torch.float), frequencies)
    plain = torch.cat((angles.cos() * 1.0, angles.sin() * 1.0), dim=-1).to(dtype)
    ramp = torch.clamp((torch.arange(dim // 2, dtype=torch.float) - 1) / 2, 0, 1)
    mixed = (1.0 / (8.0 * frequencies)) * (1 - ramp) + frequencies * ramp
    wavelengths = 2 * torch.pi / frequencies
    scaled = torch.where(
        wavelengths < 16.0, frequencies, torch.where(wavelengths > 64.0, frequencies / 8.0, mixed)
    )
    return [plain, scaled]
