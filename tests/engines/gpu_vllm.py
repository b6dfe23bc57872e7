#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real vLLM on one GPU with --load-format preload.

    gpu_vllm.py PRELOAD WORK [--only PART ...] [--model DIR] [--layers N] [--device host]

Parts, each a line or more of one table:

  tokens    eager and with CUDA graphs: tokens equal to --load-format auto's
            and KV-cache blocks within 0.2 %, each beside auto in the same mode
  survive   two engines at once; the daemon is killed with -9: they go on; with a keeper running, a
            third engine attaches
  speed     "Model loading took", median of five fresh processes, beside vLLM's own `vllm preload` with
            --load-format ipc_cache, and the start of the whole engine
  fallback  a resident shard over half of the memory (a sparse checkpoint) and an engine of another
            model: an error that says so, not an out-of-memory

Needs a vLLM 0.32 in this Python, PRELOAD_CLIENT_LIBRARY, and PYTHONPATH with the package. vLLM's
compiled operators are not needed: Triton attention and native layers are asked for. With --device host
it goes through `tokens` and `survive` with a vLLM for CPUs and the model that --model names.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

import daemon
import gpu_table
from vllm_engine import Engines

NATIVE = {"attention_backend": "TRITON_ATTN", "gpu_memory_utilization": 0.5, "max_model_len": 1024}
EAGER = {**NATIVE, "compilation_config": {"custom_ops": ["none"], "mode": 0}}
GRAPHS = {
    **NATIVE,
    "enforce_eager": False,
    "compilation_config": {"custom_ops": ["none"], "mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"},
}
STRICT = {"fallback": False}
PARTS = ("tokens", "survive", "speed", "fallback")


def load_seconds(result: dict) -> float:
    """vLLM's own figure; its CPU worker says none."""
    if result.get("blocks") and not any("Model loading took" in line for line in result["lines"]):
        return 0.0
    (line,) = [line for line in result["lines"] if line.startswith("Model loading took")]
    return float(line.split(" and ")[1].split()[0])


