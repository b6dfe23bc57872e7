# SPDX-License-Identifier: Apache-2.0
"""How a job ends: refusals, signals, killed ranks, a busy place; and what it leaves behind."""

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import time
import unittest

import harness
from harness import eventually, is_running, make_llama, make_slow_model, needs_mpi

SMALL = ["--hidden", 64, "--layers", 2, "--heads", 4, "--kv-heads", 2, "--vocab", 512, "--intermediate", 96]


def shorten(path, by):
    os.truncate(path, path.stat().st_size - by)


class Refusals(harness.Case):
    @needs_mpi
    def test_a_refused_checkpoint_ends_every_rank_with_its_status_and_one_message(self):
        model = make_llama(self.root / "model", *SMALL, "--shards", 2)
        shorten(model / "model-00002-of-00002.safetensors", 4096)
        daemon = self.start(model, "-tp", 2, "-dp", 2, ranks=4)
        self.assertEqual(daemon.wait_end(), 3, daemon.log)
        self.assertEqual(daemon.log.count("model-00002-of-00002.safetensors"), 1, daemon.log)
        self.assertIn("4096 bytes", daemon.log)
        self.assert_nothing_left()

    @needs_mpi
    def test_what_one_rank_alone_runs_into_ends_every_rank_with_its_status(self):
        model = make_llama(self.root / "model", *SMALL)
        self.sockets.mkdir(0o700)
        place = hashlib.sha256(b"host:1").hexdigest()[:16]
        with open(self.sockets / f"{place}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            daemon = self.start(model, "-tp", 2, ranks=4)
            self.assertEqual(daemon.wait_end(20), 6, daemon.log)
        self.assertEqual(daemon.log.count("host:1"), 1, daemon.log)
        self.assert_nothing_left()

    @needs_mpi
    def test_a_world_that_does_not_fit_the_sizes_is_a_usage_error_said_once(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model, "-tp", 2, "-dp", 1, ranks=3)
        self.assertEqual(daemon.wait_end(), 2, daemon.log)
        self.assertEqual(daemon.log.count("3 ranks were started"), 1, daemon.log)

    def test_ranks_that_believe_to_be_alone_are_told_what_to_do(self):
        model = make_llama(self.root / "model", *SMALL)
        for variables in (
            {"SLURM_STEP_ID": 0, "SLURM_STEP_NUM_TASKS": 4, "SLURM_PROCID": 0},
            {"OMPI_COMM_WORLD_SIZE": 4, "OMPI_COMM_WORLD_RANK": 0},
        ):
            if not harness.MPIRUN:
                self.skipTest("this build has no MPI")
            daemon = self.start(model, env=variables)
            self.assertEqual(daemon.wait_end(15), 5, daemon.log)
            self.assertIn("srun --mpi=list", daemon.log)
            self.assertIn("built against", daemon.log)


class Busy(harness.Case):
    def test_a_second_daemon_is_refused_in_under_a_second_and_the_first_untouched(self):
        model = make_llama(self.root / "model", *SMALL)
        first = self.start(model, "--layout", "hf").wait_ready()
        before = self.dump()[0]
        pid = self.pid_of_rank(0)
        second = self.start(model, "--layout", "hf")
        self.assertEqual(second.wait_end(), 6, second.log)
        self.assertLess(time.monotonic() - second.started, 5.0 if harness.SANITIZED else 1.0)
        self.assertIn(str(pid), second.log)  # who has it
        (daemon,) = self.status()
        self.assertEqual((daemon["pid"], daemon["state"]), (pid, "READY"))
        self.assert_same_tensors(self.dump()[0], before, "after the second daemon")
        self.assert_stops_clean(first)

    def test_another_slot_of_the_same_device_is_another_place(self):
        model = make_llama(self.root / "model", *SMALL)
        self.start(model, "--layout", "hf").wait_ready()
        self.start(model, "--layout", "hf", "--slot", "b").wait_ready()
        self.assertEqual(sorted(d["slot"] for d in self.status()), ["", "b"])


def ask(holder):
    """The hash of what it has mapped."""
    holder.stdin.write("?\n")
    holder.stdin.flush()
    return holder.stdout.readline().strip()


class Killed(harness.Case):
    def leases(self):
        return [lease["pid"] for daemon in self.status() for lease in daemon["leases"]]

    @harness.needs_python_client
    def test_a_killed_client_loses_its_lease_within_a_second(self):
        self.start(make_llama(self.root / "model", *SMALL), "--layout", "hf").wait_ready()
        victim, other = self.holder(), self.holder()
        eventually(lambda: len(self.leases()) == 2, 5, "two leases")
        value = ask(other)
        victim.kill()
        killed = time.monotonic()
        eventually(lambda: self.leases() == [other.pid], 1, "the killed client's lease to end")
        self.assertLess(time.monotonic() - killed, 1.0)
        self.assertEqual(ask(other), value)

    @harness.needs_python_client
    def test_a_killed_daemon_leaves_its_clients_data_and_its_place_to_the_next(self):
        model = make_llama(self.root / "model", *SMALL)
        first = self.start(model, "--layout", "hf").wait_ready()
        holder = self.holder()
        value = ask(holder)
        os.kill(self.pid_of_rank(0), signal.SIGKILL)
        self.assertEqual(first.wait_end(), 137)
        self.assertEqual(ask(holder), value)
        self.preload("attach", "--all", status=7)  # the stale socket misleads nobody
        second = self.start(model, "--layout", "hf").wait_ready()
        self.assertEqual(ask(holder), value)
        newcomer = self.holder()
        self.assertEqual(ask(newcomer), value)
        self.assert_stops_clean(second)

    @needs_mpi
    def test_a_killed_rank_ends_the_job_with_137_and_leaves_nothing(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model, "-tp", 2, ranks=4).wait_ready()
        pids = [d["pid"] for d in self.status()]
        self.assertEqual(len(set(pids)), 4)
        os.kill(self.pid_of_rank(2), signal.SIGKILL)
        self.assertEqual(daemon.wait_end(15), 137, daemon.log)
        eventually(lambda: not any(map(is_running, pids)), 10, "every rank to be gone")
        self.assertEqual(daemon.log.count("rank 2 was lost"), 1, daemon.log)
        for left in self.status():
            self.assertEqual((left["state"], left["leases"]), ("FAILED", []))
        self.preload("stop", status=7)

    @needs_mpi
    def test_ranks_do_not_outlive_a_killed_launcher(self):
        daemon = self.start(make_llama(self.root / "model", *SMALL), "-tp", 2, ranks=2).wait_ready()
        pids = [d["pid"] for d in self.status()]
        self.assertEqual(len(pids), 2)
        daemon.process.kill()
        eventually(lambda: not any(map(is_running, pids)), 15, "every rank to be gone")
        # What the ranks say goes through the launcher, and so nowhere; what they leave says it.
        self.preload("wait", "--timeout", 30, status=5)
        self.assertIn("launcher has ended", self.stderr)
        self.assert_nothing_left()

    @needs_mpi
    def test_a_job_that_is_turned_away_is_not_the_newest(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model).wait_ready()
        wider = self.start(model, "-tp", 2, ranks=2)
        self.assertEqual(wider.wait_end(), 6, wider.log)
        self.preload("wait", "--timeout", 30)
        self.preload("stop")
        self.assertEqual(daemon.wait_end(), 0, daemon.log)

    @needs_mpi
    def test_a_killed_rank_zero_ends_the_job_too(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model, "-tp", 2, ranks=2).wait_ready()
        pids = [d["pid"] for d in self.status()]
        os.kill(self.pid_of_rank(0), signal.SIGKILL)
        self.assertEqual(daemon.wait_end(15), 137, daemon.log)
        eventually(lambda: not any(map(is_running, pids)), 10, "every rank to be gone")


class Signals(harness.Case):
    def test_a_terminated_daemon_ends_with_143_and_says_so_to_who_waits(self):
        daemon = self.start(make_llama(self.root / "model", *SMALL), "--layout", "hf").wait_ready()
        os.kill(self.pid_of_rank(0), signal.SIGTERM)
        self.assertEqual(daemon.wait_end(15), 143, daemon.log)
        started = time.monotonic()
        self.preload("wait", "--timeout", 60, status=143)
        self.assertLess(time.monotonic() - started, 10)
        self.assertIn("SIGTERM", self.stderr)
        self.assert_nothing_left()

    @needs_mpi
    def test_a_terminated_rank_ends_the_job_with_143(self):
        model = make_llama(self.root / "model", *SMALL)
        for number, expected in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            daemon = self.start(model, "-tp", 2, ranks=4).wait_ready()
            os.kill(self.pid_of_rank(3), number)
            self.assertEqual(daemon.wait_end(15), expected, daemon.log)
            self.assertEqual(daemon.log.count("ended by SIG"), 1, daemon.log)
            self.assert_nothing_left()

    @needs_mpi
    def test_a_terminated_launcher_takes_every_rank_along(self):
        daemon = self.start(make_llama(self.root / "model", *SMALL), "-tp", 2, ranks=2).wait_ready()
        pids = [d["pid"] for d in self.status()]
        daemon.process.terminate()
        self.assertNotEqual(daemon.wait_end(15), 0, daemon.log)
        eventually(lambda: not any(map(is_running, pids)), 10, "every rank to be gone")
        self.assert_nothing_left()


    @harness.needs_python_client
    def test_a_terminated_daemon_lets_its_clients_finish_and_admits_no_others(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model, "--layout", "hf", "--lease-wait", 600).wait_ready()
        holder = self.holder()
        os.kill(self.pid_of_rank(0), signal.SIGTERM)
        eventually(lambda: [d["state"] for d in self.status()] == ["DRAINING"], 60, "the daemon to end")
        self.preload("attach", "--all", status=7)
        holder.kill()
        self.assertEqual(daemon.wait_end(), 143, daemon.log)
        self.assert_nothing_left()

    @harness.needs_python_client
    def test_a_daemon_waits_for_leases_no_longer_than_it_may(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model, "--layout", "hf", "--lease-wait", 1).wait_ready()
        holder = self.holder()
        value = ask(holder)
        self.preload("stop")
        self.assertEqual(daemon.wait_end(), 0, daemon.log)
        self.assertEqual(ask(holder), value)
        self.assert_nothing_left()

    @needs_mpi
    @harness.needs_python_client
    def test_no_rank_of_a_terminated_job_leaves_before_the_clients_of_another(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model, "-tp", 2, "--lease-wait", 600, ranks=2).wait_ready()
        holder = self.holder()
        pids = [d["pid"] for d in self.status()]
        os.kill(self.pid_of_rank(1), signal.SIGTERM)
        # Its own place is free at once; but it is there, or mpirun would end the other, too.
        eventually(lambda: [d["state"] for d in self.status()] == ["DRAINING", "FAILED"], 60, "one place to be free")
        self.assertTrue(all(map(is_running, pids)))
        holder.kill()
        self.assertEqual(daemon.wait_end(), 143, daemon.log)
        self.assert_nothing_left()


class Suspended(harness.Case):
    """A rank that hangs (SIGSTOP here) is neither dead nor to be left behind."""

    def setUp(self):
        super().setUp()
        model = make_llama(self.root / "model", *SMALL)
        self.daemon = self.start(model, "-tp", 2, ranks=2).wait_ready()
        self.pids = [self.pid_of_rank(rank) for rank in (0, 1)]
        harness.suspend(self.pids[1])

    def state_of(self, pid):
        return next(d["state"] for d in self.status() if d["pid"] == pid)

    @needs_mpi
    def test_a_ready_job_bears_with_it_for_a_while(self):
        eventually(lambda: "it hangs, or is suspended" in self.daemon.log, 15, "somebody to notice")
        self.assertEqual(self.state_of(self.pids[1]), "READY")
        self.assertIn("not answering", self.preload("status"))
        time.sleep(3)
        self.assertIsNone(self.daemon.process.poll(), self.daemon.log)
        os.kill(self.pids[1], signal.SIGCONT)
        eventually(lambda: "rank 1 is heard of again" in self.daemon.log, 15, "it to come back")
        self.assert_stops_clean(self.daemon)

    @needs_mpi
    def test_a_stop_of_the_job_ends_it_too_and_is_no_success(self):
        self.preload("stop", "--job", "--timeout", 40, status=None)
        self.assertNotEqual(self.daemon.wait_end(30), 0, self.daemon.log)
        self.assertIn("rank 1 was lost: nothing was heard of it", self.daemon.log)
        eventually(lambda: not any(map(is_running, self.pids)), 10, "every rank to be gone")
        self.assert_nothing_left()

    @needs_mpi
    def test_a_stop_of_the_daemons_here_kills_it_in_the_end(self):
        self.preload("stop", "--timeout", 1, status=1)
        self.assertIn("did not answer and was killed", self.stderr)
        self.assertNotEqual(self.daemon.wait_end(30), 0, self.daemon.log)
        self.preload("stop", status=7)  # its socket is left, and nobody listens there


class TidiedUp(harness.Case):
    """Somebody clears the socket directory under what runs, as systemd-tmpfiles does with what is old."""

    def are_held(self, names):
        """Whether all is there again, and the locks are somebody's: a file may be what a refused daemon left."""
        if not {path.name for path in self.sockets.iterdir()} >= set(names):
            return False
        for name in names:
            if not name.endswith(".lock"):
                continue
            with open(self.sockets / name, "rb") as file, contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
        return True

    def test_a_daemon_and_its_keeper_stay_the_only_ones_and_are_found_again(self):
        model = make_llama(self.root / "model", *SMALL)
        self.sockets.mkdir(mode=0o700)
        keeper = subprocess.Popen([harness.BIN, "keeper", "--weight-cache-socket-dir", self.sockets],
                                  stderr=subprocess.DEVNULL, env=harness.environment())  # fmt: skip
        self.addCleanup(keeper.wait)
        self.addCleanup(keeper.kill)
        eventually((self.sockets / "keeper.sock").exists, 10, "the keeper's socket")
        daemon = self.start(model, "--keeper", "require").wait_ready()
        names = sorted(path.name for path in self.sockets.iterdir())
        for pattern in ("*.lock", "*.sock", "*.state", "*"):
            with self.subTest(pattern):
                for path in self.sockets.glob(pattern):
                    path.unlink()
                if pattern != "*":  # with both gone nothing tells, until they are made anew
                    second = self.start(model)
                    self.assertEqual(second.wait_end(30), 6, second.log)
                eventually(lambda: self.are_held(names), 10, "all to be there and held")
                self.preload("attach", "--all")
                third = self.start(model)
                self.assertEqual(third.wait_end(30), 6, third.log)
        self.assertIn("was removed while it is in use", daemon.log)
        self.assert_stops_clean(daemon)


class Loading(harness.Case):
    """What happens to a job that has not finished loading."""

    def loading(self, *flags, **options):
        # So large that none of these tests waits until it is loaded.
        model = make_slow_model(self.root / "model", 8)
        daemon = self.start(model, "--layout", "hf", "--reader-threads", 1, *flags, **options)
        ranks = options.get("ranks", 1)

        def states():
            progress = [(d["state"], d["progress"]) for d in self.status()]
            return [state for state, p in progress if 0 < p["bytes"] < p["total_bytes"]]

        eventually(lambda: states() == ["LOADING"] * ranks, 60, "a load in progress")
        return daemon

    def test_a_loading_daemon_that_is_stopped_ends_as_one_that_serves(self):
        daemon = self.loading()
        self.preload("attach", "--gpu", "host:0", status=7)
        self.preload("stop")
        self.assertEqual(daemon.wait_end(5), 0, daemon.log)
        self.assertNotIn("preload: END", daemon.log)
        self.preload("wait", "--timeout", 0.1, status=7)
        self.assert_nothing_left()

    @needs_mpi
    def test_a_loading_job_that_is_stopped_ends_whole_with_0(self):
        daemon = self.loading("-dp", 2, ranks=2)
        self.preload("stop", "--gpu", "host:1")
        self.assertEqual(daemon.wait_end(10), 0, daemon.log)
        self.assertNotIn("preload: END", daemon.log)
        self.assert_nothing_left()

    def test_a_terminated_load_leaves_a_tombstone(self):
        daemon = self.loading()
        daemon.process.terminate()
        self.assertEqual(daemon.wait_end(5), 143, daemon.log)
        self.preload("wait", status=143)
        self.assertIn("SIGTERM", self.stderr)
        self.assert_nothing_left()

    def test_a_held_lock_refuses_a_second_daemon_that_would_load_the_same(self):
        self.loading()
        second = self.start(self.root / "model", "--layout", "hf")
        self.assertEqual(second.wait_end(), 6, second.log)
        self.assertEqual([d["state"] for d in self.status()], ["LOADING"])

    @needs_mpi
    def test_a_rank_killed_while_loading_ends_the_job_with_137(self):
        daemon = self.loading("-dp", 2, ranks=2)
        pids = [d["pid"] for d in self.status()]
        os.kill(self.pid_of_rank(1), signal.SIGKILL)
        self.assertEqual(daemon.wait_end(15), 137, daemon.log)
        eventually(lambda: not any(map(is_running, pids)), 10, "every rank to be gone")
        self.assertEqual([d["state"] for d in self.status()], ["FAILED"] * 2)

    @needs_mpi
    def test_a_file_that_shrinks_under_its_readers_is_refused_by_all(self):
        daemon = self.loading("-dp", 2, ranks=2)
        os.truncate(self.root / "model" / "model.safetensors", 4096)
        self.assertEqual(daemon.wait_end(60), 3, daemon.log)
        self.assertIn("model.safetensors", daemon.log)
        self.assertEqual(daemon.log.count(" error "), 1, daemon.log)
        self.assert_nothing_left()


class Waiting(harness.Case):
    def test_wait_gives_a_failed_daemons_code_and_text_at_once(self):
        model = make_llama(self.root / "model", *SMALL)
        shorten(model / "model.safetensors", 1)
        daemon = self.start(model, "--layout", "hf")
        self.assertEqual(daemon.wait_end(), 3, daemon.log)
        started = time.monotonic()
        self.preload("wait", "--timeout", 60, status=3)
        self.assertLess(time.monotonic() - started, 10)
        self.assertIn("model.safetensors", self.stderr)

    def test_wait_ends_when_every_rank_is_ready(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model, "--layout", "hf")
        self.preload("wait", "--timeout", harness.READY_S)
        (one,) = self.status()
        self.assertEqual((one["state"], one["global_rank"]), ("READY", 0))
        self.assert_stops_clean(daemon)

    def test_stop_of_the_whole_job_reaches_every_rank(self):
        if not harness.MPIRUN:
            self.skipTest("this build has no MPI")
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model, "-tp", 2, ranks=2).wait_ready()
        self.preload("stop", "--job", "--gpu", "host:1")
        self.assertEqual(daemon.wait_end(), 0, daemon.log)
        self.assert_nothing_left()

    @needs_mpi
    def test_ranks_that_were_not_asked_to_stop_go_on(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model, "-tp", 1, "-dp", 3, ranks=3).wait_ready()
        self.preload("stop", "--gpu", "host:0")  # rank 0, which watches over the others
        time.sleep(1)
        self.assertEqual(sorted(d["global_rank"] for d in self.status()), [1, 2])
        self.assertEqual(daemon.log.count("without supervision"), 1, daemon.log)
        self.assertEqual(len(self.dump()), 2)
        self.assert_stops_clean(daemon)


if __name__ == "__main__":
    unittest.main()
