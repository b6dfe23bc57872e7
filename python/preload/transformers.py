# SPDX-License-Identifier: Apache-2.0
"""Hugging Face models around served weights, in place of from_pretrained.

    from preload.transformers import from_preload

    model = from_preload("meta-llama/Llama-3.1-8B-Instruct", device="cuda:0", wait=60)

The daemon serves ``--layout transformers`` (or ``hf`` where the checkpoint's names are the model's).
"""

from __future__ import annotations

import copy
import os
import re

import torch
import transformers

from ._assign import assign
from ._meta import WeightsOnMeta, left_on_meta
from .errors import Mismatch, Unsupported, UsageError
from .timing import Timing
from .torch import StateDict, load

__all__ = ["from_preload"]

_LAYOUTS = ("transformers", "hf")


def from_preload(
    model_dir,
    *,
    model_class=transformers.AutoModelForCausalLM,
    config=None,
    dtype=None,
    revision: str | None = None,
    trusted: bool = False,
    expect=None,
    attn_implementation: str | None = None,
    gpu=None,
    **where,
):
    """The model of a checkpoint, built around the weights that a daemon holds of it; in eval mode.

    model_dir: directory or hub id in the local cache; its files must be those that the daemon loaded,
        unless trusted. expect: with trusted, what must be served instead, as in preload.attach.
    model_class: as in transformers, an auto class or a model's own.
    config, dtype, attn_implementation: as in from_pretrained; dtype must be what is served, and config is
        copied.
    gpu and where: as in preload.attach: device, slot, socket_dir, wait, copy …

    Parameters do not require gradients: they are read-only, and raise Unsupported for what would write to
    them, such as load_state_dict, merging an adapter without safe_merge, or training. ``model.preload_info`` tells what is
    attached, ``model.preload_timing`` how long each step took. Raises preload's errors: Mismatch for
    another checkpoint, TensorMismatch with the list of tensors that differ, Unsupported for models
    that transformers quantizes itself.
    """
    if expect is not None and not trusted:
        raise UsageError(
            "from_preload compares model_dir's files with what is served: give expect only with trusted=True"
        )
    timing = Timing()
    with timing.step("config"):
        config = _config(model_dir, config, revision)
    if not trusted:
        expect = {"model": os.fspath(model_dir), **({"revision": revision} if revision else {})}
    state = load(gpu, expect=expect, **where)
    for step, milliseconds in state.timing.steps.items():
        timing.add(step, milliseconds)
    _check_layout(state)
    with timing.step("build"):
        model = _build(model_class, config, dtype, attn_implementation)
    with timing.step("assign"):
        assign(model, state, read_only=state.read_only)
        _move_buffers(model, _device_of(state))
        _check_complete(model)
    with timing.step("generation config"):
        _set_generation_config(model, model_dir, revision)
    model.preload_info, model.preload_timing = state.info, timing
    return model.eval()


def _config(model_dir, config, revision):
    if config is None:
        extra = {"revision": revision} if revision else {}
        config = transformers.AutoConfig.from_pretrained(model_dir, local_files_only=True, **extra)
    else:
        config = copy.deepcopy(config)  # building a model writes to it, as from_pretrained knows
    quantization = getattr(config, "quantization_config", None)
    if quantization is not None:
        method = (
            quantization.get("quant_method") if isinstance(quantization, dict) else quantization.quant_method
        )
        raise Unsupported(
            f"{model_dir} is quantized ({method}): transformers replaces modules while it loads such weights, "
            "use from_pretrained"
        )
    return config


def _check_layout(state: StateDict) -> None:
    attributes = state.info.metadata["attributes"]
    if attributes["layout"] not in _LAYOUTS:
        raise Mismatch(
            f"the daemon serves layout {attributes['layout']}: serve with --layout transformers",
            {"layout": {"expected": "transformers", "served": attributes["layout"]}},
        )


def _no_init_weights():
    try:
        from transformers.initialization import no_init_weights
    except ImportError:  # before transformers 5
        from transformers.modeling_utils import no_init_weights
    return no_init_weights()


def _build(model_class, config, dtype, attn_implementation):
    """On the CPU: buffers are computed there, as from_pretrained does, and moved after that."""
    options = {} if attn_implementation is None else {"attn_implementation": attn_implementation}
    if dtype is not None and dtype != "auto":
        options["dtype"] = dtype
    elif config.dtype is not None:
        options["dtype"] = config.dtype
    from_config = getattr(model_class, "from_config", None) or model_class._from_config
    with WeightsOnMeta("cpu"), _no_init_weights():
        model = from_config(config, **options)
    model.tie_weights()
    _keep_in_float(model, options.get("dtype"))
    return model


def _keep_in_float(model, dtype) -> None:
    """Parameters that the model wants in another type than its own, as from_pretrained has them."""
    plan = getattr(model, "_get_dtype_plan", None)
    for pattern, wanted in (plan(dtype) if plan is not None and dtype is not None else {}).items():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.dtype != wanted and re.search(pattern, name):
                module_name, _, leaf = name.rpartition(".")
                module = model.get_submodule(module_name)
                if leaf in module._parameters:
                    module._parameters[leaf] = torch.nn.Parameter(
                        tensor.detach().to(wanted), tensor.requires_grad
                    )
                else:
                    module._buffers[leaf] = tensor.to(wanted)


def _device_of(state: StateDict) -> torch.device:
    index = state.info.cuda_device
    return torch.device("cpu") if index is None else torch.device("cuda", index)


def _move_buffers(model, device: torch.device) -> None:
    if device.type == "cpu":
        return
    moved: dict = {}
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.device != device and not buffer.is_meta:
                moved.setdefault(id(buffer), buffer.to(device))
                module._buffers[name] = moved[id(buffer)]
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and id(value) in moved:
                setattr(module, name, moved[id(value)])


def _check_complete(model) -> None:
    if left := left_on_meta(model, skip=(transformers.PreTrainedConfig,)):
        raise Unsupported(
            f"{len(left)} tensors of the model have no memory: {', '.join(left[:20])}; this model cannot be built "
            "around weights that are there: use from_pretrained"
        )


def _set_generation_config(model, model_dir, revision) -> None:
    if not model.can_generate():
        return
    extra = {"revision": revision} if revision else {}
    try:
        model.generation_config = transformers.GenerationConfig.from_pretrained(
            model_dir, local_files_only=True, **extra
        )
    except OSError:
        pass  # none is stored: it follows from the model's config
