# SPDX-License-Identifier: Apache-2.0
"""`preload plan` of as many tensors and ranks as anybody has: bounded memory, bounded time."""

import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

import harness
from harness import Safetensors, make_llama

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import make_deepseek  # noqa: E402

# Nine tensors a layer, embedding, norm and head.
LARGE = ["--layers", 10_000, "--hidden", 64, "--heads", 8, "--kv-heads", 8, "--vocab", 512,
         "--intermediate", 96, "--shards", 64, "--sparse"]  # fmt: skip
# Next to nothing in small tensors.
WIDE = ["--layers", 2, "--hidden", 1024, "--heads", 8, "--kv-heads", 8, "--intermediate", 2048]
RANKS = 1024
NODES = 128
LIMIT_BYTES = 1 << 30
LIMIT_S = 1.0
BUSY = 10  # a machine that runs other tests meanwhile, built with whatever flags


class Planning(harness.Case):
    def plan_summary(self, model, *sizes):
        """The lines of a plan of all ranks, made within the limits."""
        command = [harness.BIN, "plan", "--model", str(model), "--ranks", str(RANKS), "--nodes", str(NODES)]
        command += [*sizes, "--summary"]
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=harness.environment())
        lines = process.stdout.read().splitlines()
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - started
        print(f"{seconds:.2f} s, {usage.ru_maxrss / 1024:.0f} MiB at most", file=sys.stderr)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(len(lines), RANKS + NODES + 2)
        if not harness.SANITIZED:
            self.assertLessEqual(usage.ru_maxrss * 1024, LIMIT_BYTES)
            self.assertLess(seconds, LIMIT_S * BUSY)
        return lines

    def test_a_thousand_ranks_of_ninety_thousand_tensors_are_planned_in_a_gibibyte(self):
        self.plan_summary(make_llama(self.root / "model", *LARGE), "-tp", "8")

    def test_a_thousand_ranks_share_the_experts_of_deepseek_v3(self):
        model = self.root / "deepseek"
        self.assertGreaterEqual(make_deepseek.write(str(model)), 90_000)
        # Four stages of 256 ranks, an expert of each layer for each.
        lines = self.plan_summary(model, "-tp", "8", "-pp", "4", "--enable-expert-parallel")
        self.assertIn("dp 32 x pp 4 x tp 8", lines[0])
        self.assertEqual([line.split()[6] for line in lines[2:10]], list("01234567"))

    def test_nodes_that_read_for_each_other_read_the_files_once(self):
        model = make_llama(self.root / "model", *WIDE)
        stored = sum(Safetensors(path).data_bytes for path in model.glob("*.safetensors"))

        def nodes(*flags):
            command = ["plan", "--model", model, "--ranks", 8, "--nodes", 4, "-dp", 8, "--summary", "--json"]
            return json.loads(harness.run(*command, *flags))["nodes"]

        def read(*flags):
            return sum(node["read_bytes"] for node in nodes(*flags))

        self.assertEqual(read("--spread", "never"), 8 * stored)
        self.assertEqual(read("--spread", "always"), stored)
        self.assertEqual({node["nodes"] for node in nodes("--spread", "always")}, {4})
        slow = ["--disk-rate", "0.00001", "--network-rate", "10"]
        self.assertLess(read(*slow), 1.1 * stored, "but for what is too small to be worth a message")
        self.assertLess(3.5 * read(*slow), read("--disk-rate", "0.00001"), "each node once")
        # Four servers' worth of files take a quarter of the time.
        shared = nodes(*slow, "--shared-files")[0]["seconds"]
        self.assertAlmostEqual(shared / nodes(*slow)[0]["seconds"], 4, 1)


if __name__ == "__main__":
    unittest.main()
