# SPDX-License-Identifier: Apache-2.0
"""How fast two ranks load, beside what the machine gives, and how bytes get from one GPU to the other."""

import json
import pathlib
import statistics
import subprocess
import sys

import two_gpus
from read_faults import ReadFaults
from two_ranks import Row, checkpoint_bytes

HERE = pathlib.Path(__file__).resolve().parent


class Rates(Row):
    def limits(self, *arguments):
        """GB/s of two_limits.py."""
        command = [sys.executable, str(HERE / "two_limits.py"), *map(str, arguments)]
        command += ["--host"] if self.setting.kind == "host" else []
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return json.loads(done.stdout.splitlines()[-1])["gb_per_s"]

    def loads(self, *flags, **how):
        """The run with the median time; the files are in memory."""
        found = []
        for _ in range(self.setting.runs):
            daemon = self.job(self.setting.model, *flags, **how).wait_ready()
            found.append(self.load_figures())
            self.end(daemon)
        middle = statistics.median_low(load.seconds for load in found)
        return next(load for load in found if load.seconds == middle)


class Replicas(Rates):
    title, kinds = "dp=2, files in memory: beside two loads of everything and one GPU alone", ("gpus", "host")

    def runTest(self):
        stored = checkpoint_bytes(self.setting.model)
        together = self.loads("-dp", 2)
        apart = self.loads("-dp", 2, "--spread", "never")
        alone = self.loads(ranks=1, visible="0" if self.setting.kind == "gpus" else None)
        self.say(
            f"{together.seconds:.3f} s, {apart.seconds:.3f} s when each rank reads everything, {alone.seconds:.3f} s on one GPU alone, "
            f"medians of {self.setting.runs}, from a rank's first read to its last byte hashed"
        )
        self.most(together.seconds / apart.seconds, 0.6, "share of reading twice")
        self.most(together.seconds / alone.seconds, 0.85, "share of one alone")
        once, twice = (load.read / stored for load in (together, apart))
        self.say(f"files read {once:.4f} times ({twice:.4f} times when each rank reads everything)")
        self.assertLess(abs(twice - 2), 0.02)
        if self.setting.is_judged:
            self.assertLess(abs(once - 1), 0.01)


class ReadOnce(Row):
    """Counted where the system is asked, by a library before the ranks."""

    title = "dp=2: bytes of the checkpoint that both ranks asked the system for"

    def runTest(self):
        stored = checkpoint_bytes(self.setting.model)
        faults = ReadFaults(self.root)
        daemon = self.job(
            self.setting.model, "-dp", 2, "--spread", "always", "--reader", "pread", through=faults.through
        ).wait_ready()
        by_rank = {rank: counts.bytes for rank, counts in faults.by_rank().items()}
        tensors = self.verify(self.setting.model)
        self.end(daemon)
        total = sum(by_rank.values())
        self.say(f"{total} of {stored} bytes, by rank {sorted(by_rank.values())}; {tensors} tensors right")
        self.assertEqual(len(by_rank), 2)
        self.assertLess(abs(total - stored), 0.01 * stored + (1 << 20))


class Slices(Rates):
    title, kinds = "tp=2, files in memory: both GPUs' rate beside two plain rings at once", ("gpus", "host")

    def runTest(self):
        load = self.loads("-tp", 2)
        rings = self.limits("rings", *sorted(self.setting.model.glob("*.safetensors")))
        pinned = self.limits("pinned")
        rate = load.read / load.seconds / 1e9
        self.say(
            f"{rate:.1f} GB/s read by both in {load.seconds:.3f} s; two plain rings at once "
            f"{' + '.join(f'{each:.1f}' for each in rings)} GB/s, two pinned copies at once "
            f"{' + '.join(f'{each:.1f}' for each in pinned)} GB/s"
        )
        self.least(rate / sum(rings), 0.9, "share of the rings")


class Links(Rates):
    title, kinds = "dp=2: what crosses NVLink, beside a plain copy and NCCL's broadcast", ("gpus", "host")

    def runTest(self):
        stored = checkpoint_bytes(self.setting.model)
        before = two_gpus.nvlink_sent_bytes() if self.setting.kind == "gpus" else None
        daemon = self.job(self.setting.model, "-dp", 2, "--spread", "always").wait_ready()
        after = two_gpus.nvlink_sent_bytes() if self.setting.kind == "gpus" else None
        load = self.load_figures()
        tensors = self.verify(self.setting.model)
        self.end(daemon)
        self.say(f"{load.read} bytes read, {load.handed} handed on, {tensors} tensors right")
        self.assertLess(abs(load.handed / stored - 1), 0.01, "each rank has what the other reads")
        (peer,) = self.limits("peer")
        (broadcast,) = self.limits("broadcast", "--meeting", self.root / "meeting")
        self.say(f"a plain copy {peer:.0f} GB/s, NCCL's broadcast {broadcast:.0f} GB/s")
        if after is None:
            self.say("links that are counted: none here")
            self.assertFalse(self.setting.is_judged and before is not None)
            return
        sent = sum(after.values()) - sum(before.values())
        self.say(  # the counters know of no process: whatever else crosses counts, too
            f"{sent} bytes counted on the links, {sent / load.handed:.3f} of what was handed on, "
            f"{load.handed / load.seconds / 1e9:.1f} GB/s over the whole load, which the host's memory bounds, not the links"
        )
        self.assertLess(abs(sent / load.handed - 1), 0.1)


class Nccl(Rates):
    """Ranks on hosts of their own names cannot map each other's memory."""

    title, kinds = "dp=2 through NCCL (NCCL_HOSTID of its own for each rank)", ("gpus", "shared", "host")

    def runTest(self):
        if self.setting.kind == "host":
            self.skipTest("on host memory MPI carries it: tests/e2e")
        stored = checkpoint_bytes(self.setting.model)
        daemon = self.job(
            self.setting.model, "-dp", 2, "--spread", "always", apart=True, env={"NCCL_DEBUG": "INFO"}
        ).wait_ready()
        load = self.load_figures()
        tensors = self.verify(self.setting.model)
        log = daemon.log
        self.end(daemon)
        self.assertIn("NCCL INFO", log)
        self.assertLess(abs(load.read / stored - 1), 0.01, "read once")
        self.say(f"{load.handed} bytes handed on, {tensors} tensors right, {load.seconds:.2f} s on the network's path")


ROWS = [Replicas, ReadOnce, Slices, Links, Nccl]
