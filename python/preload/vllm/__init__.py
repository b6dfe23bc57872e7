# SPDX-License-Identifier: Apache-2.0
"""Load format ``preload`` for vLLM 0.32 or newer: weights from a preload daemon.

    vllm serve DIR --load-format preload

Installed with the package as an entry point of ``vllm.general_plugins``; vLLM calls ``register`` in
each of its processes. docs/engines.md says what is checked and what is refused.
"""

from ..errors import Unsupported

LOAD_FORMAT = "preload"
SUPPORTED = "0.32"  # versions of vLLM, whose names this uses


def register() -> None:
    """Makes the load format known to this process. May be called again.

    vLLM calls it at every start, whatever the load format: where this vLLM lacks a name that the loader
    needs, only those who ask for the loader are told.
    """
    from vllm.model_executor import model_loader

    try:
        from .loader import PreloadModelLoader as loader
    except (ImportError, AttributeError) as error:
        loader = _stub(model_loader.BaseModelLoader, error)

    if model_loader._LOAD_FORMAT_TO_MODEL_LOADER.get(LOAD_FORMAT) is not loader:
        model_loader.register_model_loader(LOAD_FORMAT)(loader)


def _stub(base: type, error: Exception) -> type:
    """A loader that says why there is none."""
    from vllm.version import __version__ as version

    text = (
        f"load format preload needs a vLLM of version {SUPPORTED}; this is {version}, which lacks a name that "
        f"the loader uses ({error}): install another vLLM, or use --load-format auto"
    )

    class UnsupportedLoader(base):
        def __init__(self, load_config):
            raise Unsupported(text) from error

        def download_model(self, model_config):
            raise Unsupported(text)

        def load_weights(self, model, model_config):
            raise Unsupported(text)

    return UnsupportedLoader
