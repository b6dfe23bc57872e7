# SPDX-License-Identifier: Apache-2.0
"""Loading while reads go wrong: either every rank serves the right bytes, or the whole job refuses,
soon, with a message that says what to do, and leaves nothing. Each fault's counter shows that it
happened."""

import json
import os
import re
import shutil
import tempfile
import time
import unittest

import numpy as np

import harness
from harness import eventually, is_running, make_llama, make_slow_model, needs_mpi
from hosts import Hosts, needs_hosts
from read_faults import ReadFaults, bytes_read_by_job

# Parts large enough to be read past the page cache, columns close enough to be read with their gaps.
MODEL = ["--hidden", 512, "--layers", 4, "--heads", 8, "--kv-heads", 4, "--vocab", 4099,
         "--intermediate", 1408, "--shards", 2]  # fmt: skip
SECOND = "model-00002-of-00002.safetensors"
END_S = 60 if harness.SANITIZED else 10
MIB = 1 << 20


def evict(model):
    """Out of the page cache, so that `auto` settles for direct reads."""
    for path in model.glob("*.safetensors"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def direct_reads_work(directory):
    try:
        os.close(os.open(directory / SECOND, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


class Case(harness.Case):
    """Jobs on a copy of one checkpoint, with faults before their reads."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = tempfile.mkdtemp(prefix="preload-reading-")
        cls.addClassCleanup(shutil.rmtree, directory)
        cls.made = make_llama(directory + "/model", *MODEL)

    def setUp(self):
        super().setUp()
        self.model = self.root / "model"
        shutil.copytree(self.made, self.model)

    def begin(self, reader, ranks, *flags, **faults):
        """A job of `ranks` tensor-parallel ranks; 1 is without a launcher."""
        if reader == "direct" and not direct_reads_work(self.model):
            self.skipTest(f"the file system of {self.root} knows no direct reads")
        if ranks > 1 and not harness.MPIRUN:
            self.skipTest("this build has no MPI")
        self.faults = ReadFaults(self.root, **faults)
        return self.start(
            self.model, "-tp", ranks, "--reader", reader, *flags,
            ranks=ranks if ranks > 1 else None, through=self.faults.through,
        )  # fmt: skip

    def each(self, readers, check, *arguments, **named):
        """check() with every reader, alone and on two ranks."""
        for reader in readers:
            for ranks in (1, 2):
                with self.subTest(reader=reader, ranks=ranks):
                    check(reader, ranks, *arguments, **named)

    def assert_ends_refused(self, daemon, *expected, status=3):
        """The job ends soon with one message, which says all that is expected, and leaves nothing."""
        self.assertEqual(daemon.wait_end(END_S), status, daemon.log)
        messages = re.findall(r"^\S+ error .*(?:\n  .*)*", daemon.log, re.MULTILINE)
        self.assertEqual(len(messages), 1, daemon.log)
        (message,) = messages
        for part in expected:
            self.assertIn(part, message)
        eventually(lambda: not any(map(is_running, self.faults.pids())), 5, "every rank to be gone")
        self.assert_nothing_left()


class Healed(Case):
    """Faults that a reader gets over."""

    def check(self, reader, ranks, counter, **faults):
        daemon = self.begin(reader, ranks, **faults).wait_ready()
        counts = self.faults.by_rank()
        for rank in range(1 if reader == "mmap" else ranks):  # of mapped files rank 0 reads the headers
            self.assertGreater(getattr(counts[rank], counter), 0, f"no {counter} on rank {rank}")
            if reader == "direct":
                self.assertGreater(counts[rank].direct_reads, 0)
        self.assert_serves_slices(self.model, tp=ranks)
        self.assert_stops_clean(daemon)

    def test_short_reads_are_continued(self):
        self.each(["pread", "direct", "mmap"], self.check, "short", short=1)

    def test_interrupted_reads_are_repeated(self):
        self.each(["pread", "direct"], self.check, "eintr", eintr=3)

    def test_direct_reads_that_are_refused_in_the_middle_of_a_file_are_made_otherwise(self):
        self.each(["direct"], self.check, "einval", einval=4 * MIB)

    @needs_mpi
    def test_files_that_are_not_cached_are_read_directly_and_faults_make_no_difference(self):
        if not direct_reads_work(self.model):
            self.skipTest(f"the file system of {self.root} knows no direct reads")
        evict(self.model)
        self.check("auto", 2, "einval", einval=4 * MIB)

    def test_slow_reads_only_take_longer(self):
        self.each(["pread", "direct"], self.check, "delays", delay_ms=3)


class Refused(Case):
    """Faults that nobody gets over: the checkpoint is not what it was, or cannot be read."""

    def check_bad_sector(self, reader, ranks, at, file=SECOND):
        daemon = self.begin(reader, ranks, files=file, eio=at)
        cause = f"at offset {at}: Input/output error"
        self.assert_ends_refused(daemon, file, cause, "start again")
        self.assertGreater(self.faults.total("eio"), 0)

    def test_a_bad_sector_is_named_with_file_offset_cause_and_remedy(self):
        self.each(["pread", "direct", "auto"], self.check_bad_sector, 4 * MIB + 4096)

    def test_a_bad_sector_in_a_header_is_no_other(self):
        self.each(["mmap"], self.check_bad_sector, 100)

    @needs_mpi
    def test_what_only_one_rank_cannot_read_ends_every_rank(self):
        daemon = self.begin("pread", 2, eio=4 * MIB, rank=1)
        cause = f"at offset {4 * MIB}: Input/output error"
        self.assert_ends_refused(daemon, "rank 1", ".safetensors", cause, "start again")
        self.assertEqual(self.faults.by_rank()[0].eio, 0)
        self.assertGreater(self.faults.by_rank()[1].eio, 0)

    def check_truncation(self, reader, ranks, **faults):
        shutil.rmtree(self.model)
        shutil.copytree(self.made, self.model)
        daemon = self.begin(reader, ranks, files=SECOND, **faults)
        self.assert_ends_refused(daemon, SECOND, "truncated", "restore it and start again")
        self.assertGreater(self.faults.total("truncations"), 0)
        self.assertEqual((self.model / SECOND).stat().st_size, faults["truncate"])

    def test_a_file_that_is_cut_short_while_it_is_read_is_refused(self):
        self.each(["pread", "direct", "auto"], self.check_truncation, truncate=5 * MIB + 77)

    def test_a_mapped_file_that_is_cut_short_is_refused_and_nobody_dies_of_a_signal(self):
        # By the tenth look the copies are under way, and what follows lies past the new end.
        self.each(["mmap"], self.check_truncation, truncate=4096, truncate_look=10)


class OneRank(Case):
    """A rank that is unlike the others holds them up, or ends them, but never leaves them waiting."""

    def progress(self):
        """Each loading rank's part of its bytes that it has."""
        loading = {d["global_rank"]: d["progress"] for d in self.status() if d["state"] == "LOADING"}
        return {rank: p["bytes"] / max(p["total_bytes"], 1) for rank, p in loading.items()}

    @needs_mpi
    def test_a_slow_rank_is_waited_for_and_its_progress_can_be_seen(self):
        daemon = self.begin("pread", 2, "--reader-threads", 1, slowdown=20, rank=1)
        seen = []

        def loaded():
            now = self.progress()
            if now.get(1, 0) > (seen[-1][1] if seen else 0):
                seen.append(now)
            return "preload: READY" in daemon.log

        eventually(loaded, harness.READY_S, f"READY:\n{daemon.log}")
        slow = [now[1] for now in seen]
        self.assertGreaterEqual(len(slow), 4, "the slow rank's bytes grow while it loads")
        # The last look may fall between the first rank's READY and the second's.
        other = [now[0] for now in seen if 0 in now]
        self.assertEqual(other[-1], 1.0, "the other rank has all of its own and waits")
        self.assertEqual(self.faults.by_rank()[0].delays, 0)
        self.assertGreater(self.faults.by_rank()[1].delays, 10)
        self.assert_serves_slices(self.model, tp=2)
        self.assert_stops_clean(daemon)

    @needs_mpi
    def test_a_rank_that_sits_in_a_read_holds_up_no_stop(self):
        daemon = self.begin("pread", 2, delay_once_ms=600_000, rank=1)
        eventually(lambda: self.progress().get(0) == 1.0, 60, "rank 0 to have its part")
        os.kill(self.pid_of_rank(0), 15)
        self.assertEqual(daemon.wait_end(2 * END_S), 143, daemon.log)
        eventually(lambda: not any(map(is_running, self.faults.pids())), 5, "every rank to be gone")
        self.preload("stop", status=7)

    def check_limited(self, limit, *expected):
        """Rank 1 of two under a limit of its shell: all end as it does."""
        self.model = make_slow_model(self.root / "large", 4)
        self.faults = ReadFaults(self.root)
        limited = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" != 1 ] || {limit}; exec "$@"'
        daemon = self.start(
            self.model, "--layout", "hf", "-dp", 2, ranks=2,
            through=["sh", "-c", limited, "sh", *self.faults.through],
        )  # fmt: skip
        self.assert_ends_refused(daemon, "rank 1", *expected, status=4)
        self.assertLess(time.monotonic() - daemon.started, END_S)

    @needs_mpi
    @unittest.skipIf(harness.SANITIZED, "sanitizers reserve more address space than any limit allows")
    def test_a_rank_without_address_space_ends_every_rank(self):
        self.check_limited("ulimit -v 2097152", "4.00 GiB", "Cannot allocate memory", "ulimit -v")

    @needs_mpi
    def test_a_rank_whose_files_may_not_grow_ends_every_rank(self):
        self.check_limited("ulimit -f 2097152", "4.00 GiB", "File too large", "ulimit -f")


class Counted(harness.Case):
    """What the ranks of a job read, all together."""

    # Columns so far apart that what lies between them is not read: bytes read are bytes needed.
    APART = ["--hidden", 64, "--layers", 2, "--heads", 64, "--kv-heads", 64, "--head-dim", 1024,
             "--intermediate", 65536, "--vocab", 1024, "--sparse"]  # fmt: skip
    TINY = ["--hidden", 8, "--layers", 2, "--heads", 2, "--kv-heads", 2, "--intermediate", 8, "--vocab", 64]

    def planned(self, model, *flags):
        command = ["plan", "--model", model, "--ranks", 2, *(flags or ["-tp", 2, "--spread", "never"])]
        plan = json.loads(harness.run(*command, "--json", "--summary"))
        return [rank["read_bytes"] for rank in plan["ranks"]]

    @needs_mpi
    def test_a_node_that_spreads_reads_what_it_needs_once(self):
        model = make_llama(self.root / "model", *MODEL)
        tiny = make_llama(self.root / "tiny", *self.TINY)
        weights = sum(path.stat().st_size for path in model.glob("*.safetensors"))
        for parallel in (["-tp", 2], ["-dp", 2], ["-tp", 2, "-dp", 2]):
            with self.subTest(parallel):
                ranks = 2 ** (len(parallel) // 2)
                flags = [*parallel, "--spread", "always"]
                nothing = bytes_read_by_job(self, tiny, *flags, ranks=ranks)
                reads = bytes_read_by_job(self, model, *flags, ranks=ranks)
                # The headers are read by rank 0, with some look-ahead.
                self.assertLess(abs(sum(reads.counted) - weights), 0.01 * weights + MIB)
                asked = sum(reads.asked) - sum(nothing.asked)
                self.assertLess(abs(asked - weights), 0.01 * weights + 8 * MIB)
                if ranks == 2:
                    self.assertLess(abs(sum(self.planned(model, *flags)) - weights), 0.01 * weights)
                for count in reads.counted:
                    self.assertLess(abs(count - weights / ranks), 0.05 * weights, "an even share")

    @needs_mpi
    def test_what_was_handed_on_is_what_the_files_say(self):
        model = make_llama(self.root / "model", *MODEL)
        daemon = self.start(model, "-tp", 2, "-dp", 2, "--spread", "always", ranks=4)
        daemon.wait_ready()
        self.preload("verify", "--against", model)
        self.assert_serves_slices(model, tp=2, dp=2)
        self.assert_stops_clean(daemon)

    @needs_mpi
    def test_ranks_read_what_their_plans_say_and_no_more(self):
        model = make_llama(self.root / "model", *self.APART)
        stored = sum(path.stat().st_size for path in model.glob("*.safetensors"))
        planned = self.planned(model)
        # Matrices once, by one rank or the other; norms by both.
        norms = (2 * 2 + 1) * 64 * 2
        headers = stored - sum(planned) + norms
        self.assertLess(headers, 8192)
        nothing = bytes_read_by_job(self, make_llama(self.root / "tiny", *self.TINY), "-tp", 2, "--spread", "never", ranks=2)
        reads = bytes_read_by_job(self, model, "-tp", 2, "--spread", "never", ranks=2)
        self.assertEqual(reads.counted[1], planned[1])
        self.assertLessEqual(planned[0], reads.counted[0])
        # Rank 0 reads headers, too, and a sample of each file.
        sample = 16 * 4096 * len(list(model.glob("*.safetensors")))
        self.assertLessEqual(reads.counted[0], planned[0] + 4 * headers + sample)
        for rank in range(2):
            asked = reads.asked[rank] - nothing.asked[rank]
            self.assertLess(abs(asked - planned[rank]), planned[rank] * 0.01 + MIB, f"rank {rank}")

    @needs_mpi
    def test_columns_that_lie_close_are_read_with_what_is_between_them(self):
        model = make_llama(self.root / "model", *MODEL)
        planned = self.planned(model)
        reads = bytes_read_by_job(self, model, "-tp", 2, "--spread", "never", ranks=2)
        columns = 4 * 512 * (512 + 1408) * 2  # o_proj and down_proj of every layer
        for rank in range(2):
            gaps = reads.counted[rank] - planned[rank]
            self.assertLess(abs(gaps - columns // 2), columns * 0.02, f"rank {rank}")


class SeveralHosts(harness.Case):
    """What ranks need that cannot write each other's memory travels in messages."""

    def begin(self, model, hosts, *flags, ranks, through=()):
        return self.start(
            model, *flags, "--spread", "always", ranks=ranks, through=[*hosts.through, *through]
        )  # fmt: skip

    def stop_all(self, daemon, hosts):
        self.preload("stop", "--job", sockets=hosts.sockets[0])
        self.assertEqual(daemon.wait_end(), 0, daemon.log)
        for sockets in hosts.sockets:
            self.assertEqual([p.name for p in sockets.iterdir() if p.suffix == ".sock"], [])

    @needs_hosts
    def test_the_files_are_read_once_for_all_hosts(self):
        model = make_llama(self.root / "model", *MODEL)
        weights = sum(path.stat().st_size for path in model.glob("*.safetensors"))
        for per_host, parallel in [(1, {"dp": 2}), (1, {"tp": 2}), (2, {"dp": 2, "tp": 2}), (3, {"dp": 6})]:
            with self.subTest(per_host=per_host, **parallel):
                flags = [text for name, size in parallel.items() for text in (f"-{name}", size)]
                ranks = int(np.prod(list(parallel.values())))
                hosts = Hosts(self.root, ranks // per_host, per_host)
                faults = ReadFaults(self.root)
                daemon = self.begin(
                    model, hosts, "--reader", "pread", *flags, ranks=ranks, through=faults.through
                )  # fmt: skip
                daemon.wait_ready()
                counted = [counts.bytes for counts in faults.by_rank().values()]
                self.assertEqual(len(counted), ranks)
                # The headers are read by rank 0, with some look-ahead.
                self.assertLess(abs(sum(counted) - weights), 0.01 * weights + MIB)
                out = self.root / f"dump-{ranks}-{per_host}"
                for sockets in hosts.sockets:
                    self.preload("verify", "--against", model, sockets=sockets)
                    self.preload("attach", "--all", "--dump", out, sockets=sockets)
                self.assert_dump_is_sliced(model, out, **parallel)
                self.stop_all(daemon, hosts)

    @needs_hosts
    def test_values_are_converted_before_they_are_sent(self):
        model = make_llama(self.root / "model", *MODEL)
        hosts = Hosts(self.root, 2, 1)
        daemon = self.begin(model, hosts, "-dp", 2, "--dtype", "float32", ranks=2).wait_ready()
        for sockets in hosts.sockets:
            self.preload("verify", "--against", model, sockets=sockets)
        self.stop_all(daemon, hosts)

    @needs_hosts
    def test_small_rings_only_make_more_rounds(self):
        model = make_llama(self.root / "model", *MODEL)
        hosts = Hosts(self.root, 2, 1)
        daemon = self.begin(model, hosts, "-dp", 2, "--ring-bytes", "1M", ranks=2).wait_ready()
        for sockets in hosts.sockets:
            self.preload("verify", "--against", model, sockets=sockets)
        self.stop_all(daemon, hosts)

    @needs_hosts
    def test_what_one_host_cannot_read_ends_all(self):
        model = make_llama(self.root / "model", *MODEL)
        hosts = Hosts(self.root, 2, 1)
        faults = ReadFaults(self.root, eio=4 * MIB, rank=1)
        daemon = self.begin(
            model, hosts, "-dp", 2, "--reader", "pread", ranks=2, through=faults.through
        )  # fmt: skip
        self.assertEqual(daemon.wait_end(END_S), 3, daemon.log)
        self.assertIn("rank 1", daemon.log)
        self.assertIn("Input/output error", daemon.log)
        eventually(lambda: not any(map(is_running, faults.pids())), 5, "every rank to be gone")

    @needs_hosts
    def test_a_host_that_is_lost_while_it_sends_ends_all(self):
        model = make_llama(self.root / "model", *MODEL)
        hosts = Hosts(self.root, 2, 1)
        faults = ReadFaults(self.root, slowdown=200, rank=1)
        daemon = self.begin(
            model, hosts, "-dp", 2, "--reader", "pread", "--ring-bytes", "1M", "--reader-threads", 1,
            ranks=2, through=faults.through,
        )  # fmt: skip

        def loading(host):
            found = json.loads(self.preload("status", "--json", sockets=hosts.sockets[host]))["daemons"]
            return [d["pid"] for d in found if d["state"] == "LOADING" and d["progress"]["bytes"] > 0]

        eventually(lambda: hosts.sockets[1].exists() and loading(1), 30, "rank 1 to load")
        os.kill(loading(1)[0], 9)
        self.assertEqual(daemon.wait_end(END_S), 137, daemon.log)
        eventually(lambda: not any(map(is_running, faults.pids())), 5, "every rank to be gone")


if __name__ == "__main__":
    unittest.main()
