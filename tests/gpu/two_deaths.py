# SPDX-License-Identifier: Apache-2.0
"""One rank of two is killed with -9: what the launcher, status and the GPUs show, and how soon."""

import os
import signal
import time

import two_gpus
from read_faults import ReadFaults
from two_ranks import Row

import harness

SOON_S = 10
LIMIT_S = 60
IDLE_MIB = 16  # what the driver may still count


class Death(Row):
    def runTest(self):
        self.idle_mib = two_gpus.used_mib() if self.setting.device == "cuda" else {}
        daemon = self.until()
        victim = self.victim(daemon)
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        self.assertEqual(daemon.wait_end(LIMIT_S), 137, daemon.log)
        took = time.monotonic() - killed
        self.say(f"the job ended with 137 after {took:.1f} s")
        self.assertLessEqual(took, SOON_S)
        self.assertIn("rank 1 was lost", daemon.log)
        left = [state for state in (d["state"] for d in self.daemons()) if state not in ("FAILED", "GONE")]
        self.assertEqual(left, [], "nothing says that it serves or loads")
        harness.eventually(self.is_idle, LIMIT_S, "GPU memory to be free again")
        self.say("no daemon left" + (", GPU memory free" if self.idle_mib else ""))
        again = self.again().wait_ready()  # locks and sockets are free
        self.end(again)
        self.say("the next job starts")

    def is_idle(self):
        if not self.idle_mib:
            return True
        return all(used - self.idle_mib[uuid] <= IDLE_MIB for uuid, used in two_gpus.used_mib().items())

    def again(self):
        sockets = self.job_sockets
        if len(sockets) == 1:
            return self.job(self.setting.model, "-tp", 2)
        return self.job(self.setting.model, "-dp", 2)

    def victim(self, daemon):
        found = {d["global_rank"]: d["pid"] for d in self.daemons()}
        self.assertIn(1, found, daemon.log)
        return found[1]


class WhileLoading(Death):
    title = "kill -9 of rank 1 while it loads"

    def until(self):
        faults = ReadFaults(self.root, slowdown=200, rank=1)
        daemon = self.job(
            self.setting.model, "-tp", 2, "--reader", "pread", "--reader-threads", 1, "--ring-bytes", "8M",
            through=faults.through,
        )  # fmt: skip

        def loading():
            if daemon.process.poll() is not None:
                raise AssertionError(f"ended before:\n{daemon.log}")
            ranks = [d for d in self.daemons() if d["global_rank"] == 1 and d["progress"]]
            return any(0 < d["progress"]["bytes"] < d["progress"]["total_bytes"] for d in ranks)

        harness.eventually(loading, LIMIT_S, f"rank 1 to load:\n{daemon.log}")
        return daemon


class AfterReady(Death):
    title = "kill -9 of rank 1 after READY"

    def until(self):
        return self.job(self.setting.model, "-tp", 2).wait_ready()


class InNccl(Death):
    """Seen by NCCL's own log. A kill that came after its end is no such kill: tried again."""

    title = "kill -9 of rank 1 while NCCL initialises"
    kinds = ("gpus", "shared")
    attempts = 4

    def until(self):
        for attempt in range(self.attempts):
            daemon = self.job(
                self.setting.model, "-dp", 2, "--spread", "always", apart=True,
                env={"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT"},
            )  # fmt: skip
            harness.eventually(lambda job=daemon: "Init START" in job.log, LIMIT_S, f"NCCL to begin:\n{daemon.log}")
            os.kill(self.victim(daemon), signal.SIGSTOP)  # stays where it is until it is killed
            if "Init COMPLETE" not in daemon.log:
                self.say(f"stopped within NCCL's initialisation (attempt {attempt + 1})")
                return daemon
            daemon.end_hard()
        self.fail(f"NCCL's initialisation was over each time that rank 1 was stopped\n{daemon.log}")


ROWS = [WhileLoading, AfterReady, InNccl]
