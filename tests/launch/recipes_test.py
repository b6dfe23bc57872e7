#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recipes of launch/ against the build that they describe: systemd's units are verified as they
are installed, Spack's is run with stand-ins for Spack's own names, Apptainer's is read."""

import importlib.util
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ["PRELOAD_BUILD_DIR"]
CMAKE = (SOURCE / "CMakeLists.txt").read_text()
# Each of our options that the build settles by itself, unless it is told, and those that are ON or OFF.
AUTOMATIC = set(re.findall(r'set\((PRELOAD_\w+) "AUTO" CACHE', CMAKE))
OPTIONS = AUTOMATIC | set(re.findall(r"option\((PRELOAD_\w+) ", CMAKE))


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed here")
class SystemdUnits(unittest.TestCase):
    def test_verify_as_installed(self):
        with tempfile.TemporaryDirectory() as directory:
            prefix = pathlib.Path(directory) / "prefix"
            subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, timeout=120,
                           stdout=subprocess.DEVNULL)  # fmt: skip
            units = sorted((prefix / "lib/systemd/system").iterdir())
            self.assertEqual([unit.name for unit in units], ["preload-keeper.service", "preload@.service"])
            named = [str(unit).replace("@.", "@llama.") for unit in units]
            shutil.copy(units[1], named[1])  # an instance, as systemd makes it
            done = subprocess.run(["systemd-analyze", "verify", "--man=yes", *named], capture_output=True, text=True,
                                  timeout=120, env={**os.environ, "MANPATH": f"{prefix}/share/man"})  # fmt: skip
            # It looks at every unit of the machine: what it says of others is not ours.
            ours = [line for line in done.stderr.splitlines() if "preload" in line]
            self.assertEqual(ours, [])
            for unit in units:
                text = unit.read_text()
                self.assertIn(f'"{prefix}/bin/preload"', text)
                self.assertNotRegex(text, r"@[a-zA-Z_]+@")


class Variants:
    """A spec with the variants that are on."""

    def __init__(self, on):
        self.on = set(on)
        self.variants = {"cuda_arch": types.SimpleNamespace(value=("90",))}

    def satisfies(self, text):
        return text.lstrip("+") in self.on


class SpackPackage:
    run_tests = False

    def define(self, name, value):
        value = {True: "ON", False: "OFF"}.get(value, value) if isinstance(value, bool) else value
        return f"-D{name}={';'.join(value) if isinstance(value, list) else value}"

    def define_from_variant(self, name, variant):
        if variant not in self.declared_variants:
            raise KeyError(f"no variant {variant}")
        return self.define(name, self.spec.satisfies("+" + variant))


def load_recipe():
    """The recipe's class and what it declares, by directive."""
    declared = {}
    module = types.ModuleType("spack.package")
    for directive in ("license", "version", "variant", "depends_on", "conflicts", "generator"):
        rows = declared.setdefault(directive, [])
        setattr(module, directive, lambda *args, rows=rows, **named: rows.append((args, named)))
    module.CMakePackage = SpackPackage
    module.CudaPackage = type("CudaPackage", (), {})
    sys.modules["spack"] = types.ModuleType("spack")
    sys.modules["spack.package"] = module
    path = SOURCE / "launch/spack/packages/preload/package.py"
    spec = importlib.util.spec_from_file_location("preload_recipe", path)
    recipe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipe)
    return recipe.Preload, declared


class SpackRecipe(unittest.TestCase):
    def setUp(self):
        self.recipe, self.declared = load_recipe()
        self.addCleanup(sys.modules.pop, "spack.package")
        self.addCleanup(sys.modules.pop, "spack")
        # CudaPackage brings the variants of CUDA.
        self.variants = {args[0] for args, _ in self.declared["variant"]} | {"cuda"}

    def arguments(self, on):
        package = self.recipe()
        package.declared_variants = self.variants
        package.spec = Variants(on)
        return dict(argument.removeprefix("-D").split("=", 1) for argument in package.cmake_args())

    def test_each_variant_decides_an_option_of_the_build(self):
        combinations = itertools.chain.from_iterable(
            itertools.combinations(sorted(self.variants), n) for n in range(len(self.variants) + 1)
        )
        seen = {}
        for on in combinations:
            arguments = self.arguments(on)
            self.assertLessEqual(set(arguments) - {"CMAKE_CUDA_ARCHITECTURES"}, OPTIONS)
            self.assertLessEqual(AUTOMATIC, set(arguments), "nothing is left to what the machine has")
            for name in AUTOMATIC:
                seen.setdefault(name, set()).add(arguments[name])
        for name, values in seen.items():
            self.assertEqual(values, {"ON", "OFF"}, name)
        self.assertEqual(len(AUTOMATIC), len(self.variants))

    def test_architectures_are_handed_on(self):
        self.assertEqual(self.arguments(["cuda"])["CMAKE_CUDA_ARCHITECTURES"], "90")
        self.assertNotIn("CMAKE_CUDA_ARCHITECTURES", self.arguments([]))

    def test_every_library_that_cmake_looks_for_is_a_dependency(self):
        named = {"OpenSSL": "openssl", "CUDAToolkit": "cuda", "MPI": "mpi", "nlohmann_json": "nlohmann-json",
                 "liburing.h": "liburing", "nccl.h": "nccl", "cxxopts.hpp": "cxxopts", "GTest": "googletest",
                 "prometheus/text_serializer.h": "prometheus-cpp", "archive_entry.h": "libarchive",
                 "Threads": None, "Python3": "python"}  # fmt: skip
        dependencies = {re.split(r"[@ +]", args[0])[0] for args, _ in self.declared["depends_on"]}
        looked_for = set()
        for path in [*(SOURCE / "cmake").glob("*.cmake"), SOURCE / "tests/CMakeLists.txt"]:
            looked_for |= set(re.findall(r"(?m)^\s*find_package\((\w+)", path.read_text()))
            looked_for |= set(re.findall(r"(?m)^\s*find_path\(\w+ (?:NAMES )?([\w./]+)", path.read_text()))
        self.assertGreater(len(looked_for), 8)
        for name in looked_for:
            wanted = named.get(name, name)
            if wanted:
                self.assertIn(wanted, dependencies, f"for {name}")

    def test_it_builds_from_this_clone(self):
        self.assertEqual(self.recipe.git, f"file://{SOURCE}")
        self.assertTrue((SOURCE / "launch/spack/repo.yaml").is_file())


