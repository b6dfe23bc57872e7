#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small checkpoint of the Llama family with real tensor names, a real config and random
weights, as transformers would save it. Needs nothing but the standard library.

    make_llama.py OUT [--family llama|mistral|qwen2|qwen3] [--tied] [--shards N] ...

The same flags give the same bytes. Weights are finite and of a magnitude that a forward pass bears.
"""

import argparse
import json
import pathlib
import random
import sys

CHUNK_BYTES = 1 << 20

# Per type: bytes of an element, bits kept of a random one, and bits set for a weight (magnitude
# 1/64 to 1/32, any sign) and for a norm (1 to 2, positive).
DTYPES = {
    "BF16": (2, 0x807F, 0x3C80, 0x3F80),
    "F16": (2, 0x83FF, 0x2400, 0x3C00),
    "F32": (4, 0x807FFFFF, 0x3C800000, 0x3F800000),
}
TORCH_NAMES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path, help="directory to write into, made if absent")
    parser.add_argument("--family", choices=sorted(ARCHITECTURES), default="llama")
    parser.add_argument("--tied", action="store_true", help="tie lm_head to the embedding")
    parser.add_argument(
        "--store-lm-head", action="store_true", help="with --tied: store lm_head.weight all the same"
    )
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, help="default: hidden / heads")
    parser.add_argument("--intermediate", type=int, default=704)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="BF16")
    parser.add_argument("--shards", type=int, default=1, help="files; more than one come with an index")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sparse", action="store_true", help="zeros that take no room on the disk")
    args = parser.parse_args(argv)
    for name in ("vocab", "hidden", "layers", "heads", "kv_heads", "intermediate", "shards"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if args.heads % args.kv_heads:
        parser.error("--heads must be a multiple of --kv-heads")
    if args.head_dim is None:
        if args.hidden % args.heads:
            parser.error("--hidden must be a multiple of --heads, or give --head-dim")
        args.head_dim = args.hidden // args.heads
    if args.store_lm_head and not args.tied:
        parser.error("--store-lm-head goes with --tied; an untied lm_head is always stored")
    if args.shards > len(tensor_shapes(args)):
        parser.error("--shards exceeds the number of tensors")
    return args


def config_of(args):
    config = {
        "architectures": [ARCHITECTURES[args.family]],
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": args.head_dim,
        "hidden_act": "silu",
        "hidden_size": args.hidden,
        "initializer_range": 0.02,
        "intermediate_size": args.intermediate,
        "max_position_embeddings": 2048,
        "model_type": args.family,
        "num_attention_heads": args.heads,
        "num_hidden_layers": args.layers,
        "num_key_value_heads": args.kv_heads,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": args.tied,
        "torch_dtype": TORCH_NAMES[args.dtype],
        "use_cache": True,
        "vocab_size": args.vocab,
    }
    if args.family == "llama":
        config |= {"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1, "rope_scaling": None}
    elif args.family == "mistral":
        config |= {"sliding_window": None}
    else:
        config |= {"use_sliding_window": False, "sliding_window": None, "max_window_layers": args.layers}
    if args.family == "qwen3":
        config |= {"attention_bias": False}
    return dict(sorted(config.items()))


def tensor_shapes(args):
    """Name → (shape, whether it is a norm), in the model's order."""
    q, kv = args.heads * args.head_dim, args.kv_heads * args.head_dim
    shapes = {"model.embed_tokens.weight": ([args.vocab, args.hidden], False)}
    for layer in range(args.layers):
        prefix = f"model.layers.{layer}."
        attention = prefix + "self_attn."
        shapes[prefix + "input_layernorm.weight"] = ([args.hidden], True)
        for name, rows in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
            shapes[f"{attention}{name}.weight"] = ([rows, args.hidden], False)
            if args.family == "qwen2":
                shapes[f"{attention}{name}.bias"] = ([rows], False)
        shapes[attention + "o_proj.weight"] = ([args.hidden, q], False)
        if args.family == "qwen3":
            shapes[attention + "q_norm.weight"] = ([args.head_dim], True)
            shapes[attention + "k_norm.weight"] = ([args.head_dim], True)
        shapes[prefix + "post_attention_layernorm.weight"] = ([args.hidden], True)
        shapes[prefix + "mlp.gate_proj.weight"] = ([args.intermediate, args.hidden], False)
        shapes[prefix + "mlp.up_proj.weight"] = ([args.intermediate, args.hidden], False)
        shapes[prefix + "mlp.down_proj.weight"] = ([args.hidden, args.intermediate], False)
    shapes["model.norm.weight"] = ([args.hidden], True)
    if not args.tied or args.store_lm_head:
        shapes["lm_head.weight"] = ([args.vocab, args.hidden], False)
    return shapes


def size_of(shape, dtype):
    size = DTYPES[dtype][0]
    for extent in shape:
        size *= extent
    return size


def contents(name, size, norm, args):
    """The bytes of one tensor, in chunks. A stored tied lm_head has the embedding's."""
    if name == "lm_head.weight" and args.tied:
        name = "model.embed_tokens.weight"
    element, keep, weight_bits, norm_bits = DTYPES[args.dtype]
    bits = weight_bits
    if norm:
        sign = 1 << (8 * element - 1)
        keep, bits = keep & ~sign, norm_bits
    count = CHUNK_BYTES // element
    keep_all = int.from_bytes(keep.to_bytes(element, "little") * count, "little")
    set_all = int.from_bytes(bits.to_bytes(element, "little") * count, "little")
    source = random.Random(f"{args.seed}:{name}")
    while size > 0:
        drawn = int.from_bytes(source.randbytes(CHUNK_BYTES), "little")
        yield (drawn & keep_all | set_all).to_bytes(CHUNK_BYTES, "little")[:size]
        size -= CHUNK_BYTES


def write_shard(path, shapes, args):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, _) in shapes.items():
        end = at + size_of(shape, args.dtype)
        header[name] = {"dtype": args.dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        if args.sparse:
            file.truncate(file.tell() + at)
            return
        for name, (shape, norm) in shapes.items():
            for chunk in contents(name, size_of(shape, args.dtype), norm, args):
                file.write(chunk)


def split(shapes, shards, dtype):
    """Consecutive groups of about equal bytes, none empty."""
    names = list(shapes)
    total = sum(size_of(shape, dtype) for shape, _ in shapes.values())
    groups, group, done = [], {}, 0
    for i, name in enumerate(names):
        group[name] = shapes[name]
        done += size_of(shapes[name][0], dtype)
        left = shards - len(groups) - 1
        full = done >= total * (len(groups) + 1) / shards
        if left and (full or len(names) - i - 1 == left):
            groups.append(group)
            group = {}
    return groups + [group]


def main(argv):
    args = parse_arguments(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    shapes = tensor_shapes(args)
    groups = split(shapes, args.shards, args.dtype)
    weight_map = {}
    for number, group in enumerate(groups, 1):
        file = "model.safetensors"
        if len(groups) > 1:
            file = f"model-{number:05}-of-{len(groups):05}.safetensors"
        write_shard(args.out / file, group, args)
        weight_map |= {name: file for name in group}
    total = sum(size_of(shape, args.dtype) for shape, _ in shapes.values())
    if len(groups) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        (args.out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    (args.out / "config.json").write_text(json.dumps(config_of(args), indent=2) + "\n")
    print(f"{args.out}: {len(shapes)} tensors, {total} bytes, {len(groups)} file(s)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
