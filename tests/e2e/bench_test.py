# SPDX-License-Identifier: Apache-2.0
"""`preload bench load` on host memory, with other loaders that the test makes itself."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import harness
from harness import make_llama

MODEL = ["--dtype", "F32", "--hidden", 64, "--layers", 2, "--heads", 4, "--kv-heads", 2, "--vocab", 515, "--shards", 2]
PEERS = {"safetensors", "fastsafetensors", "runai_model_streamer", "instanttensor"}

# A loader that reads as safetensors.numpy does, and then does what BREAK says.
LOADER = """
import json, os, pathlib
import numpy as np

def load_file(path):
    data = pathlib.Path(path).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[start + begin : start + end], "<f4").reshape(entry["shape"]).copy()
        tensors[name] = array
    how = os.environ.get("BREAK")
    norm = "model.norm.weight"
    if norm in tensors and how == "bytes":
        tensors[norm][-1] += 1
    if norm in tensors and how == "shape":
        tensors[norm] = tensors[norm].reshape(1, -1)
    if norm in tensors and how == "tensor":
        del tensors[norm]
    if how == "crash":
        os.abort()
    return tensors
"""


class BenchLoad(harness.Case):
    def setUp(self):
        super().setUp()
        self.model = make_llama(self.root / "model", *MODEL)

    def bench(self, *arguments, status=0, **environment):
        """The standard output of `preload bench load --device host`."""
        done = subprocess.run(
            [harness.BIN, "bench", "load", "--model", str(self.model), "--device", "host", *map(str, arguments)],
            capture_output=True, text=True, timeout=harness.COMMAND_S,
            env=harness.environment(**{"PRELOAD_PYTHON": sys.executable, **environment}),
        )  # fmt: skip
        self.assertEqual(done.returncode, status, f"{done.stdout}\n{done.stderr}")
        self.stderr = done.stderr
        return done.stdout

    def report(self, *arguments, **environment):
        return json.loads(self.bench("--json", "--runs", 2, *arguments, **environment))

    def make_safetensors(self):
        """A directory for PYTHONPATH with a package of that name and version 9.9."""
        site = self.root / "site"
        for path, text in (("safetensors/__init__.py", ""), ("safetensors/numpy.py", LOADER),
                           ("safetensors-9.9.dist-info/METADATA", "Name: safetensors\nVersion: 9.9\n")):  # fmt: skip
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)
        # Whatever this machine has, torch would be taken for the real loader.
        (site / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
        return site

    def peer(self, **environment):
        (peer,) = self.report("--peers", "safetensors", PYTHONPATH=self.make_safetensors(), **environment)["peers"]
        self.assertEqual((peer["name"], peer["version"]), ("safetensors", "9.9"))
        return peer

    def check_figures(self, report):
        self.assertGreater(report["seconds"], 0)
        self.assertAlmostEqual(report["gb_per_s"], report["bytes"] / 1e9 / report["seconds"], places=9)
        self.assertAlmostEqual(report["ratio"], report["gb_per_s"] / report["limit_gb_per_s"], places=9)
        self.assertIn(report["reader"], ("pread", "mmap", "direct"))
        self.assertEqual((report["verified"], report["device"], report["runs"]), (True, "host", 2))
        self.assertEqual(report["model"], str(self.model))
        self.assertGreaterEqual(report["threads"], 1)
        self.assertGreaterEqual(report["setup_seconds"], 0)

    def test_reports_the_load_its_limit_and_every_peer(self):
        report = self.report()
        self.check_figures(report)
        self.assertTrue(report["hot"])
        self.assertIn("plain parallel read", report["limit"])
        stored = sum(t.nbytes for t in harness.checkpoint_tensors(self.model).values())
        self.assertEqual(report["bytes"], stored)
        self.assertEqual({peer["name"] for peer in report["peers"]}, PEERS)
        for peer in report["peers"]:
            self.assertTrue("gb_per_s" in peer or peer.get("skipped") or peer.get("error"), peer)

    def test_measures_one_ranks_part_in_words(self):
        report = self.report("-tp", 2, "--rank", 1, "--layout", "hf", "--reader", "mmap", "--peers", "none")
        self.check_figures(report)
        self.assertEqual((report["reader"], report["peers"]), ("mmap", []))
        whole = sum(t.nbytes for t in harness.checkpoint_tensors(self.model).values())
        self.assertLess(report["bytes"], whole)
        self.assertRegex(self.bench("--runs", 1, "--peers", "none"), r"ratio \d\.\d+")

    def test_times_a_peer_on_the_same_files(self):
        report = self.report("--peers", "safetensors", PYTHONPATH=self.make_safetensors())
        (peer,) = report["peers"]
        self.assertEqual((peer["name"], peer["version"], peer["setting"]), ("safetensors", "9.9", "load_file"))
        self.assertAlmostEqual(peer["gb_per_s"], report["bytes"] / 1e9 / peer["seconds"], places=6)
        self.assertAlmostEqual(peer["ratio_to_ours"], peer["gb_per_s"] / report["gb_per_s"], places=6)

    def test_a_peer_that_gives_something_else_is_an_error_that_names_the_tensor(self):
        for how, text in (("bytes", "bytes"), ("shape", "shape [1, 64]"), ("tensor", "did not come")):
            with self.subTest(how):
                peer = self.peer(BREAK=how)
                self.assertNotIn("seconds", peer)
                self.assertIn("model.norm.weight", peer["error"])
                self.assertIn(text, peer["error"])
        self.assertIn("SIGABRT", self.peer(BREAK="crash")["error"])

    def test_without_python_the_load_is_still_measured(self):
        report = self.report("--peers", "instanttensor", PRELOAD_PYTHON="/nowhere/python")
        self.check_figures(report)
        (peer,) = report["peers"]
        self.assertIn("/nowhere/python", peer["error"])
        self.assertIn("PRELOAD_PYTHON", peer["error"])

    def test_cold_is_measured_by_root_on_a_disk_and_refused_elsewhere(self):
        in_memory = subprocess.run(["stat", "-f", "-c", "%T", str(self.model)], capture_output=True, text=True)
        can_drop = os.access("/proc/sys/vm/drop_caches", os.W_OK) and in_memory.stdout.strip() not in ("tmpfs", "ramfs")
        if can_drop:
            report = self.report("--cold", "--peers", "none")
            self.check_figures(report)
            self.assertFalse(report["hot"])
            self.assertIn("O_DIRECT", report["limit"])
            return
        self.bench("--cold", "--peers", "none", status=2)
        self.assertIn("without --cold", self.stderr)

    def test_refuses_what_cannot_be_measured(self):
        self.bench("--hot", "--cold", status=2)
        self.bench("--peers", "vllm", status=2)
        self.assertIn("instanttensor", self.stderr)
        self.model = pathlib.Path("/nowhere/model")
        self.bench("--peers", "none", status=3)


if __name__ == "__main__":
    unittest.main()
