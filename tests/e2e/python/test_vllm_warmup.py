# SPDX-License-Identifier: Apache-2.0
"""vLLM's warm-up as far as it needs no vLLM: what it is told, what it runs, what it refuses."""

import os
import subprocess
import sys
import unittest

import daemon  # noqa: F401  finds the package

import preload
from preload.vllm import warmup

ENGINE = {"model": "/m", "tensor_parallel_size": 1, "pipeline_parallel_size": 1}


class VllmWarmup(unittest.TestCase):
    def test_it_runs_every_size_at_every_length(self):
        self.assertEqual(
            warmup.runs((1, 8), (16, 256), 256, 8192, 4), [(1, 16), (8, 16), (1, 256), (8, 256)]
        )

    def test_what_the_engine_does_not_take_is_cut_once(self):
        self.assertEqual(warmup.runs((1, 8, 32), (16, 2048, 4096), 4, 1024, 4),
                         [(1, 16), (4, 16), (1, 1020), (4, 1020)])  # fmt: skip
        with self.assertRaises(preload.UsageError) as caught:
            warmup.runs((1,), (16,), 4, 4, 4)
        self.assertIn("--max-model-len 4", str(caught.exception))

    def test_prompts_are_all_different_and_of_the_vocabulary(self):
        made = warmup.prompts(8, 100, 50)
        self.assertEqual({len(ids) for ids in made}, {100})
        self.assertEqual(len({tuple(ids) for ids in made}), 8)
        self.assertTrue(all(0 < token < 50 for ids in made for token in ids))

    def test_sizes_are_numbers_with_commas(self):
        self.assertEqual(warmup.numbers("1,8,32"), (1, 8, 32))
        for wrong in ("", "0", "1,,2", "a"):
            with self.assertRaises(ValueError, msg=wrong):
                warmup.numbers(wrong)

    def test_it_does_not_load_a_second_copy_from_disk(self):
        self.assertIs(warmup.extra_config(None, "")["fallback"], False)
        self.assertEqual(warmup.extra_config(None, "b")["slot"], "b")
        self.assertEqual(warmup.extra_config({"mode": "copy", "slot": "c"}, "b")["slot"], "c")

    def test_an_engine_of_several_ranks_is_started_once_a_replica(self):
        several = {**ENGINE, "tensor_parallel_size": 2, "pipeline_parallel_size": 2}
        warmup.check_scope({"PRELOAD_WARMUP_SCOPE": "replica"}, several)
        warmup.check_scope({"PRELOAD_WARMUP_SCOPE": "rank"}, ENGINE)
        with self.assertRaises(preload.UsageError) as caught:
            warmup.check_scope({"PRELOAD_WARMUP_SCOPE": "rank"}, several)
        self.assertIn("--warmup-exec-scope replica", str(caught.exception))

    def test_by_hand_it_says_what_it_is_for(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PRELOAD_WARMUP")}
        done = subprocess.run(
            [sys.executable, "-m", "preload.vllm.warmup"], env=environment, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("preload serve --warmup-exec", done.stderr)


if __name__ == "__main__":
    unittest.main()
