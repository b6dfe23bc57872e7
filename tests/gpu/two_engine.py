# SPDX-License-Identifier: Apache-2.0
"""A real vLLM at tp=2 around what two daemons hold."""

import importlib.util
import os
import pathlib
import signal
import sys

from two_ranks import Row

import harness

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "engines"))

STRICT = {"fallback": False}
LIMIT_S = 120


class TwoWorkers(Row):
    title = "vLLM at tp=2: tokens as from disk and as at tp=1; one daemon killed under it, keeper running"
    kinds = ("gpus", "host")

    def runTest(self):
        if importlib.util.find_spec("vllm") is None:
            self.skipTest("no vLLM in this Python")
        import gpu_vllm
        from vllm_engine import Engines

        os.environ["PRELOAD_SOCKET_DIR"] = str(self.sockets)
        self.addCleanup(os.environ.pop, "PRELOAD_SOCKET_DIR", None)
        one = gpu_vllm.EAGER if self.setting.kind == "gpus" else {"max_model_len": 128}
        two = {**one, "tensor_parallel_size": 2, "distributed_executor_backend": "mp", "disable_custom_all_reduce": True}
        engines, model = Engines(self.root), str(self.setting.model)
        from_disk = engines.run(model, "auto", options=two)
        expected = from_disk["tokens"]
        alone = engines.run(model, "auto", options=one)["tokens"]
        self.say(f"vLLM's own tokens at tp=1 and tp=2 equal: {alone == expected}")
        if self.setting.is_judged:  # on CPUs sums in another order decide between near-equal logits
            self.assertEqual(alone, expected)

        self.start_keeper("--stay")
        daemon = self.job(model, "-tp", 2, "--keeper", "require").wait_ready()
        go_on = self.root / "go-on"
        engine = engines.start(model, options=two, extra=STRICT, ask=[["wait_for_file", str(go_on)]])
        self.addCleanup(engine.kill)
        harness.eventually(lambda: all(d["leases"] for d in self.daemons()), LIMIT_S, "both workers to attach")
        os.kill(self.daemons()[1]["pid"], signal.SIGKILL)
        self.assertEqual(daemon.wait_end(60), 137, daemon.log)
        self.assertEqual([d["state"] for d in self.daemons()], ["ORPHANED", "ORPHANED"])
        go_on.touch()
        got = engines.finish(engine)
        self.assertEqual((got["tokens"], got["tokens_after"]), (expected, expected))
        self.say("tokens equal before and after kill -9 of rank 1's daemon")
        took = [line for line in got["lines"] if line.startswith("Model loading took")]
        disk = [line for line in from_disk["lines"] if line.startswith("Model loading took")]
        self.say(f"{took} (disk: {disk}); engine up {got['start_s']:.1f} s (disk {from_disk['start_s']:.1f})")
        again = engines.run(model, options=two, extra=STRICT)
        self.assertEqual(again["tokens"], expected)
        self.say("the next engine attaches to what the keeper has: tokens equal")
        self.preload("stop", "--keeper")


ROWS = [TwoWorkers]
