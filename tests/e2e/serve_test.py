# SPDX-License-Identifier: Apache-2.0
"""The main job, end to end: ranks load a checkpoint, a client maps every rank's tensors, and they
equal slices that NumPy cuts from the model's definition."""

import pathlib
import sys
import unittest

import harness
from harness import checkpoint_tensors, make_llama, needs_mpi

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "support"))
import layout_checkpoint  # noqa: E402

SMALL = ["--hidden", 128, "--layers", 3, "--heads", 8, "--intermediate", 176]


class Slices(harness.Case):
    def check(self, model, layout, tp=1, pp=1, dp=1, ep=False, round_robin=False, **options):
        """Serves `model`, compares every rank's dump with the reference, verifies, stops."""
        sizes = ["-tp", tp, "-pp", pp, "-dp", dp]
        sizes += ["--enable-expert-parallel"] if ep else []
        sizes += ["--expert-placement-strategy", "round_robin"] if round_robin else []
        experts = ["--ep"] * ep + ["--round-robin"] * round_robin
        world = tp * pp * dp
        daemon = self.start(model, "--layout", layout, *sizes, ranks=world, **options).wait_ready()
        daemons = self.status()
        self.assertEqual([d["state"] for d in daemons], ["READY"] * world)
        self.assertEqual(sorted(d["global_rank"] for d in daemons), list(range(world)))
        self.assertEqual(len({d["job"] for d in daemons}), 1)
        self.assert_serves_slices(model, layout, tp, pp, dp, experts)
        self.assert_stops_clean(daemon)
        return daemons

    @needs_mpi
    def test_every_rank_of_tp2_dp2_holds_exactly_its_slices(self):
        for name, flags in {
            "untied": ["--vocab", 32003, "--shards", 2],
            "tied": ["--vocab", 32003, "--tied"],
            "tied_stored": ["--vocab", 1024, "--tied", "--store-lm-head"],
            "qwen2": ["--family", "qwen2", "--vocab", 1000],
            "qwen3": ["--family", "qwen3", "--vocab", 1000, "--head-dim", 32],
        }.items():
            model = make_llama(self.root / name, *SMALL, "--kv-heads", 4, *flags)
            for layout in ("vllm", "hf"):
                with self.subTest(name, layout=layout):
                    self.check(model, layout, tp=2, dp=2)

    @needs_mpi
    def test_two_kv_heads_are_replicated_over_four_tensor_ranks(self):
        model = make_llama(self.root / "gqa", *SMALL, "--kv-heads", 2, "--vocab", 32003)
        for layout in ("vllm", "hf"):
            with self.subTest(layout=layout):
                self.check(model, layout, tp=4)

    @needs_mpi
    def test_pipeline_stages_hold_their_own_layers(self):
        model = make_llama(self.root / "stages", *SMALL, "--kv-heads", 4, "--vocab", 515)
        self.check(model, "vllm", tp=2, pp=2)

    @needs_mpi
    def test_experts_are_sliced_or_spread_over_the_ranks_of_a_stage(self):
        for family, layout, sizes in (
            ("qwen3_moe", "vllm", {"dp": 2, "tp": 2}),
            ("qwen3_moe", "hf", {"dp": 2, "tp": 1, "ep": True}),
            ("qwen3_moe_7", "vllm", {"tp": 2, "ep": True}),
            ("deepseek_v3", "vllm", {"pp": 2, "tp": 2, "ep": True}),
            ("deepseek_v3", "hf", {"tp": 2, "ep": True, "round_robin": True}),
            ("deepseek_v2", "vllm", {"dp": 2, "tp": 2, "ep": True}),
            ("gpt_oss", "vllm", {"tp": 2}),
        ):
            with self.subTest(family, layout=layout, **sizes):
                model = layout_checkpoint.write_family(str(self.root / "experts"), family)
                self.check(model, layout, **sizes)

    @needs_mpi
    def test_experts_make_the_replicas_of_a_job_differ(self):
        model = layout_checkpoint.write_family(str(self.root), "qwen3_moe")
        keys = [d["key"] for d in self.check(model, "vllm", dp=2)]
        self.assertEqual(len(set(keys)), 2)
        self.assertFalse(set(keys) & {d["key"] for d in self.check(model, "vllm", dp=2, ep=True)})

    @needs_mpi
    def test_fewer_experts_than_ranks_are_refused(self):
        model = layout_checkpoint.write_family(str(self.root), "mixtral")
        daemon = self.start(model, "-dp", 5, "--enable-expert-parallel", ranks=5)
        self.assertEqual(daemon.wait_end(), 3)
        # Told once, whichever rank ends first.
        self.assertEqual(daemon.log.count("4 experts are fewer than the 5 ranks"), 1, daemon.log)

    @needs_mpi
    def test_replicas_match_and_other_ranks_do_not(self):
        model = make_llama(self.root / "model", *SMALL, "--kv-heads", 4, "--vocab", 515)
        daemons = {d["global_rank"]: d for d in self.check(model, "vllm", tp=2, dp=2)}
        keys = [daemons[rank]["key"] for rank in range(4)]
        self.assertEqual(keys[0], keys[2])  # rank 2 is tensor rank 0 of the second replica
        self.assertEqual(keys[1], keys[3])
        self.assertNotEqual(keys[0], keys[1])
        # How a job was spread does not change what its bytes are.
        alone = self.start(model, "--layout", "vllm").wait_ready()
        (one,) = self.status()
        self.assertEqual(one["evidence"]["checkpoint"], daemons[0]["evidence"]["checkpoint"])
        self.assertNotEqual(one["key"], keys[0])
        self.assert_stops_clean(alone)

    def test_without_a_launcher_it_is_rank_zero_of_one(self):
        model = make_llama(self.root / "model", *SMALL, "--kv-heads", 4, "--vocab", 1024, "--shards", 3)
        daemon = self.start(model, "--layout", "hf").wait_ready()
        (listed,) = self.status()
        self.assertEqual(listed["gpu_uuid"], "host:0")
        self.assert_same_tensors(self.dump()[0], checkpoint_tensors(model), "the whole model")
        self.assert_stops_clean(daemon)

    def test_it_finds_a_hub_models_snapshot_in_the_local_cache(self):
        hub = self.root / "hub"
        snapshot = hub / "models--example--tiny" / "snapshots" / "0123abcd"
        make_llama(snapshot, *SMALL, "--kv-heads", 4, "--vocab", 1024)
        (snapshot.parent.parent / "refs").mkdir()
        (snapshot.parent.parent / "refs" / "main").write_text("0123abcd")
        daemon = self.start("example/tiny", "--layout", "hf", env={"HF_HUB_CACHE": hub}).wait_ready()
        self.assert_same_tensors(self.dump()[0], checkpoint_tensors(snapshot), "the snapshot")
        self.assert_stops_clean(daemon)


if __name__ == "__main__":
    unittest.main()
