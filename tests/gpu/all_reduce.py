#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a tuning table is worth to another program: examples/nccl_all_reduce with the plugin and the
table, and NCCL's own word on what it ran.

    all_reduce.py BUILD TABLE --devices 0,0 [--separate-hosts] [--graph] [--sizes BYTES,...]

Prints one JSON object: a row for each size. Exits 1 when a size is slower with the table than without,
beyond noise, or when NCCL ran something else than the plugin says.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

TIMEOUT_S = 280
ROW = re.compile(
    r"^ *(?P<bytes>\d+) +(?P<without_us>[\d.]+) +(?P<with_us>[\d.]+) +(?P<gain>[+-][\d.]+)% +(?P<noise>[\d.]+)%"
    r" +(?P<without>\S+(?: x\d+)?) +(?P<with>\S+(?: x\d+)?) +(?P<choice>SLOWER|table|own)$"
)
RAN = re.compile(r"AllReduce: (\d+) Bytes -> Algo (\w+) proto (\w+) channel")


def command(build: pathlib.Path, devices: str, *flags: str) -> list[str]:
    ranks = str(len(devices.split(",")))
    return [str(build / "tests/gpu/preload_nccl_all_reduce"), "--ranks", ranks, "--devices", devices, *flags]


def environment(build: pathlib.Path, table: pathlib.Path, **more: str) -> dict[str, str]:
    plugin = build / "src/libnccl-tuner-preload.so"
    return os.environ | {"NCCL_TUNER_PLUGIN": str(plugin), "PRELOAD_TUNER_TABLE": str(table)} | more


def run(build: pathlib.Path, table: pathlib.Path, devices: str, *flags: str, **more: str) -> list[dict]:
    """The program's rows. Raises RuntimeError with its output when it failed."""
    done = subprocess.run(
        command(build, devices, *flags), env=environment(build, table, **more),
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise RuntimeError(f"nccl_all_reduce ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    rows = [match.groupdict() for match in map(ROW.match, done.stdout.splitlines()) if match]
    for row in rows:
        row.update({name: float(row[name]) for name in ("without_us", "with_us", "gain", "noise")})
        row["bytes"] = int(row["bytes"])
    if not rows or any(row["choice"] == "SLOWER" for row in rows) != (done.returncode == 1):
        raise RuntimeError(f"what nccl_all_reduce printed is not understood:\n{done.stdout}{done.stderr}")
    return rows


def ran(log: str) -> dict[int, set[str]]:
    """By size, what NCCL logged that it ran: {8192: {"ring/ll"}}."""
    found: dict[int, set[str]] = {}
    for size, algorithm, protocol in RAN.findall(log):
        found.setdefault(int(size), set()).add(f"{algorithm}/{protocol}".lower())
    return found


def disagreements(rows: list[dict], found: dict[int, set[str]]) -> list[str]:
    """Sizes of which NCCL and the plugin tell differently."""
    wrong = []
    for row in rows:
        said = {row[name].split(" ")[0] for name in ("without", "with")}
        if found.get(row["bytes"]) != said:
            wrong.append(f"{row['bytes']} bytes: the plugin says {sorted(said)}, NCCL {found.get(row['bytes'])}")
    return wrong


def check(build: pathlib.Path, table: pathlib.Path, devices: str, *flags: str) -> dict:
    """Times first; then a short run of which NCCL logs what it does, which would disturb times."""
    rows = run(build, table, devices, *flags)
    with tempfile.TemporaryDirectory() as directory:
        pattern = pathlib.Path(directory) / "nccl.%p.log"
        again = run(
            build, table, devices, *flags, "--repeats", "5",
            NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="TUNING", NCCL_DEBUG_FILE=str(pattern),
        )  # fmt: skip
        logs = "".join(path.read_text(errors="replace") for path in pathlib.Path(directory).glob("nccl.*.log"))
    slower = [row["bytes"] for row in rows if row["choice"] == "SLOWER"]
    chosen = [row for row in rows if row["with"] != row["without"]]
    wrong = disagreements(again, ran(logs))
    return {
        "sizes": len(rows),
        "changed": len(chosen),
        "best_gain_percent": max((row["gain"] for row in chosen), default=0.0),
        "slower": slower,
        "disagreements": wrong,
        "ok": not slower and not wrong,
        "rows": rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("table", type=pathlib.Path)
    parser.add_argument("--devices", default="0,0", help="by rank")
    parser.add_argument("--separate-hosts", action="store_true")
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--sizes")
    args = parser.parse_args()
    flags = [f"--{name}" for name in ("separate-hosts", "graph") if getattr(args, name.replace("-", "_"))]
    if args.sizes:
        flags += ["--sizes", args.sizes]
    result = check(args.build.resolve(), args.table.resolve(), args.devices, *flags)
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
