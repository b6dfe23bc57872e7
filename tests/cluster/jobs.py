# SPDX-License-Identifier: Apache-2.0
"""Two nodes with Slurm and mpirun, and preload's jobs on them, as people start them: through
preload-srun and preload-mpirun. CTest sets where things are:

    PRELOAD_TEST_BIN_DIR     the executables of the build
    PRELOAD_TEST_SUPPORT_DIR the libraries of tests/support
    PRELOAD_MPIRUN           mpirun of the MPI that the build uses
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import isolation
from isolation import SHARED
from nodes import AGENT, NETWORK, make_nodes
from slurm import Slurm

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPOSITORY / "tests" / "e2e"))
from harness import COMMAND_S, READY_S, environment, eventually, exit_status, is_running  # noqa: E402

CPUS = 32  # of each node, whatever the machine has
GONE_S = 15
RANK_VARIABLES = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
OURS = ("preload", "preload-runtime"[:15])  # as the kernel names them


def read_environment(pid):
    text = pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace")
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


class Cluster:
    """Made once for a test program: `isolation.enter` comes before."""

    def __init__(self):
        self.bin = isolation.bring_in(os.environ["PRELOAD_TEST_BIN_DIR"], "bin")
        self.support = isolation.bring_in(os.environ["PRELOAD_TEST_SUPPORT_DIR"], "support")
        self.launch = isolation.bring_in(REPOSITORY / "launch", "launch")
        self.nodes = make_nodes(2, CPUS)
        self.slurm = Slurm(self.nodes)
        os.makedirs(f"{SHARED}/jobs")
        tempfile.tempdir = f"{SHARED}/jobs"
        os.environ["PRELOAD_CACHE_ROOT"] = f"{SHARED}/cache"
        # What belongs to a node at rest.
        self.resting = {node: set(self.processes(node)) for node in self.nodes}

    def processes(self, node):
        """The living processes of a node, by its network."""
        network = os.readlink(f"/proc/{node.holder.pid}/ns/net")
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.readlink(entry / "ns" / "net") == network and is_running(entry.name):
                    found.append(int(entry.name))
        return found

    def left(self):
        """What runs on the nodes beside that, as text by pid."""
        found = {}
        for node in self.nodes:
            for pid in set(self.processes(node)) - self.resting[node]:
                with contextlib.suppress(OSError):
                    command = pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
                    found[pid] = f"{node.name}: {command}"
        return found

    def ranks(self):
        """The pids of a job's ranks, by the launcher's number."""
        found = {}
        for node in self.nodes:
            for pid in self.processes(node):
                with contextlib.suppress(OSError):
                    if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() not in OURS:
                        continue
                    values = read_environment(pid)
                    number = next((values[name] for name in RANK_VARIABLES if name in values), None)
                    if number is not None:
                        found[int(number)] = pid
        return found

    def run(self, node, *arguments, status=0):
        """One of preload's own commands on a node; its stdout."""
        command = node.inside(f"{self.bin}/preload", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S, env=environment_here())
        if status is not None and done.returncode != status:
            raise AssertionError(f"{arguments} on {node.name}: {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def status(self, node):
        return json.loads(self.run(node, "status", "--json"))["daemons"]

    def allocations(self):
        """The ids of Slurm's jobs."""
        done = subprocess.run(["squeue", "--noheader", "--format=%i"], capture_output=True, text=True, check=True)
        return done.stdout.split()

    def clear(self):
        """Whatever a failed test has left."""
        if allocations := self.allocations():
            subprocess.run(["scancel", "--full", *allocations], check=False)
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not self.left() and not self.allocations(), 60, "a node at rest")


def environment_here():
    return environment(
        SLURM_CONF=os.environ["SLURM_CONF"], OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"
    )


def srun(cluster, per_node, options):
    shape = [f"--nodes={len(cluster.nodes)}", f"--ntasks-per-node={per_node}"]
    return [f"{cluster.launch}/slurm/preload-srun", *shape, *options]


def mpirun(cluster, per_node, options):
    command = [f"{cluster.launch}/mpirun/preload-mpirun", "--wdir", SHARED]
    if "--hostfile" not in options:
        command += ["--host", ",".join(f"{node.name}:{per_node}" for node in cluster.nodes)]
    command += ["--mca", "plm_rsh_agent", AGENT, "--mca", "btl_tcp_if_include", f"{NETWORK}.0/24", *options]
    # From the first node, as on bare metal.
    return cluster.nodes[0].inside(*command)


LAUNCHERS = {"srun": srun, "mpirun": mpirun}


class Job:
    """`preload serve` on host memory on every node, `per_node` ranks each. `libraries` of
    tests/support are loaded before each rank, `variables` are the ranks' own."""

    def __init__(self, cluster, launcher, model, *flags, per_node=2, options=(), libraries=(), variables=None, env=None):
        self.cluster = cluster
        ranks = dict(variables or {})
        if libraries:
            ranks["LD_PRELOAD"] = ":".join(f"{cluster.support}/preload_{name}.so" for name in libraries)
        command = LAUNCHERS[launcher](cluster, per_node, list(options))
        command += ["env", *(f"{name}={value}" for name, value in ranks.items())] if ranks else []
        command += [f"{cluster.bin}/preload", "serve", "--model", str(model), "--device", "host", *map(str, flags)]
        self.ranks = per_node * len(cluster.nodes)
        self.log_path = pathlib.Path(f"{SHARED}/jobs/log-{time.monotonic_ns()}")
        self.started = time.monotonic()
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=SHARED,
                start_new_session=True, env=environment_here() | (env or {}),
            )  # fmt: skip

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_for(self, condition, what):
        def holds():
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.log}")
            return condition()

        try:
            eventually(holds, READY_S, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None
        return self

    def wait_ready(self):
        return self.wait_for(lambda: "preload: READY" in self.log, "READY")

    def wait_loading(self):
        """Every rank is in the middle of it."""

        def loading():
            daemons = [daemon for node in self.cluster.nodes for daemon in self.cluster.status(node)]
            under_way = [d for d in daemons if d["state"] == "LOADING" and d["progress"]["bytes"] > 0]
            return len(under_way) == self.ranks

        return self.wait_for(loading, "every rank to load")

    def wait_end(self, limit_s=60):
        return exit_status(self, limit_s)

    def end_hard(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        self.cluster.clear()
