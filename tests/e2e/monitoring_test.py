# SPDX-License-Identifier: Apache-2.0
"""What watches a job from outside: /health and /metrics, a service manager, `preload wait`."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.request

import harness
from harness import eventually, make_llama, make_slow_model, needs_mpi

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None

SMALL = ["--hidden", 64, "--layers", 2, "--heads", 4, "--kv-heads", 2, "--vocab", 512, "--intermediate", 96]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Monitored(harness.Case):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def serve(self, model, *flags, **options):
        return self.start(model, "--weight-cache-health-port", self.port, *flags, **options)

    def get(self, path, **headers):
        """(status, body); (None, None) when nobody answers."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return None, None

    def becomes(self, status, limit_s=60):
        return eventually(lambda: self.get("/health")[0] == status, limit_s, f"/health says {status}")

    def metrics(self):
        status, text = self.get("/metrics")
        self.assertEqual(status, 200, text)
        self.text = text
        return {family.name: family for family in text_string_to_metric_families(text)}


class HealthTest(Monitored):
    def test_health_is_503_while_loading_and_200_when_ready(self):
        daemon = self.serve(make_slow_model(self.root / "model", 4), "--layout", "hf")
        self.becomes(503)
        self.assertIn("LOADING", self.get("/health")[1])
        daemon.wait_ready()
        self.becomes(200)
        body = json.loads(self.get("/health", Accept="application/json")[1])
        self.assertEqual((body["healthy"], body["state"], body["ready"], body["expected"]), (True, "READY", 1, 1))
        self.assertEqual(self.get("/other")[0], 404)
        self.assert_stops_clean(daemon)
        self.assertEqual(self.get("/health"), (None, None))

    def test_health_tells_of_a_release(self):
        daemon = self.serve(make_llama(self.root / "model", *SMALL), "--layout", "hf").wait_ready()
        self.becomes(200)
        self.preload("release")
        self.becomes(503)
        self.assertIn("released", self.get("/health")[1])
        self.assert_stops_clean(daemon)

    @needs_mpi
    def test_health_flips_within_a_second_of_a_ranks_death(self):
        daemon = self.serve(make_llama(self.root / "model", *SMALL), "-tp", 4, ranks=4).wait_ready()
        self.becomes(200)
        victim = self.pid_of_rank(2)
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        # Nobody who asks a second later hears that all is well: 503 with the reason, or, in the end, nothing.
        asked = killed
        while self.get("/health")[0] == 200:
            self.assertLess(asked - killed, 1.0 if not harness.SANITIZED else 5.0)
            asked = time.monotonic()
        self.assertEqual(daemon.wait_end(), 137, daemon.log)

    @needs_mpi
    def test_the_reason_is_told_for_as_long_as_the_nodes_first_rank_lives(self):
        daemon = self.serve(make_llama(self.root / "model", *SMALL), "-tp", 2, ranks=2).wait_ready()
        self.becomes(200)
        victim = self.pid_of_rank(1)
        # A launcher that sees nothing ends nobody: rank 0 waits a second for it, and then ends by itself.
        harness.suspend(daemon.process.pid)
        os.kill(victim, signal.SIGKILL)
        answers = []
        while not answers or answers[-1][0] is not None:
            answers.append(self.get("/health"))
        os.kill(daemon.process.pid, signal.SIGCONT)
        self.assertEqual({status for status, _ in answers} - {200}, {503, None}, answers)
        told = [body for status, body in answers if status == 503]
        self.assertIn("rank 1 was lost", told[0])
        daemon.wait_end()  # with either rank's status: the launcher sees both ends at once

    def test_a_port_that_is_taken_is_an_error_before_loading(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", self.port))
            other.listen()
            daemon = self.serve(make_slow_model(self.root / "model", 64), "--layout", "hf")
            self.assertEqual(daemon.wait_end(), 2, daemon.log)
            self.assertIn(str(self.port), daemon.log)
            self.assertIn("--weight-cache-health-port", daemon.log)
        self.assert_nothing_left()

    def test_without_a_port_nobody_listens(self):
        daemon = self.start(make_llama(self.root / "model", *SMALL), "--layout", "hf", "--weight-cache-health-port", 0)
        daemon.wait_ready()
        listening = subprocess.run(["ss", "-tlnp"], capture_output=True, text=True).stdout
        self.assertNotIn(f"pid={daemon.process.pid},", listening)
        self.assert_stops_clean(daemon)


@unittest.skipUnless(text_string_to_metric_families, "python3-prometheus-client is not installed")
class MetricsTest(Monitored):
    def one(self, families, name, **labels):
        (sample,) = [
            s for s in families[name].samples if s.name in (name, f"{name}_total") and labels.items() <= s.labels.items()
        ]
        return sample.value

    def test_metrics_parse_and_say_what_was_done(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.serve(model, "--layout", "hf", "--slot", "b").wait_ready()
        self.preload("attach", "--slot", "b")
        self.preload("attach", "--slot", "b", "--expect", '{"fields": {"tp_size": "9"}}', status=7)
        families = self.metrics()
        (status,) = self.status()
        labels = {"gpu_uuid": "host:0", "slot": "b", "role": "target", "rank": "0", "model": str(model)}
        self.assertEqual(self.one(families, "preload_resident_bytes", **labels), status["bytes"])
        self.assertEqual(self.one(families, "preload_daemon_state", state="READY", **labels), 1)
        self.assertEqual(self.one(families, "preload_refusals", cause="mismatch", **labels), 1)
        self.assertEqual(self.one(families, "preload_leases", **labels), 0)
        self.assertEqual(self.one(families, "preload_generation", **labels), 1)
        counts = [
            s.value for s in families["preload_attach_duration_seconds"].samples if s.name.endswith("_seconds_count")
        ]
        self.assertEqual(counts, [1])
        loads = {s.labels["path"]: s.value for s in families["preload_load_bytes"].samples}
        stored = sum(t.nbytes for t in harness.checkpoint_tensors(model).values())
        self.assertGreaterEqual(sum(loads.values()), stored)
        (free,) = families["preload_device_memory_free_bytes"].samples
        self.assertGreater(free.value, 0)
        self.assert_stops_clean(daemon)

    @needs_mpi
    def test_metrics_of_a_node_name_each_of_its_ranks(self):
        daemon = self.serve(make_llama(self.root / "model", *SMALL), "-tp", 2, ranks=2).wait_ready()
        self.becomes(200)
        families = self.metrics()
        ranks = sorted(s.labels["rank"] for s in families["preload_resident_bytes"].samples)
        self.assertEqual(ranks, ["0", "1"])
        self.assert_stops_clean(daemon)

    def test_metrics_are_named_as_prometheus_asks(self):
        daemon = self.serve(make_llama(self.root / "model", *SMALL), "--layout", "hf").wait_ready()
        for name, family in self.metrics().items():
            self.assertRegex(name, r"^preload_[a-z0-9_]+$")
            self.assertTrue(family.documentation.endswith("."), name)
            self.assertNotRegex(name, "gib|milli|_ms", "base units only")
            if family.type == "counter":
                self.assertIn(f"# TYPE {name}_total counter", self.text)
        try:
            checked = subprocess.run(["promtool", "check", "metrics"], input=self.text, capture_output=True, text=True)
        except FileNotFoundError:
            pass  # the parser above has read it
        else:
            self.assertEqual((checked.returncode, checked.stderr), (0, ""), checked.stdout)
        self.assert_stops_clean(daemon)


class ServiceManagerTest(harness.Case):
    def test_a_service_manager_hears_of_readiness_and_the_end(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            name = f"\0preload-e2e-{os.getpid()}"
            manager.bind(name)
            manager.settimeout(harness.READY_S)
            model = make_llama(self.root / "model", *SMALL)
            daemon = self.start(model, "--layout", "hf", env={"NOTIFY_SOCKET": "@" + name[1:]})
            heard = ""
            while "READY=1" not in heard:
                heard = manager.recv(4096).decode()
            self.assertIn("STATUS=serving", heard)
            self.assert_stops_clean(daemon)
            while "STOPPING=1" not in heard:
                heard = manager.recv(4096).decode()


class Stderr(harness.Case):
    def test_a_stderr_that_nobody_reads_stops_nothing(self):
        model = make_llama(self.root / "model", *SMALL)
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        os.set_blocking(writer, True)
        command = [harness.BIN, "serve", "--model", model, "--device", "host", "--layout", "hf"]
        command += ["--weight-cache-socket-dir", self.sockets]
        process = subprocess.Popen(
            list(map(str, command)), stderr=writer, stdin=subprocess.DEVNULL, env=harness.environment()
        )
        os.close(writer)
        self.addCleanup(process.wait, 20)
        self.addCleanup(process.kill)
        self.preload("wait", "--timeout", harness.READY_S)
        for _ in range(3):
            self.preload("attach")
        self.preload("stop")
        self.assertEqual(process.wait(30), 0)

    def test_a_closed_stderr_stops_nothing(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model, "--layout", "hf", through=["sh", "-c", 'exec "$@" 2>&- 0<&-', "sh"])
        self.preload("wait", "--timeout", harness.READY_S)
        self.assertEqual(len(self.dump()), 1)
        self.assert_stops_clean(daemon)


class Waiting(harness.Case):
    def test_wait_tells_at_once_of_a_daemon_that_fails_meanwhile(self):
        # With one reader, a load that takes longer than it is looked at.
        daemon = self.start(make_slow_model(self.root / "model", 8), "--layout", "hf", "--reader-threads", 1)
        eventually(lambda: self.status_if_any(), 60, "a daemon that loads")
        command = [harness.BIN, "wait", "--timeout", "100", "--weight-cache-socket-dir", str(self.sockets)]
        waiting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=harness.environment())
        self.addCleanup(waiting.kill)
        time.sleep(1)  # it has seen the daemon by then, or its tombstone is new to it
        daemon.process.terminate()
        self.assertEqual(daemon.wait_end(), 143, daemon.log)
        ended = time.monotonic()
        said = waiting.communicate(timeout=30)[1]
        self.assertLess(time.monotonic() - ended, 2.5)  # 3 s: what an older failure takes
        self.assertEqual(waiting.returncode, 143, said)
        self.assertIn("SIGTERM", said)

    def status_if_any(self):
        try:
            return [d for d in self.status() if d["state"] == "LOADING" and d["pid"]]
        except (AssertionError, ValueError):
            return None


if __name__ == "__main__":
    unittest.main()
