# SPDX-License-Identifier: Apache-2.0
"""The key as the engine sees itself: its device, its ranks, and what it would load."""

from __future__ import annotations

import os
import time

import torch
from vllm.distributed import (
    get_dp_group,
    get_pp_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from vllm.distributed.parallel_state import get_world_group
from vllm.distributed.utils import get_pp_indices
from vllm.platforms import current_platform

from ..errors import Mismatch, Unsupported

LAYOUT = "vllm"
DRAFT_METHODS = frozenset({"mtp", "eagle", "eagle3"})  # whose drafts a daemon holds
_DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


def check_platform() -> None:
    """Raises Unsupported where a daemon's memory could not be mapped, whatever else is asked for."""
    if not (current_platform.is_cuda() or current_platform.is_cpu()):
        raise Unsupported(
            f"load format preload: vLLM's platform {current_platform.device_name!r} is not supported, "
            "only CUDA and CPU are: use the default --load-format"
        )


def make_context() -> float:
    """Makes the CUDA context of the worker's GPU, which every load format needs; milliseconds.

    Otherwise the first to touch the GPU makes it, which is the attach, and that of a worker without a
    context would end with it.
    """
    began = time.perf_counter()
    if current_platform.is_cuda():
        torch.cuda.mem_get_info()
    return (time.perf_counter() - began) * 1000


def device_text(vllm_config) -> str:
    """The device as a daemon's name has it: the current GPU, or host:N for the N-th rank of the node."""
    if current_platform.is_cuda():
        return f"cuda:{torch.accelerator.current_device_index()}"
    parallel = vllm_config.parallel_config
    replica = parallel.data_parallel_rank_local
    if replica is None:
        replica = parallel.data_parallel_index
    per_replica = parallel.pipeline_parallel_size * parallel.tensor_parallel_size
    return f"host:{replica * per_replica + get_world_group().local_rank}"


def is_draft(vllm_config, model_config) -> bool:
    speculative = vllm_config.speculative_config
    return speculative is not None and model_config is speculative.draft_model_config


def has_served_draft(vllm_config) -> bool:
    speculative = vllm_config.speculative_config
    return (
        speculative is not None
        and speculative.method in DRAFT_METHODS
        and speculative.draft_model_config is not None
    )


def model_directory(model_config, load_config) -> str:
    """What the daemon's files are compared with: a directory or a hub id."""
    model = model_config.model
    if load_config.download_dir is None or os.path.isdir(model):
        return model
    from huggingface_hub import snapshot_download

    return snapshot_download(
        model, cache_dir=load_config.download_dir, revision=model_config.revision, local_files_only=True
    )


def expectation(vllm_config, model_config, load_config, role: str) -> dict:
    """What must be served: the files of the model, and the key's fields that the engine decides."""
    expect = {
        "model": model_directory(model_config, load_config),
        "fields": key_fields(vllm_config, model_config, role),
    }
    if model_config.revision is not None and not os.path.isdir(model_config.model):
        expect["revision"] = model_config.revision
    return expect


def key_fields(vllm_config, model_config, role: str) -> dict:
    tp_size, tp_rank = get_tensor_model_parallel_world_size(), get_tensor_model_parallel_rank()
    fields = {
        "role": role,
        "tp_size": str(tp_size),
        "tp_rank": str(tp_rank),
        "dtype": _DTYPES.get(model_config.dtype, str(model_config.dtype)),
        "kv_cache_dtype": vllm_config.cache_config.cache_dtype,
    }
    if model_config.quantization is None:
        fields["quantization"] = "none"
    if role == "target":
        fields["layers"] = _layers(model_config)
    if model_config.is_moe:
        fields.update(_experts(vllm_config.parallel_config, tp_size, tp_rank))
    return fields


def _layers(model_config) -> str:
    pp = get_pp_group()
    if pp.world_size == 1:
        return "all"
    count = model_config.get_total_num_hidden_layers()
    begin, end = get_pp_indices(count, pp.rank_in_group, pp.world_size)
    return f"{begin}:{end} of {count}"


def _experts(parallel, tp_size: int, tp_rank: int) -> dict:
    """vLLM flattens data and tensor parallelism into one group of experts."""
    dp = get_dp_group()
    size, rank = dp.world_size * tp_size, dp.rank_in_group * tp_size + tp_rank
    by_expert = parallel.enable_expert_parallel and size > 1
    shares = {"moe_tp_size": size, "moe_tp_rank": rank, "ep_size": 1, "ep_rank": 0}
    if by_expert:
        shares = {"moe_tp_size": 1, "moe_tp_rank": 0, "ep_size": size, "ep_rank": rank}
    return {name: str(value) for name, value in shares.items()}


def check_layout(metadata: dict) -> None:
    """Raises Mismatch unless the served layout is vLLM's and made for this version of it."""
    from vllm.version import __version__ as version

    attributes = metadata["attributes"]
    layout, fits = attributes["layout"], attributes.get("fits") or ""
    if layout != LAYOUT and not layout.startswith("recipe"):
        raise Mismatch(
            f"the daemon serves layout {layout}: serve with --layout {LAYOUT}",
            {"layout": {"expected": LAYOUT, "served": layout}},
        )
    running = ".".join(version.split("+")[0].split(".")[:2])
    if fits.startswith("vLLM ") and running not in fits.removeprefix("vLLM ").replace(",", " ").split():
        raise Mismatch(
            f"the daemon's layout fits {fits}, this is vLLM {version}: serve with a preload that knows it",
            {"layout": {"expected": f"vLLM {version}", "served": fits}},
        )


def check_experts(model: torch.nn.Module, metadata: dict) -> None:
    """Raises Mismatch where a layer places its experts otherwise than the daemon: shapes do not tell."""
    served = metadata["fields"].get("expert_placement", "linear")
    for name, module in model.named_modules():
        placement = getattr(module, "expert_placement_strategy", None)
        if placement is None or getattr(module, "expert_map", None) is None:
            continue
        if placement != served:
            raise Mismatch(
                f"{name} places its experts {placement}, the daemon {served}: serve with "
                f"--expert-placement-strategy {placement}",
                {"expert_placement": {"expected": placement, "served": served}},
            )
