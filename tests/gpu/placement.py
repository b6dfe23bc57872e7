#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Daemons and clients meet by a GPU's UUID, whatever CUDA_VISIBLE_DEVICES either has: by index, by UUID
and by its first digits, in either order where there are two GPUs.

    placement.py BUILD

And in containers of their own that share the socket directory alone: --export vmm needs nothing more,
cuda-ipc says what it misses. Prints one JSON object; exits 1 when something was not as it should be."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))


def visible_uuids():
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    query = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout.split()


def spellings(uuids, order):
    """CUDA_VISIBLE_DEVICES for GPUs in this order, in every way that CUDA reads."""
    return [
        ",".join(str(i) for i in order),
        ",".join(uuids[i] for i in order),
        ",".join(uuids[i][: len("GPU-") + 8] for i in order),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    build = parser.parse_args().build.resolve()
    os.environ["PRELOAD_TEST_BIN"] = str(build / "src/preload")
    import containers
    import harness

    uuids = visible_uuids()
    result = {"gpus": len(uuids), "pairs": 0}

    class Run(harness.Case):
        def attach(self, visible, *flags, status=0):
            os.environ["CUDA_VISIBLE_DEVICES"] = visible
            self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES", None)
            out = self.preload("attach", "--json", *flags, status=status)
            return json.loads(out)["daemons"]

        def make_model(self, name, seed):
            return harness.make_llama(self.root / name, "--seed", seed, "--layers", 1 + seed, "--vocab", 512)

        def start_on(self, visible, model, *flags):
            daemon = self.start(model, "--layout", "hf", *flags, device="cuda", env={"CUDA_VISIBLE_DEVICES": visible})
            return daemon.wait_ready()

    class OneGpu(Run):
        def runTest(self):
            model = self.make_model("model", 1)
            for ours in [*spellings(uuids, [0]), ",".join(map(str, range(len(uuids))))]:
                daemon = self.start_on(ours, model)
                for theirs in spellings(uuids, [0]):
                    for gpu in ("0", uuids[0], uuids[0].lower()):
                        (found,) = self.attach(theirs, "--gpu", gpu)
                        self.assertEqual(found["gpu_uuid"], uuids[0].lower(), (ours, theirs, gpu))
                        result["pairs"] += 1
                self.attach("", "--gpu", uuids[0], status=4)
                self.assertIn("CUDA_VISIBLE_DEVICES", self.stderr)
                self.preload("stop")
                self.assertEqual(daemon.wait_end(), 0, daemon.log)

    class TwoGpus(Run):
        """A model on each of two GPUs: every client reaches the one of the GPU that it means."""

        def runTest(self):
            models = [self.make_model(f"model{i}", i) for i in (0, 1)]
            tensors = [len(harness.checkpoint_tensors(model)) for model in models]
            for ours in zip(spellings(uuids, [0]), spellings(uuids, [1]), strict=True):
                daemons = [self.start_on(visible, model) for visible, model in zip(ours, models, strict=True)]
                for order in ([0, 1], [1, 0]):
                    for theirs in spellings(uuids, order):
                        for index, gpu in enumerate(order):
                            (found,) = self.attach(theirs, "--gpu", index)
                            self.assertEqual(found["gpu_uuid"], uuids[gpu].lower(), (ours, theirs, index))
                            self.assertEqual(found["tensors"], tensors[gpu])
                            result["pairs"] += 1
                for visible, model, uuid in zip(ours, models, uuids, strict=False):
                    os.environ["CUDA_VISIBLE_DEVICES"] = visible
                    self.preload("verify", "--gpu", uuid, "--against", model)
                os.environ.pop("CUDA_VISIBLE_DEVICES")
                self.preload("stop")
                for daemon in daemons:
                    self.assertEqual(daemon.wait_end(), 0, daemon.log)

    class Containers(Run):
        def client(self, *arguments):
            words = [*containers.command("client", hide=self.root, shared=self.sockets), harness.BIN, *arguments]
            words += ["--weight-cache-socket-dir", containers.SHARED]
            return subprocess.run(words, capture_output=True, text=True, timeout=120, env=harness.environment())

        def runTest(self):
            model = self.make_model("model", 2)
            flags = {"device": "cuda", "through": containers.command("daemon")}
            daemon = self.start(model, "--layout", "hf", **flags).wait_ready()
            verified = self.client("verify", "--json")
            self.assertEqual(verified.returncode, 0, verified.stderr)
            result["vmm_verified"] = json.loads(verified.stdout)["checked"]
            self.assertEqual(result["vmm_verified"], len(harness.checkpoint_tensors(model)))
            self.preload("stop")
            self.assertEqual(daemon.wait_end(), 0, daemon.log)
            daemon = self.start(model, "--layout", "hf", "--export", "cuda-ipc", **flags).wait_ready()
            refused = self.client("attach", "--all")
            self.assertEqual(refused.returncode, 4, refused.stderr)
            for word in ("IPC", "PID", "namespaces", "--export vmm"):
                self.assertIn(word, refused.stderr)
            result["cuda_ipc"] = "refused with the reason"
            self.preload("stop")
            self.assertEqual(daemon.wait_end(), 0, daemon.log)

    cases = [OneGpu()]
    if len(uuids) > 1:
        cases.append(TwoGpus())
    if containers.may_make_containers():
        cases.append(Containers())
    else:
        result["skipped"] = "namespaces cannot be made here"
    outcome = cases[0].defaultTestResult()
    for case in cases:
        case.run(outcome)
    for _, text in outcome.errors + outcome.failures:
        print(text, file=sys.stderr)
    print(json.dumps(result | {"ok": outcome.wasSuccessful()}))
    return 0 if outcome.wasSuccessful() else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        tempfile.tempdir = directory
        sys.exit(main())
