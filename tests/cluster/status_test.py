# SPDX-License-Identifier: Apache-2.0
"""How a job on two nodes ends, whatever ends it, under preload-srun and preload-mpirun, before and
after READY: the exit status, and that nothing is left. One case an event; all with --whole."""

import hashlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import isolation
import slurm

isolation.enter(slurm.PROGRAMS)

from harness import eventually, make_llama, make_slow_model  # noqa: E402
from jobs import GONE_S, LAUNCHERS, Cluster, Job  # noqa: E402

WHOLE = "--whole" in sys.argv
SMALL = ["--hidden", 64, "--layers", 2, "--heads", 4, "--kv-heads", 2, "--vocab", 512, "--intermediate", 96]
# Of 4 MiB each: a load of a GiB with this takes longer than any of these tests.
SLOW_READS = {"PRELOAD_TEST_FAULT_FILES": ".safetensors", "PRELOAD_TEST_FAULT_DELAY_MS": 300}


def setUpModule():
    global cluster, models
    cluster = Cluster()
    root = pathlib.Path(f"{isolation.SHARED}/jobs")
    models = {
        "small": make_llama(root / "small", *SMALL),
        "short": make_llama(root / "short", *SMALL, "--shards", 2),
        "slow": make_slow_model(root / "slow", 1),
    }
    shard = models["short"] / "model-00002-of-00002.safetensors"
    os.truncate(shard, shard.stat().st_size - 4096)


def signal_rank(number):
    return lambda job: os.kill(cluster.ranks()[2], number)


def signal_launcher(number):
    return lambda job: job.process.send_signal(number)


def cancel(job):
    subprocess.run(["scancel", *cluster.allocations()], check=True)


# A limit is in minutes at least; an end that is now is due when Slurm looks next, every half minute.
def exceed_time_limit(job):
    (allocation,) = cluster.allocations()
    subprocess.run(["scontrol", "update", f"JobId={allocation}", "EndTime=now"], check=True)
    job.wait_for(lambda: "DUE TO TIME LIMIT" in job.log, "the time limit")


# event: (what makes it happen, the status that the job must have, launchers that have such a thing)
EVENTS = {
    "a_rank_that_exits_with_7": (signal_rank(signal.SIGRTMIN), 7, LAUNCHERS),
    "a_rank_killed_with_9": (signal_rank(signal.SIGKILL), 137, LAUNCHERS),
    "a_rank_that_exits_with_0_unasked": (signal_rank(signal.SIGRTMIN + 1), 1, LAUNCHERS),
    "SIGTERM": (signal_launcher(signal.SIGTERM), 143, LAUNCHERS),
    "SIGINT": (signal_launcher(signal.SIGINT), 130, LAUNCHERS),
    "scancel": (cancel, 143, ["srun"]),
    "the_time_limit": (exceed_time_limit, 143, ["srun"]),
}
# In every run: each event once, each launcher before and after READY.
SHORT = {
    ("a_rank_that_exits_with_7", "srun", "before"),
    ("a_rank_killed_with_9", "mpirun", "after"),
    ("a_rank_that_exits_with_0_unasked", "srun", "before"),
    ("SIGTERM", "mpirun", "before"),
    ("SIGINT", "srun", "after"),
    ("scancel", "srun", "before"),
    ("the_time_limit", "srun", "after"),
}


class Status(unittest.TestCase):
    def start(self, launcher, model, *flags, **options):
        job = Job(cluster, launcher, models[model], *flags, libraries=["rank_events", *options.pop("libraries", [])], **options)
        self.addCleanup(job.end_hard)
        return job

    def start_serving(self, launcher):
        return self.start(launcher, "small", "-tp", 2, "-dp", 2).wait_ready()

    def start_loading(self, launcher):
        flags = ["-dp", 4, "--spread", "never", "--layout", "hf", "--reader", "pread", "--reader-threads", 1]
        return self.start(launcher, "slow", *flags, libraries=["read_faults"], variables=SLOW_READS).wait_loading()

    def assert_ends(self, job, status, began, limit_s=GONE_S):
        """With the status, and with nothing left on either node."""
        self.assertEqual(job.wait_end(), status, job.log)
        eventually(lambda: not cluster.left(), 60, "both nodes to be at rest")
        self.assertLess(time.monotonic() - began, limit_s, job.log)
        for node in cluster.nodes:
            cluster.run(node, "stop", status=7)  # no lock is held, no socket answers
            self.assertNotIn("READY", [daemon["state"] for daemon in cluster.status(node)])

    def check(self, event, launcher, phase):
        happen, status, _ = EVENTS[event]
        job = self.start_serving(launcher) if phase == "after" else self.start_loading(launcher)
        happen(job)
        self.assert_ends(job, status, time.monotonic())

    def check_refused(self, launcher):
        job = self.start(launcher, "short", "-tp", 2, "-dp", 2)
        self.assert_ends(job, 3, job.started)
        self.assertEqual(job.log.count("4096 bytes are missing"), 1, job.log)

    def check_busy(self, launcher):
        place = hashlib.sha256(b"host:1").hexdigest()[:16]
        script = f"umask 077; mkdir -p /tmp/preload-0; exec 9>/tmp/preload-0/{place}.lock; flock 9; echo held; exec cat"
        holder = subprocess.Popen(
            cluster.nodes[1].inside("sh", "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(holder.wait, 10)
        self.addCleanup(holder.stdin.close)
        with holder.stdout:
            self.assertEqual(holder.stdout.readline(), "held\n")
        job = self.start(launcher, "small", "-tp", 2, "-dp", 2)
        self.assertEqual(job.wait_end(), 6, job.log)
        holder.stdin.close()
        holder.wait(10)
        self.assert_ends(job, 6, job.started)
        self.assertEqual(job.log.count("is already served"), 1, job.log)


def add(name, check, *arguments):
    setattr(Status, name, lambda self: check(self, *arguments))


for event, (_, status, launchers) in EVENTS.items():
    for launcher in launchers:
        for phase in ("before", "after"):
            if WHOLE or (event, launcher, phase) in SHORT:
                name = f"test_{event}_{phase}_READY_under_{launcher}_is_{status}"
                add(name, Status.check, event, launcher, phase)
for launcher in LAUNCHERS:
    if WHOLE or launcher == "mpirun":
        add(f"test_a_refused_checkpoint_under_{launcher}_is_3", Status.check_refused, launcher)
    if WHOLE or launcher == "srun":
        add(f"test_a_busy_place_under_{launcher}_is_6", Status.check_busy, launcher)


if __name__ == "__main__":
    # Of processes that end with this world.
    unittest.main(argv=[argument for argument in sys.argv if argument != "--whole"], warnings="ignore")
