# SPDX-License-Identifier: Apache-2.0
"""A test case with a daemon of its own."""

import os
import tempfile
import unittest

from daemon import Daemon
from optional_torch import skip_without_device

import preload


class WithDaemon(unittest.TestCase):
    arguments = ()

    def setUp(self):
        skip_without_device(self)
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
