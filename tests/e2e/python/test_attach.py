# SPDX-License-Identifier: Apache-2.0
"""preload.attach against a live daemon: what it gives and how it refuses."""

import gc
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from daemon import SOURCE, Daemon
from with_daemon import WithDaemon

import preload

W = struct.pack("<15H", *range(0x3F80, 0x3F80 + 15))


class Attach(WithDaemon):
    def test_is_a_mapping_in_the_layouts_order(self):
        with self.attach() as shard:
            self.assertEqual(list(shard)[:5], ["w", "tied", "scalar", "empty", "strided"])
            self.assertEqual(len(shard), 28)
            self.assertIn("w", shard)
            self.assertNotIn("absent", shard)
            self.assertIs(shard["w"], shard["w"])
            self.assertEqual(dict(shard.items())["w"].shape, (3, 5))
            with self.assertRaises(KeyError):
                shard["absent"]

    def test_tells_what_is_served(self):
        with self.attach(gpu="host:0") as shard:
            self.assertEqual(shard.info.device, "host:0")
            self.assertEqual(shard.info.memory, "host")
            self.assertIsNone(shard.info.cuda_device)
            self.assertEqual(shard.info.key, "a" * 64)
            self.assertEqual(shard.info.tensors, 28)
            self.assertEqual(shard.info.evidence, "none")  # nothing was expected
            self.assertEqual(shard.info.metadata["model"], "fixture")
            self.assertEqual(shard.memory_bytes, 4 << 20)
            self.assertGreater(shard.attach_ms, 0)

    def test_describes_tensors(self):
        with self.attach() as shard:
            w, tied, scale = shard["w"], shard["tied"], shard["scale"]
            self.assertEqual((w.dtype, w.shape, w.strides, w.nbytes), ("BF16", (3, 5), (5, 1), 30))
            self.assertEqual((w.is_buffer, w.is_private, w.alias_of), (False, False, None))
            self.assertEqual(tied.alias_of, "w")
            self.assertEqual(tied.hash, w.hash)
            self.assertEqual((scale.is_buffer, scale.is_private), (True, True))
            self.assertEqual(shard["scalar"].shape, ())
            self.assertEqual(shard["empty"].nbytes, 0)
            self.assertIn("BF16 [3, 5]", repr(w))

    def test_device_names(self):
        self.attach(device="HOST:0").detach()
        with self.assertRaises(preload.UsageError):
            self.attach(device="first")
        with self.assertRaises(preload.UsageError):
            self.attach(gpu=0, device="host:0")

    def test_expect(self):
        self.attach(expect="a" * 64).detach()
        with self.attach(expect={"fields": {"tp_size": 2}}) as shard:
            self.assertEqual(shard.info.evidence, "key")
        with self.assertRaises(preload.Mismatch) as caught:
            self.attach(expect={"fields": {"tp_size": 4, "dtype": "BF16"}})
        self.assertEqual(caught.exception.fields, {"tp_size": {"expected": "4", "served": "2"}})
        self.assertIn("tp_size", str(caught.exception))
        with self.assertRaises(preload.UsageError):
            self.attach(expect={"kye": "a" * 64})

    def test_a_detached_attachment_says_so(self):
        shard = self.attach()
        shard.detach()
        shard.detach()
        self.assertTrue(shard.detached)
        with self.assertRaises(preload.UsageError):
            shard["w"]


class Refusals(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = os.path.join(scratch.name, "run")

    def test_without_a_daemon(self):
        with self.assertRaises(preload.Unavailable) as caught:
            preload.attach(socket_dir=self.directory)
        self.assertIn(self.directory, str(caught.exception))

    def test_the_text_of_a_failure(self):
        program = os.environ["PRELOAD_TEST_DAEMON"]
        subprocess.run([program, self.directory, "--failed", "shard 2 is short"], check=True)
        with self.assertRaises(preload.Failed) as caught:
            preload.attach(device="host:0", socket_dir=self.directory)
        self.assertIn("shard 2 is short", str(caught.exception))

    def test_a_wait_that_runs_out(self):
        os.mkdir(self.directory, 0o700)
        with self.assertRaises(preload.Timeout):
            preload.attach(device="host:0", socket_dir=self.directory, wait=0.3)

    def test_waits_for_a_loading_daemon(self):
        with Daemon(self.directory, "--loading", until="LOADING") as daemon:
            with self.assertRaises(preload.Unavailable):
                preload.attach(socket_dir=self.directory)
            threading.Timer(0.3, daemon.go_on).start()
            with preload.attach(socket_dir=self.directory, wait=60) as shard:
                self.assertEqual(len(shard), 28)
            daemon.expect("READY")

    def test_a_wait_can_be_interrupted(self):
        program = (
            "import sys; sys.path.insert(0, sys.argv[1]); import preload\n"
            "print('waiting', flush=True)\n"
            "try: preload.attach(device='host:0', socket_dir=sys.argv[2], wait=600)\n"
            "except KeyboardInterrupt: print('interrupted', flush=True)\n"
        )
        waiting = subprocess.Popen(
            [sys.executable, "-c", program, str(SOURCE / "python"), self.directory],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.assertEqual(waiting.stdout.readline(), "waiting\n")
        time.sleep(0.5)
        waiting.send_signal(signal.SIGINT)
        self.assertEqual(waiting.communicate(timeout=30)[0], "interrupted\n")


class Lifetimes(WithDaemon):
    """Needs no NumPy: DLPack capsules are views too."""

    def test_detach_unmaps(self):
        shard = self.attach()
        self.assertEqual(self.mappings(), 2)
        shard.detach()
        self.assertEqual(self.mappings(), 0)

    def test_dropping_the_attachment_unmaps(self):
        shard = self.attach()
        del shard
        gc.collect()
        self.assertEqual(self.mappings(), 0)

    def test_a_tensor_keeps_it_mapped(self):
        shard = self.attach()
        w = shard["w"]
        shard.detach()
        del shard
        self.assertEqual(self.mappings(), 2)
        del w
        self.assertEqual(self.mappings(), 0)

    def test_a_capsule_that_nobody_takes_keeps_it_mapped_until_it_goes(self):
        for version in (None, (1, 0)):
            shard = self.attach()
            capsule = shard["w"].__dlpack__(max_version=version)
            shard.detach()
            del shard
            self.assertEqual(self.mappings(), 2)
            del capsule
            self.assertEqual(self.mappings(), 0)

    def test_data_outlives_the_daemon(self):
        import ctypes

        with self.attach() as shard:
            self.daemon.kill()
            self.assertEqual(ctypes.string_at(shard["w"].data_ptr, 30), W)

    def test_a_write_faults_this_process_alone(self):
        import ctypes

        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            shard = self.attach()
            ctypes.memset(shard["w"].data_ptr, 0, 1)
            os._exit(0)
        self.assertEqual(os.WTERMSIG(os.waitpid(child, 0)[1]), signal.SIGSEGV)
        with self.attach() as shard:
            self.assertEqual(ctypes.string_at(shard["w"].data_ptr, 30), W)

    def test_many_attaches_leave_no_descriptors(self):
        self.attach().detach()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(100):
            self.attach().detach()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)


if __name__ == "__main__":
    unittest.main()
