#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""preload as a site's module: `cmake --install` into a fresh prefix, then `module load preload` with
Lmod and with environment-modules. PRELOAD_BUILD_DIR names the build.

Either tool is taken from the system, or from build/tools, where launch/setup-debian unpacks what
Debian does not install side by side."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ["PRELOAD_BUILD_DIR"]
TOOLS = SOURCE / "build/tools"
REQUIRED = os.environ.get("PRELOAD_REQUIRE_CLUSTER") == "1"


def first_file(*patterns):
    for root, pattern in patterns:
        for path in sorted(pathlib.Path(root).glob(pattern)):
            return path
    return None


LMOD = first_file(
    ("/", "usr/share/lmod/lmod/libexec/lmod"),
    (TOOLS / "lmod", "usr/share/lmod/*/libexec/lmod"),
)
ENVIRONMENT_MODULES = first_file(
    ("/", "usr/lib/*/modulecmd.tcl"),
    ("/", "usr/share/Modules/libexec/modulecmd.tcl"),
    (TOOLS / "environment-modules", "usr/lib/*/modulecmd.tcl"),
)


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Module:
    """What both tools must do; each subclass says how a shell calls its own."""

    tool = None  # the tool's command line, whose output a shell evaluates

    @classmethod
    def setUpClass(cls):
        if cls.tool is None and not REQUIRED:
            raise unittest.SkipTest("not installed here, and not unpacked by launch/setup-debian")
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.root = pathlib.Path(scratch.name).resolve()
        cls.prefix = cls.root / "fresh prefix"  # paths with spaces are paths
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        (cls.version,) = [p.name for p in (cls.prefix / "share/modulefiles/preload").iterdir() if p.suffix != ".lua"]

    def shell(self, script, **variables):
        """A login shell's worth of environment, the module loaded; stdout and stderr together."""
        function = f'module() {{ eval "$({shlex.join(map(str, self.tool))} bash "$@")"; }}'
        use = f"module use {shlex.quote(str(self.prefix / 'share/modulefiles'))}"
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(self.root), "LC_ALL": "C.UTF-8", **variables}
        return run("bash", "--norc", "-c", f"exec 2>&1; {function}\n{use}\n{script}", env=environment, cwd=self.root)

    def test_the_tool_its_manual_and_the_python_package_are_found(self):
        out = self.shell("module load preload; preload --version; command -v preload")
        self.assertEqual(out.splitlines(), [f"preload {self.version}", str(self.prefix / "bin/preload")])
        self.assertEqual(
            self.shell("module load preload; man -w preload preload-serve").splitlines(),
            [str(self.prefix / f"share/man/man1/{page}.1") for page in ("preload", "preload-serve")],
        )
        self.assertIn("EXIT STATUS", self.shell("module load preload; MANPAGER=cat man preload"))
        program = "import preload, preload._library as l; print(preload.__version__, l.library()._name)"
        out = self.shell(f"module load preload; {shlex.quote(sys.executable)} -c {shlex.quote(program)}")
        version, library = out.strip().split(" ", 1)
        self.assertEqual(version, self.version)
        self.assertTrue(pathlib.Path(library).is_relative_to(self.prefix), library)

    def test_the_system_s_manual_and_completions_stay(self):
        manual = self.root / "manual/man1"
        manual.mkdir(parents=True, exist_ok=True)
        (manual / "own-page.1").write_text(".TH OWN-PAGE 1\n")
        script = "module load preload; man -w own-page"
        self.assertIn("own-page.1", self.shell(script, MANPATH=f"{manual.parent}:"))
        # A PATH's folder says where its pages are, as long as MANPATH leaves room for it.
        out = self.shell("module load preload; manpath", PATH=f"{self.root}/bin:/usr/bin:/bin")
        self.assertIn("/usr/share/man", out)
        self.assertIn(str(self.prefix / "share/man"), out)
        self.assertIn(":/usr/share", self.shell("module load preload; echo $XDG_DATA_DIRS"))
        out = self.shell("module load preload; echo $XDG_DATA_DIRS", XDG_DATA_DIRS="/own")
        self.assertEqual(out.strip(), f"{self.prefix}/share:/own")

    def test_a_client_built_by_pkg_config_runs(self):
        compiler = os.environ.get("CC", "cc")
        out = self.shell(
            f"module load preload; eval {compiler} {SOURCE}/examples/attach.c -o client"
            " $(pkg-config --cflags --libs preload-client) && PRELOAD_SOCKET_DIR=$PWD/none ./client; echo $?"
        )
        self.assertEqual(out.splitlines()[-1], "7", "it runs, and finds no daemon")

    def test_bash_completes_it(self):
        out = self.shell('module load preload; source "${XDG_DATA_DIRS%%:*}/bash-completion/completions/preload";'
                         "complete -p preload")  # fmt: skip
        self.assertEqual(out.strip(), "complete -F _preload preload")

    def test_unloading_takes_everything_back(self):
        names = "PATH PYTHONPATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH MANPATH LD_LIBRARY_PATH"
        show = f'for n in {names}; do echo "$n=${{!n}}"; done'
        own = {name: "/own" for name in names.split()} | {"PATH": "/own:/usr/bin:/bin", "MANPATH": "/own:"}
        before = self.shell(show, **own)

        def alike(text):
            return text.replace("::", ":")  # Lmod writes an empty entry twice, which means the same

        loaded = self.shell(f"module load preload; {show}", **own)
        self.assertEqual(loaded.count(str(self.prefix)), 5, loaded)
        self.assertIn("LD_LIBRARY_PATH=/own\n", loaded, "nothing needs it")
        after = self.shell(f"module load preload; module unload preload; {show}", **own)
        self.assertEqual(alike(after), before)

    def test_it_explains_itself(self):
        self.assertIn(self.version, self.shell("module whatis preload"))
        self.assertIn("man preload", self.shell("module help preload"))

    def test_of_two_versions_one_is_loaded(self):
        modulefiles = self.prefix / "share/modulefiles/preload"
        for suffix in ("", ".lua"):
            shutil.copy(modulefiles / f"{self.version}{suffix}", modulefiles / f"999{suffix}")
            self.addCleanup((modulefiles / f"999{suffix}").unlink)
        out = self.shell(f"module load preload/{self.version}; module load preload/999; echo loaded=$LOADEDMODULES")
        loaded = out.splitlines()[-1].removeprefix("loaded=").split(":")
        self.assertEqual(len([name for name in loaded if name.startswith("preload/")]), 1, out)


class Lmod(Module, unittest.TestCase):
    tool = LMOD and [LMOD]


class EnvironmentModules(Module, unittest.TestCase):
    tool = ENVIRONMENT_MODULES and ["tclsh", ENVIRONMENT_MODULES]


if __name__ == "__main__":
    unittest.main()
