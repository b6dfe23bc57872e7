# SPDX-License-Identifier: Apache-2.0
"""What is left when a keeper, a daemon and an engine are killed in any order, and who goes on with it.
The same on host memory and on a GPU."""

import itertools
import os
import random
import signal
import time

from harness import eventually, suspend
from keeper_test import LIMIT_S
from read_faults import ReadFaults

VICTIMS = ("daemon", "engine", "keeper", "depositing daemon")
ORDERS = list(itertools.permutations(VICTIMS))


class Round:
    """One round of `case`, a KeeperCase, with a model whose files are settled: each of VICTIMS is
    killed with -9 in `order`, and started again where the next ones need it."""

    def __init__(self, case, model, device="host", socket_device="host:0", slabs_of=None):
        """`slabs_of`, where the system shows them, tells the memory that a process holds."""
        self.slabs_of, self.slabs = slabs_of, set()
        self.case, self.model, self.device, self.socket_device = case, model, device, socket_device
        self.payload = sum(path.stat().st_size for path in model.glob("*.safetensors"))
        self.keeper = self.daemon = None
        self.engines = []  # those that live
        self.value = None
        self.adopted = 0

    def run(self, order):
        self.keeper = self.case.start_keeper("--stay")
        self.start_daemon()
        self.engines = [self.case.holder(self.socket_device) for _ in range(2)]
        self.value = self.case.ask(self.engines[0])
        for victim in order:
            {"daemon": self.kill_daemon, "engine": self.kill_engine, "keeper": self.kill_keeper,
             "depositing daemon": self.kill_depositing_daemon}[victim]()  # fmt: skip
            self.check()
        self.end()

    def start_daemon(self, adopts=False):
        faults = ReadFaults(self.case.root)
        self.daemon = self.case.start(self.model, "--layout", "hf", device=self.device, through=faults.through)
        self.daemon.wait_ready()
        if adopts:
            self.case.assertIn("adopted as it lies", self.daemon.log)
            self.case.assertLess(faults.total("bytes"), self.payload / 4, "no more than headers is read")
            self.adopted += 1

    def leases(self):
        return sorted(engine.pid for engine in self.engines)

    def kill_daemon(self):
        self.daemon.process.kill()
        self.case.assertEqual(self.daemon.wait_end(LIMIT_S), 137)
        self.case.assertEqual(self.case.states(), ["ORPHANED"])
        self.check()
        self.start_daemon(adopts=True)

    def kill_engine(self):
        engine = self.engines.pop(0)
        engine.kill()
        engine.wait()
        eventually(lambda: self.case.leases() == self.leases(), LIMIT_S, "the engine's lease to end")
        self.engines.append(self.case.holder(self.socket_device))

    def kill_keeper(self):
        self.keeper.process.kill()
        self.keeper.process.wait()
        self.check()
        self.keeper = self.case.start_keeper("--stay")
        eventually(lambda: self.case.keeper_status()["deposits"] == 1, LIMIT_S, "the deposit to be made again")

    def kill_depositing_daemon(self):
        """The keeper is stopped, so that the deposit is sent and not answered when its daemon dies."""
        self.keeper.process.kill()
        self.keeper.process.wait()
        self.keeper = self.case.start_keeper("--stay")
        suspend(self.keeper.process.pid)
        time.sleep(random.uniform(0, 1.5))  # it looks for a keeper once a second
        self.daemon.process.kill()
        os.kill(self.keeper.process.pid, signal.SIGCONT)
        self.case.assertEqual(self.daemon.wait_end(LIMIT_S), 137)
        whole = eventually(lambda: self.case.keeper_status(), LIMIT_S, "the keeper")["deposits"] == 1
        self.start_daemon(adopts=whole)
        if not whole:  # leases of a daemon that nobody had a deposit of end with it
            for engine in self.engines:
                self.case.assertEqual(self.case.ask(engine), self.value)
                engine.kill()
                engine.wait()
            self.engines = [self.case.holder(self.socket_device) for _ in range(2)]

    def check(self):
        """Every engine reads what it always read, and whoever answers knows of its lease."""
        for engine in self.engines:
            if self.slabs_of:
                self.slabs |= self.slabs_of(engine.pid)
            self.case.assertEqual(self.case.ask(engine), self.value)
        self.case.assertEqual(self.case.leases(), self.leases())

    def end(self):
        self.case.preload("stop", "--keeper")
        self.case.assertEqual(self.daemon.wait_end(LIMIT_S), 0, self.daemon.log)
        self.case.assertEqual(self.keeper.process.wait(LIMIT_S), 0, self.keeper.log)
        for engine in self.engines:
            self.case.assertEqual(self.case.ask(engine), self.value)
            engine.kill()
            engine.wait()
