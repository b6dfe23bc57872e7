# SPDX-License-Identifier: Apache-2.0
"""Looking for a daemon, waiting for one, copies and fixed addresses, through Python."""

import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from daemon import Daemon
from with_daemon import WithDaemon

import preload
from preload.daemon import daemons_in


class Find(WithDaemon):
    BOTH = [("host:0", "", "READY"), ("host:1", "b", "READY")]

    def find(self, **options):
        return preload.find_daemon(socket_dir=self.directory, **options)

    def test_tells_what_is_served_without_a_lease(self):
        found = self.find(device="host:0")
        self.assertEqual((found.state, found.memory, found.device), ("READY", "host", "host:0"))
        self.assertEqual((found.slot, found.role, found.key), ("", "target", "a" * 64))
        self.assertEqual(found.bytes, 4 << 20)
        self.assertIsNone(found.cuda_device)
        self.assertEqual(self.mappings(), 0)

    def test_an_absent_one_is_no_error(self):
        found = self.find(device="host:5")
        self.assertEqual(found.state, "ABSENT")
        self.assertIn("host:5", found.text)

    def test_by_socket(self):
        (name,) = [entry for entry in os.listdir(self.directory) if entry.endswith(".sock")]
        path = os.path.join(self.directory, name)
        self.assertEqual(preload.find_daemon(socket_path=path).device, "host:0")
        with preload.attach(socket_path=path) as shard:
            self.assertEqual(shard.info.device, "host:0")
        with self.assertRaises(preload.Mismatch):
            preload.attach(socket_path=path, device="host:1")

    def test_does_not_wait_for_what_gives_no_sign(self):
        start = time.monotonic()
        with self.assertRaises(preload.Unavailable):
            self.attach(device="host:5", wait=600, absent_wait=0)
        self.assertLess(time.monotonic() - start, 60)

    def test_unknown_and_bad_arguments(self):
        with self.assertRaises(TypeError):
            self.find(devise="host:0")
        for waits in (
            {"absent_wait": -1},
            {"wait": None},
            {"wait": float("nan")},
            {"wait": "60"},
            {"absent_wait": float("nan")},
            {"connect_timeout": 0},
            {"connect_timeout": float("nan")},
        ):
            (name,) = waits
            with self.subTest(waits), self.assertRaisesRegex(preload.UsageError, name):
                self.attach(**waits)

    def test_an_infinite_wait_is_the_longest_there_is(self):
        with self.attach(wait=float("inf"), absent_wait=float("inf"), connect_timeout=float("inf")) as shard:
            self.assertEqual(shard.info.device, "host:0")

    def test_all_of_a_directory(self):
        with Daemon(self.directory, "--device", "host:1", "--slot", "b"):
            found = daemons_in(self.directory)
        self.assertEqual(sorted((one.device, one.slot, one.state) for one in found), self.BOTH)
        self.assertEqual({one.bytes for one in found}, {4 << 20})
        self.assertEqual([one.device for one in daemons_in(self.directory)], ["host:0"])
        self.assertEqual(daemons_in(self.directory + "-not-there"), [])


class Waiting(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = os.path.join(scratch.name, "run")

    def test_for_one_that_loads(self):
        with Daemon(self.directory, "--loading", until="LOADING") as daemon:
            self.assertEqual(preload.find_daemon(socket_dir=self.directory).state, "LOADING")
            with self.assertRaises(preload.Timeout):
                preload.attach(socket_dir=self.directory, device="host:0", wait=0.1, absent_wait=0)
            threading.Timer(0.3, daemon.go_on).start()
            with preload.attach(socket_dir=self.directory, device="host:0", wait=120) as shard:
                self.assertEqual(len(shard), 28)
            daemon.expect("READY")

    def test_one_that_is_stopped_is_not_absent(self):
        """An engine that took it for absent would load a second copy, without asking for room."""
        with Daemon(self.directory) as daemon:
            where = {"socket_dir": self.directory, "device": "host:0", "connect_timeout": 0.2}
            daemon.suspend()
            try:
                found = preload.find_daemon(**where)
                with self.assertRaisesRegex(preload.Timeout, "does not answer"):
                    preload.attach(**where, wait=0.5, absent_wait=0)
            finally:
                daemon.process.send_signal(signal.SIGCONT)
            self.assertEqual(found.state, "LOADING")
            self.assertIn("does not answer", found.text)
            self.assertEqual(preload.find_daemon(**where | {"connect_timeout": 30}).state, "READY")

    def test_one_that_failed_says_why(self):
        program = os.environ["PRELOAD_TEST_DAEMON"]
        subprocess.run([program, self.directory, "--failed", "no such shard"], check=True)
        found = preload.find_daemon(socket_dir=self.directory, device="host:0")
        self.assertEqual(found.state, "FAILED")
        self.assertIn("no such shard", found.text)


class Copies(WithDaemon):
    def test_are_writable_and_leave_nothing_behind(self):
        with self.attach(copy=True) as shard:
            self.assertTrue(shard.info.is_copy)
            self.assertEqual(shard.shared_ranges(), [])
            shard["w"].numpy()[0, 0] = 1
            self.assertEqual(shard["w"].numpy()[0, 0], 1)
            with self.assertRaises(preload.Released):
                self.attach()

    def test_shared_ranges_hold_what_is_shared(self):
        with self.attach() as shard:
            self.assertFalse(shard.info.is_copy)

            def is_in(tensor):
                return any(begin <= tensor.data_ptr < end for begin, end in shard.shared_ranges())

            self.assertTrue(is_in(shard["w"]))
            self.assertFalse(is_in(shard["scale"]))


class Addresses(WithDaemon):
    def test_come_back_where_they_were(self):
        with self.attach() as shard:
            base, address = shard.info.base_address, shard["w"].data_ptr
            self.assertTrue(base <= address < base + shard.info.range_bytes)
        with self.attach(base_address=base) as shard:
            self.assertEqual(shard["w"].data_ptr, address)
            with self.assertRaises(preload.DeviceError):
                self.attach(base_address=base)


if __name__ == "__main__":
    unittest.main()
