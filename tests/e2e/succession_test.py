# SPDX-License-Identifier: Apache-2.0
"""serve --replace: a daemon takes the place of another that serves, under clients that attach."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import drafts_test
import harness
from harness import HERE, eventually, make_llama, make_slow_model, needs_mpi
from keeper_test import LIMIT_S, SMALL, KeeperCase, memfds_of
from memory_group import MemoryGroup
from read_faults import ReadFaults


def digest_of(tensors):
    """As attacher.py makes it, of what a client or a file has."""
    text = hashlib.sha256()
    for name in sorted(tensors):
        text.update(name.encode())
        text.update(tensors[name].tobytes())
    return text.hexdigest()


class Attacher:
    def __init__(self, case, device="host:0"):
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "attacher.py"), str(case.sockets), device],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=harness.python_environment(),
        )  # fmt: skip
        case.addCleanup(self.process.communicate)
        case.addCleanup(self.process.kill)
        case.assertEqual(self.process.stdout.readline().strip(), "started")
        self.wait_for_attaches(3)

    def wait_for_attaches(self, count):
        """So many more than were waited for so far; ends with the process at the latest."""
        for _ in range(count):
            self.process.stdout.readline()

    def result(self):
        self.process.stdin.write("enough\n")
        self.process.stdin.flush()
        lines = self.process.stdout.read().split("\n")
        return json.loads(next(line for line in lines if line))


def limited(case, gib):
    """What starts a daemon in a memory group of the test's own."""
    group = MemoryGroup(int(gib * (1 << 30)))
    case.addCleanup(lambda: eventually(group.remove, LIMIT_S, "the group to be empty"))
    return ["sh", "-c", f'echo $$ >"{group.procs}" && exec "$@"', "sh"]


class SuccessionCase(KeeperCase):
    def served(self):
        """(job, generation, state, leases' pids) of the daemon."""
        (daemon,) = self.status()
        return daemon["pid"], daemon["generation"], daemon["state"], sorted(x["pid"] for x in daemon["leases"])


@harness.needs_python_client
class UnderAttaches(SuccessionCase):
    def test_the_same_weights_change_hands_without_a_failed_attach_or_a_byte_read(self):
        model = self.settled_model()
        first = self.start(model, "--layout", "hf").wait_ready()
        holder = self.holder()
        value = self.ask(holder)
        attacher = Attacher(self)
        for generation in (2, 3):
            faults = ReadFaults(self.root)
            second = self.start(model, "--layout", "hf", "--replace", through=faults.through).wait_ready()
            self.assertEqual(first.wait_end(LIMIT_S), 0, first.log)
            _, now, state, leases = self.served()
            self.assertEqual((now, state), (generation, "READY"))
            self.assertIn(holder.pid, leases)
            payload = sum(path.stat().st_size for path in model.glob("*.safetensors"))
            self.assertLess(faults.total("bytes"), payload / 2)
            self.assertIn("adopted", second.log)
            first = second
        result = attacher.result()
        self.assertEqual(result["failures"], [])
        self.assertEqual(list(result["digests"]), [digest_of(harness.checkpoint_tensors(model))])
        self.assertEqual(self.ask(holder), value)
        self.assert_stops_clean(first)

    def test_artifacts_go_on_with_the_same_weights_and_with_others(self):
        models = [self.settled_model(), make_llama(self.root / "other", *SMALL, "--seed", 7)]
        daemon = self.start(models[0]).wait_ready()
        self.put_artifact("table/a.json", "of the first")
        for model in (models[0], models[1]):
            successor = self.start(model, "--replace").wait_ready()
            self.assertEqual(daemon.wait_end(LIMIT_S), 0, daemon.log)
            self.assertEqual(self.get_artifact("table/a.json"), "of the first")
            daemon = successor
        self.assert_stops_clean(daemon)

    def test_other_weights_replace_the_old_without_a_failed_or_a_mixed_attach(self):
        models = [self.settled_model(), make_llama(self.root / "other", *SMALL, "--seed", 7)]
        first = self.start(models[0], "--layout", "hf").wait_ready()
        holder = self.holder()
        value = self.ask(holder)
        attacher = Attacher(self)
        second = self.start(models[1], "--layout", "hf", "--replace").wait_ready()
        self.assertEqual(first.wait_end(LIMIT_S), 0, first.log)
        self.assertEqual(self.served()[1:3], (2, "READY"))
        (daemon,) = self.status()
        self.assertIn({"pid": holder.pid, "generation": 1},
                      [{key: lease.get(key) for key in ("pid", "generation")} for lease in daemon["leases"]])
        newcomer = Attacher(self)  # so that somebody has attached since
        result = attacher.result()
        self.assertEqual(result["failures"], [])
        old, new = [digest_of(harness.checkpoint_tensors(model)) for model in models]
        self.assertIn(old, result["digests"])
        self.assertLessEqual(set(result["digests"]), {old, new}, "one whole generation each")
        self.assertEqual(list(newcomer.result()["digests"]), [new])
        self.assertEqual(self.ask(holder), value)
        holder.kill()
        eventually(lambda: "generation 1 of host:0 is leased by nobody" in second.log, LIMIT_S, "the old to go")
        self.assertEqual(memfds_of(self.pid_of_rank(0)), 1)  # a model that small has one slab
        self.assert_stops_clean(second)

    @needs_mpi
    def test_all_ranks_of_a_job_hand_over(self):
        model = self.settled_model()
        first = self.start(model, "-tp", 2, ranks=2).wait_ready()
        attachers = [Attacher(self, device) for device in ("host:0", "host:1")]
        second = self.start(model, "-tp", 2, "--replace", ranks=2).wait_ready()
        self.assertEqual(first.wait_end(LIMIT_S), 0, first.log)
        eventually(lambda: [d["generation"] for d in self.status()] == [2, 2], LIMIT_S, "both ranks")
        for attacher in attachers:
            result = attacher.result()
            self.assertEqual(result["failures"], [])
            self.assertEqual(len(result["digests"]), 1)
        self.assert_serves_slices(model, tp=2)
        self.assert_stops_clean(second)


