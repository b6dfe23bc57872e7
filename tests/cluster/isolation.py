# SPDX-License-Identifier: Apache-2.0
"""A world of its own for tests of whole clusters: network, mounts, host names and process ids.

Whatever such a test makes, bridges, mounts, daemons, is gone with the first process in it, however
that ends, and nothing of it is ever seen by the host or by another test.

    isolation.enter(["slurmctld", ...])  # first of all; the process goes on inside, or ends as skipped
"""

import os
import shutil
import subprocess
import sys

SKIPPED = 77  # CTest's SKIP_RETURN_CODE
INSIDE = "PRELOAD_TEST_ISOLATED"
SHARED = "/run/cluster"  # seen by every node
UNSHARE = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]

# The first process of a process id namespace inherits orphans; a shell reaps them.
REAPER = ["sh", "-c", '"$@"; exit $?', "sh"]


def call(*command):
    """A step of setting up; its output tells why it failed."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.returncode}: {done.stdout.strip()}")


def missing(programs):
    """Why this machine cannot have such a world, or nothing."""
    absent = [program for program in programs if not shutil.which(program)]
    if absent:
        return f"not installed: {', '.join(absent)}"
    # All that the network needs, tried for real: a container may have the right to some of it only.
    trial = "ip link add b0 type bridge && ip link add v0 type veth peer name v1 && mount -t tmpfs none /tmp"
    trial += " && setpriv --clear-groups true"  # as daemons do; nobody may in a user namespace of their own
    done = subprocess.run([*UNSHARE, "sh", "-c", trial], capture_output=True, text=True)
    if done.returncode:
        return f"namespaces of one's own are not allowed here: {done.stderr.strip()}"
    return None


def enter(programs=()):
    """Continues this very program inside. Returns at once when it is there already."""
    if os.environ.get(INSIDE):
        prepare()
        return
    why = missing(["unshare", "nsenter", "ip", *programs])
    if why is None:
        os.environ[INSIDE] = "1"
        os.execvp(UNSHARE[0], [*UNSHARE, *REAPER, sys.executable, *sys.argv])
    if os.environ.get("PRELOAD_REQUIRE_CLUSTER") == "1":
        sys.exit(f"PRELOAD_REQUIRE_CLUSTER is set, and {why}")
    print(f"skipped: {why}", flush=True)
    sys.exit(SKIPPED)


def prepare():
    """A /run of our own: what is shared between nodes, and no daemon of the host's in it."""
    call("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    os.makedirs(SHARED)
    call("ip", "link", "set", "lo", "up")


def bring_in(path, name):
    """Shows a file or folder as SHARED/name: nodes have a /tmp of their own, which may hide it."""
    target = os.path.join(SHARED, name)
    if os.path.isdir(path):
        os.makedirs(target)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "w").close()
    call("mount", "--bind", path, target)
    return target
