# SPDX-License-Identifier: Apache-2.0
"""What the tests give to --warmup-exec: notes what it is told and what it can attach to.

    warmup_hook.py OUT [--public DIR] [--cache NAME] [--sleep S] [--fail-rank R STATUS] [--escape]
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("out", type=pathlib.Path)
parser.add_argument("--public")
parser.add_argument("--cache")
parser.add_argument("--sleep", type=float, default=0)
parser.add_argument("--fail-rank", nargs=2, type=int)
parser.add_argument("--escape", action="store_true", help="leave a child in a session of its own")
given = parser.parse_args()

BIN = os.environ["PRELOAD_TEST_BIN"]
rank = int(os.environ["RANK"])


def command(*arguments):
    done = subprocess.run([BIN, *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


noted = {"environment": dict(os.environ), "pid": os.getpid()}
if given.escape:
    # Neither the group nor the session is the hook's, and TERM is nothing to it.
    text = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    child = subprocess.Popen([sys.executable, "-c", text], start_new_session=True)
    noted["child"] = child.pid
if given.cache:
    folder = pathlib.Path(os.environ["PRELOAD_WARMUP_CACHE_DIR"]) / "hook"
    folder.mkdir(exist_ok=True)
    (folder / f"{given.cache}-{rank}").write_text(f"made by rank {rank}")
if not given.sleep:
    noted["wait"] = command("wait", "--timeout", "100")
    status, text, error = command("attach", "--all", "--json")
    noted["private"] = [status, json.loads(text)["daemons"] if text else error]
    if given.public:
        noted["public"] = command("attach", "--weight-cache-socket-dir", given.public)
        noted["status"] = json.loads(command("status", "--json", "--weight-cache-socket-dir", given.public)[1])
    dump = given.out / f"dump-{os.environ['PRELOAD_WARMUP_GLOBAL_RANK']}"
    noted["dump"] = [command("attach", "--all", "--dump", str(dump))[0], str(dump)]
given.out.mkdir(exist_ok=True)
name = f"rank{os.environ['PRELOAD_WARMUP_GLOBAL_RANK']}"
(given.out / f".{name}").write_text(json.dumps(noted))
(given.out / f".{name}").rename(given.out / f"{name}.json")
print(f"hook of rank {rank} has noted", flush=True)
time.sleep(given.sleep)
if given.fail_rank and given.fail_rank[0] == rank:
    sys.exit(given.fail_rank[1])
