# SPDX-License-Identifier: Apache-2.0
"""The wheel: built, installed into an empty folder, and used from there; skipped where pip cannot build."""

import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from daemon import SOURCE, Daemon

PROGRAM = """
import sys, preload, preload._library as library
from importlib.metadata import entry_points
(plugin,) = entry_points(group="vllm.general_plugins")
print(len(preload.attach(socket_dir=sys.argv[1])), library.library()._name, plugin.value)
"""


class Wheel(unittest.TestCase):
    def build(self, out: str) -> Path:
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", out, str(SOURCE / "python")]
        built = subprocess.run(command, capture_output=True, text=True)
        if (
            built.returncode != 0
            and "scikit-build-core" in built.stderr
            and "No matching distribution" in built.stderr
        ):
            raise unittest.SkipTest("scikit-build-core is not to be had here")
        self.assertEqual(built.returncode, 0, built.stderr[-3000:])
        (wheel,) = Path(out).glob("*.whl")
        return wheel

    def test_holds_the_library_and_runs_alone(self):
        with tempfile.TemporaryDirectory() as scratch:
            wheel = self.build(scratch)
            self.assertIn("-py3-none-linux_", wheel.name)
            target = os.path.join(scratch, "site")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(target)
            library = os.path.join(target, "preload/libpreload_client.so.1")
            linked = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
            for name in ("libcrypto", "libstdc++", "libfmt", "libspdlog", "libcuda", "libmpi"):
                self.assertNotIn(name, linked)
            environment = {k: v for k, v in os.environ.items() if k != "PRELOAD_CLIENT_LIBRARY"}
            environment["PYTHONPATH"] = target
            directory = os.path.join(scratch, "run")
            with Daemon(directory):
                command = [sys.executable, "-c", PROGRAM, directory]
                said = subprocess.run(
                    command, env=environment, capture_output=True, text=True, check=True
                ).stdout.split()
            self.assertEqual(said, ["28", library, "preload.vllm:register"])


if __name__ == "__main__":
    unittest.main()