class OtherWorlds(SuccessionCase):
    @needs_mpi
    def test_fewer_ranks_do_not_tear_a_job_apart(self):
        model = self.settled_model()
        first = self.start(model, "-tp", 2, ranks=2).wait_ready()
        fewer = self.start(model, "--layout", "hf", "--replace")
        self.assertEqual(fewer.wait_end(LIMIT_S), 2, fewer.log)
        self.assertRegex(fewer.log, r"has 2 ranks, and the 1 rank of this job .* its rank 1 would go on alone")
        self.assertIsNone(first.process.poll(), first.log)
        self.assertEqual([d["generation"] for d in self.status()], [1, 1])
        self.assert_serves_slices(model, tp=2)
        self.assert_stops_clean(first)

    @needs_mpi
    def test_more_ranks_may_take_the_place_of_all(self):
        model = self.settled_model()
        first = self.start(model, "--layout", "hf").wait_ready()
        more = self.start(model, "-tp", 2, "--replace", ranks=2).wait_ready()
        self.assertEqual(first.wait_end(LIMIT_S), 0, first.log)
        self.assert_serves_slices(model, tp=2)
        self.assert_stops_clean(more)


class Failures(SuccessionCase):
    def start_slow_successor(self):
        """One of other weights, which stays at its first read for a while."""
        other = make_llama(self.root / "slow", *SMALL, "--seed", 7)
        faults = ReadFaults(self.root, delay_once_ms=4000)
        second = self.start(other, "--replace", "--reader", "pread", through=faults.through)
        eventually(lambda: faults.total("delays") or second.process.poll() is not None, LIMIT_S, "it to load")
        self.assertIsNone(second.process.poll(), second.log)
        return second

    def test_a_successor_that_dies_before_it_serves_changes_nothing(self):
        model = self.settled_model()
        first = self.start(model).wait_ready()
        tensors, before = self.dump()[0], self.served()
        second = self.start_slow_successor()
        second.process.kill()
        second.process.wait()
        self.assertEqual(self.served(), before)
        self.assert_same_tensors(self.dump()[0], tensors, "after a failed succession")
        eventually(lambda: "this daemon goes on" in first.log, LIMIT_S, "the daemon to say so")
        third = self.start(model, "--replace").wait_ready()
        self.assertEqual(first.wait_end(LIMIT_S), 0, first.log)
        self.assert_stops_clean(third)

    @needs_mpi
    def test_one_rank_that_cannot_succeed_leaves_all_ranks_as_they_were(self):
        model = self.settled_model()
        first = self.start(model, "-tp", 2, ranks=2).wait_ready()
        before = [(d["pid"], d["generation"]) for d in self.status()]
        other = self.root / "other"
        make_llama(other, *SMALL, "--seed", 7, "--shards", 2)
        last = other / "model-00002-of-00002.safetensors"
        os.truncate(last, last.stat().st_size - 4096)
        second = self.start(other, "-tp", 2, "--replace", ranks=2)
        self.assertEqual(second.wait_end(), 3, second.log)
        self.assertEqual([(d["pid"], d["generation"]) for d in self.status()], before)
        self.assert_serves_slices(model, tp=2)
        self.assert_stops_clean(first)

    def test_a_second_successor_is_refused_and_the_first_goes_on(self):
        model = self.settled_model()
        first = self.start(model).wait_ready()
        second = self.start_slow_successor()
        third = self.start(model, "--replace")
        self.assertEqual(third.wait_end(), 6, third.log)
        self.assertIn("successor", third.log)
        second.wait_ready()
        self.assertEqual(first.wait_end(LIMIT_S), 0, first.log)
        self.assert_stops_clean(second)

    def test_replace_where_nothing_runs_is_a_start(self):
        daemon = self.start(self.settled_model(), "--replace").wait_ready()
        self.assertEqual(self.served()[1:3], (1, "READY"))
        self.assert_stops_clean(daemon)

    def test_a_replaced_daemon_that_is_killed_meanwhile_is_succeeded_all_the_same(self):
        model = self.settled_model()
        first = self.start(model).wait_ready()
        second = self.start_slow_successor()
        first.process.kill()
        second.wait_ready()
        self.assertEqual(self.served()[1:3], (2, "READY"))
        self.assert_stops_clean(second)


    def hung_predecessor(self):
        """(the replaced daemon, stopped by SIGSTOP before it was asked to hand over; its successor, READY)"""
        first = self.start(self.settled_model()).wait_ready()
        pid = self.pid_of_rank(0)
        second = self.start_slow_successor()
        harness.suspend(pid)
        self.addCleanup(lambda: first.process.poll() is None and os.kill(pid, signal.SIGCONT))
        second.wait_ready()
        self.assertIn("has ended or hangs", second.log)
        return first, pid, second

    def assert_is_served_by(self, daemon):
        self.assertEqual(self.served()[1:3], (2, "READY"))
        self.preload("wait", "--timeout", 10)
        (state,) = self.sockets.glob("*.state")
        self.assertEqual(json.loads(state.read_text())["state"], "READY")
        self.assert_stops_clean(daemon)

    def test_a_replaced_daemon_that_was_too_slow_ends_when_it_wakes(self):
        first, pid, second = self.hung_predecessor()
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(first.wait_end(LIMIT_S), 0, first.log)
        self.assertIn("was taken over while this daemon did not answer", first.log)
        self.assert_is_served_by(second)

    def test_a_replaced_daemon_that_is_ended_when_it_wakes_leaves_its_successor_alone(self):
        first, pid, second = self.hung_predecessor()
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
        self.assertIn(first.wait_end(LIMIT_S), (0, 143), first.log)
        self.assert_is_served_by(second)


