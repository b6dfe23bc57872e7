# SPDX-License-Identifier: Apache-2.0
"""Hosts of a small cluster, as namespaces joined by a bridge: each has its own network, name, /tmp
and /dev/shm. They share the process ids of the isolated world, so that a test sees all of them."""

import os
import subprocess

from isolation import SHARED, call

NETWORK = "10.99.0"
HEAD = "head"  # the isolated world itself: where the controller runs and where people log in
HEAD_ADDRESS = f"{NETWORK}.254"
AGENT = f"{SHARED}/agent"


class Node:
    def __init__(self, number, cpus):
        self.name = f"node{number}"
        self.address = f"{NETWORK}.{number}"
        self.cpus = cpus
        # Says when it is in its namespaces: only then may they be entered.
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "sh", "-c", "echo in; exec sleep infinity"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.holder.stdout.readline() == "in\n"
        link = f"veth{number}"
        call("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self.holder.pid)
        call("ip", "link", "set", link, "master", "br0", "up")
        for command in (
            f"hostname {self.name}",
            "ip link set lo up",
            f"ip address add {self.address}/24 dev eth0",
            "ip link set eth0 up",
            "mount -t tmpfs -o mode=1777 tmpfs /tmp",
            "mount -t tmpfs -o mode=1777 tmpfs /dev/shm",
        ):
            call(*self.inside(*command.split()))
        with open(f"{SHARED}/nodes/{self.name}", "w") as file:
            file.write(f"{self.holder.pid}\n")

    def inside(self, *command):
        """The command line that runs a command there."""
        return ["nsenter", f"--target={self.holder.pid}", "--net", "--mount", "--uts", *map(str, command)]


def make_nodes(count, cpus):
    call("hostname", HEAD)
    call("ip", "link", "add", "br0", "type", "bridge")
    call("ip", "address", "add", f"{HEAD_ADDRESS}/24", "dev", "br0")
    call("ip", "link", "set", "br0", "up")
    os.makedirs(f"{SHARED}/nodes")
    hosts = [f"127.0.0.1 localhost\n{HEAD_ADDRESS} {HEAD}\n"]
    hosts += [f"{NETWORK}.{i} node{i}\n" for i in range(1, count + 1)]
    with open(f"{SHARED}/hosts", "w") as file:
        file.writelines(hosts)
    call("mount", "--bind", f"{SHARED}/hosts", "/etc/hosts")
    # What mpirun starts its daemons on other hosts with, in the place of ssh: AGENT HOST COMMAND...
    with open(AGENT, "w") as file:
        file.write(
            '#!/bin/sh\npid=$(cat "${0%/*}/nodes/$1") || exit 1\nshift\n'
            'exec nsenter --target="$pid" --net --mount --uts sh -c "$*"\n'
        )
    os.chmod(AGENT, 0o755)
    return [Node(number, cpus) for number in range(1, count + 1)]
