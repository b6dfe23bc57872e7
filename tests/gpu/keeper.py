#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The keeper with weights on a GPU: how soon a successor adopts a large shard of one that was killed,
that nothing of the checkpoint is read for it, that the GPU is empty in the end; and kills in every
order.

    keeper.py BUILD [--gib 64] [--rounds 4] [--lanes 4]

The large checkpoint is sparse: zeros that take no room on the disk; none with --gib 0. Rounds of kills
run --lanes at a time, each with a socket directory of its own, and the GPU is to be as it was after
each such wave. Prints one JSON object; exits 1 when something was not as it should be.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
SETTLED_S = 10  # of the GPU's reading, to be had at all


def gpu_used_mib() -> int:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout)


def seconds_until_idle(idle_mib: int) -> float:
    """Until the GPU's reading is what it was; infinite when it is not within SETTLED_S."""
    begin = time.monotonic()
    while time.monotonic() - begin < SETTLED_S:
        if gpu_used_mib() <= idle_mib:
            return time.monotonic() - begin
    return float("inf")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--gib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)  # a model and an order: one round of a wave
    args = parser.parse_args()
    build = args.build.resolve()
    os.environ["PRELOAD_TEST_BIN"] = str(build / "src/preload")
    os.environ["PRELOAD_CLIENT_LIBRARY"] = str(build / "src/libpreload_client.so")
    os.environ["PRELOAD_TEST_READ_FAULTS"] = str(build / "tests/support/preload_read_faults.so")
    import harness
    from keeper_test import KeeperCase
    from kill_matrix import ORDERS, Round
    from read_faults import ReadFaults

    harness.READY_S = 300  # the first load fills the page cache
    result = {"gib": args.gib}

    class Large(KeeperCase):
        def runTest(self):
            model = harness.make_slow_model(self.root / "model", args.gib)
            time.sleep(0.2)  # its times are to prove something
            idle_mib = gpu_used_mib()
            self.start_keeper("--stay")
            first = self.start(model, "--layout", "hf", "--keeper", "require", device="cuda").wait_ready()
            result["load_s"] = round(time.monotonic() - first.started, 2)
            with_first = gpu_used_mib()
            os.kill(self.pid_of_rank(0), signal.SIGKILL)
            self.assertEqual(first.wait_end(30), 137)
            self.assertEqual(self.states(), ["ORPHANED"])
            self.assertGreaterEqual(gpu_used_mib() - idle_mib, args.gib << 10, "the memory outlives its daemon")

            faults = ReadFaults(self.root)
            second = self.start(model, "--layout", "hf", device="cuda", through=faults.through).wait_ready()
            result["adopt_s"] = round(time.monotonic() - second.started, 2)
            result["read_bytes"] = faults.total("bytes")  # headers
            self.assertIn("adopted as it lies", second.log)
            self.assertLess(result["read_bytes"], 1 << 20)
            (daemon,) = self.status()
            self.assertEqual((daemon["state"], daemon["generation"]), ("READY", 2))
            result["overhead_mib"] = gpu_used_mib() - idle_mib - (args.gib << 10)
            self.assertLessEqual(abs(gpu_used_mib() - with_first), 16)
            self.preload("verify")

            third = self.start(model, "--layout", "hf", "--replace", device="cuda").wait_ready()
            result["replace_s"] = round(time.monotonic() - third.started, 2)
            self.assertEqual(second.wait_end(30), 0, second.log)
            self.preload("stop", "--keeper")
            self.assertEqual(third.wait_end(30), 0, third.log)
            result["idle_again_s"] = round(seconds_until_idle(idle_mib), 2)
            self.assertLessEqual(result["idle_again_s"], 2.0, "the GPU is as it was")
            self.assertLessEqual(result["adopt_s"], 2.0, second.log)

    class OneRound(KeeperCase):
        def runTest(self):
            model, *order = args.one
            Round(self, pathlib.Path(model), device="cuda", socket_device="0").run(order)

    class Kills(KeeperCase):
        def runTest(self):
            result["rounds"], began = 0, time.monotonic()
            model = self.settled_model(
                "--hidden", 2048, "--layers", 2, "--heads", 16, "--kv-heads", 8, "--vocab", 16000,
                "--intermediate", 5632,
            )  # fmt: skip
            orders = itertools.islice(itertools.cycle(random.sample(ORDERS, len(ORDERS))), args.rounds)
            while wave := list(itertools.islice(orders, args.lanes)):
                idle_mib = gpu_used_mib()
                lanes = [
                    subprocess.Popen(
                        [sys.executable, __file__, str(build), "--one", str(model), *order],
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                    )
                    for order in wave
                ]  # fmt: skip
                said = [lane.communicate()[0] for lane in lanes]
                for order, lane, text in zip(wave, lanes, said):
                    with self.subTest(order=order):
                        self.assertEqual(lane.returncode, 0, text)
                        result["rounds"] += 1
                self.assertLessEqual(seconds_until_idle(idle_mib), SETTLED_S)
                print(f"{result['rounds']} rounds, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    cases = [OneRound()] if args.one else [Large()] * (args.gib > 0) + [Kills()]
    ok = True
    for case in cases:
        outcome = case.defaultTestResult()
        case.run(outcome)
        for _, text in outcome.errors + outcome.failures:
            print(text, file=sys.stderr)
        ok = ok and outcome.wasSuccessful()
    print(json.dumps(result | {"ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        tempfile.tempdir = directory
        sys.exit(main())
