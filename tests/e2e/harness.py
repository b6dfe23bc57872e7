# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: the built programs, daemons that cannot outlive a test, and
clients. CTest sets where the build is:

    PRELOAD_TEST_BIN     the `preload` to test
    PRELOAD_TEST_MPIRUN  mpirun and its flags, one string; unset where the build has no MPI
    PRELOAD_CLIENT_LIBRARY  the client library, for the Python package
    PRELOAD_TEST_SANITIZED  set in sanitizer builds: no time is held to a product's limit there
    PRELOAD_TEST_READ_FAULTS  the library of tests/support/read_faults.cpp
    PRELOAD_TEST_FAKE_RUNTIME, PRELOAD_TEST_FAKE_NCCL, PRELOAD_TEST_TUNER  a runtime whose NCCL runs in host
        memory, that NCCL and the tuner plugin; unset where the build has no NCCL
"""

import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
BIN = os.environ.get("PRELOAD_TEST_BIN", "preload")
MPIRUN = shlex.split(os.environ.get("PRELOAD_TEST_MPIRUN", ""))
SANITIZED = bool(os.environ.get("PRELOAD_TEST_SANITIZED"))
CLIENT_LD_PRELOAD = os.environ.get("PRELOAD_TEST_CLIENT_LD_PRELOAD")
READY_S = 120  # sanitizers on a busy machine
COMMAND_S = 120
LAUNCHER_VARIABLES = ("OMPI_COMM_", "OMPI_UNIVERSE_", "PMIX_", "PMI_", "SLURM_", "PRELOAD_SOCKET_DIR")

needs_mpi = unittest.skipUnless(MPIRUN, "this build has no MPI")

needs_python_client = unittest.skipIf(
    os.environ.get("PRELOAD_TEST_NO_PYTHON_CLIENT"), "Python cannot load a library under ThreadSanitizer"
)


def environment(**extra):
    """Ours, without what an outer launcher or shell would decide for the daemons."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
    return kept | {k: str(v) for k, v in extra.items()}


def python_environment():
    """For a Python process that loads the client library, instrumented or not."""
    if not CLIENT_LD_PRELOAD:
        return environment()
    return environment(LD_PRELOAD=CLIENT_LD_PRELOAD, ASAN_OPTIONS="detect_leaks=0")


def eventually(condition, limit_s, what):
    """The first true value of condition(), polled; fails the test after limit_s."""
    deadline = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit_s} s: {what}")
        time.sleep(0.02)


def is_running(pid):
    """A zombie is not: it holds nothing any more."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in "ZX"


def suspend(pid):
    """Stops the process with SIGSTOP; returns when it runs no more."""
    os.kill(pid, signal.SIGSTOP)
    stat = pathlib.Path(f"/proc/{pid}/stat")
    eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", 30, f"pid {pid} to be suspended")


def make_llama(out, *flags):
    command = [sys.executable, str(REPOSITORY / "tests/support/make_llama.py"), str(out)]
    command += map(str, flags)
    subprocess.run(command, check=True, timeout=COMMAND_S, stdout=subprocess.DEVNULL)
    return pathlib.Path(out)


def make_slow_model(out, gib):
    """A checkpoint without blocks on the disk that takes a while to load."""
    out = pathlib.Path(out)
    out.mkdir(parents=True)
    (out / "config.json").write_text(json.dumps({"architectures": ["TestForMaskedLM"], "model_type": "test"}))
    header, at = {}, 0
    for i in range(gib):
        header[f"block.{i}.weight"] = {"dtype": "F32", "shape": [1 << 14, 1 << 14], "data_offsets": [at, at + (1 << 30)]}
        at += 1 << 30
    text = json.dumps(header).encode()
    with open(out / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    return out


def run(*arguments):
    """A command that talks to no daemon; its stdout."""
    done = subprocess.run(
        [BIN, *map(str, arguments)], capture_output=True, text=True, timeout=COMMAND_S, env=environment()
    )
    if done.returncode:
        raise AssertionError(f"{arguments} ended with {done.returncode}: {done.stderr}")
    return done.stdout


class Safetensors(dict):
    """The tensors of one file, as raw unsigned integers of the element's width, in shape."""

    WIDTHS = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2,
              "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8}  # fmt: skip

    def __init__(self, path):
        super().__init__()
        data = pathlib.Path(path).read_bytes()
        length = int.from_bytes(data[:8], "little")
        self.data_at = 8 + length
        self.header = json.loads(data[8 : self.data_at])
        self.header.pop("__metadata__", None)
        self.data_bytes = len(data) - self.data_at
        for name, entry in self.header.items():
            begin, end = entry["data_offsets"]
            raw = data[self.data_at + begin : self.data_at + end]
            kind = np.dtype(f"<u{self.WIDTHS[entry['dtype']]}")
            self[name] = np.frombuffer(raw, kind).reshape(entry["shape"])


def checkpoint_tensors(directory):
    """Every tensor of a checkpoint's files, by name."""
    tensors = {}
    for path in sorted(pathlib.Path(directory).glob("*.safetensors")):
        tensors |= Safetensors(path)
    return tensors


