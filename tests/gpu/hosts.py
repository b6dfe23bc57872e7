#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks with one GPU, each on a host of its own name, so that NCCL carries what one reads for the
other: over loopback, which makes it slow but no less right.

    hosts.py BUILD [--layers 3]

Prints one JSON object; exits 1 when something was not as it should be, 77 where processes cannot be
given a host name.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=3)
    args = parser.parse_args()
    build = args.build.resolve()
    os.environ["PRELOAD_TEST_BIN"] = str(build / "src/preload")
    os.environ["PRELOAD_TEST_READ_FAULTS"] = str(build / "tests/support/preload_read_faults.so")
    os.environ["PRELOAD_TEST_MPIRUN"] = f"{shutil.which('mpirun')} --oversubscribe --allow-run-as-root"
    import harness
    from hosts import Hosts, may_name_hosts
    from read_faults import ReadFaults

    if not may_name_hosts():
        print(json.dumps({"skipped": "processes cannot be given a host name here"}))
        return 77

    class Run(harness.Case):
        def begin(self, hosts, *flags, **faults):
            self.faults = ReadFaults(self.root, **faults)
            return self.start(
                self.model, "-dp", 2, "--spread", "always", "--reader", "pread", "--disable-autotune", *flags,
                ranks=2, device="cuda", through=[*hosts.through, *self.faults.through],
            )  # fmt: skip

        def runTest(self):
            self.model = harness.make_llama(
                self.root / "model", "--hidden", 2048, "--heads", 16, "--kv-heads", 8, "--layers", args.layers,
                "--intermediate", 5632, "--vocab", 16000,
            )  # fmt: skip
            weights = sum(path.stat().st_size for path in self.model.glob("*.safetensors"))
            hosts = Hosts(self.root, 2, 1)
            started = time.monotonic()
            daemon = self.begin(hosts).wait_ready()
            self.result = {"weights_mib": weights >> 20, "ready_s": round(time.monotonic() - started, 2)}
            counted = sum(counts.bytes for counts in self.faults.by_rank().values())
            self.result["read_mib"] = counted >> 20
            self.assertLess(abs(counted - weights), 0.01 * weights + (1 << 20), "the files are read once")
            for sockets in hosts.sockets:
                self.preload("verify", "--against", self.model, sockets=sockets)
                (found,) = json.loads(self.preload("status", "--json", sockets=sockets))["daemons"]
                self.assertEqual(found["state"], "READY")
            self.preload("stop", "--job", sockets=hosts.sockets[0])
            self.assertEqual(daemon.wait_end(), 0, daemon.log)

            hosts = Hosts(self.root / "again", 2, 1)
            (self.root / "again").mkdir()
            daemon = self.begin(hosts, "--reader-threads", 1, "--ring-bytes", "8M", slowdown=200, rank=1)

            def loading():
                out = self.preload("status", "--json", sockets=hosts.sockets[1])
                return [d["pid"] for d in json.loads(out)["daemons"] if d["progress"] and d["progress"]["bytes"] > 0]

            harness.eventually(lambda: hosts.sockets[1].exists() and loading(), 60, f"rank 1 to load\n{daemon.log}")
            os.kill(loading()[0], 9)
            killed = time.monotonic()
            self.assertEqual(daemon.wait_end(30), 137, daemon.log)
            self.result["ends_after_kill_s"] = round(time.monotonic() - killed, 2)

    run = Run()
    run.result = {}
    outcome = run.defaultTestResult()
    run.run(outcome)
    for _, text in outcome.errors + outcome.failures:
        print(text, file=sys.stderr)
    print(json.dumps(run.result | {"ok": outcome.wasSuccessful()}))
    return 0 if outcome.wasSuccessful() else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        tempfile.tempdir = directory
        sys.exit(main())
