# SPDX-License-Identifier: Apache-2.0
"""Load format ``preload`` for vLLM 0.32 or newer: weights from a preload daemon.

    vllm serve DIR --load-format preload

Installed with the package as an entry point of ``vllm.general_plugins``; vLLM calls ``register`` in
each of its processes. docs/engines.md says what is checked and what is refused.
"""

LOAD_FORMAT = "preload"


def register() -> None:
    """Makes the load format known to this process. May be called again."""
    from vllm.model_executor import model_loader

    from .loader import PreloadModelLoader

    if model_loader._LOAD_FORMAT_TO_MODEL_LOADER.get(LOAD_FORMAT) is not PreloadModelLoader:
        model_loader.register_model_loader(LOAD_FORMAT)(PreloadModelLoader)
