# SPDX-License-Identifier: Apache-2.0
"""Times other loaders on safetensors files: what `preload bench load --peers` runs.

    python -m preload.bench_peers [--device cuda:0|cpu] [--runs N] [--cold] [--peers NAME,...] FILE...

Prints {"peers": [{name, version, setting, seconds, gb_per_s, tensors, verified}]}, with `error` or
`skipped` in place of figures that there are none of. Each way to call a loader runs in a process of
its own: one untimed pass in which every tensor's dtype and shape and samples of its bytes are compared
with the files, then N timed ones, of which the median counts. Imports and the CUDA context are not timed.
"""

import argparse
import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

from ._peer_loaders import WAYS, Skipped, prepare, version_of
from ._stored_tensors import Mismatch, StoredTensors

PR_SET_PDEATHSIG = 1


def drop_page_cache():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("1")


def one_pass(way, files, device, check):
    """Seconds from the call to the last tensor. `check` sees each tensor as it comes, untimed passes
    only; in timed ones a loader's own tensors are kept until the end, as a model would keep them."""
    with ExitStack() as stack:
        kept, shapes = [], {}
        start = time.perf_counter()
        for name, tensor in way.tensors(list(files), device, stack):
            if check:
                check(name, tensor)
            elif way.keeps:
                kept.append(tensor)
            shapes[name] = tuple(tensor.shape)
        way.synchronize(device)
        return time.perf_counter() - start, shapes


def measure(way, args):
    stored = StoredTensors(args.files)
    prepare(way, args.device, stored.dtypes())
    stored.check_shapes(one_pass(way, args.files, args.device, stored.check)[1])
    seconds = []
    for _ in range(args.runs):
        if args.cold:
            drop_page_cache()
        took, shapes = one_pass(way, args.files, args.device, None)
        stored.check_shapes(shapes)
        seconds.append(took)
    median = statistics.median_high(seconds)
    return {
        "seconds": median,
        "gb_per_s": stored.total_bytes / 1e9 / median,
        "tensors": len(stored.tensors),
        "verified": True,
    }


def measure_here(way, args):
    """The figures, or why there are none."""
    try:
        return measure(way, args)
    except Skipped as reason:
        return {"skipped": str(reason)}
    except Mismatch as difference:
        return {"error": str(difference)}
    except Exception as error:  # whatever another loader throws is that loader's result
        return {"error": f"{type(error).__name__}: {error}"}


def measure_apart(index, args):
    """In a process of its own, which may crash or hang without taking the others along."""
    command = [sys.executable, "-m", __spec__.name, "--way", str(index), "--device", args.device]
    command += ["--runs", str(args.runs), *(["--cold"] if args.cold else []), "--", *args.files]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                              timeout=args.limit_s)  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"no result within {args.limit_s} s"}
    if done.returncode < 0:
        return {"error": f"ended by {signal.Signals(-done.returncode).name}"}
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": f"ended with status {done.returncode} and no figures"}


def entry(index, args):
    way = WAYS[index]
    result = {"name": way.name, "setting": way.setting}
    version = version_of(way)
    if version:
        result["version"] = version
    result |= measure_apart(index, args)
    outcome = f"{result['gb_per_s']:.2f} GB/s" if "gb_per_s" in result else result.get("error") or result["skipped"]
    print(f"bench_peers: {way.name}, {way.setting}: {outcome}", file=sys.stderr)
    return result


def parse(argv):
    names = list(dict.fromkeys(way.name for way in WAYS))
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--device", default="cpu", help="cuda:N or cpu [cpu]")
    parser.add_argument("--runs", type=int, default=5, help="timed passes, of which the median counts [5]")
    parser.add_argument("--cold", action="store_true", help="drop the page cache before each pass (root)")
    parser.add_argument("--peers", default=",".join(names), help=f"some of {','.join(names)} [all]")
    parser.add_argument("--limit-s", type=int, default=600, help="for one way to call one peer [600]")
    parser.add_argument("--way", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    unknown = set(args.peers.split(",")) - set(names)
    if unknown:
        parser.error(f"unknown peers {', '.join(sorted(unknown))}: they are {', '.join(names)}")
    if args.runs < 1:
        parser.error("--runs must be 1 or more")
    return args


def main(argv):
    args = parse(argv)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if args.way is not None:
        result = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # loaders may print
        json.dump(measure_here(WAYS[args.way], args), result)
        result.close()
        return 0
    wanted = args.peers.split(",")
    peers = [entry(index, args) for index, way in enumerate(WAYS) if way.name in wanted]
    print(json.dumps({"peers": peers}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
