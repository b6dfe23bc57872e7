#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""serve --warmup-exec with real programs as the command: plain torch, and a vLLM where this Python has one.

    warmup.py BUILD [--device host] [--only PART ...] [--layers N]

  torch  examples/warmup_torch.py, compiled, attaches to the private socket and runs a forward pass; meanwhile
         nobody attaches in the public directory; the next start has what it left from disk
  hung   a command that holds GPU memory and a lease and never ends, at its limit
  vllm   preload.vllm.warmup: the next engine compiles no kernel of its own, and what its start and first
         tokens take with a cold cache and with this one

Each part looks at the GPU after READY: at most 16 MiB above the weights. Prints one JSON object; exits 1 when
something was not as it should be. With --device host it is a rehearsal, with a vLLM for CPUs.
"""

import argparse
import importlib.util
import json
import math
import os
import pathlib
import shlex
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "engines")]
import gpu_table  # noqa: E402

PARTS = ("torch", "hung", "vllm")
MOST_ABOVE_MIB = 16
# A vLLM without its compiled operators, and small.
ON_GPU = {
    "attention_backend": "TRITON_ATTN", "gpu_memory_utilization": 0.5, "max_model_len": 1024,
    "compilation_config": {"custom_ops": ["none"], "mode": 0},
}  # fmt: skip
HUNG = """
import time, preload.torch, torch
state = preload.torch.load(wait=60)
device = next(iter(state.values())).device
held = torch.ones(1 << 28, device=device)
print("holds", held.sum().item(), flush=True)
time.sleep(10000)
"""


def files_below(folder: pathlib.Path) -> set:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def kernels_in(folder: pathlib.Path) -> set:
    """Triton writes one binary, or one shared object, for each kernel that it compiles."""
    return {name for name in files_below(folder) if name.endswith((".cubin", ".so"))}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--layers", type=int, default=4)
    return parser.parse_args()


def main() -> int:
    args = parse()
    build = args.build.resolve()
    os.environ["PRELOAD_TEST_BIN"] = str(build / "src/preload")
    os.environ["PRELOAD_CLIENT_LIBRARY"] = str(build / "src/libpreload_client.so")
    import harness
    from vllm_engine import Engines

    harness.READY_S = 580  # a compiler at work
    result: dict = {"device": args.device}

    class WarmupCase(harness.Case):
        def setUp(self):
            super().setUp()
            self.work = self.root / "work"
            self.work.mkdir()
            self.environment = {
                "PYTHONPATH": os.pathsep.join([str(ROOT / "python"), os.environ.get("PYTHONPATH", "")])
            }

        def model(self):
            shape = ["--layers", args.layers, "--vocab", 32000]
            if args.device == "cuda":
                shape += ["--hidden", 4096, "--intermediate", 14336, "--heads", 32, "--kv-heads", 8]
            return harness.make_llama(self.root / "model", *shape)

        def serve(self, model, command: str, *flags):
            self.used_before = gpu_table.gpu_used_mib()
            daemon = self.start(
                model, f"--warmup-exec={command}", *flags, device=args.device, env=self.environment
            )  # fmt: skip
            return daemon.wait_ready()

        def check_memory(self, name: str) -> None:
            (status,) = self.status()
            self.assertEqual([status["state"], status["leases"]], ["READY", []])
            if args.device == "host":
                return
            above = gpu_table.gpu_used_mib() - self.used_before - (status["bytes"] >> 20)
            result[f"{name}_above_mib"] = above
            self.assertLessEqual(above, MOST_ABOVE_MIB, f"{name}: GPU memory above the weights")

        def caches(self, daemon) -> pathlib.Path:
            (line,) = [x for x in daemon.log.splitlines() if "engines find what the warm-up left with" in x]
            return pathlib.Path(line.split(" . ")[1]).parent

        def stopped(self, daemon) -> None:
            self.assert_stops_clean(daemon)

    class Torch(WarmupCase):
        def runTest(self):
            model, public = self.model(), self.work / "public"
            torch_command = shlex.join([sys.executable, str(ROOT / "examples/warmup_torch.py"), "--compile"])
            attach = shlex.join([harness.BIN, "attach", "--weight-cache-socket-dir", str(self.sockets)])
            command = f"{attach}; echo $? > {public}; {torch_command}"
            first = self.serve(model, command)
            self.assertEqual(public.read_text().strip(), "7", "a client attached before READY")
            self.assertIn("warmup=done", first.log)
            self.check_memory("torch")
            root = self.caches(first)
            found = json.loads((root / "caches/example/rank0.json").read_text())
            self.assertTrue(found["device"].startswith("cuda" if args.device == "cuda" else "cpu"), found)
            self.assertTrue(math.isfinite(found["logits"]) and found["logits"] > 0, found)
            result["torch_forward_s"] = round(found["seconds"], 2)
            result["torch_files"] = len(files_below(root / "caches"))
            self.stopped(first)
            public.unlink()

            # Of the directories nothing is left: the artifact alone knows. Without libarchive there is none.
            packed = harness.run("artifacts", "list", "--json")
            result["packed"] = "bundle.tar" in packed
            if result["packed"]:
                shutil.rmtree(root)
            second = self.serve(model, command)
            self.assertIn("warmup=found", second.log)
            self.assertFalse(public.exists(), "the command ran again")
            self.assertEqual(json.loads((root / "caches/example/rank0.json").read_text()), found)
            self.assertEqual(len(files_below(root / "caches")), result["torch_files"])
            self.check_memory("found")
            self.stopped(second)

    class Hung(WarmupCase):
        def runTest(self):
            script = self.work / "hung.py"
            script.write_text(HUNG)
            daemon = self.serve(
                self.model(), shlex.join([sys.executable, str(script)]), "--warmup-exec-timeout", 60
            )  # fmt: skip
            self.assertIn("warm-up: holds", daemon.log, "it did not come to hold anything")
            self.assertIn("did not end within its limit", daemon.log)
            self.assertIn("warmup=failed", daemon.log)
            self.check_memory("hung")
            self.stopped(daemon)

    class Vllm(WarmupCase):
        """A cold engine is one that has directories of its own, made new for it."""

        def runTest(self):
            model, engines = self.model(), Engines(self.work)
            options = ON_GPU if args.device == "cuda" else {"max_model_len": 128}
            self.environment["PYTHONPATH"] = engines._environment["PYTHONPATH"]
            daemon = self.serve(model, self.command(options))
            self.assertIn("warmup=done", daemon.log, daemon.log[-3000:])
            self.check_memory("vllm")
            root = self.caches(daemon)
            warm = {line.split("=")[0].split()[-1]: line.split("=", 1)[1].strip("'")
                    for line in (root / "environment.sh").read_text().splitlines() if line.startswith("export")}  # fmt: skip
            cold = {name: str(self.work / "cold" / name) for name in warm}
            made = kernels_in(root / "caches")
            result["vllm_kernels"] = len(made)
            times = {}
            for name, folders in (("cold", cold), ("warm", warm)):
                environment = {**folders, "PRELOAD_SOCKET_DIR": str(self.sockets)}
                times[name] = engines.run(
                    str(model), options=options, extra={"fallback": False}, environment=environment
                )
            self.assertEqual(times["cold"]["tokens"], times["warm"]["tokens"])
            for name, run in times.items():
                result[f"{name}_start_s"] = round(run["start_s"] - run["import_s"], 2)
                result[f"{name}_first_tokens_s"] = round(run["generate_s"], 2)
            of_its_own = kernels_in(root / "caches") - made
            result["compiled_cold"] = len(kernels_in(self.work / "cold"))
            result["compiled_warm"] = len(of_its_own)
            if args.device == "cuda":
                self.assertGreater(result["compiled_cold"], 0, "nothing was compiled at all")
                self.assertEqual(of_its_own, set(), "the warm engine compiled kernels of its own")
            self.stopped(daemon)

        def command(self, options: dict) -> str:
            command = [sys.executable, "-m", "preload.vllm.warmup", "--enforce-eager"]
            for name, value in {"max_num_seqs": 4, **options}.items():
                text = json.dumps(value) if isinstance(value, dict) else str(value)
                command += ["--" + name.replace("_", "-"), text]
            # What the engine that is timed will do, so that it has nothing left to compile.
            sizes = ["--warmup-batch-sizes=3", "--warmup-prompt-lengths=12", "--warmup-output-tokens=16"]
            return shlex.join([*command, *sizes])

    ok = True
    cases = {"torch": Torch, "hung": Hung, "vllm": Vllm}
    for name in args.only:
        if name == "vllm" and importlib.util.find_spec("vllm") is None:
            result["vllm"] = "skipped: this Python has no vLLM"
            continue
        case = cases[name]()
        outcome = case.defaultTestResult()
        case.run(outcome)
        for _, text in outcome.errors + outcome.failures:
            print(text, file=sys.stderr)
        result[name] = "passed" if outcome.wasSuccessful() else "failed"
        ok = ok and outcome.wasSuccessful()
    print(json.dumps(result | {"ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        tempfile.tempdir = directory
        sys.exit(main())
