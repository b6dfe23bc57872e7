# SPDX-License-Identifier: Apache-2.0
"""cmake --install into an empty prefix, and the examples built against what came out of it."""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from daemon import BUILD, SOURCE, Daemon


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=600, **options
    )
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.root = Path(scratch.name)
        cls.prefix = cls.root / "moved"
        run("cmake", "--install", BUILD, "--prefix", cls.root / "prefix")
        (cls.root / "prefix").rename(cls.prefix)  # nothing may depend on where it was installed
        cls.libdir = next(cls.prefix.rglob("libpreload_client.so")).parent

    def test_has_everything(self):
        for path in (
            "bin/preload",
            "libexec/preload/preload-runtime",
            "include/preload/client.h",
            "include/preload/client.hpp",
        ):
            self.assertTrue((self.prefix / path).is_file(), path)
        self.assertTrue((self.libdir / "libpreload_client.so.1").is_symlink())

    def test_the_tool_runs_from_there(self):
        self.assertIn("attach", run(self.prefix / "bin/preload", "--help"))

    def expected(self, directory):
        """What the examples print, from the Python package's own view of the manifest."""
        import preload

        with preload.attach(socket_dir=directory) as shard:
            return [f"{t.hash}  {t.dtype}  {name}" for name, t in shard.items()]

    def check_example(self, program, environment):
        directory = str(self.root / "run")
        with Daemon(directory):
            environment = {**os.environ, "PRELOAD_SOCKET_DIR": directory, **environment}
            for arguments in ([], ["host:0"]):
                lines = run(program, *arguments, env=environment).splitlines()
                self.assertEqual(lines, self.expected(directory))
        self.assertEqual(subprocess.run([program], env=environment, capture_output=True).returncode, 7)

    def test_find_package(self):
        build = self.root / "cmake-build"
        prefix = f"-DCMAKE_PREFIX_PATH={self.prefix}"
        run("cmake", "-G", "Ninja", "-S", SOURCE / "examples", "-B", build, prefix)
        run("cmake", "--build", build)
        for example in ("attach_c", "attach_cpp"):
            self.check_example(build / example, {})

    def test_pkg_config(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.libdir / "pkgconfig")}
        flags = shlex.split(
            run("pkg-config", "--cflags", "--libs", "preload-client", env=environment)
        )
        program = self.root / "attach_pc"
        warnings = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
        compiler = os.environ.get("CC", "cc")
        run(compiler, *warnings, SOURCE / "examples/attach.c", "-o", program, *flags)
        self.check_example(program, {"LD_LIBRARY_PATH": str(self.libdir)})

    def test_the_python_package_finds_its_library(self):
        directory = str(self.root / "run")
        environment = {k: v for k, v in os.environ.items() if k != "PRELOAD_CLIENT_LIBRARY"}
        environment["PYTHONPATH"] = str(self.libdir / "preload/python")
        program = (
            "import sys, preload, preload._library as l\n"
            "print(len(preload.attach(socket_dir=sys.argv[1])), l.library()._name)"
        )
        with Daemon(directory):
            count, name = run(sys.executable, "-c", program, directory, env=environment).split()
        self.assertEqual(count, "28")
        self.assertTrue(Path(name).resolve().is_relative_to(self.prefix.resolve()), name)

    def test_the_bench_finds_its_python_helper(self):
        model = self.root / "model"
        run(sys.executable, SOURCE / "tests/support/make_llama.py", model, "--layers", 1, "--vocab", 500)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        environment["PRELOAD_PYTHON"] = sys.executable
        command = [self.prefix / "bin/preload", "bench", "load", "--model", model, "--device", "host"]
        report = json.loads(run(*command, "--runs", 1, "--peers=instanttensor", "--json", env=environment))
        for peer in report["peers"]:
            self.assertTrue(peer.get("skipped"), peer)


if __name__ == "__main__":
    unittest.main()
