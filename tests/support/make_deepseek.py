#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint of DeepSeek-V3's config and tensor names with block FP8, of holes only.

    make_deepseek.py OUT

91,991 tensors in 163 files; the headers are real, the payload takes no space on disk.
"""
import json
import os
import sys
from math import prod

CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "n_group": 8,
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "vocab_size": 129280,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
    },
}
SIZE = {"BF16": 2, "F32": 4, "F8_E4M3": 1}
FILES = 163


def mlp(at, hidden, units):
    return {
        at + "gate_proj.weight": [units, hidden],
        at + "up_proj.weight": [units, hidden],
        at + "down_proj.weight": [hidden, units],
    }


def linears(config, layer, at):
    """The quantised weights of a layer: name -> shape."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope, value = config["qk_nope_head_dim"], config["v_head_dim"]
    out = {
        at + "self_attn.q_a_proj.weight": [config["q_lora_rank"], hidden],
        at + "self_attn.q_b_proj.weight": [heads * (nope + rope), config["q_lora_rank"]],
        at + "self_attn.kv_a_proj_with_mqa.weight": [rank + rope, hidden],
        at + "self_attn.kv_b_proj.weight": [heads * (nope + value), rank],
        at + "self_attn.o_proj.weight": [hidden, heads * value],
    }
    if layer < config["first_k_dense_replace"]:
        return out | mlp(at + "mlp.", hidden, config["intermediate_size"])
    units = config["moe_intermediate_size"]
    for expert in range(config["n_routed_experts"]):
        out |= mlp(f"{at}mlp.experts.{expert}.", hidden, units)
    return out | mlp(at + "mlp.shared_experts.", hidden, units)


def tensors(config):
    """name -> (dtype, shape), in the order of the layers."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    out = {"model.embed_tokens.weight": ("BF16", [vocab, hidden])}
    layers = config["num_hidden_layers"]
    for layer in range(layers + config["num_nextn_predict_layers"]):
        at = f"model.layers.{layer}."
        for name, shape in linears(config, layer, at).items():
            out[name] = ("F8_E4M3", shape)
            out[name + "_scale_inv"] = ("F32", [-(-extent // 128) for extent in shape])
        floats = {
            "input_layernorm.weight": [hidden],
            "post_attention_layernorm.weight": [hidden],
            "self_attn.q_a_layernorm.weight": [config["q_lora_rank"]],
            "self_attn.kv_a_layernorm.weight": [config["kv_lora_rank"]],
        }
        if layer >= config["first_k_dense_replace"]:
            floats["mlp.gate.weight"] = [config["n_routed_experts"], hidden]
            out[at + "mlp.gate.e_score_correction_bias"] = ("F32", [config["n_routed_experts"]])
        if layer >= layers:
            floats |= {"enorm.weight": [hidden], "hnorm.weight": [hidden]}
            floats |= {"eh_proj.weight": [hidden, 2 * hidden], "shared_head.norm.weight": [hidden]}
            floats |= {"embed_tokens.weight": [vocab, hidden]}
            floats |= {"shared_head.head.weight": [vocab, hidden]}
        out |= {at + name: ("BF16", shape) for name, shape in floats.items()}
    out["model.norm.weight"] = ("BF16", [hidden])
    out["lm_head.weight"] = ("BF16", [vocab, hidden])
    return out


def write(out):
    """The checkpoint directory; returns the number of its tensors."""
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as file:
        json.dump(CONFIG, file, indent=1)
    stored = list(tensors(CONFIG).items())
    share, weight_map = -(-len(stored) // FILES), {}
    for index in range(FILES):
        name = f"model-{index + 1:05d}-of-{FILES:06d}.safetensors"
        header, at = {}, 0
        for tensor, (dtype, shape) in stored[index * share : (index + 1) * share]:
            end = at + prod(shape) * SIZE[dtype]
            header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
            at, weight_map[tensor] = end, name
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(out, name), "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + at)
    with open(os.path.join(out, "model.safetensors.index.json"), "w") as file:
        json.dump({"weight_map": weight_map}, file)
    return len(stored)


if __name__ == "__main__":
    print(write(sys.argv[1]))
