# SPDX-License-Identifier: Apache-2.0
"""Host memory while loading: the slabs, the ring and little else, however large the checkpoint."""

import pathlib
import re
import time
import unittest

import harness
from harness import eventually, make_llama, needs_mpi
from memory_group import MemoryGroup
from read_faults import ReadFaults

MIB = 1 << 20
BESIDES_BYTES = 256 * MIB  # over ring and baseline
RANK = "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}"
TINY = ["--hidden", 64, "--layers", 2, "--heads", 4, "--kv-heads", 2, "--vocab", 512, "--intermediate", 96]
# Layers of 416 MiB of holes; the columns among them go through the ring.
WIDE = ["--hidden", 4096, "--heads", 32, "--kv-heads", 32, "--vocab", 4096, "--intermediate", 12288,
        "--shards", 4, "--sparse"]  # fmt: skip
# Tensors by the ten thousands, each of them small.
MANY = ["--hidden", 32, "--layers", 10_000, "--heads", 4, "--kv-heads", 4, "--vocab", 512,
        "--intermediate", 64, "--shards", 16, "--sparse"]  # fmt: skip

MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)$")
SHARED = ("/memfd:", "/dev/shm/", "/dev/zero", "/SYSV")


def memory_of(pid):
    """Resident bytes of the slabs, and of all other anonymous and shared memory."""
    slabs = others = 0
    name = ""
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        field, _, rest = line.partition(":")
        if field == "Rss" and name.startswith("/memfd:preload-slab"):
            slabs += int(rest.split()[0]) * 1024
        elif field == "Rss" and name.startswith(SHARED):
            others += int(rest.split()[0]) * 1024
        elif field == "Anonymous" and not name.startswith(SHARED):
            others += int(rest.split()[0]) * 1024
        elif mapping := MAPPING.match(line):
            name = mapping[1]
    return slabs, others


