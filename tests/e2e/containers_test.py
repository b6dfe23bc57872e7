# SPDX-License-Identifier: Apache-2.0
"""A daemon and its clients in containers of their own, which share the socket directory alone."""

import json
import os
import subprocess
import sys
import unittest

import containers
import harness

# Attaches, says who it is and what it sees, and holds its lease until its input ends.
HOLD = """
import json, os, sys
import preload
shard = preload.attach(device="host:0", socket_dir=sys.argv[1])
others = [pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) > 2]
print(json.dumps({"pid": os.getpid(), "tensors": len(shard), "others": others}), flush=True)
sys.stdin.read()
"""


@containers.needs_containers
class Containers(harness.Case):
    def setUp(self):
        super().setUp()
        self.model = harness.make_llama(self.root / "model", "--layers", 2, "--vocab", 512)
        self.daemon = self.start(self.model, "--layout", "hf", through=containers.command("daemon"))
        self.daemon.wait_ready()
        self.client = containers.command("client", hide=self.root, shared=self.sockets)

    def in_client(self, *arguments, status=0):
        words = [*self.client, harness.BIN, *map(str, arguments), "--weight-cache-socket-dir", containers.SHARED]
        done = subprocess.run(words, capture_output=True, text=True, timeout=harness.COMMAND_S, env=harness.environment())
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout

    def namespaces(self, *through):
        """The namespaces of a process, by kind."""
        kinds = ("pid", "ipc", "mnt", "uts")
        reading = "for kind in pid ipc mnt uts; do readlink /proc/self/ns/$kind; done"
        done = subprocess.run([*through, "sh", "-c", reading], capture_output=True, text=True, check=True, timeout=30)
        return dict(zip(kinds, done.stdout.split(), strict=True))

    def test_the_containers_are_what_they_say(self):
        ours, theirs = self.namespaces(), self.namespaces(*self.client)
        for kind, name in ours.items():
            self.assertNotEqual(theirs[kind], name, kind)
        listing = subprocess.run([*self.client, "ls", self.root, containers.SHARED, "/dev/shm"],
                                 capture_output=True, text=True, check=True, timeout=30).stdout  # fmt: skip
        self.assertNotIn("model", listing)
        self.assertEqual(listing.count(".sock"), 1, listing)

    def test_a_client_sees_every_tensor_as_it_is(self):
        (daemon,) = json.loads(self.in_client("attach", "--all", "--json"))["daemons"]
        stored = harness.checkpoint_tensors(self.model)
        self.assertEqual(daemon["tensors"], len(stored))
        report = json.loads(self.in_client("verify", "--json"))
        self.assertEqual((report["ok"], report["checked"]), (True, len(stored)))
        self.in_client("wait", "--timeout", 60)
        (found,) = json.loads(self.in_client("status", "--json"))["daemons"]
        self.assertEqual(found["state"], "READY", "a held lock is seen as such")

    @harness.needs_python_client
    def test_a_lease_ends_with_its_client_whatever_its_pid_is(self):
        environment = harness.python_environment() | {"PYTHONPATH": str(harness.REPOSITORY / "python")}
        holder = subprocess.Popen(
            [*self.client, sys.executable, "-c", HOLD, containers.SHARED],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        self.addCleanup(holder.stdout.close)
        self.addCleanup(holder.stdin.close)
        seen = json.loads(holder.stdout.readline())
        self.assertEqual(seen["others"], [], "its /proc shows its own container alone")
        self.assertGreater(seen["tensors"], 0)

        def leases():
            (found,) = self.status()
            return found["leases"]

        (lease,) = leases()
        self.assertEqual(lease["pid"], seen["pid"], "as the client itself is called")
        holder.kill()  # unshare takes its child along
        harness.eventually(lambda: not leases(), 30, "the lease to end")

    def test_it_is_stopped_from_another_container(self):
        self.in_client("stop")
        self.assertEqual(self.daemon.wait_end(), 0, self.daemon.log)
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
