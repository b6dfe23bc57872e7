# SPDX-License-Identifier: Apache-2.0
"""The sbatch scripts of launch/slurm, and the host and rank files of launch/mpirun, as they are."""

import os
import pathlib
import signal
import subprocess
import unittest

import isolation
import slurm

isolation.enter(slurm.PROGRAMS)

from harness import READY_S, eventually, make_llama  # noqa: E402
from jobs import Cluster, Job, environment_here  # noqa: E402

SHAPE = ["--hidden", 128, "--layers", 4, "--heads", 8, "--kv-heads", 4, "--vocab", 1024, "--intermediate", 256]

UNDER_WAY = (None, "PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


def setUpModule():
    global cluster, model
    cluster = Cluster()
    model = make_llama(f"{isolation.SHARED}/jobs/model", *SHAPE)


class Batch:
    """A job of one of the scripts: what it says, and how it ends."""

    def __init__(self, script, *arguments, options=(), env=None):
        self.log_path = pathlib.Path(f"{isolation.SHARED}/jobs/{script}.log")
        path = f"{cluster.bin}:{cluster.launch}/slurm:{os.environ['PATH']}"
        command = ["sbatch", "--parsable", f"--output={self.log_path}", f"--chdir={isolation.SHARED}", *options]
        command += [f"{cluster.launch}/slurm/{script}", str(model), "--device", "host", *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment_here() | {"PATH": path} | (env or {})
        )
        self.id = done.stdout.strip()

    @property
    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def shown(self):
        text = subprocess.run(["scontrol", "--oneliner", "show", "job", self.id], capture_output=True, text=True).stdout
        return dict(field.split("=", 1) for field in text.split() if "=" in field)

    def wait_ready(self, times=1):
        try:
            eventually(lambda: self.log.count("preload: READY") >= times, READY_S, "READY")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.shown()}\n{self.log}") from None
        return self

    def wait_end(self):
        """(state, exit status)"""
        try:
            eventually(lambda: self.shown().get("JobState") not in UNDER_WAY, READY_S, "the job to end")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None
        shown = self.shown()
        return shown["JobState"], int(shown["ExitCode"].split(":")[0])


class Scripts(unittest.TestCase):
    def submit(self, *arguments, **options):
        batch = Batch(*arguments, **options)
        self.addCleanup(cluster.clear)
        return batch

    def test_one_node_serves_until_it_is_stopped(self):
        batch = self.submit("one-node.sbatch", "-tp", 4).wait_ready()
        cluster.run(cluster.nodes[0], "verify", "--against", model)
        cluster.run(cluster.nodes[0], "stop")
        self.assertEqual(batch.wait_end(), ("COMPLETED", 0), batch.log)

    def test_many_nodes_end_whole_when_they_are_cancelled(self):
        batch = self.submit("many-nodes.sbatch", "-tp", 4, "-pp", 2).wait_ready()
        self.assertEqual([d["global_rank"] for d in cluster.status(cluster.nodes[1])], [4, 5, 6, 7])
        subprocess.run(["scancel", batch.id], check=True)
        self.assertEqual(batch.wait_end()[0], "CANCELLED", batch.log)
        eventually(lambda: not cluster.left(), 60, "both nodes to be at rest")
        self.assertIn("ended by SIGTERM", batch.log)
        for node in cluster.nodes:
            cluster.run(node, "stop", status=7)

    def test_an_engine_runs_beside_the_daemon_and_gives_the_job_its_status(self):
        engine = "preload attach --all && preload verify && exit 9"
        batch = self.submit("daemon-and-engine.sbatch", "-tp", 4, env={"ENGINE": engine})
        self.assertEqual(batch.wait_end(), ("FAILED", 9), batch.log)
        self.assertEqual(batch.log.count("preload: READY"), 1, batch.log)
        eventually(lambda: not cluster.left(), 60, "both nodes to be at rest")

    def test_an_engine_is_not_started_where_the_daemon_fails(self):
        batch = self.submit("daemon-and-engine.sbatch", "-tp", 3, env={"ENGINE": "echo the engine runs"})
        self.assertEqual(batch.wait_end(), ("FAILED", 2), batch.log)
        self.assertNotIn("the engine runs", batch.log)

    def test_a_keeper_hands_the_weights_to_the_daemon_that_is_started_again(self):
        batch = self.submit("keeper.sbatch", "-tp", 4).wait_ready()
        os.kill(cluster.ranks()[1], signal.SIGKILL)
        batch.wait_ready(2)
        self.assertIn("preload ended with status 137", batch.log)
        sockets = f"/tmp/preload-{os.getuid()}-{batch.id}"
        daemons = cluster.run(cluster.nodes[0], "status", "--weight-cache-socket-dir", sockets)
        self.assertEqual(daemons.count("READY"), 4, daemons)
        cluster.run(cluster.nodes[0], "stop", "--weight-cache-socket-dir", sockets)
        self.assertEqual(batch.wait_end(), ("COMPLETED", 0), batch.log)
        eventually(lambda: not cluster.left(), 60, "both nodes to be at rest")


class HostFiles(unittest.TestCase):
    def test_the_examples_place_four_ranks_on_each_node(self):
        options = ["--hostfile", f"{cluster.launch}/mpirun/hostfile", "-np", "8", "--map-by", "ppr:4:node"]
        job = Job(cluster, "mpirun", model, "-tp", 4, "-dp", 2, options=options)
        self.addCleanup(job.end_hard)
        job.wait_ready()
        for node in cluster.nodes:
            self.assertEqual(len(cluster.status(node)), 4)
        cluster.run(cluster.nodes[0], "stop", "--job")
        self.assertEqual(job.wait_end(), 0, job.log)


if __name__ == "__main__":
    # Of processes that end with this world.
    unittest.main(warnings="ignore")