def exit_status(job, limit_s):
    """Of what somebody started, as a shell shows it; fails the test after limit_s."""
    try:
        status = job.process.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"still running after {limit_s} s:\n{job.log}") from None
    return status if status >= 0 else 128 - status


class Daemon:
    """`preload` as somebody starts it: alone, or on `ranks` ranks under mpirun."""

    def __init__(self, sockets, model, *flags, ranks=None, device="host", bin=None, env=None, through=()):
        """Each rank is started by the command `through`, say `env NAME=VALUE`, where it is given."""
        self.sockets = sockets
        command = [*map(str, through), bin or BIN, "serve", "--model", str(model), "--device", device]
        command += ["--weight-cache-socket-dir", str(sockets), *map(str, flags)]
        env = dict(env or {})
        if ranks is not None:
            command = [*MPIRUN, "-np", str(ranks), *command]
            if SANITIZED:
                # What components that MPI has unloaded leave behind cannot be told from ours.
                env["ASAN_OPTIONS"] = f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"
        self.log_path = pathlib.Path(sockets).parent / f"log-{time.monotonic_ns()}"
        self.started = time.monotonic()
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                start_new_session=True, env=environment(**env),
            )  # fmt: skip

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_ready(self):
        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}:\n{self.log}")
            return "preload: READY" in self.log

        eventually(ready, READY_S, f"READY:\n{self.log}")
        return self

    def wait_end(self, limit_s=30):
        return exit_status(self, limit_s)

    def end_hard(self):
        """Nothing of the session is left, whatever the test did."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError, ValueError):
                if os.getsid(int(entry.name)) == self.process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
        self.process.wait(10)


class Case(unittest.TestCase):
    """A test with a socket directory and a cache of its own."""

    maxDiff = 4000

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="preload-e2e-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.sockets = self.root / "sockets"
        os.environ["PRELOAD_CACHE_ROOT"] = str(self.root / "cache")

    def start(self, model, *flags, **options):
        daemon = Daemon(options.pop("sockets", self.sockets), model, *flags, **options)
        self.addCleanup(daemon.end_hard)
        return daemon

    def holder(self, device="host:0"):
        """A client that attaches and stays."""
        process = subprocess.Popen(
            [sys.executable, str(HERE / "holder.py"), str(self.sockets), device],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=python_environment(),
        )  # fmt: skip
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertRegex(process.stdout.readline(), "attached")
        return process

    def preload(self, *arguments, status=0, limit_s=COMMAND_S, sockets=None):
        """Runs a client command; its stdout."""
        command = [BIN, *map(str, arguments)]
        command += ["--weight-cache-socket-dir", str(sockets or self.sockets)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, env=environment())
        if status is not None:
            self.assertEqual(done.returncode, status, f"{command}\n{done.stdout}\n{done.stderr}")
        self.stderr = done.stderr
        return done.stdout

    def status(self):
        return json.loads(self.preload("status", "--json"))["daemons"]

    def pid_of_rank(self, rank):
        (pid,) = [d["pid"] for d in self.status() if d["global_rank"] == rank]
        return pid

    def dump(self):
        """Every local daemon's tensors as a client maps them: {rank: Safetensors}."""
        out = self.root / f"dump-{time.monotonic_ns()}"
        self.preload("attach", "--all", "--dump", out)
        return {int(p.stem.removeprefix("rank")): Safetensors(p) for p in out.glob("rank*.safetensors")}

    def assert_same_tensors(self, got, expected, where):
        self.assertEqual(sorted(got), sorted(expected), where)
        for name, want in expected.items():
            self.assertEqual(got[name].shape, want.shape, f"{where}: {name}")
            self.assertTrue(np.array_equal(got[name], want), f"{where}: {name} differs")

    def assert_serves_slices(self, model, layout="vllm", tp=1, pp=1, dp=1, experts=()):
        """Every rank's dump equals what NumPy cuts from the model's definition, and `verify` agrees."""
        out = self.root / f"dump-{time.monotonic_ns()}"
        self.preload("attach", "--all", "--dump", out)
        self.assert_dump_is_sliced(model, out, layout, tp, pp, dp, experts)
        report = json.loads(self.preload("verify", "--against", model, "--json"))
        self.assertTrue(report["ok"], report)
        self.preload("verify")

    def assert_dump_is_sliced(self, model, out, layout="vllm", tp=1, pp=1, dp=1, experts=()):
        reference = [sys.executable, HERE / "reference_slicing.py", "--checkpoint", model, "--dump", out]
        reference += ["--layout", layout, "--tp", tp, "--pp", pp, "--dp", dp, *experts]
        done = subprocess.run(list(map(str, reference)), capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)

    def assert_stops_clean(self, daemon):
        """`preload stop` ends every daemon; the job's status is 0 and no socket is left."""
        self.preload("stop")
        self.assertEqual(daemon.wait_end(), 0, daemon.log)
        self.assert_nothing_left()

    def assert_nothing_left(self):
        left = [p.name for p in self.sockets.iterdir() if p.suffix == ".sock" and p.stem != "keeper"]
        self.assertEqual(left, [])
        self.preload("stop", status=7)  # and nobody holds a lock
