# SPDX-License-Identifier: Apache-2.0
"""What outlives a daemon: its weights and leases in the keeper, and who takes them over."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import harness
from harness import BIN, eventually, is_running, make_llama, needs_mpi
from read_faults import ReadFaults

SMALL = ["--hidden", 64, "--layers", 2, "--heads", 4, "--kv-heads", 2, "--vocab", 512, "--intermediate", 96]
LIMIT_S = 30  # of what takes milliseconds on a machine that does nothing else


class Keeper:
    """`preload keeper` for a socket directory."""

    def __init__(self, sockets, *flags):
        self.log_path = pathlib.Path(sockets).parent / f"keeper-log-{time.monotonic_ns()}"
        command = [BIN, "keeper", "--weight-cache-socket-dir", str(sockets), *map(str, flags)]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=harness.environment()
            )

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def end_hard(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(10)


class KeeperCase(harness.Case):
    def start_keeper(self, *flags):
        keeper = Keeper(self.sockets, *flags)
        self.addCleanup(keeper.end_hard)
        eventually(lambda: self.keeper_status() is not None, LIMIT_S, f"the keeper to answer:\n{keeper.log}")
        return keeper

    def keeper_status(self):
        return json.loads(self.preload("status", "--json")).get("keeper")

    @staticmethod
    def ask(holder):
        holder.stdin.write("?\n")
        holder.stdin.flush()
        return holder.stdout.readline().strip()

    def leases(self):
        return sorted(lease["pid"] for daemon in self.status() for lease in daemon["leases"])

    def states(self):
        return [daemon["state"] for daemon in self.status()]

    def kill_ranks(self, daemon):
        for pid in [d["pid"] for d in self.status() if d["state"] == "READY"]:
            os.kill(pid, signal.SIGKILL)
        return daemon.wait_end(LIMIT_S)

    def client(self, program, *arguments):
        """Runs a line of Python over the client library; its stdout."""
        command = [sys.executable, "-c", "import json, preload, sys\n" + program, str(self.sockets), *arguments]
        environment = harness.python_environment() | {"PYTHONPATH": str(harness.HERE.parent.parent / "python")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def put_artifact(self, key, text):
        self.client("preload.put_artifact(sys.argv[2], sys.argv[3].encode(), socket_dir=sys.argv[1])", key, text)

    def get_artifact(self, key):
        found = self.client("found = preload.get_artifact(sys.argv[2], socket_dir=sys.argv[1])\n"
                            "print(json.dumps(found and found.data.decode()))", key)
        return json.loads(found)

    def settled_model(self, *flags):
        """Files old enough for their times to prove that they are the same."""
        model = make_llama(self.root / "model", *(flags or SMALL))
        time.sleep(0.2)
        return model


def memfds_of(pid):
    """How many weights' memfds a process holds."""
    held = 0
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            held += "memfd:preload-slab" in os.readlink(link)
    return held


