# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's tables from one engine to its successor, with a FlashInfer that stands for the real one."""

import errno
import json
import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

from with_daemon import WithDaemon

import preload
from preload import flashinfer_tables

# Of vLLM's making; what it is made of is vLLM's alone.
HASH = "c0e08888381a68086d35ad68ac110e90f879325c8377dda2c95c298d78a1f399"
OTHER = "0" * 64
FILE = "autotune_configs_dp0_rank3.json"
TABLE = json.dumps({"_metadata": {"flashinfer_version": "0.6.18"}, "('op', 'Runner')": ["Runner", 4]})


class FakeTuner:
    """Keeps what FlashInfer's AutoTuner keeps in a process, in its file format."""

    def __init__(self):
        self.configs = {}

    def save_configs(self, path):
        Path(path).write_text(json.dumps({"_metadata": {"flashinfer_version": "0.6.18"}, **self.configs}))

    def load_configs(self, path):
        table = json.loads(Path(path).read_text())
        if table.pop("_metadata", {}).get("flashinfer_version") != "0.6.18":
            return False
        self.configs.update(table)
        return True


def fake_flashinfer(version="0.6.18", workspace="/root/.cache/flashinfer/0.6.18/90a"):
    """Modules to lay over sys.modules, and the tuner of the process that they stand for."""
    tuner = FakeTuner()
    package = types.ModuleType("flashinfer")
    package.__version__ = version
    autotuner = types.ModuleType("flashinfer.autotuner")
    autotuner.AutoTuner = types.SimpleNamespace(get=lambda: tuner)
    jit = types.ModuleType("flashinfer.jit")
    jit.env = types.SimpleNamespace(FLASHINFER_WORKSPACE_DIR=workspace)
    modules = {"flashinfer": package, "flashinfer.autotuner": autotuner, "flashinfer.jit": jit}
    return mock.patch.dict(sys.modules, modules), tuner


