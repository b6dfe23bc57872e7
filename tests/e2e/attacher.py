# SPDX-License-Identifier: Apache-2.0
"""A client that attaches again and again, every 10 ms, and prints a line each time, until it gets one
itself. Then it prints, as JSON, what failed, and the digests of all tensors that it saw."""

import collections
import hashlib
import json
import pathlib
import select
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "python"))

import preload  # noqa: E402

INTERVAL_S = 0.01


def digest(attachment):
    text = hashlib.sha256()
    for name in sorted(attachment):
        text.update(name.encode())
        text.update(attachment[name].numpy().tobytes())
    return text.hexdigest()


def main():
    seen, failures = collections.Counter(), []
    print("started", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        begin = time.monotonic()
        try:
            with preload.attach(device=sys.argv[2], socket_dir=sys.argv[1]) as attachment:
                seen[digest(attachment)] += 1
            print(flush=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
            failures.append(repr(error))
        time.sleep(max(0.0, begin + INTERVAL_S - time.monotonic()))
    print(json.dumps({"failures": failures, "digests": seen}), flush=True)


main()
