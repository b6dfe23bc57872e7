# SPDX-License-Identifier: Apache-2.0
"""torch where there is one: without it tests that need it are skipped, or fail where a GPU is required."""

import os
import unittest

try:
    import torch
except ImportError:
    if os.environ.get("PRELOAD_REQUIRE_GPU") == "1":
        raise
    torch = None

needs_torch = unittest.skipIf(torch is None, "torch is not installed here")
# "cuda:0" where $PRELOAD_TEST_DAEMON serves from that GPU's memory.
TORCH_DEVICE = os.environ.get("PRELOAD_TEST_TORCH_DEVICE", "cpu")


def skip_without_device(test: unittest.TestCase) -> None:
    """Ends a test of GPU memory where torch has no GPU, unless one is required."""
    if TORCH_DEVICE.startswith("cuda") and os.environ.get("PRELOAD_REQUIRE_GPU") != "1":
        if not torch.cuda.is_available():
            test.skipTest("torch sees no GPU here")
