# SPDX-License-Identifier: Apache-2.0
"""Which checkpoint is served: keys, and by what clients know that files and what is served are the same."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

import harness
from harness import Safetensors, make_llama, needs_mpi, needs_python_client
from read_faults import ReadFaults

MODEL = ["--hidden", 128, "--layers", 2, "--heads", 4, "--kv-heads", 2, "--vocab", 2003,
         "--intermediate", 192, "--shards", 2]  # fmt: skip
SETTLED_S = 0.3  # until time stamps prove something


def flip_byte(path, tensor, at=0):
    """Changes one byte of a tensor's payload, and no header."""
    file = Safetensors(path)
    position = file.data_at + file.header[tensor]["data_offsets"][0] + at
    with open(path, "r+b") as f:
        f.seek(position)
        byte = f.read(1)[0]
        f.seek(position)
        f.write(bytes([byte ^ 0x10]))
    time.sleep(SETTLED_S)


def copy_of(model, to):
    shutil.copytree(model, to)
    time.sleep(SETTLED_S)
    return pathlib.Path(to)


class Identity(harness.Case):
    def setUp(self):
        super().setUp()
        self.model = make_llama(self.root / "model", *MODEL)
        self.payload = sum(p.stat().st_size for p in self.model.glob("*.safetensors"))
        time.sleep(SETTLED_S)

    def key(self, model, *flags):
        """The key's JSON, and how many bytes of weight files were read for it."""
        faults = ReadFaults(self.root)
        command = [*faults.through, harness.BIN, "key", str(model), "--json", *map(str, flags)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=harness.environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout), faults.total("bytes")

    def expect(self, model, *flags, status=0):
        """What `attach` says of the only daemon, and how many bytes of weight files it read."""
        faults = ReadFaults(self.root)
        command = [*faults.through, harness.BIN, "attach", "--json", "--expect-model", str(model)]
        command += ["--weight-cache-socket-dir", str(self.sockets), *map(str, flags)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=harness.environment())
        self.assertEqual(done.returncode, status, done.stderr)
        self.stderr = done.stderr
        return json.loads(done.stdout)["daemons"], faults.total("bytes")

    def fresh_cache(self):
        os.environ["PRELOAD_CACHE_ROOT"] = str(self.root / f"cache-{time.monotonic_ns()}")

    def test_a_copy_elsewhere_has_the_same_key_after_one_hash_that_is_remembered(self):
        first, read = self.key(self.model)
        self.assertGreater(read, self.payload * 0.9)
        copy = copy_of(self.model, self.root / "copy")
        again, read = self.key(copy)
        self.assertEqual(again, first)
        self.assertGreater(read, self.payload * 0.9)
        again, read = self.key(copy)
        self.assertEqual(again, first)
        self.assertLess(read, self.payload * 0.1)

    def test_a_renamed_directory_has_the_same_key_at_once_and_touched_files_after_one_hash(self):
        first, _ = self.key(self.model)
        renamed = self.model.rename(self.root / "renamed")
        again, read = self.key(renamed)
        self.assertEqual(again, first)
        self.assertLess(read, self.payload * 0.1)
        for path in renamed.glob("*.safetensors"):
            os.utime(path, ns=(1, 1))
        time.sleep(SETTLED_S)
        again, read = self.key(renamed)
        self.assertEqual(again, first)
        self.assertGreater(read, self.payload * 0.9)
        again, read = self.key(renamed)
        self.assertEqual(again, first)
        self.assertLess(read, self.payload * 0.1)

    def test_a_key_is_the_digest_of_canonical_json(self):
        key, _ = self.key(self.model, "-tp", 2, "--rank", 1)
        text = json.dumps(key["fields"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        self.assertEqual(hashlib.sha256(text.encode()).hexdigest(), key["key"])
        self.assertEqual(key["fields"]["checkpoint"], key["checkpoint"])

    def test_what_was_loaded_is_known_again_by_its_files(self):
        daemon = self.start(self.model).wait_ready()
        (shard,), read = self.expect(self.model)
        self.assertEqual(shard["evidence"], "receipt")
        self.assertLess(read, self.payload * 0.1)
        # The load itself has hashed the files for later keys.
        key, read = self.key(self.model)
        self.assertEqual(key["key"], shard["key"])
        self.assertLess(read, self.payload * 0.1)
        self.assertNotIn("evidence", json.loads(self.preload("attach", "--json"))["daemons"][0])  # no claim
        (status,) = self.status()
        self.assertEqual(status["evidence"]["checkpoint"], key["checkpoint"])
        self.assertEqual({file["name"] for file in status["evidence"]["receipt"]},
                         {p.name for p in self.model.glob("*.safetensors")})  # fmt: skip
        self.assert_stops_clean(daemon)

    def test_a_copy_is_hashed_once_unless_a_sample_is_trusted(self):
        daemon = self.start(self.model).wait_ready()
        copy = copy_of(self.model, self.root / "copy")
        (shard,), read = self.expect(copy, "--trust-sample")
        self.assertEqual(shard["evidence"], "sample")
        self.assertLess(read, self.payload * 0.3)
        (shard,), read = self.expect(copy)
        self.assertEqual(shard["evidence"], "hash")
        self.assertGreater(read, self.payload * 0.9)
        (shard,), read = self.expect(copy)
        self.assertEqual(shard["evidence"], "hash")
        self.assertLess(read, self.payload * 0.1)
        self.assert_stops_clean(daemon)

    def test_one_changed_byte_is_a_mismatch_that_names_field_and_file(self):
        daemon = self.start(self.model).wait_ready()
        # At the beginning of a tensor, where samples may look, and where none does.
        tensors = Safetensors(self.model / "model-00002-of-00002.safetensors").header
        inside = [n for n, t in tensors.items() if t["data_offsets"][1] - t["data_offsets"][0] > 30000]
        for tensor, at in (("model.norm.weight", 0), (inside[-1], 11111)):
            with self.subTest(tensor):
                copy = copy_of(self.model, self.root / f"changed-{at}")
                flip_byte(copy / "model-00002-of-00002.safetensors", tensor, at)
                (status,) = self.status()
                daemons, _ = self.expect(copy, status=7)
                self.assertEqual(daemons, [])
                self.assertIn("checkpoint is " + status["evidence"]["checkpoint"], self.stderr)
                key, _ = self.key(copy)
                self.assertNotEqual(key["checkpoint"], status["evidence"]["checkpoint"])
                self.assertNotEqual(key["key"], status["key"])
                # Hashed by now: both ids are told.
                self.expect(copy, status=7)
                self.assertIn("expected " + key["checkpoint"], self.stderr)
        self.assert_stops_clean(daemon)

    def test_a_sample_names_the_file_that_differs_before_anything_is_hashed(self):
        daemon = self.start(self.model).wait_ready()
        copy = copy_of(self.model, self.root / "copy")
        path = copy / "model-00001-of-00002.safetensors"
        first = min(Safetensors(path).header)
        flip_byte(path, first)
        _, read = self.expect(copy, status=7)
        self.assertIn("other bytes in model-00001-of-00002.safetensors", self.stderr)
        self.assertNotIn("model-00002", self.stderr)
        self.assertLess(read, self.payload * 0.3)
        self.assert_stops_clean(daemon)

    def test_a_blobs_name_in_a_hub_cache_proves_nothing_of_its_bytes(self):
        """A blob is called after the bytes that were downloaded: who changed it in its place, did not
        rename it."""
        def hub(name):
            snapshot = self.root / name / "models--org--m" / "snapshots" / "main"
            blobs = snapshot.parent.parent / "blobs"
            snapshot.mkdir(parents=True)
            blobs.mkdir()
            for path in self.model.iterdir():
                data = path.read_bytes()
                blob = hashlib.sha256(data).hexdigest()
                if path.suffix != ".safetensors":
                    blob = hashlib.sha1(data).hexdigest()
                (blobs / blob).write_bytes(data)
                (snapshot / path.name).symlink_to(pathlib.Path("../../blobs") / blob)
            time.sleep(SETTLED_S)
            return snapshot

        one = hub("one")
        daemon = self.start(one).wait_ready()
        (shard,), read = self.expect(one)
        self.assertEqual(shard["evidence"], "receipt")
        (status,) = self.status()
        self.fresh_cache()
        damaged = hub("damaged")
        name = "model-00002-of-00002.safetensors"
        tensors = Safetensors(damaged / name).header
        inside = [n for n, t in tensors.items() if t["data_offsets"][1] - t["data_offsets"][0] > 30000]
        flip_byte(damaged / name, inside[-1], 11111)
        time.sleep(SETTLED_S)
        key, _ = self.key(damaged)
        self.assertNotEqual(key["checkpoint"], status["evidence"]["checkpoint"])
        self.expect(damaged, status=7)
        self.assertIn("expected " + key["checkpoint"], self.stderr)
        # What is remembered of the damaged copy is not taken for another of the same names.
        good = hub("good")
        (shard,), _ = self.expect(good)
        self.assertEqual(shard["evidence"], "hash")
        self.assertEqual(self.key(good)[0]["key"], status["key"])
        # A blob changed in its place under the daemon.
        flip_byte(one / name, inside[-1], 11111)
        time.sleep(SETTLED_S)
        self.expect(one, status=7)
        self.assert_stops_clean(daemon)

    def test_other_fields_are_compared_before_the_bytes_and_told_with_both_values(self):
        daemon = self.start(self.model).wait_ready()
        other = make_llama(self.root / "qwen", "--family", "qwen2", *MODEL)
        _, read = self.expect(other, status=7)
        self.assertIn("architecture is LlamaForCausalLM, expected Qwen2ForCausalLM", self.stderr)
        _, read = self.expect(self.model, "--expect.fields.tp_size", "2", status=7)
        self.assertIn("tp_size is 1, expected 2", self.stderr)
        self.expect(self.root / "absent", status=3)
        self.assert_stops_clean(daemon)

    def test_files_that_hold_the_same_tensors_are_the_same_checkpoint(self):
        """Shards cut differently: nothing but the hash can tell, and it does."""
        one_file = make_llama(self.root / "one", *MODEL[:-2])
        daemon = self.start(self.model).wait_ready()
        (shard,), _ = self.expect(one_file)
        self.assertEqual(shard["evidence"], "hash")
        self.assert_stops_clean(daemon)

    @needs_mpi
    def test_every_rank_of_a_job_knows_the_files(self):
        daemon = self.start(self.model, "-tp", 2, ranks=2).wait_ready()
        shards, read = self.expect(self.model, "--all")
        self.assertEqual([shard["evidence"] for shard in shards], ["receipt"] * 2)
        self.assertNotEqual(shards[0]["key"], shards[1]["key"])
        for rank, shard in enumerate(sorted(shards, key=lambda s: s["tp"])):
            self.assertEqual(self.key(self.model, "-tp", 2, "--rank", rank)[0]["key"], shard["key"])
        self.assert_stops_clean(daemon)

    @needs_python_client
    def test_python_expects_a_model(self):
        daemon = self.start(self.model).wait_ready()
        copy = copy_of(self.model, self.root / "copy")
        changed = copy_of(self.model, self.root / "changed")
        flip_byte(changed / "model-00002-of-00002.safetensors", "model.norm.weight")
        script = f"""
import pathlib, sys
sys.path.insert(0, {str(harness.REPOSITORY / "python")!r})
import preload
sockets = {str(self.sockets)!r}
with preload.attach(socket_dir=sockets) as shard:
    print(shard.info.evidence)
with preload.attach(socket_dir=sockets, expect=pathlib.Path({str(self.model)!r})) as shard:
    print(shard.info.evidence)
with preload.attach(socket_dir=sockets, expect={{"model": {str(copy)!r}, "trust_sample": True}}) as shard:
    print(shard.info.evidence)
    key = shard.info.key
with preload.attach(socket_dir=sockets, expect=key) as shard:
    print(shard.info.evidence)
try:
    preload.attach(socket_dir=sockets, expect=pathlib.Path({str(changed)!r}))
except preload.Mismatch as error:
    print(sorted(error.fields), sorted(error.fields["checkpoint"]))
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
                              env=harness.python_environment())  # fmt: skip
        self.assertEqual(done.stdout.splitlines(),
                         ["none", "receipt", "sample", "key", "['checkpoint'] ['expected', 'served']"],
                         done.stderr)  # fmt: skip
        self.assert_stops_clean(daemon)


if __name__ == "__main__":
    unittest.main()
