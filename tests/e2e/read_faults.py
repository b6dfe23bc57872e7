# SPDX-License-Identifier: Apache-2.0
"""Reads that go wrong, or are only counted: tests/support/read_faults.cpp before the ranks of a job.

    faults = ReadFaults(self.root, eio=4096)
    daemon = self.start(model, through=faults.through)
    faults.total("eio")  # how often it happened
"""

import collections
import itertools
import os
import pathlib

import harness

LIBRARY = os.environ.get("PRELOAD_TEST_READ_FAULTS")

# As the library lays them out.
COUNTERS = ["bytes", "reads", "direct_reads", "probed_bytes", "rank", "short", "eintr", "einval", "eio",
            "delays", "truncations"]  # fmt: skip
Counts = collections.namedtuple("Counts", COUNTERS)

numbers = itertools.count()


class ReadFaults:
    """Faults by the names of the library's variables: eio=4096 is PRELOAD_TEST_FAULT_EIO=4096."""

    def __init__(self, root, files=".safetensors", **faults):
        self.directory = pathlib.Path(root) / f"counts-{next(numbers)}"
        self.directory.mkdir()
        variables = {"FILES": files, "COUNTS": self.directory}
        variables |= {name.upper(): value for name, value in faults.items()}
        # AddressSanitizer's own library has to come first.
        libraries = [*filter(None, [harness.CLIENT_LD_PRELOAD]), LIBRARY]
        # Not in mpirun's environment: it is no program of ours, and it is not instrumented.
        self.through = ["env", f"LD_PRELOAD={':'.join(libraries)}"]
        self.through += [f"PRELOAD_TEST_FAULT_{name}={value}" for name, value in variables.items()]

    def by_rank(self):
        """Counts of every process that met such a file; without a launcher the rank is 0."""
        ranks = {}
        for path in self.directory.iterdir():
            data = path.read_bytes()
            values = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
            counts = Counts(*values)
            if any(counts._replace(rank=0)):
                ranks[max(counts.rank, 1) - 1] = counts
        return ranks

    def pids(self):
        return [int(path.name) for path in self.directory.iterdir()]

    def total(self, counter):
        return sum(getattr(counts, counter) for counts in self.by_rank().values())


def bytes_asked_of_system(pid):
    """What a process has got from read, pread and their like, of any file, since it began. Neither
    mapped files nor io_uring count; use it with --reader pread."""
    fields = pathlib.Path(f"/proc/{pid}/io").read_text().split()
    return int(fields[fields.index("rchar:") + 1])


JobReads = collections.namedtuple("JobReads", ["counted", "asked"])


def bytes_read_by_job(case, model, *flags, ranks):
    """Bytes that each rank of a job reads until it is READY, by pread, as two lists by rank: `counted`
    of the checkpoint's weight files, and `asked` of the system whatever the file. What a job reads
    besides the weights is what it reads of a checkpoint that has next to none: subtract that."""
    faults = ReadFaults(case.root)
    daemon = case.start(model, "--reader", "pread", *flags, ranks=ranks, through=faults.through)
    daemon.wait_ready()
    pids = {d["global_rank"]: d["pid"] for d in case.status()}
    asked = [bytes_asked_of_system(pids[rank]) for rank in range(ranks)]
    counted = faults.by_rank()
    case.assertEqual(sorted(counted), list(range(ranks)))
    case.assert_stops_clean(daemon)
    return JobReads([counted[rank].bytes for rank in range(ranks)], asked)
