#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that tune NCCL's collectives, on an NCCL that runs in host memory (tests/support/fake_runtime.cpp):
what they keep, what a second start does, and how they end when a rank fails in it."""

import json
import os
import shutil
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree as ElementTree

import harness

FAKE_RUNTIME = os.environ.get("PRELOAD_TEST_FAKE_RUNTIME")
FAKE_NCCL = os.environ.get("PRELOAD_TEST_FAKE_NCCL")
TUNER = os.environ.get("PRELOAD_TEST_TUNER")
PLOT = harness.REPOSITORY / "examples/plot_tuning.py"
# The limit of a rank's failure, and what starting and ending a job may add on a busy machine.
ENDS_S = 30 if not harness.SANITIZED else 90

needs_fake_nccl = unittest.skipUnless(
    FAKE_RUNTIME and harness.MPIRUN, "this build has neither NCCL's header nor MPI, or only one of them"
)


@needs_fake_nccl
class TuningCase(harness.Case):
    def setUp(self):
        super().setUp()
        self.model = harness.make_llama(self.root / "model")

    def environment(self, fault=""):
        fake = {"FAKE_NCCL": fault, "FAKE_NCCL_DIR": self.root}
        return {"PRELOAD_RUNTIME": FAKE_RUNTIME, "NCCL_TUNER_PLUGIN": TUNER} | fake

    def flags(self):
        return ["-tp", 2, "--max-num-batched-tokens", 2, "--nccl-library", FAKE_NCCL]

    def serve(self, *flags, fault="", **variables):
        environment = self.environment(fault) | variables
        return self.start(self.model, *self.flags(), *flags, ranks=2, env=environment)

    def tune(self, *flags, status=0, ranks=2, env=None):
        command = [*harness.MPIRUN, "-np", ranks, harness.BIN, "tune", "--model", self.model, *flags]
        env = dict(self.environment() if env is None else env)
        if harness.SANITIZED:
            # As for daemons: what MPI leaves behind cannot be told from ours.
            env["ASAN_OPTIONS"] = f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"
        done = subprocess.run(
            [*map(str, command)], capture_output=True, text=True, timeout=harness.COMMAND_S,
            env=harness.environment(**env),
        )  # fmt: skip
        self.assertEqual(done.returncode, status, done.stderr)
        self.stderr = done.stderr
        return done.stdout

    def shown(self, *flags, status=0):
        done = subprocess.run(
            [harness.BIN, "tune", *flags], capture_output=True, text=True, timeout=60, env=harness.environment()
        )
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr

    def tables(self):
        return sorted((self.root / "cache").glob("vllm-warmup-cache/nccl_tuner/*/dp0_rank0.????????.json"))

    def stop(self, daemon):
        self.preload("stop", "--job")
        self.assertEqual(daemon.wait_end(), 0, daemon.log)


class Tune(TuningCase):
    def test_a_job_of_its_own_measures_keeps_and_prints(self):
        (sweep,) = json.loads(self.tune(*self.flags(), "--json"))["sweeps"]
        self.assertEqual(sweep["nccl_version"], 22803)
        self.assertEqual(sweep["groups"], ["tp, world"])
        self.assertEqual(len(sweep["points"]), sweep["planned"])
        # In this NCCL tree/ll takes a quarter of the time of its own choice, ring/simple, for small messages, and
        # four times as long for large ones. How long a busy machine makes either take is another matter.
        trees = 0
        for point in sweep["points"]:
            self.assertEqual(point["own"], {"algorithm": "ring", "protocol": "simple"})
            if point["chosen"] is None:
                continue
            self.assertGreaterEqual(point["default_microseconds"], 1.05 * point["chosen_microseconds"])
            chosen = point["candidates"][point["chosen"]]
            if chosen["algorithm"] == "tree":
                self.assertLess(point["bytes"], 4096)
                trees += 1
        self.assertGreater(trees, 0)
        operations = {point["operation"] for point in sweep["points"]}
        self.assertLessEqual({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"}, operations)

        (table,) = self.tables()
        self.assertEqual(sweep["table"], str(table))
        entries = json.loads(table.read_text())["entries"]
        self.assertEqual(
            sum(entry["chosen"] is not None for entry in entries),
            sum(point["chosen"] is not None for point in sweep["points"]),
        )
        self.assertIn("allreduce,", table.with_suffix(".csv").read_text())

        # Alone it shows the same, with neither a launcher nor NCCL.
        self.assertEqual(json.loads(self.shown("--json"))["sweeps"], [sweep])
        self.assertIn("tree/ll", self.shown("--model", str(self.model)))
        self.assertIn("no sweep", self.shown("--model", "another", status=7))

        # A new sweep takes the place of the old one, and serve finds it.
        before = table.read_text()
        self.tune(*self.flags())
        self.assertEqual(self.tables(), [table])
        self.assertNotEqual(table.read_text(), before)
        daemon = self.serve().wait_ready()
        self.assertIn(f"tuned before for this topology: {table}", daemon.log)
        self.stop(daemon)

        picture = self.root / "sweep.svg"
        subprocess.run(
            [sys.executable, str(PLOT), "-", str(picture)], input=json.dumps({"sweeps": [sweep]}), text=True,
            check=True, timeout=60,
        )  # fmt: skip
        drawn = ElementTree.fromstring(picture.read_text())
        rings = [each for each in drawn.iter() if each.get("class") == "chosen"]
        self.assertEqual(len(rings), sum(point["chosen"] is not None for point in sweep["points"]))
        words = " ".join(each.text or "" for each in drawn.iter() if each.tag.endswith("text"))
        for name in ("all_reduce, tp, world: 2 ranks on 1 node(s)", "tree/ll", "ring/ll", "NCCL's own"):
            self.assertIn(name, words)

    def test_what_is_in_the_way_is_said(self):
        self.assertIn("no GPUs", self.tuned_by_the_real_runtime(4))
        self.tune(*self.flags()[:-1], self.root / "libnccl.so", status=2)
        self.assertIn("cannot open NCCL", self.stderr)
        self.tune(*self.flags(), status=5, env=self.environment() | {"NCCL_TUNER_PLUGIN": ""})
        self.assertIn("NCCL asked its tuner nothing", self.stderr)
        self.assertEqual(json.loads(self.tune("--json", ranks=1))["sweeps"], [])
        self.assertIn("there is one rank", self.stderr)
        self.assertEqual(self.tables(), [])

    def tuned_by_the_real_runtime(self, status):
        self.tune("-tp", 2, status=status, env={"CUDA_VISIBLE_DEVICES": ""})
        return self.stderr


class Serve(TuningCase):
    def test_a_second_start_tunes_nothing(self):
        daemon = self.serve().wait_ready()
        self.assertIn("NCCL's collectives are tuned:", daemon.log)
        self.assertIn("communicators formed", daemon.log)
        (table,) = self.tables()
        self.assertIn(f"PRELOAD_TUNER_TABLE={table}", daemon.log)
        written = table.stat().st_mtime_ns
        self.stop(daemon)

        daemon = self.serve().wait_ready()
        self.assertIn(f"tuned before for this topology: {table}", daemon.log)
        self.assertNotIn("communicators formed", daemon.log)
        self.assertEqual(table.stat().st_mtime_ns, written)

        # Weights that are taken over are served at once, table or not.
        shutil.rmtree(self.root / "cache")
        successor = self.serve("--replace").wait_ready()
        self.assertIn("not tuned: the weights were taken over", successor.log)
        self.assertNotIn("communicators formed", successor.log)
        self.assertEqual(daemon.wait_end(), 0, daemon.log)
        self.stop(successor)

    def test_what_a_file_of_nccl_s_sets_is_a_table_of_its_own(self):
        conf = self.root / "nccl.conf"
        conf.write_text("NCCL_BUFFSIZE=1048576\n")
        named = {"NCCL_CONF_FILE": conf}
        for environment, measured in (
            (named, True), (named, False), ({"NCCL_BUFFSIZE": "1048576"}, False), ({}, True),
        ):  # fmt: skip
            daemon = self.serve(**environment).wait_ready()
            (self.assertIn if measured else self.assertNotIn)("communicators formed", daemon.log)
            self.stop(daemon)
        self.assertEqual(len(self.tables()), 2)

    def test_calls_of_nccl_s_that_return_early_are_waited_for(self):
        daemon = self.serve(NCCL_COMM_BLOCKING="0").wait_ready()
        self.assertIn("NCCL's collectives are tuned:", daemon.log)
        self.stop(daemon)

    def test_a_table_that_is_spoilt_is_measured_anew(self):
        self.stop(self.serve().wait_ready())
        (table,) = self.tables()
        table.write_text(table.read_text()[:-20])
        daemon = self.serve().wait_ready()
        self.assertIn("communicators formed", daemon.log)
        self.assertEqual(json.loads(table.read_text())["format"], "preload-nccl-tuning")
        self.stop(daemon)

    def test_says_why_it_tunes_nothing(self):
        daemon = self.serve("--disable-autotune").wait_ready()
        self.assertIn("not tuned: --disable-autotune", daemon.log)
        self.stop(daemon)
        daemon = self.serve("--autotune-budget", 0).wait_ready()
        self.assertIn("--autotune-budget was over", daemon.log)
        self.stop(daemon)
        daemon = self.start(self.model, "-tp", 2, ranks=2).wait_ready()
        self.assertIn("not tuned: the ranks hold host memory", daemon.log)
        self.stop(daemon)
        self.assertEqual(self.tables(), [])


class Failures(TuningCase):
    def end_with(self, fault, status, *texts):
        began = time.monotonic()
        daemon = self.serve(fault=fault)
        self.assertEqual(daemon.wait_end(ENDS_S), status, daemon.log)
        self.assertLess(time.monotonic() - began, ENDS_S)
        for words in texts:
            self.assertIn(words, daemon.log)
        self.assertNotIn("READY", daemon.log)
        self.assertEqual(self.tables(), [])

    def test_a_rank_that_cannot_form_a_communicator_ends_all(self):
        for rank in (0, 1):
            said = f"rank {rank}: forming the NCCL communicator tp, world"
            self.end_with(f"refuse:{rank}", 5, said, f"END status=5 rank={rank}")

    def test_a_rank_whose_collective_fails_ends_all(self):
        self.end_with("fail:1:20", 5, "rank 1: queueing a collective", "the cable is unplugged", "END status=5 rank=1")

    def test_a_rank_that_is_killed_in_the_sweep_ends_all(self):
        for rank in (0, 1):
            self.end_with(f"die:{rank}:20", 137, f"rank {rank} was lost")

    @unittest.skipUnless(os.environ.get("PRELOAD_TEST_SLOW"), "takes 20 s of waiting: run under the label slow")
    def test_a_rank_that_hangs_in_forming_a_communicator_ends_all(self):
        self.end_with("hang:1", 5, "forming the NCCL communicator tp, world on", "took more than 20 s")


if __name__ == "__main__":
    unittest.main()
