# SPDX-License-Identifier: Apache-2.0
"""A job over two nodes, under srun and under mpirun: who holds what, what is read, how it stops; and
what a user is told who starts it with a PMI that the MPI does not speak."""

import json
import pathlib
import subprocess
import time
import unittest

import isolation
import slurm

isolation.enter(slurm.PROGRAMS)

from harness import COMMAND_S, eventually, make_llama  # noqa: E402
from jobs import Cluster, Job, environment_here  # noqa: E402

PER_NODE = 4
# Two shards, so that there is an index; every tensor in four parts.
SHAPE = ["--hidden", 128, "--layers", 4, "--heads", 8, "--kv-heads", 4, "--vocab", 1024, "--intermediate", 256, "--shards", 2]
SIZES = ["-tp", 4, "-dp", 2]
COUNTERS = 2  # tests/support/read_faults.cpp: bytes and reads come first


def setUpModule():
    global cluster, model
    cluster = Cluster()
    model = make_llama(f"{isolation.SHARED}/jobs/model", *SHAPE)


class Case(unittest.TestCase):
    def start(self, launcher, *flags, **options):
        job = Job(cluster, launcher, model, *flags, **options)
        self.addCleanup(job.end_hard)
        return job

    def plan(self):
        command = [f"{cluster.bin}/preload", "plan", "--model", str(model), "--ranks", str(2 * PER_NODE)]
        command += ["--nodes", "2", *map(str, SIZES), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, check=True)
        return json.loads(done.stdout)["ranks"]

    def assert_serves_the_plan(self, job):
        """Each node holds the ranks that the plan puts there, and what they are to hold."""
        planned = self.plan()
        for number, node in enumerate(cluster.nodes):
            attached = json.loads(cluster.run(node, "attach", "--all", "--json"))["daemons"]
            here = [rank for rank in planned if rank["node"] == number]
            self.assertEqual([rank["global"] for rank in here], list(range(number * PER_NODE, (number + 1) * PER_NODE)))
            for rank, daemon in zip(here, sorted(attached, key=lambda d: d["global_rank"]), strict=True):
                self.assertEqual(daemon["global_rank"], rank["global"])
                self.assertEqual([daemon[key] for key in ("dp", "pp", "tp")], [rank[key] for key in ("dp", "pp", "tp")])
                self.assertEqual(daemon["tensors"], len(rank["tensors"]))
                self.assertEqual(daemon["gpu_uuid"], f"host:{rank['local']}")
            report = json.loads(cluster.run(node, "verify", "--against", model, "--json"))
            self.assertTrue(report["ok"], report)
            self.assertEqual(report["checked"], sum(daemon["tensors"] for daemon in attached))
        self.assertEqual(job.log.count("preload: READY"), 1, job.log)

    def assert_stops(self, job, node):
        """Asked on one node, every rank of the job ends."""
        cluster.run(node, "stop", "--job")
        self.assertEqual(job.wait_end(), 0, job.log)
        self.assertNotIn("preload: END", job.log)
        eventually(lambda: not cluster.left(), 60, "both nodes to be at rest")


