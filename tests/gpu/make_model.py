#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint of a known model's shape with random bf16 weights, as transformers saves it:
several safetensors files. Needs torch and transformers, and a GPU to be quick.

    make_model.py SHAPE OUT [--layers N] [--tiny]

    llama8b      Llama 3 8B: 16 GB
    qwen3        Qwen3 8B with 12 of its 36 layers: 7 GB
    mixtral      Mixtral 8x7B with 4 of its 32 layers: 12 GB
    qwen3_moe    Qwen3 30B-A3B with 8 of its 48 layers: 11 GB
    deepseek_v3  DeepSeek-V3 with its parts (MLA, groups of experts, a shared expert, dense layers
                 first) at less than its widths: 4 GB
"""

import argparse
import pathlib
import sys
import time

import torch
import transformers

# Per shape: the config's class, its sizes, and the sizes that --tiny puts in their place.
SHAPES = {
    "llama8b": (
        transformers.LlamaConfig,
        {
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
            "rope_theta": 500000.0,
            "rms_norm_eps": 1e-5,
            "bos_token_id": 128000,
            "eos_token_id": 128001,
        },
        {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 8},
    ),
    "qwen3": (
        transformers.Qwen3Config,
        {
            "vocab_size": 151936,
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "num_hidden_layers": 12,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 8192,
            "rope_theta": 1000000.0,
            "rms_norm_eps": 1e-6,
        },
        {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 8, "head_dim": 32},
    ),
    "mixtral": (
        transformers.MixtralConfig,
        {
            "vocab_size": 32000,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 4,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "rope_theta": 1000000.0,
        },
        {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 8},
    ),
    "qwen3_moe": (
        transformers.Qwen3MoeConfig,
        {
            "vocab_size": 151936,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 8,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "norm_topk_prob": True,
            "rope_theta": 1000000.0,
        },
        {"vocab_size": 512, "hidden_size": 128, "moe_intermediate_size": 64, "num_experts": 16, "head_dim": 32},
    ),
    "deepseek_v3": (
        transformers.DeepseekV3Config,
        {
            "vocab_size": 129280,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "moe_intermediate_size": 1024,
            "num_hidden_layers": 6,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "n_routed_experts": 64,
            "n_shared_experts": 1,
            "num_experts_per_tok": 8,
            "n_group": 8,
            "topk_group": 4,
            "first_k_dense_replace": 3,
            "q_lora_rank": 768,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "num_nextn_predict_layers": 0,
        },
        {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 64},
    ),
}


def config(shape: str, layers: int | None, tiny: bool) -> transformers.PreTrainedConfig:
    cls, sizes, less = SHAPES[shape]
    sizes = sizes | (less if tiny else {})
    if layers is not None:
        sizes["num_hidden_layers"] = layers
    return cls(**sizes, tie_word_embeddings=False, dtype="bfloat16")


def fill(model) -> None:
    """Random values of a size that keeps activations finite through any number of layers."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0.0, 0.02)
        for module in model.modules():
            if hasattr(module, "e_score_correction_bias"):  # in float32, as DeepSeek stores it
                bias = torch.empty_like(module.e_score_correction_bias, dtype=torch.float32)
                module.e_score_correction_bias = bias.normal_(0.0, 0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--tiny", action="store_true", help="sizes for a machine without a GPU")
    args = parser.parse_args()
    start = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    # Built without storage, then filled once: the default initialisers would take minutes on a CPU.
    with torch.device("meta"):
        made = config(args.shape, args.layers, args.tiny)
        model = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16)
    model.to_empty(device=device)
    fill(model)
    args.out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(args.out, max_shard_size="4GB")
    size = sum(f.stat().st_size for f in args.out.glob("*.safetensors"))
    print(f"{args.out}: {size / 1e9:.2f} GB in {time.perf_counter() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
