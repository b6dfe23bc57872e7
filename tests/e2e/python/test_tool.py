# SPDX-License-Identifier: Apache-2.0
"""`preload attach` and `preload verify` against a fixture and against a served checkpoint."""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from daemon import SOURCE, Daemon
from with_daemon import WithDaemon

TOOL = os.environ["PRELOAD_TOOL"]


def tool(*arguments, directory, status=0):
    done = subprocess.run(
        [TOOL, *map(str, arguments), "--weight-cache-socket-dir", str(directory)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode != status:
        raise AssertionError(f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}, written from the format's definition."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return {
        name: (
            entry["dtype"],
            entry["shape"],
            data[8 + length + entry["data_offsets"][0] : 8 + length + entry["data_offsets"][1]],
        )
        for name, entry in header.items()
    }


class AttachCommand(WithDaemon):
    def test_json(self):
        (daemon,) = json.loads(tool("attach", "--json", directory=self.directory).stdout)["daemons"]
        self.assertEqual(
            list(daemon),
            ["gpu_uuid", "slot", "role", "global_rank", "dp", "pp", "tp", "ep", "key", "tensors",
             "bytes", "attach_ms"],
        )  # fmt: skip
        self.assertEqual(daemon["gpu_uuid"], "host:0")
        self.assertEqual(daemon["tensors"], 28)
        self.assertIsNone(daemon["ep"])
        with_tensors = tool("attach", "--json", "--tensors", directory=self.directory).stdout
        tensors = json.loads(with_tensors)["daemons"][0]["tensors"]
        self.assertEqual(tensors[1]["name"], "tied")
        self.assertEqual(tensors[1]["alias"], "w")
        self.assertEqual(tensors[4]["shape"], [4, 3])

    def test_table(self):
        text = tool("attach", "--gpu", "host:0", directory=self.directory).stdout
        self.assertIn("28 tensors", text)
        self.assertIn("strided", text)
        self.assertIn("is w", text)

    def test_several_daemons(self):
        with Daemon(self.directory, "--device", "host:1", "--slot", "b"):
            refused = tool("attach", directory=self.directory, status=2)
            self.assertIn("host:1, slot b", refused.stderr)
            out = tool("attach", "--all", "--json", directory=self.directory).stdout
            self.assertEqual(len(json.loads(out)["daemons"]), 2)
            dump = Path(self.directory) / "../dump"
            tool("attach", "--all", "--dump", dump, directory=self.directory)
            self.assertEqual(
                sorted(os.listdir(dump)), ["rank0.b.safetensors", "rank0.safetensors"]
            )
            self.assertEqual(
                read_safetensors(dump / "rank0.safetensors"),
                read_safetensors(dump / "rank0.b.safetensors"),
            )

    def test_exit_status_when_there_is_none(self):
        self.daemon.kill()
        refused = tool("attach", directory=self.directory, status=7)
        self.assertIn("host:0", refused.stderr)
        self.assertEqual(refused.stdout, "")


class VerifyCommand(WithDaemon):
    def test_json(self):
        out = tool("verify", "--json", directory=self.directory).stdout
        self.assertEqual(json.loads(out), {"ok": True, "checked": 28, "mismatches": []})


class ServedCheckpoint(unittest.TestCase):
    """A padded vocabulary, fused projections, two shards: the real loader, one rank, host memory."""

    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.model = Path(scratch.name) / "model"
        cls.scratch = Path(scratch.name)
        maker = SOURCE / "tests/support/make_llama.py"
        flags = ["--vocab", "1003", "--hidden", "64", "--layers", "2", "--intermediate", "96"]
        subprocess.run([sys.executable, maker, cls.model, *flags, "--shards", "2"], check=True)

    def serve(self, *flags):
        directory = tempfile.mkdtemp(dir=self.scratch)
        log = open(os.path.join(directory, "log"), "w")
        daemon = subprocess.Popen(
            [TOOL, "serve", "--model", str(self.model), "--device", "host", *flags,
             "--weight-cache-socket-dir", directory + "/run"],
            stderr=log,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip

        def stop():
            if daemon.poll() is None:
                daemon.terminate()
            daemon.wait(30)
            log.close()

        self.addCleanup(stop)
        tool("wait", "--timeout", "60", directory=directory + "/run")
        return directory + "/run"

    def flipped(self, file, tensor):
        """A copy of the checkpoint with one byte of `tensor` changed."""
        copy = Path(tempfile.mkdtemp(dir=self.scratch)) / "model"
        shutil.copytree(self.model, copy)
        data = bytearray((copy / file).read_bytes())
        (length,) = struct.unpack_from("<Q", data)
        begin, _ = json.loads(data[8 : 8 + length])[tensor]["data_offsets"]
        data[8 + length + begin + 5] ^= 0x10
        (copy / file).write_bytes(data)
        return copy

    def test_vllm_layout(self):
        directory = self.serve()
        tool("verify", directory=directory)
        out = json.loads(
            tool("verify", "--against", self.model, "--json", directory=directory).stdout
        )
        self.assertTrue(out["ok"])
        self.assertGreater(out["checked"], 10)
        file = "model-00001-of-00002.safetensors"
        source = "model.layers.0.self_attn.k_proj.weight"
        changed = self.flipped(file, source)
        out = json.loads(
            tool("verify", "--against", changed, "--json", directory=directory, status=3).stdout
        )
        self.assertEqual(
            out["mismatches"],
            [{"rank": 0, "role": "target", "tensor": "model.layers.0.self_attn.qkv_proj.weight",
              "source": source}],
        )  # fmt: skip
        text = tool("verify", "--against", changed, directory=directory, status=3).stdout
        self.assertIn(source, text)

    def test_hf_layout_dumps_the_checkpoint(self):
        directory = self.serve("--layout", "hf", "--slot", "hf")
        dump = self.scratch / "dump"
        tool("attach", "--slot", "hf", "--dump", dump, directory=directory)
        stored = {}
        for file in sorted(self.model.glob("*.safetensors")):
            stored.update(read_safetensors(file))
        for name in ("model.embed_tokens.weight", "lm_head.weight"):  # padded as the engine pads
            dtype, (rows, columns), data = stored[name]
            stored[name] = (dtype, [1024, columns], data + bytes((1024 - rows) * columns * 2))
        dumped = read_safetensors(dump / "rank0.hf.safetensors")
        self.assertEqual(set(dumped), set(stored))
        for name, (dtype, shape, data) in stored.items():
            self.assertTrue(dumped[name] == (dtype, shape, data), name)

    def test_a_cast(self):
        directory = self.serve("--dtype", "float32", "--slot", "cast")
        tool("verify", "--against", self.model, directory=directory)


if __name__ == "__main__":
    unittest.main()