class Serving(Case):
    def test_srun_spreads_ranks_cyclically_and_nodes_hold_contiguous_blocks_all_the_same(self):
        job = self.start("srun", *SIZES, per_node=PER_NODE, options=["--distribution=cyclic"]).wait_ready()
        self.assert_serves_the_plan(job)
        self.assert_stops(job, cluster.nodes[1])

    def test_mpirun_spreads_ranks_by_node_and_nodes_hold_contiguous_blocks_all_the_same(self):
        job = self.start("mpirun", *SIZES, per_node=PER_NODE, options=["--map-by", "node"]).wait_ready()
        self.assert_serves_the_plan(job)
        self.assert_stops(job, cluster.nodes[0])

    def reads(self, files, launcher="srun"):
        """(bytes, reads) of files whose path contains `files`, by the launcher's rank, until READY."""
        folder = pathlib.Path(isolation.SHARED) / "jobs" / f"counts-{time.monotonic_ns()}"
        folder.mkdir()
        variables = {"PRELOAD_TEST_FAULT_FILES": files, "PRELOAD_TEST_FAULT_COUNTS": folder}
        flags = [*SIZES, "--reader", "pread"]
        job = self.start(launcher, *flags, per_node=PER_NODE, libraries=["read_faults"], variables=variables)
        job.wait_ready()
        counts = {}
        for rank, pid in cluster.ranks().items():
            data = (folder / str(pid)).read_bytes()
            counts[rank] = tuple(int.from_bytes(data[at * 8 : at * 8 + 8], "little") for at in range(COUNTERS))
        self.assert_stops(job, cluster.nodes[0])
        self.assertEqual(sorted(counts), list(range(2 * PER_NODE)))
        return counts

    def test_metadata_is_read_by_one_rank_of_the_job(self):
        for files in ("config.json", "index.json"):
            counts = self.reads(files)
            self.assertGreater(counts.pop(0), (0, 0), files)
            self.assertEqual(set(counts.values()), {(0, 0)}, f"{files}: {counts}")

    def test_headers_are_read_by_one_rank_of_the_job_and_weights_as_planned(self):
        # The shape is so even that all ranks are to read as much.
        (planned,) = {rank["read_bytes"] + rank["gap_bytes"] for rank in self.plan()}
        headers = sum(8 + int.from_bytes(path.read_bytes()[:8], "little") for path in model.glob("*.safetensors"))
        counts = self.reads(".safetensors")
        self.assertGreaterEqual(counts.pop(0)[0], planned + headers, counts)
        self.assertEqual({count[0] for count in counts.values()}, {planned}, counts)


class AnotherPmi(Case):
    """Every rank ends at once with 5, and what to do is said, once."""

    def assert_refused(self, job, limit_s=25):
        # Five seconds at most, after Slurm has found the nodes free, and what a busy machine adds;
        # what waits for a world that does not come waits a minute.
        self.assertEqual(job.wait_end(), 5, job.log)
        self.assertLess(time.monotonic() - job.started, limit_s, job.log)
        for text in ("`srun --mpi=list`", "built against Open MPI", "`srun --mpi=pmix"):
            self.assertEqual(job.log.count(text), 1, job.log)
        eventually(lambda: not cluster.left(), 60, "both nodes to be at rest")

    def test_srun_with_mpi_none_is_refused(self):
        job = self.start("srun", *SIZES, per_node=PER_NODE, options=["--mpi=none"])
        self.assert_refused(job)
        self.assertNotIn("exit code 0", job.log)

    def test_a_slurm_whose_default_is_none_is_refused(self):
        config = pathlib.Path(cluster.slurm.config)
        other = config.with_name("default-none.conf")
        other.write_text(config.read_text().replace("MpiDefault=pmix", "MpiDefault=none"))
        # As with plain srun, which adds no --mpi.
        job = self.start("srun", *SIZES, per_node=PER_NODE, env={"SLURM_CONF": str(other), "SLURM_MPI_TYPE": "none"})
        self.assert_refused(job)

    def test_srun_with_another_pmi_is_refused(self):
        job = self.start("srun", *SIZES, per_node=PER_NODE, options=["--mpi=pmi2"])
        self.assert_refused(job)

    def test_the_mpiexec_of_another_mpi_is_refused(self):
        command = [f"{cluster.bin}/preload", "serve", "--model", str(model), "--device", "host"]
        for rank in (0, 1):
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMMAND_S,
                env=environment_here() | {"PMI_RANK": str(rank), "PMI_SIZE": "2", "PMI_FD": "9"},
            )  # fmt: skip
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertEqual(done.stderr.count("another MPI's mpiexec"), 1 - rank, done.stderr)


if __name__ == "__main__":
    # Of processes that end with this world.
    unittest.main(warnings="ignore")
