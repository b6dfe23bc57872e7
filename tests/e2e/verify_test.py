# SPDX-License-Identifier: Apache-2.0
"""`preload verify`: what is resident against its own hashes and against the files."""

import json
import unittest

import harness
from harness import Safetensors, make_llama, needs_mpi

MODEL = ["--hidden", 64, "--layers", 2, "--heads", 4, "--kv-heads", 2, "--vocab", 515, "--intermediate", 96]


def flip_byte(path, tensor, at):
    """Changes one byte of a tensor's payload in place."""
    file = Safetensors(path)
    position = file.data_at + file.header[tensor]["data_offsets"][0] + at
    with open(path, "r+b") as f:
        f.seek(position)
        byte = f.read(1)[0]
        f.seek(position)
        f.write(bytes([byte ^ 0x10]))


class Verify(harness.Case):
    def check_flip(self, model, tensor):
        """With one byte of `tensor` flipped, the report names it and nothing else."""
        flip_byte(model / "model.safetensors", tensor, 77)
        self.preload("verify")  # memory has not changed
        report = json.loads(self.preload("verify", "--against", model, "--json", status=3))
        self.assertFalse(report["ok"])
        self.assertEqual({entry["source"] for entry in report["mismatches"]}, {tensor})
        return report

    def test_a_flipped_byte_of_the_file_is_named(self):
        for layout, resident in (("hf", "model.layers.1.mlp.up_proj.weight"),
                                 ("vllm", "model.layers.1.mlp.gate_up_proj.weight")):  # fmt: skip
            with self.subTest(layout):
                model = make_llama(self.root / layout, *MODEL)
                daemon = self.start(model, "--layout", layout).wait_ready()
                report = json.loads(self.preload("verify", "--json"))
                self.assertTrue(report["ok"])
                self.assertGreater(report["checked"], 10)
                self.assertTrue(json.loads(self.preload("verify", "--against", model, "--json"))["ok"])
                report = self.check_flip(model, "model.layers.1.mlp.up_proj.weight")
                self.assertEqual({e["tensor"] for e in report["mismatches"]}, {resident})
                self.assert_stops_clean(daemon)

    @needs_mpi
    def test_every_rank_is_verified_against_the_files_through_its_slices(self):
        model = make_llama(self.root / "model", *MODEL)
        daemon = self.start(model, "-tp", 2, "-dp", 2, ranks=4).wait_ready()
        self.assertTrue(json.loads(self.preload("verify", "--against", model, "--json"))["ok"])
        report = self.check_flip(model, "model.layers.0.self_attn.o_proj.weight")
        # Columns 0-31 belong to tensor rank 0: byte 77 lies in the first row's column 38.
        self.assertEqual({e["rank"] for e in report["mismatches"]}, {1, 3})
        self.assert_stops_clean(daemon)

    def test_the_key_names_the_bytes(self):
        model = make_llama(self.root / "model", *MODEL)
        flags = ["--layout", "hf"]
        daemon = self.start(model, *flags).wait_ready()
        (served,) = self.status()
        self.assertEqual(json.loads(self.key(model, *flags))["key"], served["key"])
        flip_byte(model / "model.safetensors", "model.norm.weight", 3)
        self.assertNotEqual(json.loads(self.key(model, *flags))["key"], served["key"])
        self.assert_stops_clean(daemon)

    def test_a_tensors_name_neither_begins_a_line_nor_moves_the_cursor(self):
        name, shown = "w\npreload: READY \x1b[2K", "w\\npreload: READY \\x1b[2K"
        model = self.root / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps({"architectures": ["TestForMaskedLM"], "model_type": "test"}))
        header = json.dumps({name: {"dtype": "F32", "shape": [32], "data_offsets": [0, 128]}}).encode()
        (model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(128))
        flags = ["--layout", "hf"]
        texts = [harness.run("plan", "--model", model, "--ranks", 1, *flags)]
        daemon = self.start(model, *flags).wait_ready()
        texts.append(self.preload("attach"))
        flip_byte(model / "model.safetensors", name, 77)
        texts.append(self.preload("verify", "--against", model, status=3))
        for text in texts:
            self.assertIn(shown, text)
            self.assertNotIn("\x1b", text)
        self.assert_stops_clean(daemon)

    def key(self, model, *flags):
        return harness.run("key", model, *flags, "--json")


if __name__ == "__main__":
    unittest.main()
