# SPDX-License-Identifier: Apache-2.0
"""A daemon of one user, engines of another: `--allow-uid` at both ends, and nobody else."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

import harness

DAEMON, GUEST, STRANGER = 23456, 34567, 45678

ATTACH = """
import sys, preload
shard = preload.attach(device="host:0", socket_dir=sys.argv[1], allow_uids=[int(uid) for uid in sys.argv[2:]])
print(len(shard))
"""

needs_users = unittest.skipUnless(
    os.environ.get("PRELOAD_REQUIRE_CLUSTER") == "1" or (os.geteuid() == 0 and shutil.which("setpriv")),
    "this needs root, to be several users",
)


def as_user(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]


@needs_users
class Users(harness.Case):
    def setUp(self):
        super().setUp()
        # What others run and read; the checkout itself may lie where they cannot go.
        self.root.chmod(0o755)
        self.programs = self.root / "bin"
        self.programs.mkdir()
        built = pathlib.Path(harness.BIN).resolve().parent
        for name in ("preload", "preload-runtime"):
            if (built / name).exists():
                shutil.copy(built / name, self.programs)
        self.bin = self.programs / "preload"
        self.model = harness.make_llama(self.root / "model", "--layers", 2, "--vocab", 512)
        self.sockets.mkdir()
        os.chown(self.sockets, DAEMON, DAEMON)
        self.sockets.chmod(0o700)

    def serve(self, *flags, **options):
        return self.start(self.model, *flags, through=as_user(DAEMON), bin=self.bin,
                          env={"PRELOAD_CACHE_ROOT": "/nonexistent"}, **options)  # fmt: skip

    def by(self, uid, *arguments, status=0, **variables):
        command = [*as_user(uid), self.bin, *arguments, "--weight-cache-socket-dir", self.sockets]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=harness.COMMAND_S,
                              env=harness.environment(PRELOAD_CACHE_ROOT="/nonexistent", **variables))  # fmt: skip
        self.assertEqual(done.returncode, status, f"{command}\n{done.stdout}\n{done.stderr}")
        self.stderr = done.stderr
        return done.stdout

    def test_a_guest_waits_attaches_and_verifies_and_ends_nothing(self):
        daemon = self.serve("--allow-uid", GUEST, "--layout", "hf").wait_ready()
        trust = ("--allow-uid", DAEMON)
        self.by(GUEST, "wait", "--timeout", 60, *trust)
        (found,) = json.loads(self.by(GUEST, "status", "--json", PRELOAD_ALLOW_UIDS=DAEMON))["daemons"]
        self.assertEqual(found["state"], "READY")
        (shard,) = json.loads(self.by(GUEST, "attach", "--all", "--json", *trust))["daemons"]
        self.assertEqual(shard["tensors"], len(harness.checkpoint_tensors(self.model)))
        self.assertTrue(json.loads(self.by(GUEST, "verify", "--json", *trust))["ok"])
        self.by(GUEST, "stop", *trust, status=7)
        self.assertIn(f"uid {GUEST}", self.stderr)
        self.by(GUEST, "release", "--force", *trust, status=7)
        self.assertIn(f"uid {GUEST}", self.stderr)
        self.by(GUEST, "serve", "--replace", "--model", self.model, "--device", "host", *trust, status=2)
        self.assertIn(f"belongs to uid {DAEMON}", self.stderr)
        (found,) = json.loads(self.by(DAEMON, "status", "--json"))["daemons"]
        self.assertEqual(found["state"], "READY")
        self.by(DAEMON, "stop")
        self.assertEqual(daemon.wait_end(), 0, daemon.log)

    def test_trust_has_to_be_mutual(self):
        self.serve("--allow-uid", GUEST).wait_ready()
        self.by(GUEST, "attach", status=2)
        self.assertIn(f"--allow-uid {DAEMON}", self.stderr)
        self.by(STRANGER, "attach", "--allow-uid", DAEMON, status=2)
        self.assertIn("Permission denied", self.stderr)

    def test_without_the_flag_nobody_else_gets_in(self):
        self.serve().wait_ready()
        self.by(GUEST, "attach", "--allow-uid", DAEMON, status=2)
        # Nor where the directory itself is open to all.
        self.sockets.chmod(0o755)
        self.by(GUEST, "attach", "--allow-uid", DAEMON, status=2)
        self.assertIn("Permission denied", self.stderr)
        self.assertEqual(json.loads(self.by(0, "status", "--json", "--allow-uid", DAEMON))["daemons"][0]["state"], "READY")

    def test_a_guest_sees_a_load_under_way_and_waits_for_it(self):
        slow = harness.make_slow_model(self.root / "slow", 3)
        daemon = self.start(slow, "--allow-uid", GUEST, "--layout", "hf", "--reader-threads", 1,
                            through=as_user(DAEMON), bin=self.bin, env={"PRELOAD_CACHE_ROOT": "/nonexistent"})  # fmt: skip
        state = lambda: json.loads(self.by(GUEST, "status", "--json", "--allow-uid", DAEMON))["daemons"]  # noqa: E731
        # From the state file on all is open to the guest; the directory may not be before.
        harness.eventually(lambda: list(self.sockets.glob("*.state")), 30, "a sign of the daemon")
        seen = state()
        while seen and seen[0]["state"] != "READY":
            self.assertEqual(seen[0]["state"], "LOADING", "the state can be read at every moment")
            time.sleep(0.01)
            seen = state()
        self.assertTrue(seen)
        daemon.wait_ready()

    def test_a_keeper_serves_guests_what_a_daemon_left(self):
        keeper = subprocess.Popen(
            [*as_user(DAEMON), self.bin, "keeper", "--allow-uid", str(GUEST), "--weight-cache-socket-dir", self.sockets],
            env=harness.environment(), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.addCleanup(keeper.wait)
        self.addCleanup(keeper.kill)
        harness.eventually((self.sockets / "keeper.sock").exists, 10, "the keeper's socket")
        daemon = self.serve("--allow-uid", GUEST, "--keeper", "require").wait_ready()
        daemon.end_hard()
        trust = ("--allow-uid", DAEMON)
        (found,) = json.loads(self.by(GUEST, "status", "--json", *trust))["daemons"]
        self.assertEqual(found["state"], "ORPHANED")
        self.assertTrue(json.loads(self.by(GUEST, "verify", "--json", *trust))["ok"])
        self.by(GUEST, "stop", "--keeper", *trust, status=7)
        self.assertIsNone(keeper.poll())

    @harness.needs_python_client
    def test_python_says_whom_it_trusts(self):
        self.serve("--allow-uid", GUEST).wait_ready()
        library = shutil.copy(os.environ["PRELOAD_CLIENT_LIBRARY"], self.programs)
        package = shutil.copytree(harness.REPOSITORY / "python" / "preload", self.root / "python" / "preload")
        command = [*as_user(GUEST), sys.executable, "-c", ATTACH, str(self.sockets)]
        variables = harness.python_environment() | {
            "PYTHONPATH": str(package.parent), "PRELOAD_CLIENT_LIBRARY": str(library)}  # fmt: skip
        run = lambda *uids: subprocess.run([*command, *map(str, uids)], capture_output=True, text=True,  # noqa: E731
                                           env=variables, timeout=60)  # fmt: skip
        self.assertGreater(int(run(DAEMON).stdout or 0), 0)
        refused = run()
        self.assertIn(f"--allow-uid {DAEMON}", refused.stderr)

    def test_the_derived_directory_is_ones_own(self):
        done = subprocess.run(
            [self.bin, "serve", "--model", self.model, "--device", "host", "--allow-uid", "7"],
            capture_output=True, text=True, timeout=harness.COMMAND_S, env=harness.environment(),
        )  # fmt: skip
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--weight-cache-socket-dir", done.stderr)


if __name__ == "__main__":
    unittest.main()