@harness.needs_python_client
class Adoption(KeeperCase):
    def test_a_successor_adopts_weights_and_leases_without_reading_the_checkpoint(self):
        model = self.settled_model()
        keeper = self.start_keeper()
        first = self.start(model, "--keeper", "require").wait_ready()
        holder = self.holder()
        value = self.ask(holder)
        tensors = self.dump()[0]
        (before,) = self.status()
        self.assertEqual(self.kill_ranks(first), 137)

        (orphan,) = self.status()
        self.assertEqual((orphan["state"], orphan["key"]), ("ORPHANED", before["key"]))
        self.assertEqual([lease["pid"] for lease in orphan["leases"]], [holder.pid])
        self.assert_same_tensors(self.dump()[0], tensors, "attached at the keeper")
        late = self.holder()  # opens its lease while no daemon runs
        self.assertEqual(self.ask(late), value)

        faults = ReadFaults(self.root)
        second = self.start(model, through=faults.through).wait_ready()
        (after,) = self.status()
        self.assertEqual((after["state"], after["generation"], after["key"]), ("READY", 2, before["key"]))
        self.assertEqual(self.leases(), sorted([holder.pid, late.pid]))
        payload = sum(path.stat().st_size for path in model.glob("*.safetensors"))
        self.assertLess(faults.total("bytes"), min(64 * 1024, payload / 2), "headers alone are read")
        self.assertIn("adopted", second.log)
        self.assertEqual((self.ask(holder), self.ask(late)), (value, value))
        self.assert_serves_slices(model)

        self.preload("stop")
        self.assertEqual(second.wait_end(), 0, second.log)
        self.assertEqual(memfds_of(keeper.process.pid), 0)  # a stop that was asked for leaves nothing
        self.assertEqual((self.ask(holder), self.ask(late)), (value, value))

    def test_a_start_of_another_checkpoint_that_fails_costs_nothing_that_is_kept(self):
        model = self.settled_model()
        broken = make_llama(self.root / "broken", *SMALL, "--seed", 7)
        (file,) = broken.glob("*.safetensors")
        keeper = self.start_keeper()
        self.kill_ranks(self.start(model).wait_ready())
        kept = memfds_of(keeper.process.pid)
        os.truncate(file, file.stat().st_size - 4096)
        second = self.start(broken)
        self.assertEqual(second.wait_end(), 3, second.log)
        self.assertEqual(memfds_of(keeper.process.pid), kept)
        third = self.start(model).wait_ready()
        self.assertIn("adopted as it lies", third.log)
        self.assert_stops_clean(third)

    def test_another_checkpoint_is_loaded_and_what_was_kept_goes(self):
        model = self.settled_model()
        other = make_llama(self.root / "other", *SMALL, "--seed", 7)
        keeper = self.start_keeper()
        first = self.start(model).wait_ready()
        self.kill_ranks(first)
        self.assertGreater(memfds_of(keeper.process.pid), 0)
        second = self.start(other).wait_ready()
        self.assertIn("not adopted", second.log)
        (daemon,) = self.status()
        self.assertEqual((daemon["state"], daemon["generation"], daemon["leases"]), ("READY", 2, []))
        self.assert_serves_slices(other)
        self.assert_stops_clean(second)

    def test_artifacts_outlive_their_daemon_whatever_its_successor_serves(self):
        model = self.settled_model()
        other = make_llama(self.root / "other", *SMALL, "--seed", 7)
        self.start_keeper()
        first = self.start(model).wait_ready()
        self.put_artifact("table/a.json", "of the first")
        self.kill_ranks(first)
        self.assertEqual(self.get_artifact("table/a.json"), "of the first")  # the keeper answers
        self.put_artifact("table/b.json", "left with the keeper")
        second = self.start(model).wait_ready()
        self.assertIn("adopted", second.log)
        third_sees = {"table/a.json": "of the first", "table/b.json": "left with the keeper"}
        for key, text in third_sees.items():
            self.assertEqual(self.get_artifact(key), text)
        self.kill_ranks(second)
        third = self.start(other).wait_ready()
        self.assertIn("not adopted", third.log)
        for key, text in third_sees.items():
            self.assertEqual(self.get_artifact(key), text)
        self.assert_stops_clean(third)
        fourth = self.start(other).wait_ready()
        self.assertIsNone(self.get_artifact("table/a.json"), "a stop that was asked for leaves nothing")
        self.assert_stops_clean(fourth)

    def test_a_signal_leaves_the_weights_for_a_restart(self):
        model = self.settled_model()
        self.start_keeper()
        first = self.start(model).wait_ready()
        os.kill(self.pid_of_rank(0), signal.SIGTERM)
        self.assertEqual(first.wait_end(LIMIT_S), 143)
        self.assertEqual(self.states(), ["ORPHANED"])
        second = self.start(model).wait_ready()
        self.assertIn("adopted", second.log)
        self.assert_stops_clean(second)

    @needs_mpi
    def test_the_ranks_of_a_job_adopt_together_or_load_together(self):
        model = self.settled_model()
        keeper = self.start_keeper()
        first = self.start(model, "-tp", 2, ranks=2).wait_ready()
        os.kill(self.pid_of_rank(1), signal.SIGKILL)
        self.assertEqual(first.wait_end(LIMIT_S), 137)
        self.assertEqual(self.states(), ["ORPHANED", "ORPHANED"])
        second = self.start(model, "-tp", 2, ranks=2).wait_ready()
        self.assertIn("adopted", second.log)
        self.assertEqual([d["generation"] for d in self.status()], [2, 2])
        self.assert_serves_slices(model, tp=2)
        os.kill(self.pid_of_rank(0), signal.SIGKILL)
        self.assertEqual(second.wait_end(LIMIT_S), 137)
        # One of the two is gone: nobody adopts.
        self.preload("stop", "--gpu", "host:1")
        third = self.start(model, "-tp", 2, ranks=2).wait_ready()
        self.assertIn("not adopted", third.log)
        self.assert_serves_slices(model, tp=2)
        self.assert_stops_clean(third)
        self.assertEqual(memfds_of(keeper.process.pid), 0)