class FlashinferTables(WithDaemon):
    def setUp(self):
        super().setUp()
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        self.where = {"socket_dir": self.directory}
        self.tuner = self.enter_engine()

    def enter_engine(self, **options):
        """From here on this process is another engine; its tuner."""
        patch, tuner = fake_flashinfer(**options)
        self.enter(patch)
        return tuner

    def write(self, folder, name, text=TABLE):
        path = self.root / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, folder, name):
        return (self.root / folder / name).read_text()

    def put(self, folder="old"):
        return flashinfer_tables.put_files(self.root / folder, **self.where)

    def get(self, folder="new"):
        return flashinfer_tables.get_files(self.root / folder, **self.where)

    def test_a_successor_gets_the_files_where_vllm_looks(self):
        self.write("old", f"{HASH}/{FILE}")
        self.write("old", f"{OTHER}/autotune_configs.json", "{}")
        self.assertEqual(self.put(), 2)
        self.assertEqual(self.get(), 2)
        self.assertEqual(self.read("new", f"{HASH}/{FILE}"), TABLE)
        self.assertEqual(self.read("new", f"{OTHER}/autotune_configs.json"), "{}")
        left = [path for path in (self.root / "new").rglob("*") if path.is_file()]
        self.assertEqual(len(left), 2, left)

    def test_files_that_are_there_stay(self):
        self.write("old", f"{HASH}/{FILE}")
        self.put()
        self.write("new", f"{HASH}/{FILE}", '{"newer": 1}')
        self.assertEqual(self.get(), 0)
        self.assertEqual(self.read("new", f"{HASH}/{FILE}"), '{"newer": 1}')

    def test_a_file_system_without_hard_links_gets_them_too(self):
        self.write("old", f"{HASH}/{FILE}")
        self.write("old", f"{OTHER}/{FILE}")
        self.put()
        self.write("new", f"{OTHER}/{FILE}", '{"newer": 1}')
        with mock.patch("os.link", side_effect=PermissionError(errno.EPERM, "no hard links")):
            self.assertEqual(self.get(), 1)
        self.assertEqual(self.read("new", f"{HASH}/{FILE}"), TABLE)
        self.assertEqual(self.read("new", f"{OTHER}/{FILE}"), '{"newer": 1}')
        left = [path for path in (self.root / "new").rglob("*") if path.is_file()]
        self.assertEqual(len(left), 2, left)

    def test_engines_of_several_configurations_add_to_each_other(self):
        self.write("old", f"{HASH}/{FILE}")
        self.write("another", f"{OTHER}/{FILE}")
        self.assertEqual(self.put(), 1)
        self.assertEqual(self.put("another"), 2)
        self.assertEqual(self.get(), 2)

    def test_only_whole_tables_under_vllms_names_are_handed_on(self):
        self.write("old", f"{HASH}/{FILE}", '{"half')
        self.write("old", f"{HASH}/.{FILE}.x.tmp")
        self.write("old", f"{HASH}/autotune_configs_notes.json")
        self.write("old", f"elsewhere/{FILE}")
        with self.assertLogs("preload.flashinfer_tables", "WARNING"):
            self.assertEqual(self.put(), 0)
        self.assertEqual(self.get(), 0)

    def test_another_environment_is_nothing_and_says_what_differs(self):
        self.write("old", f"{HASH}/{FILE}")
        self.put()
        self.enter_engine(version="0.7.0")
        with self.assertLogs("preload.flashinfer_tables", "WARNING") as logs:
            self.assertEqual(self.get(), 0)
        self.assertEqual(len(logs.output), 1)
        self.assertIn("flashinfer 0.6.18 (0.7.0 here)", logs.output[0])
        self.assertFalse((self.root / "new").exists())
        # What the newer engine leaves takes the place of what it cannot use.
        with self.assertLogs("preload.flashinfer_tables", "WARNING"):
            self.assertEqual(self.put(), 1)
        self.assertEqual(self.get(), 1)

    def test_names_that_lead_out_are_not_followed(self):
        hostile = {f"../{FILE}": TABLE, f"{HASH}/../../{FILE}": TABLE, f"/{HASH}/{FILE}": TABLE}
        preload.put_artifact(
            "vllm-warmup-cache/flashinfer_autotune/engine/files.json",
            json.dumps(hostile).encode(),
            json.dumps({"environment": flashinfer_tables.environment()}),
            **self.where,
        )
        with self.assertLogs("preload.flashinfer_tables", "WARNING"):
            self.assertEqual(self.get("deep/new"), 0)
        self.assertEqual(list(self.root.rglob("*.json")), [])

    def test_what_is_no_table_is_not_used(self):
        key = "vllm-warmup-cache/flashinfer_autotune/engine/files.json"
        for data, metadata in ((b"[]", '{"environment": {}}'), (b"{", "{}"), (b"{}", "H200")):
            preload.put_artifact(key, data, metadata, **self.where)
            with self.assertLogs("preload.flashinfer_tables", "WARNING") as logs:
                self.assertEqual(self.get(), 0)
            self.assertEqual(len(logs.output), 1)

    def test_the_tuner_of_a_successor_knows_what_its_predecessors_did(self):
        self.tuner.configs = {"('op', 'Runner', 1)": ["Runner", 7]}
        self.assertTrue(flashinfer_tables.put_tuner(**self.where))
        successor = self.enter_engine()
        self.assertTrue(flashinfer_tables.get_tuner(**self.where))
        self.assertEqual(successor.configs, {"('op', 'Runner', 1)": ["Runner", 7]})

    def test_a_tuner_that_knows_nothing_leaves_nothing(self):
        self.assertFalse(flashinfer_tables.put_tuner(**self.where))
        self.assertFalse(flashinfer_tables.get_tuner(**self.where))

    def test_without_a_tuner_the_remedy_is_named(self):
        with mock.patch.dict(sys.modules, {"flashinfer.autotuner": None}):
            with self.assertRaisesRegex(preload.UsageError, "0.6 or newer"):
                flashinfer_tables.put_tuner(**self.where)

    def test_no_daemon(self):
        self.write("old", f"{HASH}/{FILE}")
        with self.assertRaises(preload.Unavailable):
            flashinfer_tables.put_files(self.root / "old", device="host:7", **self.where)


class VllmFolder(unittest.TestCase):
    def folder(self, **variables):
        names = ("VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR", "VLLM_CACHE_ROOT", "XDG_CACHE_HOME")
        kept = {name: value for name, value in os.environ.items() if name not in names}
        with mock.patch.dict(os.environ, {**kept, "HOME": "/home/user", **variables}, clear=True):
            return str(flashinfer_tables.vllm_folder())

    def test_is_where_vllm_keeps_its_tables(self):
        patch, _ = fake_flashinfer()
        with patch:
            tail = "flashinfer_autotune_cache/0.6.18/90a"
            self.assertEqual(self.folder(), f"/home/user/.cache/vllm/{tail}")
            self.assertEqual(self.folder(XDG_CACHE_HOME="/cache"), f"/cache/vllm/{tail}")
            self.assertEqual(self.folder(VLLM_CACHE_ROOT="/fast/vllm"), f"/fast/vllm/{tail}")
            self.assertEqual(self.folder(VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR="/tables"), "/tables")

    def test_needs_flashinfer_where_no_variable_names_it(self):
        with mock.patch.dict(sys.modules, {"flashinfer": None, "flashinfer.jit": None}):
            self.assertEqual(self.folder(VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR="~/t"), "/home/user/t")
            with self.assertRaisesRegex(preload.UsageError, "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"):
                self.folder()


if __name__ == "__main__":
    unittest.main()