class ApptainerDefinition(unittest.TestCase):
    def setUp(self):
        self.text = (SOURCE / "launch/apptainer/preload.def").read_text()

    def sections(self):
        """(heading, lines) of each section; a heading for each stage's header too."""
        out = []
        for line in self.text.splitlines():
            if line.startswith("#"):
                continue
            if line.startswith("%") or line.startswith("Bootstrap:"):
                out.append((line.split(":")[0], []))
            elif out:
                out[-1][1].append(line)
        return out

    def test_has_the_sections_that_apptainer_knows(self):
        known = {"Bootstrap", "%arguments", "%files", "%files from build", "%post", "%environment", "%runscript",
                 "%test", "%labels", "%help"}  # fmt: skip
        headings = [heading for heading, _ in self.sections()]
        self.assertLessEqual(set(headings), known)
        self.assertEqual(headings.count("Bootstrap"), 2)

    def test_every_argument_is_declared_and_used(self):
        (arguments,) = [lines for heading, lines in self.sections() if heading == "%arguments"]
        declared = {line.split("=")[0].strip() for line in arguments if "=" in line}
        self.assertEqual(declared, set(re.findall(r"{{ (\w+) }}", self.text)))

    def test_names_options_and_scripts_that_are_there(self):
        options = set(re.findall(r"-D(PRELOAD_\w+)=", self.text))
        self.assertTrue(options)
        self.assertLessEqual(options, OPTIONS)
        for script in re.findall(r"\./(launch/\S+)", self.text):
            self.assertTrue(os.access(SOURCE / script, os.X_OK), script)

    @unittest.skipUnless(shutil.which("dpkg-query") and shutil.which("readelf"), "this is not Debian")
    def test_installs_the_libraries_that_the_programs_need(self):
        final = [lines for heading, lines in self.sections() if heading == "%post"][1]
        words = " ".join(final).replace("\\", " ").split()
        named = [word for word in words[words.index("install") + 1 :] if re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", word)]
        known = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Depends}\n", *named], capture_output=True,
                               text=True, timeout=60).stdout  # fmt: skip
        there = set(re.findall(r"[a-z0-9][a-z0-9.+-]+", known)) | {"libc6", "libgcc-s1", "libstdc++6"}
        for program in ("preload", "preload-runtime"):
            dynamic = subprocess.run(["readelf", "-d", f"{BUILD}/src/{program}"], capture_output=True, text=True,
                                     timeout=60).stdout  # fmt: skip
            for library in re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic):
                owner = subprocess.run(["dpkg-query", "-S", f"*/{library}"], capture_output=True, text=True,
                                       timeout=60).stdout  # fmt: skip
                packages = set(re.findall(r"^([a-z0-9.+-]+)(?::\w+)?: ", owner, re.MULTILINE))
                if packages:  # else it is of a site's own MPI or CUDA
                    self.assertTrue(packages & there, f"{program} needs {library} of {packages}")

    def test_runs_both_programs_before_it_is_trusted(self):
        (test,) = [lines for heading, lines in self.sections() if heading == "%test"]
        for program in ("preload", "preload-runtime"):
            self.assertTrue(any(re.search(rf"(^|[ /]){program} --version", line) for line in test), program)

    def test_its_scripts_are_shell(self):
        scripts = [lines for heading, lines in self.sections() if heading in ("%post", "%runscript", "%test")]
        self.assertEqual(len(scripts), 4)
        for lines in scripts:
            script = re.sub(r"{{ \w+ }}", "x", "\n".join(lines))
            done = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, timeout=30)
            self.assertEqual((done.returncode, done.stderr), (0, ""), script)


if __name__ == "__main__":
    unittest.main()
