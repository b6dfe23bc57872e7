#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint of Llama-3-8B's shape with random bf16 weights, as transformers saves it:
16 GB in several safetensors files. Needs torch, transformers and a GPU to be quick.

    make_llama8b.py OUT [--layers N]
"""

import argparse
import pathlib
import sys
import time

import torch
import transformers


def config(layers: int) -> transformers.LlamaConfig:
    return transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rope_theta=500000.0,
        rms_norm_eps=1e-5,
        bos_token_id=128000,
        eos_token_id=128001,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=32)
    args = parser.parse_args()
    start = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    # Built without storage, then filled once: the default initialisers would take minutes on a CPU.
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config(args.layers)).to(torch.bfloat16)
    model.to_empty(device=device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0.0, 0.02)
    args.out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(args.out, max_shard_size="4GB")
    size = sum(f.stat().st_size for f in args.out.glob("*.safetensors"))
    print(f"{args.out}: {size / 1e9:.2f} GB in {time.perf_counter() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
