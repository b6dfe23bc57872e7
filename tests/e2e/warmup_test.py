# SPDX-License-Identifier: Apache-2.0
"""The external warm-up: a command that runs against the shard already held, before READY."""

import json
import pathlib
import shlex
import shutil
import signal
import stat
import sys
import unittest

import harness

HOOK = pathlib.Path(__file__).with_name("warmup_hook.py")
ENDED_S = 30


class Case(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.models = harness.tempfile.mkdtemp(prefix="preload-warmup-")
        cls.addClassCleanup(shutil.rmtree, cls.models, ignore_errors=True)
        cls.model = harness.make_llama(pathlib.Path(cls.models) / "llama")

    def setUp(self):
        super().setUp()
        self.out = self.root / "noted"

    def hook(self, *flags):
        """The flag of serve that runs the tests' hook."""
        command = [sys.executable, HOOK, self.out, *flags]
        return f"--warmup-exec={shlex.join(map(str, command))}"

    def noted(self, rank=0):
        path = self.out / f"rank{rank}.json"
        harness.eventually(path.exists, harness.READY_S, f"{path}")
        return json.loads(path.read_text())

    def start(self, *flags, **options):
        env = {"PRELOAD_TEST_BIN": harness.BIN} | options.pop("env", {})
        return super().start(self.model, *flags, env=env, **options)

    def assert_gone(self, *pids):
        for pid in pids:
            harness.eventually(lambda pid=pid: not harness.is_running(pid), ENDED_S, f"pid {pid} is gone")

    def assert_no_private_directory(self):
        self.assertEqual([p.name for p in self.sockets.iterdir() if p.is_dir()], [])


class Warmup(Case):
    def test_it_is_told_its_place_and_reads_the_right_values_before_anybody_else_can(self):
        daemon = self.start(self.hook("--public", self.sockets), env={
            "NOTIFY_SOCKET": "/nonexistent/notify", "TRITON_CACHE_DIR": "/of/the/user",
            "SLURM_JOB_ID": "7", "PMIX_NAMESPACE": "outer"})  # fmt: skip
        daemon.wait_ready()
        noted = self.noted()
        told = noted["environment"]
        self.assertEqual(
            [told[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR")],
            ["0", "0", "1", "127.0.0.1"],
        )
        self.assertGreater(int(told["MASTER_PORT"]), 1023)
        self.assertEqual(json.loads(told["PRELOAD_WARMUP_ENGINE"])["model"], str(self.model))
        launched = [n for n in told if n.startswith(("OMPI_", "PMIX_", "SLURM_"))] + [
            n for n in ("NOTIFY_SOCKET",) if n in told]  # fmt: skip
        self.assertEqual(launched, [])
        # The user's own directory is left to the user.
        self.assertEqual(told["TRITON_CACHE_DIR"], "/of/the/user")
        self.assertEqual(pathlib.Path(told["VLLM_CACHE_ROOT"]).parent, pathlib.Path(told["PRELOAD_WARMUP_CACHE_DIR"]))

        private = pathlib.Path(told["PRELOAD_SOCKET_DIR"])
        self.assertEqual(private.parent, self.sockets)
        status, daemons = noted["private"]
        self.assertEqual([status, len(daemons)], [0, 1])
        self.assertEqual(noted["dump"][0], 0)
        (dumped,) = pathlib.Path(noted["dump"][1]).glob("rank0.safetensors")
        self.assert_dump_is_sliced(self.model, dumped.parent)

        status, _, error = noted["public"]
        self.assertEqual(status, 7)
        self.assertIn("warm-up", error)
        (loading,) = noted["status"]["daemons"]
        self.assertEqual([loading["state"], loading["progress"]["phase"]], ["LOADING", "warm-up"])

        self.assertIn("warm-up: hook of rank 0 has noted", daemon.log)
        self.assertIn("warmup=done", daemon.log)
        self.assert_no_private_directory()
        (served,) = self.status()
        self.assertEqual([served["state"], served["leases"]], ["READY", []])
        self.assert_stops_clean(daemon)

    @harness.needs_python_client
    def test_the_lease_of_a_client_that_is_not_the_hooks_goes_on_with_the_daemon(self):
        daemon = self.start(self.hook("--until", self.root / "go"))
        private = pathlib.Path(self.noted()["environment"]["PRELOAD_SOCKET_DIR"])
        self.sockets, public = private, self.sockets
        client = self.holder()
        self.sockets = public
        (self.root / "go").touch()
        daemon.wait_ready()
        self.assertIn("the warm-up has left 1 lease open on host:0", daemon.log)
        self.assertEqual([lease["pid"] for lease in self.status()[0]["leases"]], [client.pid])
        client.kill()
        harness.eventually(lambda: not self.status()[0]["leases"], ENDED_S, "the lease ends")
        self.assert_stops_clean(daemon)

    def test_its_directory_is_the_users_alone(self):
        daemon = self.start(self.hook("--sleep", "1000"))
        private = pathlib.Path(self.noted()["environment"]["PRELOAD_SOCKET_DIR"])
        self.assertEqual(stat.S_IMODE(private.stat().st_mode), 0o700)
        daemon.process.send_signal(signal.SIGTERM)
        self.assertEqual(daemon.wait_end(), 143, daemon.log)

    def test_a_hung_hook_is_ended_at_its_limit_with_what_it_started(self):
        daemon = self.start(self.hook("--sleep", "1000", "--escape"), "--warmup-exec-timeout", 10)
        noted = self.noted()
        daemon.wait_ready()
        self.assert_gone(noted["pid"], noted["child"])
        self.assertIn("did not end within its limit", daemon.log)
        self.assertIn("warmup=failed", daemon.log)
        self.assert_stops_clean(daemon)

    def test_what_it_leaves_running_is_ended_before_ready(self):
        daemon = self.start(self.hook("--escape"))
        daemon.wait_ready()
        self.assertFalse(harness.is_running(self.noted()["child"]))
        self.assertIn("warmup=done", daemon.log)
        self.assert_stops_clean(daemon)

    def test_a_failing_hook_ends_the_job_only_where_it_is_required(self):
        daemon = self.start(self.hook("--fail-rank", "0", "3"))
        daemon.wait_ready()
        self.assertRegex(daemon.log, r"--warmup-exec ended with status 3 .*serving goes on without it")
        self.assert_stops_clean(daemon)
        required = self.start(self.hook("--fail-rank", "0", "3"), "--warmup-required")
        self.assertEqual(required.wait_end(harness.READY_S), 1, required.log)
        self.assertRegex(required.log, r"error .*--warmup-exec ended with status 3 .*\(--warmup-required\)")
        self.assertNotIn("preload: READY", required.log)
        self.assert_no_private_directory()

    def test_a_second_start_has_what_it_left_from_disk_and_does_not_run_it(self):
        flags = [self.hook("--cache", "compiled")]
        first = self.start(*flags)
        first.wait_ready()
        caches = pathlib.Path(self.noted()["environment"]["PRELOAD_WARMUP_CACHE_DIR"])
        self.assertEqual((caches / "hook/compiled-0").read_text(), "made by rank 0")
        self.assertIn(f"{caches.parent}/environment.sh", first.log)
        self.assertEqual(self.status()[0]["engine_caches"], str(caches.parent))
        self.assert_stops_clean(first)
        shutil.rmtree(self.out)

        # In its place; then, as on a node that has the cache root but not the directories, restored.
        for gone in (None, caches.parent):
            if gone:
                shutil.rmtree(gone)
            again = self.start(*flags)
            again.wait_ready()
            self.assertIn("warmup=found", again.log)
            self.assertFalse(self.out.exists(), "the command ran again")
            self.assertEqual((caches / "hook/compiled-0").read_text(), "made by rank 0")
            self.assert_stops_clean(again)

        for changed in (["--warmup-exec-always", *flags], [self.hook("--cache", "other")]):
            daemon = self.start(*changed)
            daemon.wait_ready()
            self.assertIn("warmup=done", daemon.log)
            self.assert_stops_clean(daemon)

    @harness.needs_python_client
    def test_what_it_leaves_with_the_daemon_is_there_for_engines(self):
        daemon = self.start(self.hook("--artifact", "autotune/table"), env=harness.python_environment())
        daemon.wait_ready()
        script = "import sys, preload; print(preload.get_artifact('autotune/table', socket_dir=sys.argv[1]).data)"
        done = harness.subprocess.run(
            [sys.executable, "-c", script, str(self.sockets)], capture_output=True, text=True,
            env=harness.python_environment() | {"PYTHONPATH": str(harness.REPOSITORY / "python")},
        )  # fmt: skip
        self.assertEqual(done.stdout.strip(), "b'left by the hook'", done.stderr)
        self.assert_stops_clean(daemon)

    def test_what_failed_is_run_again_at_the_next_start(self):
        flags = self.hook("--cache", "half", "--fail-rank", "0", "1")
        for _ in range(2):
            daemon = self.start(flags)
            daemon.wait_ready()
            self.assertIn("warmup=failed", daemon.log)
            self.assert_stops_clean(daemon)

    def test_a_stop_during_the_warm_up_ends_it(self):
        daemon = self.start(self.hook("--sleep", "1000", "--escape"))
        noted = self.noted()
        self.preload("stop")
        self.assertEqual(daemon.wait_end(), 0, daemon.log)
        self.assert_gone(noted["pid"], noted["child"])
        self.assert_no_private_directory()

    def test_a_daemon_killed_during_the_warm_up_leaves_no_hook_behind(self):
        daemon = self.start(self.hook("--sleep", "1000", "--escape"))
        noted = self.noted()
        daemon.process.kill()
        self.assertEqual(daemon.wait_end(), 137)
        self.assert_gone(noted["pid"], noted["child"])
        # Nor does the next start stumble over its directory.
        shutil.rmtree(self.out)
        following = self.start(self.hook())
        following.wait_ready()
        self.assert_no_private_directory()
        self.assert_stops_clean(following)

    def test_what_was_taken_over_from_a_keeper_is_not_warmed_up_again(self):
        keeper = harness.subprocess.Popen(
            [harness.BIN, "keeper", "--weight-cache-socket-dir", str(self.sockets)],
            stderr=harness.subprocess.DEVNULL, env=harness.environment())  # fmt: skip
        self.addCleanup(keeper.wait)
        self.addCleanup(keeper.kill)
        harness.eventually((self.sockets / "keeper.sock").exists, harness.READY_S, "a keeper")
        first = self.start(self.hook(), "--keeper", "require")
        first.wait_ready()
        first.process.kill()
        first.wait_end()
        shutil.rmtree(self.out)
        successor = self.start(self.hook(), "--keeper", "require")
        successor.wait_ready()
        self.assertIn("the weights were taken over", successor.log)
        self.assertFalse(self.out.exists(), "the command ran")
        self.assert_stops_clean(successor)

    def test_flags_without_a_command_are_refused(self):
        daemon = self.start("--warmup-required")
        self.assertEqual(daemon.wait_end(), 2, daemon.log)
        self.assertIn("--warmup-required is for --warmup-exec", daemon.log)


@harness.needs_mpi
class WarmupOfSeveralRanks(Case):
    def test_every_rank_runs_it_for_its_own_shard(self):
        daemon = self.start(self.hook(), "-tp", 2, ranks=2)
        daemon.wait_ready()
        told = [self.noted(rank)["environment"] for rank in range(2)]
        self.assertEqual([t["RANK"] for t in told], ["0", "1"])
        self.assertEqual([t["LOCAL_RANK"] for t in told], ["0", "1"])
        self.assertEqual({t["WORLD_SIZE"] for t in told}, {"2"})
        self.assertEqual(len({(t["MASTER_ADDR"], t["MASTER_PORT"]) for t in told}), 1)
        self.assertEqual(len({t["PRELOAD_SOCKET_DIR"] for t in told}), 2)
        for rank in range(2):
            self.assertFalse([n for n in told[rank] if n.startswith(("OMPI_", "PMIX_"))])
            self.assertEqual(self.noted(rank)["wait"][0], 0, self.noted(rank)["wait"])
            status, daemons = self.noted(rank)["private"]
            self.assertEqual(status, 0, daemons)
            # A client counts the devices that it is shown.
            self.assertEqual([(d["global_rank"], d["gpu_uuid"]) for d in daemons], [(rank, "host:0")])
            self.assertRegex(daemon.log, rf"rank {rank} target: warm-up: hook of rank {rank} has noted")
        self.assert_stops_clean(daemon)

    def test_one_hook_is_for_its_whole_replica(self):
        daemon = self.start(self.hook(), "--warmup-exec-scope", "replica", "-tp", 2, "-dp", 2, ranks=4)
        daemon.wait_ready()
        self.assertEqual(sorted(p.name for p in self.out.glob("rank*.json")), ["rank0.json", "rank2.json"])
        told = [self.noted(rank)["environment"] for rank in (0, 2)]
        for t in told:
            self.assertEqual([t["RANK"], t["LOCAL_RANK"], t["WORLD_SIZE"]], ["0", "0", "2"])
        self.assertEqual(len({(t["MASTER_ADDR"], t["MASTER_PORT"]) for t in told}), 2)
        for rank in (0, 2):
            self.assertEqual(self.noted(rank)["wait"][0], 0, self.noted(rank)["wait"])
            status, daemons = self.noted(rank)["private"]
            self.assertEqual(status, 0, daemons)
            self.assertEqual(
                [(d["global_rank"], d["gpu_uuid"]) for d in sorted(daemons, key=lambda d: d["global_rank"])],
                [(rank, "host:0"), (rank + 1, "host:1")],
            )
        self.assert_no_private_directory()
        self.assert_stops_clean(daemon)

    def test_a_hook_that_fails_on_one_rank_is_fatal_to_all_where_it_is_required(self):
        daemon = self.start(self.hook("--fail-rank", "1", "9"), "-tp", 2, ranks=2)
        daemon.wait_ready()
        self.assertRegex(daemon.log, r"rank 1 target: the command of --warmup-exec ended with status 9")
        self.assertIn("warmup=failed", daemon.log)
        self.assert_stops_clean(daemon)
        required = self.start(self.hook("--fail-rank", "1", "9"), "--warmup-required", "-tp", 2, ranks=2)
        self.assertEqual(required.wait_end(harness.READY_S), 1, required.log)
        self.assertRegex(required.log, r"rank 1: the command of --warmup-exec ended with status 9")

    def test_a_rank_that_is_lost_ends_the_others_warm_up(self):
        daemon = self.start(self.hook("--sleep", "1000"), "-tp", 2, ranks=2)
        pids = [self.noted(rank)["pid"] for rank in range(2)]
        victim = [d["pid"] for d in self.status() if d["global_rank"] == 1][0]
        harness.os.kill(victim, signal.SIGKILL)
        self.assertEqual(daemon.wait_end(ENDED_S), 137, daemon.log)
        self.assert_gone(*pids)


if __name__ == "__main__":
    unittest.main()