class Parts:
    def __init__(self, args):
        self.args, self.rows = args, gpu_table.Rows()
        self.engines = Engines(args.work)
        self._expected: dict = {}  # by options
        host = args.device == "host"
        self.eager, self.graphs = ({"max_model_len": 128}, None) if host else (EAGER, GRAPHS)

    def model(self) -> str:
        if self.args.model:
            return self.args.model
        options = ["--layers", str(self.args.layers)] if self.args.layers else []
        return gpu_table.make_model("llama8b", self.args.work / "models" / "llama8b", *options)

    def serve(self, *more: str):
        return daemon.Served(self.args.program, "--model", self.model(), *more, device=self.args.device)

    def expected(self, options: dict | None = None) -> dict:
        """What --load-format auto gives with the same options (eager), once."""
        options = options or self.eager
        key = json.dumps(options, sort_keys=True)
        if key not in self._expected:
            self._expected[key] = self.engines.run(self.model(), "auto", options=options)
        return self._expected[key]

    # Tokens and memory.

    def equal(self, options: dict):
        auto, got = self.expected(options), self.engines.run(self.model(), options=options, extra=STRICT)
        within = abs(got["blocks"] - auto["blocks"]) / auto["blocks"]
        figures = (
            f"load_model {load_seconds(got):.3f} s (auto {load_seconds(auto):.3f}), engine up {got['start_s']:.1f} s "
            f"(auto {auto['start_s']:.1f}), import {got['import_s']:.1f} s, blocks {got['blocks']} "
            f"(auto {auto['blocks']}); {[line for line in got['lines'] if line.startswith('preload')]}"
        )
        return got["tokens"] == auto["tokens"] and within <= 0.002, figures

    def tokens(self) -> None:
        for options in filter(None, (self.eager, self.graphs)):  # before a daemon takes memory
            self.expected(options)
        with self.serve():
            self.rows.step("tokens: eager", self.equal, self.eager)
            if self.graphs:
                self.rows.step("tokens: CUDA graphs", self.equal, self.graphs)

    # Daemons that die.

    def survive(self) -> None:
        self.rows.step("survive: kill -9 under two engines", self.survive_kill)

    def survive_kill(self):
        options = dict(self.eager)
        if "gpu_memory_utilization" in options:
            options["gpu_memory_utilization"] = 0.3  # three engines at once
        expected = self.expected()["tokens"]
        keeper = None
        if self.has_keeper():
            keeper = subprocess.Popen([self.args.program, "keeper"], stderr=subprocess.DEVNULL)
            time.sleep(1)
        waiting = self.args.work / "go"
        try:
            with self.serve(*(["--keeper", "require"] if keeper else [])) as served:
                both = [
                    self.engines.start(
                        self.model(), options=options, extra=STRICT, ask=[["wait_for_file", str(waiting)]]
                    )
                    for _ in range(2)
                ]
                served.wait_until(lambda status: len(status["leases"]) == 2, timeout=120)
                served.process.send_signal(signal.SIGKILL)
                served.process.wait(30)
                third = self.engines.run(self.model(), options=options, extra=STRICT) if keeper else None
                waiting.touch()
                got = [self.engines.finish(process, 120) for process in both]
        finally:
            waiting.unlink(missing_ok=True)
            if keeper is not None:
                keeper.terminate()
                keeper.wait(30)
        same = all(result[name] == expected for result in got for name in ("tokens", "tokens_after"))
        again = third is None or third["tokens"] == expected
        text = (
            "no keeper in this build: no third engine"
            if third is None
            else f"a third engine equal: {third['tokens'] == expected}"
        )
        return same and again and third is not None, f"two engines equal before and after: {same}; {text}"

    def has_keeper(self) -> bool:
        told = subprocess.run([self.args.program, "keeper", "--help"], capture_output=True)
        return told.returncode == 0

    # Speed.

    def speed(self) -> None:
        self.rows.step("speed: load_model beside ipc_cache", self.speed_beside)

    def speed_beside(self):
        """Both daemons hold the model; the engines take turns.

        The very first engine compiles kernels for all; of each kind the second comes up whole.
        """
        times, up, lines = {"preload": [], "ipc_cache": []}, {}, []
        with self.serve(), self.ipc_cache() as sockets:
            extra = {"preload": STRICT, "ipc_cache": {**STRICT, "socket_dir": sockets}}
            for number in range(self.args.runs):
                for load_format, seen in times.items():
                    whole = number == 1 or not lines
                    result = self.engines.run(
                        self.model(), load_format, options=EAGER, extra=extra[load_format], load_only=not whole
                    )
                    seen.append(load_seconds(result))
                    up[load_format] = result.get("start_s", up.get(load_format))
                    lines += [line for line in result["lines"] if line.startswith("preload: ")]
                    print(f"   {load_format} {seen[-1]:.3f} s {result['lines']}", flush=True)
        mine, theirs = times["preload"], times["ipc_cache"]
        ratio = statistics.median(mine) / statistics.median(theirs)
        # The worker's memory accounting attaches before vLLM begins to count.
        attach = statistics.median(float(re.search(r"attach ([\d.]+)", line)[1]) for line in lines)
        figures = (
            f"preload {seconds(mine)} s and {attach:.0f} ms of attaching before it, ipc_cache {seconds(theirs)} s, "
            f"ratio {ratio:.2f}; engine up {up['preload']:.1f} and {up['ipc_cache']:.1f} s; {lines[-1]}"
        )
        return ratio <= 0.8, figures

    @contextlib.contextmanager
    def ipc_cache(self):
        """vLLM's own daemon, started as its documentation says; its directory of sockets."""
        sockets = self.args.work / "ipc"
        sockets.mkdir(mode=0o700, exist_ok=True)
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "preload", "--model", self.model()]
        command += ["--attention-backend", "TRITON_ATTN", "--enforce-eager", "--skip-tokenizer-init"]
        command += ["--weight-cache-socket-dir", str(sockets), "--max-model-len", "1024"]
        command += ["--compilation-config", json.dumps(EAGER["compilation_config"])]
        with open(self.args.work / "ipc.log", "w+") as log:
            theirs = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
            try:
                deadline = time.monotonic() + 120
                while not list(sockets.glob("*.sock")):
                    if theirs.poll() is not None or time.monotonic() > deadline:
                        log.seek(0)
                        raise RuntimeError("vLLM's daemon did not come up: " + log.read()[-1500:])
                    time.sleep(0.2)
                yield str(sockets)
            finally:
                os.killpg(theirs.pid, signal.SIGKILL)
                theirs.wait(30)

    # A second copy that does not fit.

    def fallback(self) -> None:
        self.rows.step("fallback: no room for a second copy", self.fallback_refused)

    def fallback_refused(self):
        """Two sparse models of one shape, of which one takes over half of the GPU."""
        total = int(
            subprocess.run(
                ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", "-i", "0"],
                capture_output=True, text=True, check=True,
            ).stdout
        )  # fmt: skip
        layer_mib = 416  # of Llama 8B's shape in bf16
        layers = int(total * 0.55 / layer_mib)
        served, wanted = (self.args.work / "models" / name for name in ("sparse", "sparse_other"))
        script = daemon.ROOT / "tests/support/make_llama.py"
        shape = [
            "--hidden",
            "4096",
            "--intermediate",
            "14336",
            "--heads",
            "32",
            "--kv-heads",
            "8",
            "--vocab",
            "32000",
        ]
        for directory, more in ((served, layers), (wanted, layers + 1)):
            shutil.rmtree(directory, ignore_errors=True)
            command = [sys.executable, script, directory, *shape, "--layers", str(more), "--sparse"]
            subprocess.run(command, check=True)
        try:
            with daemon.Served(self.args.program, "--model", str(served), device="cuda") as daemon_:
                resident = daemon_.status()["bytes"]
                process = self.engines.start(str(wanted), options=EAGER, extra={"fallback": True})
                output, _ = process.communicate(timeout=150)
        finally:
            for directory in (served, wanted):
                shutil.rmtree(directory, ignore_errors=True)
        told = [line for line in output.splitlines() if "NotEnoughMemory" in line]
        ran_out = "OutOfMemory" in output or "out of memory" in output
        figures = f"{resident / (1 << 30):.1f} of {total / 1024:.1f} GiB resident; {told[-1] if told else output[-500:]}"
        return bool(told) and not ran_out and process.returncode != 0, figures


def seconds(values: list) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--model", help="a checkpoint instead of one of Llama 8B's shape that is written")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--runs", type=int, default=5, help="of each kind for speed, two or more")
    args = parser.parse_args()
    daemon.use_directories(args.work)
    parts = Parts(args)
    for name in args.only:
        getattr(parts, name)()
    return parts.rows.finish()


if __name__ == "__main__":
    sys.exit(main())
