# SPDX-License-Identifier: Apache-2.0
"""A test case with a daemon of its own."""

import os
import tempfile
import unittest

from daemon import Daemon

import preload


# "cuda:0" where $PRELOAD_TEST_DAEMON serves from that GPU's memory.
TORCH_DEVICE = os.environ.get("PRELOAD_TEST_TORCH_DEVICE", "cpu")


class WithDaemon(unittest.TestCase):
    arguments = ()

    def setUp(self):
        if TORCH_DEVICE.startswith("cuda") and os.environ.get("PRELOAD_REQUIRE_GPU") != "1":
            import torch

            if not torch.cuda.is_available():
                self.skipTest("torch sees no GPU here")
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = os.path.join(scratch.name, "run")
        self.daemon = self.enter(Daemon(self.directory, *self.arguments))

    def enter(self, context):
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def attach(self, **options):
        return preload.attach(socket_dir=self.directory, **options)

    def mappings(self):
        """Slabs that this process has mapped."""
        with open("/proc/self/maps") as maps:
            return sum("fixture-slab" in line for line in maps)
