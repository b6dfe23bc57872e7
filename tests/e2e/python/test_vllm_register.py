# SPDX-License-Identifier: Apache-2.0
"""The plugin in a vLLM that lacks names which the loader uses: only those who ask for it are told."""

import sys
import types
import unittest
from unittest import mock

import daemon  # noqa: F401  finds the package

import preload
import preload.vllm


def module(name: str, **members) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update(members)
    return made


class VllmRegister(unittest.TestCase):
    def setUp(self):
        self.loaders = loaders = {}

        class BaseModelLoader:
            def __init__(self, load_config):
                self.load_config = load_config

        def register_model_loader(name):
            def register(loader):
                assert issubclass(loader, BaseModelLoader)
                loaders[name] = loader
                return loader

            return register

        model_loader = module(
            "vllm.model_executor.model_loader",
            BaseModelLoader=BaseModelLoader,
            register_model_loader=register_model_loader,
            _LOAD_FORMAT_TO_MODEL_LOADER=loaders,
        )
        executor = module("vllm.model_executor", model_loader=model_loader)
        modules = {
            "vllm": module("vllm", model_executor=executor),
            "vllm.model_executor": executor,
            "vllm.model_executor.model_loader": model_loader,
            "vllm.version": module("vllm.version", __version__="0.99.1"),
            # What the loader needs first, and this vLLM does not have.
            "torch": module("torch"),
            "vllm.config": module("vllm.config"),
            "vllm.config.load": module("vllm.config.load"),
        }
        patched = mock.patch.dict(sys.modules, modules)
        patched.start()
        self.addCleanup(patched.stop)
        sys.modules.pop("preload.vllm.loader", None)

    def test_does_not_end_a_start_with_another_load_format(self):
        preload.vllm.register()
        preload.vllm.register()  # vLLM does so in each process, and warm-ups
        self.assertEqual(list(self.loaders), ["preload"])

    def test_says_what_is_missing_and_which_versions_have_it(self):
        preload.vllm.register()
        with self.assertRaises(preload.Unsupported) as caught:
            self.loaders["preload"](None)
        for said in ("LoadConfig", "0.99.1", "0.32", "--load-format auto"):
            self.assertIn(said, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
