# SPDX-License-Identifier: Apache-2.0
"""`preload doctor`, and what `serve` refuses at its start for the same reasons."""

import json
import os
import subprocess
import unittest

import harness
from harness import make_llama, needs_mpi

SMALL = ["--hidden", 64, "--layers", 2, "--heads", 4, "--kv-heads", 2, "--vocab", 512, "--intermediate", 96]


class Doctor(harness.Case):
    def doctor(self, *arguments, ranks=None, **variables):
        """(status, stdout)"""
        command = [harness.BIN, "doctor", "--weight-cache-socket-dir", str(self.sockets), *map(str, arguments)]
        if ranks is not None:
            command = [*harness.MPIRUN, "-np", str(ranks), *command]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=harness.COMMAND_S, env=harness.environment(**variables)
        )
        self.stderr = done.stderr
        return done.returncode, done.stdout

    def checks(self, *arguments, **variables):
        status, text = self.doctor("--json", *arguments, **variables)
        report = json.loads(text)
        return status, {check["name"]: check for check in report["checks"]}

    def test_a_machine_that_can_serve_has_nothing_in_the_way(self):
        status, checks = self.checks("--device", "host")
        self.assertEqual(status, 0, checks)
        self.assertNotIn("fail", [check["grade"] for check in checks.values()])
        self.assertIn("preload-runtime", checks["runtime and MPI"]["text"])
        for check in checks.values():
            self.assertEqual(check["remedy"] is None, check["grade"] == "ok", check)

    def test_it_says_what_a_rank_would_hold_and_where_the_files_are(self):
        model = make_llama(self.root / "model", *SMALL)
        status, checks = self.checks("--device", "host", "--model", model, "-tp", 2)
        self.assertEqual(status, 0, checks)
        self.assertIn("2 ranks", checks["world size"]["text"])
        self.assertIn(str(model), checks["checkpoint"]["text"])
        plan = json.loads(harness.run("plan", "--model", model, "-tp", 2, "--ranks", 2, "--rank", 0, "--json"))
        self.assertGreater(plan["ranks"][0]["bytes"], 0)
        os.truncate(model / "model.safetensors", 1000)
        status, checks = self.checks("--device", "host", "--model", model, "-tp", 2)
        self.assertEqual((status, checks["checkpoint"]["grade"]), (3, "fail"))

    def test_a_directory_that_others_may_write_is_refused_with_the_remedy(self):
        self.sockets.mkdir()
        self.sockets.chmod(0o777)
        status, text = self.doctor("--device", "host")
        self.assertEqual(status, 2, text)
        self.assertRegex(text, r"(?m)^fail +socket directory .*chmod 700")
        self.assertRegex(text, r"(?m)^ +-> ")

    def test_a_daemon_and_a_failure_that_is_left_are_shown(self):
        model = make_llama(self.root / "model", *SMALL)
        self.start(model, "--layout", "hf").wait_ready()
        broken = make_llama(self.root / "broken", *SMALL)
        os.truncate(broken / "model.safetensors", 1000)
        self.assertEqual(self.start(broken, "--layout", "hf", "--slot", "b").wait_end(), 3)
        status, checks = self.checks("--device", "host")
        self.assertEqual((status, checks["daemons"]["grade"]), (0, "warn"), checks)
        self.assertIn("1 answer", checks["daemons"]["text"])
        self.assertIn("slot b", checks["daemons"]["text"])

    def test_tasks_that_srun_gives_no_pmi_are_told(self):
        variables = {"SLURM_JOB_ID": 1, "SLURM_STEP_ID": 0, "SLURM_STEP_NUM_TASKS": 4, "SLURM_PROCID": 2}
        status, text = self.doctor("--device", "host", **variables)
        self.assertEqual(status, 5, text)
        self.assertIn("srun --mpi=list", text)

    @needs_mpi
    def test_every_rank_of_a_launcher_reports(self):
        status, text = self.doctor("--device", "host", ranks=2)
        self.assertEqual(status, 0, text + self.stderr)
        for rank in (0, 1):
            self.assertRegex(text, rf"(?m)^preload doctor on .*, rank {rank}$")
        self.assertRegex(text, r"launcher +mpirun \(Open MPI\), rank 0 of 2")
        self.assertEqual(text.count("socket directory"), 1, text)  # of the node, and nothing is wrong

    @needs_mpi
    def test_a_world_of_the_wrong_size_is_told(self):
        model = make_llama(self.root / "model", *SMALL)
        status, text = self.doctor("--device", "host", "--model", model, "-tp", 2, "-dp", 1, ranks=3)
        self.assertEqual(status, 2, text)
        self.assertIn("3 ranks were started", text)


class Preflight(harness.Case):
    @needs_mpi
    def test_serve_refuses_what_one_rank_finds_wrong_and_names_the_rank(self):
        model = make_llama(self.root / "model", *SMALL)
        script = 'case "$OMPI_COMM_WORLD_RANK$PMI_RANK" in 1) export NCCL_SOCKET_IFNAME=nowhere9;; esac; exec "$@"'
        daemon = self.start(model, "-tp", 2, ranks=2, through=["sh", "-c", script, "sh"])
        self.assertEqual(daemon.wait_end(20), 5, daemon.log)
        self.assertEqual(daemon.log.count("nowhere9"), 1, daemon.log)
        self.assertIn("rank 1: network", daemon.log)
        self.assertIn("unset NCCL_SOCKET_IFNAME", daemon.log)


if __name__ == "__main__":
    unittest.main()
