# SPDX-License-Identifier: Apache-2.0
"""`preload` runs where neither MPI nor CUDA is installed."""

import json
import os
import pathlib
import subprocess
import unittest

import harness
from harness import make_llama

FOREIGN = ("mpi", "open-rte", "open-pal", "pmix", "cuda", "cudart", "nccl", "nvidia", "ucp", "ucs")


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def needed_by(library: str) -> set[str]:
    lines = output("readelf", "-d", library).splitlines()
    return {line.split("[")[1].split(".so")[0] for line in lines if "(NEEDED)" in line}


class Linking(harness.Case):
    def test_preload_links_no_mpi_cuda_or_nccl_library(self):
        listed = output("ldd", harness.BIN)
        names = [line.split()[0] for line in listed.splitlines()]
        self.assertTrue(any(name.startswith("libc.so") for name in names), listed)
        wrong = [name for name in names if any(part in name for part in FOREIGN)]
        self.assertEqual(wrong, [])

    def test_the_client_library_exports_the_released_symbols_and_no_other(self):
        listed = output("nm", "-D", "--defined-only", os.environ["PRELOAD_CLIENT_LIBRARY"])
        symbols = [line.split()[2] for line in listed.splitlines() if line.split()[1] == "T"]
        expected = (harness.REPOSITORY / "tests/fixtures/client_symbols.txt").read_text().split()
        self.assertEqual(sorted(symbols), [f"{name}@@PRELOAD_CLIENT_1" for name in expected])

    def test_the_client_library_links_the_c_and_cpp_libraries_and_libcrypto_alone(self):
        library = os.environ["PRELOAD_CLIENT_LIBRARY"]
        alone = {"libc", "libm", "libstdc++", "libgcc_s", "libcrypto", "ld-linux-x86-64"}
        if not harness.SANITIZED:
            self.assertLessEqual(needed_by(library), alone)

    def test_the_tuner_plugin_brings_into_an_engine_its_two_interfaces_and_no_library(self):
        plugin = str(pathlib.Path(harness.BIN).parent / "libnccl-tuner-preload.so")
        symbols = [line.split()[2] for line in output("nm", "-D", "--defined-only", plugin).splitlines()]
        ours = ("abi_version", "communicators", "force", "last_call", "leave", "use_table")
        expected = ["ncclTunerPlugin_v4", "ncclTunerPlugin_v5", *(f"preload_nccl_tuner_{name}" for name in ours)]
        self.assertEqual(sorted(symbols), sorted(expected))
        if not harness.SANITIZED:
            self.assertLessEqual(needed_by(plugin), {"libc", "libm", "libstdc++", "libgcc_s", "ld-linux-x86-64"})

    def test_a_plan_of_64_ranks_takes_no_launcher_and_no_library(self):
        model = make_llama(self.root / "model", "--hidden", 128, "--heads", 8, "--kv-heads", 8, "--layers", 2)
        plan = json.loads(harness.run("plan", "--model", model, "--ranks", 64, "-tp", 8, "--json"))
        self.assertEqual(plan["world"], 64)
        self.assertEqual([rank["global"] for rank in plan["ranks"]], list(range(64)))
        for rank in plan["ranks"]:
            self.assertEqual((rank["dp"], rank["pp"], rank["tp"]), (rank["global"] // 8, 0, rank["global"] % 8))
            self.assertGreater(rank["bytes"], 0)

    def test_a_missing_runtime_is_named_with_the_remedy(self):
        os.environ["PRELOAD_RUNTIME"] = str(self.root / "absent")
        self.addCleanup(os.environ.pop, "PRELOAD_RUNTIME")
        daemon = self.start(make_llama(self.root / "model", "--layers", 1))
        self.assertEqual(daemon.wait_end(), 2, daemon.log)
        self.assertIn("PRELOAD_RUNTIME", daemon.log)


if __name__ == "__main__":
    unittest.main()
