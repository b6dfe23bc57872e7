# SPDX-License-Identifier: Apache-2.0
"""Slurm over the nodes of an isolated world: munged, slurmctld on the head, a slurmd on each node."""

import os
import pathlib
import subprocess
import sys

from isolation import SHARED
from nodes import HEAD

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from harness import eventually  # noqa: E402

PROGRAMS = ["munged", "slurmctld", "slurmd", "srun", "sinfo", "scancel"]
UP_S = 60
GPUS = 4  # of each node
FOLDER = f"{SHARED}/slurm"

CONFIG = """\
ClusterName=test
SlurmctldHost={head}
AuthType=auth/munge
CredType=cred/munge
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault={mpi_default}
SelectType=select/cons_tres
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SchedulerParameters=batch_sched_delay=0
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    def __init__(self, nodes, mpi_default="pmix"):
        self.daemons = {}
        os.makedirs(f"{FOLDER}/state")
        os.makedirs("/run/munge")
        # Nodes of a machine with few cores: what Slurm counts are its own numbers.
        # Its GPUs, too: nobody opens them.
        lines = [f"NodeName={n.name} NodeAddr={n.address} CPUs={n.cpus} RealMemory=1024 Gres=gpu:{GPUS}" for n in nodes]
        for i in range(GPUS):
            pathlib.Path(f"{FOLDER}/gpu{i}").touch()
        with open(f"{FOLDER}/gres.conf", "w") as file:
            file.write(f"Name=gpu File={FOLDER}/gpu[0-{GPUS - 1}]\n")
        self.config = f"{FOLDER}/slurm.conf"
        with open(self.config, "w") as file:
            file.write(CONFIG.format(head=HEAD, folder=FOLDER, mpi_default=mpi_default, nodes="\n".join(lines)))
        os.environ["SLURM_CONF"] = self.config
        key = f"{FOLDER}/munge.key"
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as file:
            file.write(os.urandom(64))
        # Of our own key, as ourselves: the unix socket is reached from every node.
        munged = ["munged", "--foreground", "--force", f"--key-file={key}", f"--log-file={FOLDER}/munged.log"]
        munged += [f"--pid-file={FOLDER}/munged.pid", f"--seed-file={FOLDER}/munged.seed"]
        self.start("munged", munged)
        eventually(lambda: os.path.exists("/run/munge/munge.socket.2"), UP_S, "munged to listen")
        self.start("slurmctld", ["slurmctld", "-D", "-i"])
        for node in nodes:
            self.start(node.name, node.inside("slurmd", "-D", "-N", node.name))
        self.wait_idle(len(nodes))

    def start(self, name, command):
        with open(f"{FOLDER}/{name}.out", "wb") as out:
            self.daemons[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def wait_idle(self, nodes):
        def idle():
            for name, daemon in self.daemons.items():
                if daemon.poll() is not None:
                    raise AssertionError(f"{name} ended with {daemon.returncode}:\n{self.logs()}")
            shown = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%T"], capture_output=True, text=True)
            return shown.stdout.split() == ["idle"] * nodes

        try:
            eventually(idle, UP_S, "every node to be idle")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def logs(self):
        files = sorted(pathlib.Path(FOLDER).glob("*.out")) + sorted(pathlib.Path(FOLDER).glob("*.log"))
        return "\n".join(f"{file.name}:\n{file.read_text(errors='replace')[-2000:]}" for file in files)
