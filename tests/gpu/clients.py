#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients of every kind on GPU memory: Python's tests of tensors in torch against a fixture there, the
C and the C++ example, and what the bytes of a target and its draft are said to be and take.

    clients.py BUILD [--device cuda|host]

Needs torch and a C and a C++ compiler. `--device host` rehearses it without a GPU. Prints one JSON object;
exits 1 when something was not as it should be.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
TESTS = ("test_torch", "test_assign", "test_guard")
MOST_ABOVE_MIB = 16


def gpu_used_mib() -> int:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout)


def settled_mib() -> int:
    """The same reading three times in a row, or the last after five seconds."""
    readings = [gpu_used_mib()]
    while len(readings) < 50 and (len(readings) < 3 or len(set(readings[-3:])) > 1):
        time.sleep(0.1)
        readings.append(gpu_used_mib())
    return readings[-1]


def python_tests(build: pathlib.Path, device: str) -> dict:
    """How many ran and were skipped; unittest's own text goes to stderr."""
    daemon = {"cuda": "tests/gpu/preload_gpu_test_daemon", "host": "tests/e2e/python/preload_test_daemon"}
    environment = os.environ | {
        "PRELOAD_TEST_DAEMON": str(build / daemon[device]),
        "PRELOAD_TEST_TORCH_DEVICE": "cuda:0" if device == "cuda" else "cpu",
        "PRELOAD_REQUIRE_GPU": "1",
        "PYTHONPATH": str(ROOT / "python") + os.pathsep + os.environ.get("PYTHONPATH", ""),
    }
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "-v", *TESTS], cwd=ROOT / "tests/e2e/python", env=environment,
        stderr=subprocess.PIPE, stdout=sys.stderr, text=True, timeout=400,
    )  # fmt: skip
    print(done.stderr, file=sys.stderr)
    ran = re.search(r"Ran (\d+) tests", done.stderr)
    skipped = re.search(r"skipped=(\d+)", done.stderr)
    return {
        "tests": int(ran[1]) if ran else 0,
        "skipped": int(skipped[1]) if skipped else 0,
        "tests_ok": done.returncode == 0 and ran is not None,
    }


def build_examples(build: pathlib.Path, out: pathlib.Path) -> list[pathlib.Path]:
    library = build / "src"
    flags = ["-I", str(ROOT / "include"), "-L", str(library), f"-Wl,-rpath,{library}"]
    sources = {"attach_c": (os.environ.get("CC", "cc"), "-std=c11", "attach.c"),
               "attach_cpp": (os.environ.get("CXX", "c++"), "-std=c++20", "attach.cpp")}  # fmt: skip
    for name, (compiler, standard, source) in sources.items():
        command = [compiler, standard, "-Wall", str(ROOT / "examples" / source), "-o", str(out / name), *flags]
        subprocess.run([*command, "-lpreload_client"], check=True, timeout=120)
    return [out / name for name in sources]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--device", choices=("cuda", "host"), default="cuda")
    args = parser.parse_args()
    build, on_gpu = args.build.resolve(), args.device == "cuda"
    os.environ["PRELOAD_TEST_BIN"] = str(build / "src/preload")
    os.environ["PRELOAD_CLIENT_LIBRARY"] = str(build / "src/libpreload_client.so")
    import drafts_test

    result = python_tests(build, args.device)

    class Served(drafts_test.Drafts):
        """A target with its draft, from checkpoints of their own."""

        def runTest(self):
            before_mib = settled_mib() if on_gpu else 0
            daemon = self.start_pair("llama_eagle", device=args.device).wait_ready()
            self.check_bytes(before_mib)
            self.check_examples()
            self.assert_stops_clean(daemon)

        def check_bytes(self, before_mib):
            import preload

            total = 0
            for entry in self.status():
                where = {"device": entry["gpu_uuid"], "role": entry["role"], "socket_dir": self.sockets}
                with preload.attach(**where) as shard:
                    slabs = sum(slab.bytes for slab in shard._shard.slabs())
                    self.assertEqual((shard.memory_bytes, entry["bytes"]), (slabs, slabs), entry["role"])
                total += slabs
                result.setdefault("bytes", {})[entry["role"]] = slabs
            self.assertEqual(sorted(result["bytes"]), ["draft", "target"])
            if on_gpu:
                result["above_mib"] = round(settled_mib() - before_mib - total / (1 << 20), 1)
                self.assertLessEqual(result["above_mib"], MOST_ABOVE_MIB)

        def check_examples(self):
            """They print what `verify` has just found to be right, tensor by tensor."""
            verified = json.loads(self.preload("verify", "--json"))
            self.assertEqual((verified["ok"], verified["mismatches"]), (True, []))
            import preload

            device = next(entry["gpu_uuid"] for entry in self.status() if entry["role"] == "target")
            with preload.attach(device=device, socket_dir=self.sockets) as shard:
                expected = [f"{tensor.hash}  {tensor.dtype}  {name}" for name, tensor in shard.items()]
            with tempfile.TemporaryDirectory() as scratch:
                for program in build_examples(build, pathlib.Path(scratch)):
                    done = subprocess.run(
                        [program, device], capture_output=True, text=True, timeout=120,
                        env=os.environ | {"PRELOAD_SOCKET_DIR": str(self.sockets)},
                    )  # fmt: skip
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(done.stdout.splitlines(), expected, program.name)
            result["example_tensors"] = len(expected)

    case = Served()
    outcome = case.defaultTestResult()
    case.run(outcome)
    for _, text in outcome.errors + outcome.failures:
        print(text, file=sys.stderr)
    ok = outcome.wasSuccessful() and result["tests_ok"]
    print(json.dumps(result | {"ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
