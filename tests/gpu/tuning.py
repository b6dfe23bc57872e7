#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two ranks tune NCCL's collectives: on one GPU as two hosts, through NCCL's network path over loopback,
and on two GPUs where there are two.

    tuning.py BUILD [--budget 60] [--tokens 64] [--only network|nvlink]

Of each place: the sweep twice, with every choice's gain in both; an all-reduce program of its own with the
table; memory above the weights after READY; a second start, which tunes nothing; a rank that is killed in
the sweep. Prints one JSON object; exits 1 when something was not as it should be, 77 where processes
cannot be given a host name and there is one GPU.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE)]

MOST_ABOVE_MIB = 16
BYTES_OF_ELEMENT = 2
MOST_LOSS_PERCENT = 5  # of a choice that is measured again: as much as it had to gain


def gpus():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return listed.stdout.count("GPU ") if listed.returncode == 0 else 0


def choices(sweep):
    """What was chosen, by message: its candidate, and the gain in percent."""
    found = {}
    for point in sweep["points"]:
        if point["chosen"] is not None:
            candidate = point["candidates"][point["chosen"]]
            name = f"{candidate['algorithm']}/{candidate['protocol']} x{candidate['channels']}"
            gain = 100 * (point["default_microseconds"] / point["chosen_microseconds"] - 1)
            found[point["operation"], point["bytes"], point["captured"]] = name, candidate, gain
    return found


def gain_in(sweep, message, candidate):
    """The same candidate's gain over NCCL's own choice in another sweep, in percent."""
    for point in sweep["points"]:
        if (point["operation"], point["bytes"], point["captured"]) != message:
            continue
        for each in point["candidates"][1:]:
            if all(each[key] == candidate[key] for key in ("algorithm", "protocol", "channels")):
                time_us = each["microseconds"]
                return None if time_us is None else 100 * (point["candidates"][0]["microseconds"] / time_us - 1)
    return None


def forced(table: dict) -> dict:
    """The all-reduces of a table under a choice that NCCL offers and would not make itself; by size, its name."""
    names = {}
    for entry in table["entries"]:
        own = entry["own"]
        others = [each for each in entry["offered"] if each != f"{own['algorithm']}/{own['protocol']}"]
        others = [each for each in others if each.split("/")[0] in ("ring", "tree")]
        if entry["collective"] != "allreduce" or entry["registered_buffers"] or not others:
            continue
        algorithm, protocol = others[0].split("/")
        faster = own["microseconds"] / 2  # it is to be obeyed, not to be right
        entry["chosen"] = {"algorithm": algorithm, "protocol": protocol, "channels": 0, "microseconds": faster}
        entry["gain"] = 1.0
        names[entry["measured_bytes"]] = others[0]
    return names


