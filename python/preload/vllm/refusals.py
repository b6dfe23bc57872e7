# SPDX-License-Identifier: Apache-2.0
"""Features of vLLM that write to weights, refused by name before they do."""

from __future__ import annotations

import functools
import sys

from ..errors import Unsupported

_MARK = "_preload_shares_weights"

# Of vLLM 0.32's workers: what writes to a loaded model's weights, or moves them elsewhere.
_WRITING_CALLS = (
    "reload_weights",
    "reset_weights",
    "sleep",
    "discard",
    "init_weight_transfer_engine",
    "start_weight_update",
    "start_draft_weight_update",
    "update_weights",
    "elastic_ep_execute",
)
_WORKERS = (("vllm.v1.worker.gpu_worker", "Worker"), ("vllm.v1.worker.cpu_worker", "CPUWorker"))


def _refusal(feature: str) -> Unsupported:
    return Unsupported(
        f"{feature} writes to weights that are shared with a preload daemon and its other clients: use "
        '{"mode": "copy"} in --model-loader-extra-config, or --load-format auto'
    )


def check_config(vllm_config, zero_copy: bool) -> None:
    """Raises Unsupported for what the engine is configured to do to its weights."""
    if vllm_config.model_config.enable_sleep_mode:
        raise Unsupported(
            "sleep mode (--enable-sleep-mode) moves weights out of vLLM's own memory pool, where a preload "
            "daemon's are not: release the daemon's instead (preload release), or use --load-format auto"
        )
    if not zero_copy:
        return
    if vllm_config.parallel_config.enable_eplb:
        raise _refusal("expert load balancing (--enable-eplb)")
    if vllm_config.weight_transfer_config is not None:
        raise _refusal("weight transfer (--weight-transfer-config)")
    if _offloads(vllm_config):
        raise _refusal("weight offloading (--cpu-offload-gb and its kin)")


def _offloads(vllm_config) -> bool:
    offload = getattr(vllm_config, "offload_config", None)
    uva, prefetch = getattr(offload, "uva", None), getattr(offload, "prefetch", None)
    return bool(getattr(uva, "cpu_offload_gb", 0) or getattr(prefetch, "offload_group_size", 0))


def protect(model) -> None:
    """Makes this process's workers refuse, by name, calls that would write to ``model``."""
    object.__setattr__(model, _MARK, True)
    for module_name, class_name in _WORKERS:
        worker = getattr(sys.modules.get(module_name), class_name, None)
        if worker is None:
            continue
        for name in _WRITING_CALLS:
            call = vars(worker).get(name)
            if call is not None and not hasattr(call, _MARK):
                setattr(worker, name, _refusing(name, call))


def _refusing(name: str, call):
    @functools.wraps(call)
    def wrapper(self, *args, **kwargs):
        model = self.model_runner.get_model()
        if getattr(model, _MARK, False):
            raise _refusal(f"{name}()")
        return call(self, *args, **kwargs)

    setattr(wrapper, _MARK, True)
    return wrapper