class Draining(SuccessionCase):
    @harness.needs_python_client
    def test_what_does_not_fit_beside_is_drained_for_where_that_is_allowed(self):
        models = [make_slow_model(self.root / name, 1) for name in ("first", "other")]
        through = limited(self, 1.75)
        flags = ["--layout", "hf"]
        first = self.start(models[0], *flags, through=through).wait_ready()
        before = self.served()

        second = self.start(models[1], *flags, "--replace", through=through)
        self.assertEqual(second.wait_end(), 4, second.log)
        self.assertIn("--drain", second.log)
        self.assertEqual(self.served(), before)

        holder = self.holder()
        third = self.start(models[1], *flags, "--replace", "--drain", 1, through=through)
        self.assertEqual(third.wait_end(), 1, third.log)
        self.assertIn("still leased by 1", third.log)
        eventually(lambda: self.states() == ["READY"], LIMIT_S, "the daemon to admit again")
        holder.kill()
        holder.wait()

        fourth = self.start(models[1], *flags, "--replace", "--drain", 60, through=through).wait_ready()
        self.assertEqual(first.wait_end(LIMIT_S), 0, first.log)
        self.assertEqual(self.served()[1:3], (2, "READY"))
        self.assert_stops_clean(fourth)


    def test_what_can_never_fit_drains_nobody(self):
        first_model, large = [make_slow_model(self.root / str(gib), gib) for gib in (1, 2)]
        through = limited(self, 1.75)
        first = self.start(first_model, "--layout", "hf", through=through).wait_ready()
        before = self.served()
        second = self.start(large, "--layout", "hf", "--replace", "--drain", 60, through=through)
        self.assertEqual(second.wait_end(), 4, second.log)
        self.assertIn("cannot fit", second.log)
        self.assertEqual(self.served(), before)
        self.assert_stops_clean(first)

    @needs_mpi
    @harness.needs_python_client
    def test_no_rank_is_freed_while_a_client_holds_on_to_another(self):
        models = [make_slow_model(self.root / name, 1) for name in ("first", "other")]
        through, flags = limited(self, 3.5), ["--layout", "hf", "-dp", 2]
        first = self.start(models[0], *flags, ranks=2, through=through).wait_ready()
        before = [(d["pid"], d["generation"], d["state"]) for d in self.status()]
        holder = self.holder("host:1")
        second = self.start(models[1], *flags, "--replace", "--drain", 2, ranks=2, through=through)
        self.assertEqual(second.wait_end(), 1, second.log)
        self.assertIn("host:1 is still leased by 1", second.log)
        eventually(lambda: [(d["pid"], d["generation"], d["state"]) for d in self.status()] == before, LIMIT_S,
                   "both ranks to admit again")  # fmt: skip
        self.assertEqual(self.ask(self.holder("host:0")), self.ask(holder))
        self.assert_stops_clean(first)


