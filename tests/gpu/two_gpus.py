# SPDX-License-Identifier: Apache-2.0
"""What nvidia-smi tells of each GPU: memory in use, processes, bytes over NVLink."""

import re
import subprocess
import threading
import time

SETTLED = 3  # readings of the same figures


def ask(*arguments):
    command = ["nvidia-smi", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def rows(kind, fields):
    out = ask(f"--query-{kind}={fields}", "--format=csv,noheader,nounits")
    return [[cell.strip() for cell in line.split(",")] for line in out.splitlines() if line.strip()]


def uuids():
    """In nvidia-smi's order, lower case, as preload spells them."""
    return [uuid.lower() for (uuid,) in rows("gpu", "uuid")]


def used_mib():
    """By UUID, once it stands still; the last reading after five seconds."""
    seen = []
    for _ in range(50):
        seen.append({uuid.lower(): int(mib) for uuid, mib in rows("gpu", "uuid,memory.used")})
        if len(seen) >= SETTLED and all(reading == seen[-1] for reading in seen[-SETTLED:]):
            break
        time.sleep(0.1)
    return seen[-1]


def processes():
    """(pid, UUID) of every process that has a context somewhere, as far as they are shown here."""
    return {(int(pid), uuid.lower()) for pid, uuid in rows("compute-apps", "pid,gpu_uuid")}


def nvlink_sent_bytes():
    """By UUID, since the driver was loaded; None where the GPUs have no links, or none that are counted."""
    sent = {}
    for index, uuid in enumerate(uuids()):
        try:
            out = ask("nvlink", "-gt", "d", "-i", str(index))
        except subprocess.CalledProcessError:
            return None
        links = re.findall(r"Data Tx:\s*(\d+)\s*KiB", out)
        if not links:
            return None
        sent[uuid] = 1024 * sum(map(int, links))
    return sent


class ProcessWatch:
    """Gathers processes() again and again while it is entered."""

    def __init__(self):
        self.seen = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while not self._over.is_set():
            self.seen |= processes()
            self._over.wait(0.05)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._over.set()
        self._thread.join(60)
