# SPDX-License-Identifier: Apache-2.0
"""Every way to cut a model over two ranks: right bytes on both, found by UUID, nothing left behind."""

import json
import os
import time

import two_gpus
from two_ranks import Row, gpu_memory_above

MOST_ABOVE_MIB = 16
CUTS = {
    "tp=2": ("model", ["-tp", 2]),
    "pp=2": ("model", ["-pp", 2]),
    "dp=2": ("model", ["-dp", 2]),
    "ep=2, experts": ("experts", ["-dp", 2, "--enable-expert-parallel"]),
}


class Cut(Row):
    cut = ""
    visible = None

    def model_and_flags(self):
        which, flags = CUTS[self.cut]
        return getattr(self.setting, which), flags

    def begin(self):
        model, flags = self.model_and_flags()
        self.before_mib = two_gpus.used_mib() if self.setting.device == "cuda" else {}
        return model, self.job(model, *flags, visible=self.visible)

    def runTest(self):
        model, daemon = self.begin()
        daemon.wait_ready()
        self.say(f"READY after {time.monotonic() - daemon.started:.1f} s")
        self.say(f"{self.verify(model)} tensors right")
        self.check_found_by_uuid()
        if self.setting.device == "cuda":
            above = gpu_memory_above(self.before_mib, self.daemons())
            self.say("above the weights: " + ", ".join(f"{mib:.1f} MiB" for mib in above.values()))
            self.assertLessEqual(max(above.values()), MOST_ABOVE_MIB * (1 if self.setting.is_judged else 2))
        self.end(daemon)

    def check_found_by_uuid(self):
        """Whatever the client sees of the GPUs, and in which order."""
        orders = {"gpus": ("0,1", "1,0"), "shared": ("0",), "host": (None,)}[self.setting.kind]
        daemons = self.daemons()
        self.assertEqual([daemon["state"] for daemon in daemons], ["READY", "READY"])
        pairs = 0
        for order in orders:
            if order is not None:
                os.environ["CUDA_VISIBLE_DEVICES"] = order
                self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES", None)
            for daemon in daemons:
                rank = daemon["global_rank"]
                (found,) = self.attached("--gpu", daemon["gpu_uuid"], sockets=self.sockets_of(rank))
                self.assertEqual(found, (daemon["gpu_uuid"], rank))
                pairs += 1
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        self.say(f"{pairs} clients met the GPU that they named")

    def attached(self, *flags, sockets):
        told = json.loads(self.preload("attach", "--json", *flags, sockets=sockets))
        return [(found["gpu_uuid"], found["global_rank"]) for found in told["daemons"]]


class Tensors(Cut):
    title, cut = "tp=2: both ranks right", "tp=2"


class Stages(Cut):
    title, cut = "pp=2: both ranks right", "pp=2"


class Replicas(Cut):
    title, cut = "dp=2: both ranks right", "dp=2"


class Experts(Cut):
    title, cut = "ep=2, a model with experts: both ranks right", "ep=2, experts"


class OwnGpu(Cut):
    title, cut, visible, kinds = "tp=2, one GPU visible to each rank", "tp=2", "own", ("gpus",)


class OtherOrder(Cut):
    title, cut, visible, kinds = "tp=2, GPUs visible in the other order", "tp=2", "1,0", ("gpus",)


class Contexts(Cut):
    """dp=2 with --spread always: each rank writes into the other's memory while it loads."""

    title, cut, kinds = "no context on the other GPU, while loading and after", "dp=2", ("gpus",)

    def model_and_flags(self):
        model, flags = super().model_and_flags()
        return model, [*flags, "--spread", "always"]

    def runTest(self):
        foreign = two_gpus.processes()
        with two_gpus.ProcessWatch() as watch:
            _, daemon = self.begin()
            daemon.wait_ready()
        after = two_gpus.processes() - foreign
        seen = watch.seen - foreign
        where = {}
        for pid, uuid in seen:
            where.setdefault(pid, set()).add(uuid)
        self.end(daemon)
        if len(where) < 2:
            self.skipTest(f"nvidia-smi showed {len(where)} of the two loading processes: they cannot be told apart here")
        self.assertEqual([len(gpus) for gpus in where.values()], [1] * len(where), where)
        self.assertEqual(after, set(), "a serving rank has none at all")
        self.say(f"{len(where)} processes seen while loading, each on one GPU; none while serving")


ROWS = [Tensors, Stages, Replicas, Experts, OwnGpu, OtherOrder, Contexts]
