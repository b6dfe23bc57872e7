#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The preload executable as a user types it: help, version, usage errors, plan."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "support"))
import hash_reference  # noqa: E402
import layout_checkpoint  # noqa: E402

PRELOAD = os.environ["PRELOAD_TEST_BIN"]
FIXTURES = os.path.join(HERE, "..", "..", "fixtures")


def preload(*arguments, **environment):
    return subprocess.run(
        [PRELOAD, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


class CommandLine(unittest.TestCase):
    def test_a_world_that_no_job_has_is_refused_at_once(self):
        result = preload("plan", "--model", FIXTURES, "--ranks", "100000000")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("no job has more than 1000000", result.stderr)

    def test_a_revision_of_a_directory_is_said_not_to_count(self):
        result = preload("plan", "--model", FIXTURES, "--ranks", "1", "--revision", "v2")
        self.assertIn("--revision v2 is not looked at", result.stderr)

    def test_version_and_help_go_to_standard_output(self):
        version = preload("--version")
        self.assertEqual(version.returncode, 0)
        self.assertRegex(version.stdout, r"^preload \d+\.\d+\.\d+\n$")
        for arguments in (["--help"], ["-h"], ["help"]):
            result = preload(*arguments)
            self.assertEqual(result.returncode, 0)
            self.assertIn("Commands:", result.stdout)
        for arguments in (["help", "plan"], ["plan", "--help"], ["plan", "--ranks", "2", "-h"]):
            result = preload(*arguments)
            self.assertEqual(result.returncode, 0)
            self.assertIn("Usage: preload plan", result.stdout)
            self.assertIn("--summary", result.stdout)
        self.assertIn("--export", preload("--model", "x", "--help").stdout)

    def test_usage_errors_exit_2_and_print_nothing_on_standard_output(self):
        for arguments, text in (
            ([], "Commands:"),
            (["sttus"], "did you mean status?"),
            (["help", "sttus"], "did you mean status?"),
            (["plan", "--rnks", "2"], "did you mean --ranks?"),
            (["--modl", "x"], "did you mean --model?"),
            (["serve"], "--model is missing"),
            (["plan", "--ranks", "2"], "--model is missing"),
            (["plan", "--model", "x"], "--ranks is missing"),
            (["plan", "--model", "x", "--ranks", "3", "-tp", "2"], "--tensor-parallel-size 2"),
            (["plan", "--model", "x", "--ranks", "2", "--rank", "2"], "--rank 2"),
            (["--model", "x", "--nnodes", "2"], "mpirun -np"),
            (["--model", "x", "--device", "rocm"], "not built yet"),
            (["bench"], "preload bench load"),
            (["bench", "lod", "--model", "x"], "unknown bench 'lod'"),
            (["bench", "load"], "--model is missing"),
            (["bench", "load", "--model", "x", "--hot", "--cold"], "--hot and --cold"),
        ):
            result = preload(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(text, result.stderr)
            self.assertEqual(result.stdout, "")

    def test_serve_says_where_it_looked_for_the_runtime(self):
        result = preload("serve", "--model", "x", PRELOAD_RUNTIME="/nowhere/runtime")
        self.assertEqual(result.returncode, 2)
        self.assertIn("/nowhere/runtime: No such file or directory", result.stderr)

    def test_bare_flags_and_serve_start_the_runtime_with_the_same_arguments(self):
        with tempfile.TemporaryDirectory() as root:
            runtime = os.path.join(root, "runtime")
            with open(runtime, "w") as file:
                file.write('#!/bin/sh\nprintf "%s|" "$@"\nexit 42\n')
            os.chmod(runtime, 0o700)
            for command in ([], ["serve"]):
                result = preload(*command, "--model", "a b", "-tp", "2", PRELOAD_RUNTIME=runtime)
                self.assertEqual(result.returncode, 42)
                self.assertEqual(result.stdout, "--model|a b|-tp|2|")
            result = preload("bench", "load", "--model", "a b", PRELOAD_RUNTIME=runtime)
            self.assertEqual((result.returncode, result.stdout), (42, "bench|load|--model|a b|"))


class Plan(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.TemporaryDirectory()
        with open(os.path.join(FIXTURES, "families.json")) as file:
            families = json.load(file)["families"]
        cls.tied = layout_checkpoint.write(cls.root.name, "llama_tied", families["llama_tied"])
        cls.bias = layout_checkpoint.write(cls.root.name, "llama_bias", families["llama_bias"])

    @classmethod
    def tearDownClass(cls):
        cls.root.cleanup()

    def plan(self, *arguments):
        result = preload("plan", "--model", self.tied, "--json", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_lists_what_each_rank_holds(self):
        plan = self.plan("--ranks", "8", "--nodes", "2", "-tp", "2", "-pp", "2")
        self.assertEqual(plan["world"], 8)
        for rank in plan["ranks"]:
            g = rank["global"]
            self.assertEqual((rank["dp"], rank["pp"], rank["tp"]), (g // 4, g // 2 % 2, g % 2))
            self.assertEqual((rank["node"], rank["local"], rank["ep"]), (g // 4, g % 4, None))
            own = [t for t in rank["tensors"] if "alias" not in t]
            self.assertEqual(rank["bytes"], sum(t["bytes"] for t in own))
            with open(
                os.path.join(FIXTURES, "vllm-0.32.0", f"llama_tied.tp1pp2.r{rank['pp']}.json")
            ) as file:
                held = [name for name, entry in json.load(file).items() if entry[0] == "param"]
            self.assertEqual([t["name"] for t in rank["tensors"]], held)
        last = {t["name"]: t for t in plan["ranks"][3]["tensors"]}
        self.assertEqual(last["lm_head.weight"]["alias"], "model.embed_tokens.weight")
        self.assertEqual(last["lm_head.weight"]["shape"], [512, 128])
        # 1003 rows: rank 0 reads 512 of them, rank 1 the other 491.
        reads = [rank["read_bytes"] for rank in plan["ranks"]]
        self.assertEqual(reads[0] - reads[1], (512 - 491) * 128 * 2)
        self.assertEqual(plan["ranks"][:4], [
            {**rank, "global": rank["global"] - 4, "dp": 0, "node": 0}
            for rank in plan["ranks"][4:]
        ])  # fmt: skip

    def test_narrows_to_a_rank_and_to_a_summary(self):
        whole = self.plan("--ranks", "4", "-tp", "2")
        self.assertEqual(self.plan("--ranks", "4", "-tp", "2", "--rank", "3"),
                         whole | {"ranks": whole["ranks"][3:]})  # fmt: skip
        summary = self.plan("--ranks", "4", "-tp", "2", "--summary")
        for rank in whole["ranks"]:
            del rank["tensors"]
        self.assertEqual(summary, whole)

    def test_says_what_each_node_reads_and_how_long_that_takes(self):
        both = ["--ranks", "4", "-dp", "4", "--nodes", "2", "--summary"]
        apart = self.plan(*both, "--spread", "never")
        together = self.plan(*both, "--spread", "always")
        self.assertEqual([node["ranks"] for node in apart["nodes"]], [2, 2])
        for before, after in zip(apart["nodes"], together["nodes"]):
            # Four replicas: each rank reads a quarter and sends it to three others.
            self.assertEqual(before["read_bytes"], 4 * after["read_bytes"])
            self.assertEqual(after["sent_bytes"], 3 * after["read_bytes"])
            self.assertEqual([before["nodes"], after["nodes"]], [1, 2])
            self.assertEqual([before["spread"], after["spread"]], [False, True])
        for rank in together["ranks"]:
            self.assertEqual(rank["received_bytes"], rank["sent_bytes"])
            # All that it holds but the padding of the vocabulary, which no file has.
            self.assertLess(abs(rank["bytes"] - rank["read_bytes"] - rank["received_bytes"]), 8192)
        slow = self.plan(*both, "--spread", "never", "--disk-rate", "0.0001")["nodes"][0]
        self.assertAlmostEqual(slow["seconds"], slow["read_bytes"] / 1e5, places=2)

    def test_refuses_rates_that_are_none(self):
        for rate in ("0", "-1", "fast", "inf", "5x"):
            result = preload("plan", "--model", self.tied, "--ranks", "2", "--disk-rate", rate)
            self.assertEqual(result.returncode, 2)
            self.assertIn("--disk-rate", result.stderr)
        result = preload("plan", "--model", self.tied, "--ranks", "2", "--device", "host", "--pcie-rate", "5")
        self.assertEqual(result.returncode, 2)

    def test_prints_a_table_without_json(self):
        result = preload("plan", "--model", self.tied, "--ranks", "2", "--layout", "hf")
        self.assertEqual(result.returncode, 0)
        self.assertIn("2 ranks: dp 2 x pp 1 x tp 1", result.stdout)
        self.assertIn("model.layers.3.self_attn.q_proj.weight", result.stdout)
        self.assertIn("is model.embed_tokens.weight", result.stdout)

    def test_one_is_not_spoken_of_in_the_plural(self):
        plan = ["plan", "--model", self.tied, "--layout", "hf", "--ranks"]
        out = preload(*plan, "1", "--summary").stdout
        self.assertRegex(out, r"(?m)^1 rank: dp 1 x pp 1 x tp 1$")
        self.assertRegex(out, r"(?m)^node 0 \(1 rank\) reads ")
        self.assertIn("1 rank was started, but --tensor-parallel-size 2", preload(*plan, "1", "-tp", "2").stderr)
        self.assertIn("2 ranks were started, but", preload(*plan, "2", "-tp", "4").stderr)
        self.assertIn("--rank 1: of 1 rank the last is 0", preload(*plan, "1", "--rank", "1").stderr)

    def test_refuses_with_status_3_what_cannot_be_served(self):
        for arguments, text in (
            (["--model", self.bias, "-tp", "2"], "num_key_value_heads 3"),
            (["--model", self.bias, "-tp", "2", "--layout", "hf"], "num_key_value_heads 3"),
            (["--model", self.tied, "--hf-overrides.vocab_size", "1004"], "vocab_size"),
            (["--model", self.tied, "--hf-overrides.tie_word_embeddings", "false"],
             "lm_head.weight"),
        ):  # fmt: skip
            result = preload("plan", "--ranks", "2", *arguments)
            self.assertEqual(result.returncode, 3, arguments)
            self.assertIn(text, result.stderr)
            self.assertEqual(result.stdout, "")


class Key(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        with open(os.path.join(FIXTURES, "families.json")) as file:
            self.family = json.load(file)["families"]["llama_tied"]
        self.model = layout_checkpoint.write(root.name, "llama_tied", self.family)
        self.cache = os.path.join(root.name, "cache")

    def key(self, *arguments):
        result = preload("key", self.model, "--json", *arguments, PRELOAD_CACHE_ROOT=self.cache)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_checkpoint_id_is_the_hash_of_the_canonical_list(self):
        lines = []
        for name, (dtype, shape) in sorted(self.family["files"]["model.safetensors"].items()):
            content = hash_reference.content_hash(layout_checkpoint.fill(name, dtype, shape))
            entry = {"dtype": dtype, "hash": f"{content:032x}", "name": name, "shape": shape}
            lines.append(json.dumps(entry, separators=(",", ":")) + "\n")
        expected = hashlib.sha256("".join(lines).encode()).hexdigest()
        for arguments in ([], ["-tp", "2", "--rank", "1"], ["--layout", "hf"]):
            self.assertEqual(self.key(*arguments)["checkpoint"], expected)

    def test_key_is_the_hash_of_its_fields_and_names_the_shard(self):
        result = self.key("-tp", "2", "-dp", "2", "--rank", "3")
        text = json.dumps(result["fields"], separators=(",", ":"), sort_keys=True)
        self.assertEqual(result["key"], hashlib.sha256(text.encode()).hexdigest())
        self.assertEqual(result["fields"]["tp_rank"], "1")
        self.assertEqual(result["fields"]["checkpoint"], result["checkpoint"])
        self.assertEqual(self.key("-tp", "2", "--rank", "1"), result)

    def test_a_changed_byte_changes_the_key(self):
        before = self.key()
        self.assertEqual(self.key(), before)  # from the receipt
        path = os.path.join(self.model, "model.safetensors")
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        after = self.key()
        self.assertNotEqual(after["checkpoint"], before["checkpoint"])
        self.assertNotEqual(after["key"], before["key"])

    def test_takes_one_model_and_a_rank_that_exists(self):
        for arguments in ([], [self.model, "--model", "x"], [self.model, "--rank", "1"]):
            self.assertEqual(preload("key", *arguments).returncode, 2, arguments)


if __name__ == "__main__":
    unittest.main()
