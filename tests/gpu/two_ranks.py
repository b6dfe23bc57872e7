# SPDX-License-Identifier: Apache-2.0
"""Jobs of two ranks, and the rows of a table that they are measured for.

A setting says what the ranks have: `gpus`, a GPU each; `shared`, one GPU for both, each rank on a host of
its own name, so that only what needs no second GPU is shown; `host`, host memory, a rehearsal."""

import dataclasses
import json
import pathlib
import sys
import typing
import unittest

from keeper_test import KeeperCase

import two_gpus
from hosts import Hosts


@dataclasses.dataclass
class Setting:
    kind: str  # "gpus", "shared" or "host"
    model: pathlib.Path  # Llama's shape
    experts: pathlib.Path  # a shape with experts
    runs: int = 3  # of what a median is taken of

    @property
    def device(self):
        return "host" if self.kind == "host" else "cuda"

    @property
    def is_judged(self):
        """Whether figures are held to their targets: on what they are for."""
        return self.kind == "gpus"


class Load(typing.NamedTuple):
    """Of a job: bytes that ranks read, that they handed each other, and the longest rank's time from its
    first read to its last byte hashed."""

    read: int
    handed: int
    seconds: float


class Row(KeeperCase):
    """One line of the table: `title`, and the `figures` that runTest fills in."""

    title = ""
    kinds = ("gpus", "shared", "host")  # of the settings that it can be had in
    setting: Setting

    def setUp(self):
        if self.setting.kind not in self.kinds:
            raise unittest.SkipTest("this needs " + ("a GPU" if "shared" in self.kinds else "two GPUs"))
        super().setUp()
        self.figures = ""
        self.job_sockets = [self.sockets]

    def say(self, text):
        self.figures += ("; " if self.figures else "") + text

    def most(self, value, limit, what):
        """Says the figure, and holds it to its limit where that is judged."""
        self.say(f"{what} {value:.3g} (at most {limit})")
        if self.setting.is_judged:
            self.assertLessEqual(value, limit, what)

    def least(self, value, limit, what):
        self.say(f"{what} {value:.3g} (at least {limit})")
        if self.setting.is_judged:
            self.assertGreaterEqual(value, limit, what)

    def job(self, model, *flags, ranks=2, visible=None, apart=False, through=(), env=None):
        """Started, not READY yet. visible: CUDA_VISIBLE_DEVICES, or "own" for one GPU a rank; apart: each
        rank on a host of its own name, where NCCL carries what ranks hand each other."""
        env, before = dict(env or {}), []
        apart = ranks > 1 and (apart or self.setting.kind == "shared")
        self.job_sockets = [self.sockets]
        if apart:
            root = self.root / f"hosts-{len(list(self.root.iterdir()))}"
            root.mkdir()
            hosts = Hosts(root, ranks, 1)
            self.job_sockets, before = hosts.sockets, hosts.through
        if self.setting.kind == "gpus" and (visible == "own" or apart):
            script = 'export CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_RANK; exec "$@"'
            before = [*before, "sh", "-c", script, "sh"]
        elif visible not in (None, "own"):
            env["CUDA_VISIBLE_DEVICES"] = visible
        # Tuning is tuning.py's subject; elsewhere it would only take its time.
        return self.start(
            model, "--disable-autotune", *flags, ranks=ranks if ranks > 1 else None, device=self.setting.device,
            through=[*before, *through], env=env,
        )  # fmt: skip

    def daemons(self):
        """What status shows of the whole job, by rank."""
        found = []
        for sockets in self.job_sockets:
            if sockets.exists():
                found += json.loads(self.preload("status", "--json", sockets=sockets))["daemons"]
        return sorted(found, key=lambda daemon: daemon["global_rank"])

    def sockets_of(self, rank):
        return self.job_sockets[rank if len(self.job_sockets) > 1 else 0]

    def verify(self, model):
        """Every tensor of every rank against the checkpoint; how many."""
        checked = 0
        for sockets in self.job_sockets:
            told = json.loads(self.preload("verify", "--against", model, "--json", sockets=sockets, limit_s=300))
            self.assertEqual((told["ok"], told["mismatches"]), (True, []))
            checked += told["checked"]
        return checked

    def end(self, daemon):
        self.preload("stop", "--job", sockets=self.job_sockets[0])
        self.assertEqual(daemon.wait_end(60), 0, daemon.log)

    def load_figures(self):
        loads = [path for daemon in self.daemons() for path in daemon["counters"]["loads"]]
        handed = sum(path["bytes"] for path in loads if path["path"] == "peers")
        return Load(
            sum(path["bytes"] for path in loads) - handed, handed, max(path["seconds"] for path in loads)
        )


def run_rows(rows, setting):
    """Prints a line for each as it ends, fields between tabs; whether none failed."""
    ok = True
    for row in rows:
        row.setting = setting
        case = row()
        outcome = case.defaultTestResult()
        case.run(outcome)
        problems = outcome.errors + outcome.failures
        figures = getattr(case, "figures", "")
        if outcome.skipped:
            result, figures = "skip", outcome.skipped[0][1]
        else:
            result = "fail" if problems else "pass"
        for _, text in problems:
            print(text, file=sys.stderr)
            figures += " | " + text.strip().splitlines()[-1][:300]
        ok = ok and not problems
        print("row", row.title, result, figures.replace("\t", " ").replace("\n", " "), sep="\t", flush=True)
    return ok


def checkpoint_bytes(model):
    return sum(path.stat().st_size for path in pathlib.Path(model).glob("*.safetensors"))


def gpu_memory_above(before_mib, daemons):
    """By UUID, MiB above what was in use before and the weights."""
    now = two_gpus.used_mib()
    weights = {}
    for daemon in daemons:
        weights[daemon["gpu_uuid"]] = weights.get(daemon["gpu_uuid"], 0) + daemon["bytes"]
    return {uuid: now[uuid] - before_mib[uuid] - bytes_ / (1 << 20) for uuid, bytes_ in weights.items()}