class Lifetime(KeeperCase):
    def test_without_a_keeper_require_fails_before_loading_and_auto_serves(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model, "--keeper", "require")
        self.assertEqual(daemon.wait_end(), 6, daemon.log)
        self.assertIn("preload keeper", daemon.log)
        self.assert_stops_clean(self.start(model).wait_ready())

    def test_require_contradicts_cuda_ipc(self):
        model = make_llama(self.root / "model", *SMALL)
        daemon = self.start(model, "--keeper", "require", "--export", "cuda-ipc", device="cuda")
        self.assertEqual(daemon.wait_end(), 2, daemon.log)

    def test_a_second_keeper_of_a_directory_is_refused(self):
        self.start_keeper()
        second = Keeper(self.sockets)
        self.addCleanup(second.end_hard)
        self.assertEqual(second.process.wait(LIMIT_S), 6, second.log)

    def test_an_idle_keeper_ends_unless_it_is_to_stay(self):
        keeper = self.start_keeper("--idle-timeout", 1)
        self.assertEqual(keeper.process.wait(LIMIT_S), 0, keeper.log)
        self.assertIsNone(self.keeper_status())
        staying = self.start_keeper("--stay")
        self.assertTrue(self.keeper_status()["stays"])
        self.preload("stop", "--keeper")
        self.assertEqual(staying.process.wait(LIMIT_S), 0, staying.log)

    def test_a_terminated_keeper_lets_go_and_says_of_what(self):
        keeper = self.start_keeper()
        daemon = self.start(make_llama(self.root / "model", *SMALL)).wait_ready()
        keeper.process.terminate()
        self.assertEqual(keeper.process.wait(LIMIT_S), 143)
        self.assertIn("lets go of host:0", keeper.log)
        eventually(lambda: "ends with this daemon until" in daemon.log, LIMIT_S, "the daemon to say so")
        self.assertEqual(self.states(), ["READY"])
        self.assert_stops_clean(daemon)

    def test_what_nobody_wants_goes_after_a_while(self):
        keeper = self.start_keeper("--orphan-timeout", 1)
        self.kill_ranks(self.start(self.settled_model()).wait_ready())
        eventually(lambda: memfds_of(keeper.process.pid) == 0, LIMIT_S, "the orphan to go")
        self.assertEqual(self.keeper_status()["deposits"], 0)

    def test_a_new_keeper_gets_the_deposit_again(self):
        model = self.settled_model()
        first_keeper = self.start_keeper()
        first = self.start(model).wait_ready()
        first_keeper.process.kill()
        first_keeper.process.wait()
        self.start_keeper()
        eventually(lambda: self.keeper_status()["deposits"] == 1, LIMIT_S, "the deposit")
        self.kill_ranks(first)
        second = self.start(model).wait_ready()
        self.assertIn("adopted", second.log)
        self.assertEqual(first.log.count("until a keeper has it again"), 1, first.log)
        self.assert_stops_clean(second)

    def test_a_release_reaches_the_keeper(self):
        keeper = self.start_keeper()
        daemon = self.start(make_llama(self.root / "model", *SMALL)).wait_ready()
        self.preload("release")
        eventually(lambda: memfds_of(keeper.process.pid) == 0, LIMIT_S, "the release")
        self.assert_stops_clean(daemon)


if __name__ == "__main__":
    harness.unittest.main()