def gains(first, second):
    """A row for each choice of the first sweep."""
    rows = []
    for message, (name, candidate, gain) in choices(first).items():
        again = gain_in(second, message, candidate)
        rows.append({
            "operation": message[0], "bytes": message[1], "graph": message[2], "chosen": name,
            "gain": round(gain, 1), "gain_again": None if again is None else round(again, 1),
        })  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--budget", type=float, default=60, help="seconds of a sweep")
    parser.add_argument("--tokens", type=int, default=64, help="of a step, at most")
    parser.add_argument("--only", choices=("network", "nvlink"))
    args = parser.parse_args()
    build = args.build.resolve()
    os.environ["PRELOAD_TEST_BIN"] = str(build / "src/preload")
    os.environ["PRELOAD_TEST_MPIRUN"] = f"{shutil.which('mpirun')} --oversubscribe --allow-run-as-root"
    import all_reduce
    import harness
    from hosts import Hosts, may_name_hosts

    places = []
    if may_name_hosts() and args.only != "nvlink":
        places.append("network")
    if gpus() > 1 and args.only != "network":
        places.append("nvlink")
    if not places:
        print(json.dumps({"skipped": "there is one GPU, and processes cannot be given a host name here"}))
        return 77

    class Place(harness.Case):
        def __init__(self, name):
            super().__init__()
            self.name, self.result = name, {}

        def flags(self):
            return ["-tp", 2, "--autotune-budget", args.budget, "--max-num-batched-tokens", args.tokens]

        def use_cache(self, name):
            os.environ["PRELOAD_CACHE_ROOT"] = str(self.root / name)

        def tune(self):
            through = self.hosts.alone if self.hosts else []
            command = [*harness.MPIRUN, "-np", 2, *through, harness.BIN, "tune", "--model", self.model, *self.flags()]
            done = subprocess.run(
                [*map(str, command), "--json"], capture_output=True, text=True, timeout=args.budget + 60,
                env=harness.environment(),
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            (sweep,) = json.loads(done.stdout)["sweeps"]
            return sweep

        def serve(self):
            through = self.hosts.through if self.hosts else []
            return self.start(self.model, *self.flags(), ranks=2, device="cuda", through=through)

        def daemons(self):
            directories = self.hosts.sockets if self.hosts else [self.sockets]
            found = [json.loads(self.preload("status", "--json", sockets=each))["daemons"] for each in directories]
            return sorted(sum(found, []), key=lambda daemon: daemon["global_rank"])

        def stop(self, daemon):
            self.preload("stop", "--job", sockets=self.hosts.sockets[0] if self.hosts else self.sockets)
            self.assertEqual(daemon.wait_end(), 0, daemon.log)

        def check_sweeps(self):
            first = self.tune()
            second = self.tune()
            self.result |= {
                "nccl": first["nccl_version"], "gpus": first["topology"]["gpus"],
                "nodes": first["topology"]["nodes"], "messages": len(first["points"]),
                "planned": first["planned"], "seconds": round(first["seconds"], 1), "gains": gains(first, second),
            }  # fmt: skip
            self.assertEqual(first["topology"]["nodes"], 2 if self.hosts else 1)
            self.assertGreater(len(first["points"]), 0)
            lost = [row for row in self.result["gains"] if (row["gain_again"] or 0) < -MOST_LOSS_PERCENT]
            self.assertEqual(lost, [], "choices that were slower than NCCL's own in a second sweep")
            return second

        def check_program(self, table):
            entries = json.loads(table.read_text())["entries"]
            reduced = [each for each in entries if each["collective"] == "allreduce"]
            sizes = {each["measured_bytes"] for each in reduced}
            # What a choice was carried over to was never measured: its ends, and its middle.
            for each in reduced:
                if each.get("chosen"):
                    low, high = each["min_bytes"], each["max_bytes"]
                    sizes |= {size - size % BYTES_OF_ELEMENT for size in (low + 1, (low + high) // 2, high)}
            flags = ["--sizes", ",".join(map(str, sorted(sizes)))]
            if self.hosts:
                flags.append("--separate-hosts")
            for graph in (False, True):
                found = all_reduce.check(
                    build, table, "0,0" if self.hosts else "0,1", *flags, *(["--graph"] if graph else [])
                )
                self.result["all_reduce_graph" if graph else "all_reduce"] = found
                self.assertTrue(found["ok"], found)

        def check_obedience(self, table):
            """NCCL runs what a table says, whether or not anything was found to be faster."""
            content = json.loads(table.read_text())
            names = forced(content)
            self.assertTrue(names, "NCCL offers no other choice for any all-reduce")
            other = self.root / "forced.json"
            other.write_text(json.dumps(content))
            flags = ["--sizes", ",".join(map(str, sorted(names))), *(["--separate-hosts"] if self.hosts else [])]
            found = all_reduce.check(build, other, "0,0" if self.hosts else "0,1", *flags)
            self.assertEqual(found["disagreements"], [], "NCCL ran something else")
            self.assertEqual({row["bytes"]: row["with"].split(" ")[0] for row in found["rows"]}, names)
            self.result["obeyed"] = sorted(set(names.values()))

        def check_serve(self):
            self.use_cache("fresh")
            daemon = self.serve().wait_ready()
            self.assertIn("NCCL's collectives are tuned:", daemon.log)
            above = [daemon["overhead_bytes"] / (1 << 20) for daemon in self.daemons()]
            self.result["above_weights_mib"] = [round(each, 1) for each in above]
            self.assertLessEqual(max(above), MOST_ABOVE_MIB)
            self.stop(daemon)
            began = time.monotonic()
            daemon = self.serve().wait_ready()
            self.result["second_start_s"] = round(time.monotonic() - began, 2)
            self.assertIn("tuned before for this topology", daemon.log)
            self.assertNotIn("communicators formed", daemon.log)
            self.stop(daemon)

        def check_kill(self):
            self.use_cache("killed")
            daemon = self.serve()

            def in_the_sweep():
                if "communicators formed" not in daemon.log:
                    return None
                found = [d for d in self.daemons() if d["global_rank"] == 1 and d["state"] == "LOADING"]
                return found[0]["pid"] if found else None

            pid = harness.eventually(in_the_sweep, 120, "rank 1 to tune")
            time.sleep(0.5)  # somewhere in the sweep
            os.kill(pid, 9)
            killed = time.monotonic()
            self.assertEqual(daemon.wait_end(30), 137, daemon.log)
            self.result["ends_after_kill_s"] = round(time.monotonic() - killed, 2)
            self.assertIn("rank 1 was lost", daemon.log)

        def runTest(self):
            self.hosts = Hosts(self.root, 2, 1) if self.name == "network" else None
            self.model = harness.make_llama(
                self.root / "model", "--hidden", 4096, "--heads", 32, "--kv-heads", 8, "--layers", 1,
                "--intermediate", 4096, "--vocab", 8192,
            )  # fmt: skip
            sweep = self.check_sweeps()
            self.check_program(pathlib.Path(sweep["table"]))
            self.check_obedience(pathlib.Path(sweep["table"]))
            self.check_serve()
            self.check_kill()

    good, results = True, {}
    for name in places:
        place = Place(name)
        outcome = place.defaultTestResult()
        place.run(outcome)
        for _, text in outcome.errors + outcome.failures:
            print(text, file=sys.stderr)
        results[name] = place.result
        good = good and outcome.wasSuccessful()
    print(json.dumps(results | {"ok": good}))
    return 0 if good else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        tempfile.tempdir = directory
        sys.exit(main())