class Memory(harness.Case):
    def begin(self, model, *flags, ranks, join=None, joining=(0,), faults=()):
        """A job whose ranks leave their process ids; those that are `joining` join a memory group."""
        self.pids = self.root / f"pids-{time.monotonic_ns()}"
        self.pids.mkdir()
        script = f'echo $$ > {self.pids}/{RANK}; '
        for rank in joining if join else ():
            script += f'[ "{RANK}" != {rank} ] || echo $$ > {join}; '
        return self.start(model, *flags, ranks=ranks, through=["sh", "-c", script + 'exec "$@"', "sh", *faults])

    def group(self, limit_bytes):
        group = MemoryGroup(limit_bytes)
        self.addCleanup(eventually, group.remove, 10, "the memory group to be empty")
        return group

    def peak(self, model, *flags, ranks, faults=()):
        """The most that rank `ranks - 1` has besides its slabs, seen often while it loads."""
        daemon = self.begin(model, *flags, ranks=ranks, faults=faults)
        file = self.pids / str(ranks - 1)
        eventually(lambda: file.exists() and file.read_text(), 60, "the rank to start")
        pid = int(file.read_text())
        samples = []

        def loaded():
            try:
                samples.append(memory_of(pid))
            except (FileNotFoundError, ProcessLookupError):
                raise AssertionError(f"the rank is gone:\n{daemon.log}") from None
            return "preload: READY" in daemon.log

        eventually(loaded, harness.READY_S, f"READY:\n{daemon.log}")
        held = [d["bytes"] for d in self.status() if d["global_rank"] == ranks - 1]
        self.assert_stops_clean(daemon)
        # Seen in the middle of the load, not only before and after it.
        slabs = [slab for slab, _ in samples]
        if held[0] > 256 * MIB:
            self.assertGreater(max(slabs), held[0] // 2)
            self.assertTrue({slab for slab in slabs if 0 < slab < held[0]}, slabs)
        return max(others for _, others in samples)

    def check(self, model, *flags, ring_mib):
        flags = ["-tp", 2, "--ring-bytes", f"{ring_mib}M", *flags]
        baseline = self.peak(make_llama(self.root / "tiny", *TINY), *flags, ranks=2)
        besides = self.peak(model, *flags, ranks=2) - baseline
        print(f"{flags}: {besides / MIB:.1f} MiB over {baseline / MIB:.1f} MiB")
        self.assertLessEqual(besides, ring_mib * MIB + BESIDES_BYTES, flags)

    @needs_mpi
    @unittest.skipIf(harness.SANITIZED, "sanitizers take memory of their own")
    def test_loading_takes_the_slabs_the_ring_and_little_else_with_every_reader(self):
        model = make_llama(self.root / "model", *WIDE, "--layers", 3)
        for reader in ("pread", "direct", "mmap"):
            with self.subTest(reader):
                self.check(model, "--reader", reader, ring_mib=16)

    @needs_mpi
    @unittest.skipIf(harness.SANITIZED, "sanitizers take memory of their own")
    def test_tens_of_thousands_of_tensors_take_no_more(self):
        self.check(make_llama(self.root / "model", *MANY), ring_mib=16)

    @unittest.skipIf(harness.SANITIZED, "sanitizers take memory of their own")
    def test_a_smaller_ring_takes_less_memory(self):
        # Converted to another type, so that every byte goes through the ring.
        flags = ["--layout", "hf", "--dtype", "float16", "--reader", "pread", "--reader-threads", 32]
        model = make_llama(self.root / "model", *WIDE, "--layers", 1)
        # Slow enough to be seen in the middle.
        slow = {"ranks": 1, "faults": ReadFaults(self.root, delay_ms=100).through}
        small = self.peak(model, *flags, "--ring-bytes", "8M", **slow)
        large = self.peak(model, *flags, "--ring-bytes", "512M", **slow)
        print(f"{small / MIB:.1f} MiB, {large / MIB:.1f} MiB")
        self.assertLess(small, large - 16 * MIB)

    @needs_mpi
    @unittest.skipIf(harness.SANITIZED, "sanitizers take memory of their own")
    def test_a_rank_loads_its_part_of_a_checkpoint_ten_times_its_memory_limit(self):
        limit, ranks = 256 * MIB, 16
        model = make_llama(self.root / "model", *WIDE, "--layers", 6)
        stored = sum(path.stat().st_size for path in model.glob("*.safetensors"))
        self.assertGreaterEqual(stored, 10 * limit)
        group = self.group(limit)
        daemon = self.begin(model, "-tp", ranks, "--ring-bytes", "16M", ranks=ranks, join=group.procs)
        daemon.wait_ready()
        rank_0 = (self.pids / "0").read_text().split()
        self.assertEqual(group.procs.read_text().split(), rank_0)
        peak = group.peak_bytes()
        held = {d["global_rank"]: d["bytes"] for d in self.status()}
        if peak is not None:
            print(f"{peak / MIB:.1f} MiB at most for a part of {held[0] / MIB:.1f} MiB")
            self.assertGreater(peak, held[0])
            self.assertLessEqual(peak, limit)
        self.preload("verify", "--gpu", "host:0")
        self.assert_stops_clean(daemon)

    def check_refused(self, limit, *expected, joining):
        group = self.group(limit)
        model = make_llama(self.root / "model", *WIDE, "--layers", 2)  # of which a rank holds 450 MiB
        daemon = self.begin(model, "-tp", 2, ranks=2, join=group.procs, joining=joining)
        self.assertEqual(daemon.wait_end(), 4, daemon.log)
        for part in (group.path.name, "free memory, raise the limit, or shard over more", *expected):
            self.assertIn(part, daemon.log)
        self.assertEqual(len(re.findall(r"^\S+ error ", daemon.log, re.MULTILINE)), 1, daemon.log)
        self.assert_nothing_left()

    @needs_mpi
    def test_a_part_that_exceeds_the_limit_is_refused_before_the_kernel_kills(self):
        self.check_refused(400 * MIB, joining=[0])

    @needs_mpi
    def test_parts_that_exceed_the_limit_only_together_are_refused_before_the_kernel_kills(self):
        self.check_refused(700 * MIB, "2 ranks", "together", joining=[0, 1])


if __name__ == "__main__":
    unittest.main()