class WithKeeper(SuccessionCase):
    def test_what_a_keeper_has_of_another_model_goes_first_where_its_memory_is_needed(self):
        models = [make_slow_model(self.root / name, 1) for name in ("first", "other")]
        through = limited(self, 1.75)
        keeper = self.start_keeper()
        first = self.start(models[0], "--layout", "hf", through=through).wait_ready()
        os.kill(self.pid_of_rank(0), signal.SIGKILL)
        self.assertEqual(first.wait_end(LIMIT_S), 137)
        second = self.start(models[1], "--layout", "hf", through=through).wait_ready()
        self.assertIn("the memory is needed", second.log)
        self.assertEqual(self.served()[1:3], (2, "READY"))
        self.assert_stops_clean(second)
        self.assertEqual(memfds_of(keeper.process.pid), 0)

    def test_the_keeper_has_what_is_served_now(self):
        model = self.settled_model()
        keeper = self.start_keeper()
        first = self.start(model).wait_ready()
        second = self.start(model, "--replace").wait_ready()
        self.assertEqual(first.wait_end(LIMIT_S), 0, first.log)
        self.assertEqual(self.keeper_status()["deposits"], 1)
        os.kill(self.pid_of_rank(0), signal.SIGKILL)
        self.assertEqual(second.wait_end(LIMIT_S), 137)
        third = self.start(model).wait_ready()
        self.assertEqual(self.served()[1:3], (3, "READY"))
        self.assert_stops_clean(third)
        self.assertEqual(memfds_of(keeper.process.pid), 0)

    def test_of_replaced_weights_the_keeper_keeps_nothing(self):
        model = self.settled_model()
        other = make_llama(self.root / "other", *SMALL, "--seed", 7)
        keeper = self.start_keeper()
        first = self.start(model).wait_ready()
        slabs = memfds_of(keeper.process.pid)
        second = self.start(other, "--replace").wait_ready()
        self.assertEqual(first.wait_end(LIMIT_S), 0, first.log)
        eventually(lambda: memfds_of(keeper.process.pid) == slabs, LIMIT_S, "the old deposit to go")
        self.assert_serves_slices(other)
        self.assert_stops_clean(second)


class WithADraft(SuccessionCase):
    """Each role is a daemon of its own, which only some ranks have."""

    checkpoint = drafts_test.Drafts.checkpoint
    flags = drafts_test.Drafts.flags

    def roles(self):
        return sorted((d["role"], d["global_rank"], d["generation"], d["state"]) for d in self.status())

    @needs_mpi
    def test_target_and_draft_are_adopted_and_handed_over_and_a_draft_can_be_left_out(self):
        model, config = self.flags("llama_eagle")
        time.sleep(0.2)  # the files' times are to prove something
        keeper = self.start_keeper()
        first = self.start(model, "-pp", 2, *config, ranks=2).wait_ready()
        os.kill(self.pid_of_target(1), signal.SIGKILL)
        self.assertEqual(first.wait_end(LIMIT_S), 137, first.log)

        def places(generation, state):
            return [("draft", 1, generation, state), ("target", 0, generation, state), ("target", 1, generation, state)]

        self.assertEqual(self.roles(), places(1, "ORPHANED"))
        second = self.start(model, "-pp", 2, *config, ranks=2).wait_ready()
        self.assertEqual(second.log.count("adopted as it lies"), 2, second.log)
        eventually(lambda: self.roles() == places(2, "READY"), LIMIT_S, "both roles")
        self.preload("verify")

        third = self.start(model, "-pp", 2, *config, "--replace", ranks=2).wait_ready()
        self.assertEqual(second.wait_end(LIMIT_S), 0, second.log)
        self.assertEqual(third.log.count("adopted as it lies"), 2, third.log)
        eventually(lambda: self.roles() == places(3, "READY"), LIMIT_S, "both roles")

        fourth = self.start(model, "-pp", 2, "--replace", ranks=2).wait_ready()
        self.assertEqual(third.wait_end(LIMIT_S), 0, third.log)
        eventually(lambda: self.roles() == places(4, "READY")[1:], LIMIT_S, "the target alone")
        self.assert_stops_clean(fourth)
        self.assertEqual(memfds_of(keeper.process.pid), 0)

    def pid_of_target(self, rank):
        (pid,) = [d["pid"] for d in self.status() if (d["role"], d["global_rank"]) == ("target", rank)]
        return pid


if __name__ == "__main__":
    harness.unittest.main()
