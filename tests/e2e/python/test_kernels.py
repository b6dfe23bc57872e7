# SPDX-License-Identifier: Apache-2.0
"""What loads GPU code beside other work ends by itself and never fails anybody; skipped without torch."""

import threading
import unittest
from unittest import mock

from optional_torch import TORCH_DEVICE, needs_torch, skip_without_device, torch

if torch is not None:
    from preload import _kernels
    from preload._meta import WeightsOnMeta


@needs_torch
class Kernels(unittest.TestCase):
    def setUp(self):
        skip_without_device(self)

    def test_run_on_the_device_that_is_named(self):
        with torch.inference_mode(), torch.device(TORCH_DEVICE):
            tables = _kernels._small_tables(torch.bfloat16)
        plain, scaled = tables
        self.assertEqual([plain.device, plain.dtype], [torch.device(TORCH_DEVICE), torch.bfloat16])
        self.assertEqual(plain[0].tolist(), [1.0] * 4 + [0.0] * 4)  # cosines and sines of position 0
        self.assertTrue(torch.isfinite(scaled).all())

    def test_come_to_an_end_beside_a_build(self):
        """The builder's mode sends what has no content to meta: it is the builder's thread's alone."""
        with WeightsOnMeta(TORCH_DEVICE):
            loader = _kernels.KernelLoader(torch.device(TORCH_DEVICE), torch.bfloat16)
            loader.wait()
        self.assertIsNone(loader.error)
        self.assertNotIn("preload-kernels", [thread.name for thread in threading.enumerate()])

    def test_are_loaded_once_for_target_and_draft(self):
        device = torch.device(TORCH_DEVICE)
        with mock.patch.object(_kernels.KernelLoader, "_started", None):
            loader = _kernels.KernelLoader.started(device, torch.bfloat16)
            self.assertIs(_kernels.KernelLoader.started(device, torch.float16), loader)
            loader.wait()
        self.assertIsNone(loader.error)

    def test_that_fail_are_not_the_waiter_s_concern(self):
        with mock.patch.object(_kernels, "_small_tables", side_effect=RuntimeError("out of memory")):
            loader = _kernels.KernelLoader(torch.device(TORCH_DEVICE), torch.float32)
            loader.wait()
        self.assertEqual(str(loader.error), "out of memory")


if __name__ == "__main__":
    unittest.main()
