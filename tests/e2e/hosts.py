# SPDX-License-Identifier: Apache-2.0
"""Jobs whose ranks believe to be on several hosts, and NCCL too: each group of `per_host` ranks has a
host name of its own, and so shares neither memory nor a socket directory with the others.

    hosts = Hosts(self.root, 2, per_host=1)
    daemon = self.start(model, "-dp", 2, ranks=2, through=hosts.through)
    for sockets in hosts.sockets: ...
"""

import os
import shlex
import subprocess
import unittest

import harness

UNSHARE = ["unshare", "--uts"]


def may_name_hosts():
    done = subprocess.run([*UNSHARE, "hostname", "somewhere"], capture_output=True)
    return done.returncode == 0


needs_hosts = unittest.skipUnless(
    os.environ.get("PRELOAD_REQUIRE_CLUSTER") == "1" or (harness.MPIRUN and may_name_hosts()),
    "this needs MPI, and the right to give processes a host name",
)


class Hosts:
    """`through` is for daemons, `alone` for commands that have no socket directory."""

    def __init__(self, root, hosts, per_host):
        self.sockets = [root / f"sockets-of-host{i}" for i in range(hosts)]
        self.per_host = per_host
        # The last --weight-cache-socket-dir counts: the command of the test comes before.
        sockets = shlex.quote(str(root / "sockets-of-host"))
        self.through = self.command('sockets=$1; shift; exec "$@" --weight-cache-socket-dir $sockets$0', sockets)
        self.alone = self.command('exec "$@"')

    def command(self, what, *arguments):
        script = (
            f"host=$(( ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} / {self.per_host} )); exec {shlex.join(UNSHARE)} sh -c "
            f"'hostname host$0; export NCCL_HOSTID=host$0; {what}' \"$host\" {' '.join(arguments)} \"$@\""
        )
        return ["sh", "-c", script, "sh"]
