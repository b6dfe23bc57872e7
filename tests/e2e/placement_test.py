# SPDX-License-Identifier: Apache-2.0
"""Several daemons on one machine: each client reaches the one that it means."""

import json
import subprocess
import sys
import unittest

import harness
from harness import checkpoint_tensors, make_llama

ATTACH = """
import sys
import preload
with preload.attach(socket_dir=sys.argv[1], device=sys.argv[2], slot=sys.argv[3]) as shard:
    print(shard.info.device, shard.info.slot, shard.info.key)
"""


class Slots(harness.Case):
    """Two models in two slots of the same devices."""

    def setUp(self):
        super().setUp()
        self.models = {slot: make_llama(self.root / slot, "--seed", seed, "--layers", layers, "--vocab", 512)
                       for slot, seed, layers in (("big", 1, 3), ("small", 2, 1))}  # fmt: skip
        self.daemons = {slot: self.start(model, "--layout", "hf", "--slot", slot).wait_ready()
                        for slot, model in self.models.items()}  # fmt: skip

    def test_each_client_reaches_its_own(self):
        for slot, model in self.models.items():
            out = self.root / f"dump-{slot}"
            self.preload("attach", "--gpu", "host:0", "--slot", slot, "--dump", out)
            (dump,) = out.iterdir()
            self.assertEqual(dump.name, f"rank0.{slot}.safetensors")
            self.assert_same_tensors(harness.Safetensors(dump), checkpoint_tensors(model), slot)
            self.preload("attach", "--slot", slot, "--expect-model", model)

    def test_the_other_model_is_refused_where_a_client_says_what_it_expects(self):
        self.preload("attach", "--slot", "big", "--expect-model", self.models["small"], status=7)
        self.preload("attach", "--slot", "small", "--expect-model", self.models["big"], status=7)

    def test_no_client_gets_either_by_accident(self):
        self.preload("attach", status=2)
        for slot in self.models:
            self.assertIn(f"slot {slot}", self.stderr)
        self.preload("attach", "--slot", "other", status=7)
        self.preload("attach", "--gpu", "host:1", "--slot", "big", status=7)

    def test_one_ends_and_the_other_does_not_notice(self):
        self.preload("stop", "--slot", "big")
        self.assertEqual(self.daemons["big"].wait_end(), 0, self.daemons["big"].log)
        self.preload("attach", "--slot", "big", status=7)
        self.preload("verify", "--slot", "small", "--against", self.models["small"])
        self.assertIsNone(self.daemons["small"].process.poll())

    @harness.needs_python_client
    def test_python_clients_too(self):
        keys = {}
        for slot in self.models:
            done = subprocess.run([sys.executable, "-c", ATTACH, self.sockets, "host:0", slot],
                                  capture_output=True, text=True, timeout=harness.COMMAND_S,
                                  env=harness.python_environment() | {"PYTHONPATH": str(harness.REPOSITORY / "python")},
                                  )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            device, found, keys[slot] = done.stdout.split()
            self.assertEqual((device, found), ("host:0", slot))
        self.assertEqual(keys, {d["slot"]: d["key"] for d in self.status()})
        self.assertEqual(len(set(keys.values())), 2)


@harness.needs_mpi
class Devices(harness.Case):
    """A job with a part on each of two devices, and another model in a slot of the first."""

    def test_each_client_reaches_the_part_of_its_device(self):
        model = make_llama(self.root / "model", "--layers", 2, "--vocab", 512)
        other = make_llama(self.root / "other", "--seed", 9, "--layers", 1, "--vocab", 512)
        self.start(model, "-tp", 2, ranks=2).wait_ready()
        self.start(other, "--layout", "hf", "--slot", "second").wait_ready()
        out = self.root / "dump"
        for rank in (0, 1):
            found = self.attach("--gpu", f"host:{rank}", "--slot", "", "--dump", out)
            self.assertEqual((found["gpu_uuid"], found["tp"]), (f"host:{rank}", rank))
        self.assert_dump_is_sliced(model, out, tp=2)
        self.assertEqual(self.attach("--slot", "second")["gpu_uuid"], "host:0")
        self.preload("verify", "--slot", "second", "--against", other)
        self.preload("verify", "--slot", "", "--against", model)

    def attach(self, *flags):
        (found,) = json.loads(self.preload("attach", "--json", *flags))["daemons"]
        return found


if __name__ == "__main__":
    unittest.main()
