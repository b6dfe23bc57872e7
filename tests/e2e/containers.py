# SPDX-License-Identifier: Apache-2.0
"""Processes in containers of their own, made with unshare: separate PID, IPC, mount and UTS namespaces,
of which two share the socket directory and nothing else that preload uses.

    @needs_containers
    daemon = self.start(model, through=containers.command("engine-a"))
    done = subprocess.run([*containers.command("engine-b", hide=self.root, shared=self.sockets), BIN, ...])
"""

import os
import shlex
import subprocess
import unittest

SHARED = "/mnt"  # where the socket directory is in a container that sees nothing else of its parent
UNSHARE = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]


def may_make_containers():
    done = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True)
    return done.returncode == 0


needs_containers = unittest.skipUnless(
    os.environ.get("PRELOAD_REQUIRE_CLUSTER") == "1" or may_make_containers(),
    "namespaces cannot be made here: this needs root, or CAP_SYS_ADMIN",
)


def command(name, hide=None, shared=None):
    """What starts a program in a container called `name`, with /dev/shm of its own; `hide` is empty
    there, and the directory `shared` is at SHARED."""
    steps = ["set -e", f"hostname {shlex.quote(name)}", "mount -t tmpfs tmpfs /dev/shm"]
    if shared:
        steps.append(f"mount --bind {shlex.quote(str(shared))} {SHARED}")
    if hide:
        steps.append(f"mount -t tmpfs tmpfs {shlex.quote(str(hide))}")
    steps.append('exec "$@"')
    return [*UNSHARE, "sh", "-c", "\n".join(steps), "sh"]
