#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each rank must hold of a decoder, cut with NumPy from the model's definition.

    reference_slicing.py --checkpoint DIR --dump DIR [--tp N] [--pp N] [--dp N] [--ep]
                         [--round-robin] [--pipeline-layers LIST] [--layout vllm|hf]
    reference_slicing.py --checkpoint DIR --manifest FILE --rank R [--tp N] [--pp N] [--dp N] ...

The first form compares every rank<global>.safetensors in the dump directory with the reference:
names, types, shapes and bytes, nothing missing and nothing beyond. The second compares the
reference itself with a manifest of what vLLM held (name -> kind, dtype, shape, SHA-256 prefix).
Exit status 0 when all is equal.

The definition: a decoder layer computes attention over heads and a gated MLP. With tensor
parallelism a rank owns a run of query heads, and of key and value heads those that its query heads
attend to; of the MLP it owns a run of the intermediate units. The output projections own the input
columns that belong to those heads and units. The vocabulary is padded to a multiple of 64 and its
rows are dealt out in runs. Norms, and biases that are added after the sum over ranks, are whole.
Pipeline stages own runs of layers; where layers are left over the stages before the last take one
more each, from behind. Experts, latent attention and what else only some models have is in
reference_experts.py and reference_dense.py. Works on bfloat16 checkpoints as raw 16-bit words; no value is converted.
"""
import argparse
import hashlib
import json
import os
import sys

import numpy as np

WORD = {"BF16": np.uint16, "F16": np.uint16, "F32": np.uint32, "F8_E4M3": np.uint8}
TORCH = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def read_safetensors(path):
    """name -> (dtype, array of raw words) of one file."""
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        words = np.frombuffer(data[8 + length + begin : 8 + length + end], WORD[entry["dtype"]])
        tensors[name] = (entry["dtype"], words.reshape(entry["shape"]))
    return tensors


def read_checkpoint(directory):
    """config and name -> (dtype, array) of a Hugging Face directory."""
    with open(os.path.join(directory, "config.json")) as file:
        config = json.load(file)
    index = os.path.join(directory, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index) as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
    else:
        names = ["model.safetensors"]
    tensors = {}
    for name in names:
        tensors.update(read_safetensors(os.path.join(directory, name)))
    return config, tensors


def layers_of_stage(layers, stages, stage):
    """The layers of one stage, dealt out one stage after the other."""
    counts = [layers // stages] * stages
    for behind in range(layers % stages):
        counts[stages - 2 - behind] += 1
    first = sum(counts[:stage])
    return range(first, first + counts[stage])


class Rank:
    """One rank's share, computed unit by unit: heads, intermediate units, vocabulary rows."""

    def __init__(self, config, tensors, tp, tp_rank, pp, pp_rank, stage_counts=None):
        self.config, self.tensors = config, tensors
        self.stage, self.stages = pp_rank, pp
        self.stage_counts = stage_counts
        heads = config["num_attention_heads"]
        kv_heads = config.get("num_key_value_heads") or heads
        self.head_dim = config.get("head_dim") or config["hidden_size"] // heads
        query_heads = [h for h in range(heads) if h // (heads // tp) == tp_rank]
        # A query head h attends to key/value head h * kv_heads // heads.
        kv_own = sorted({h * kv_heads // heads for h in query_heads})
        units = config["intermediate_size"] // tp
        self.query_rows = self.rows_of_heads(query_heads)
        self.kv_rows = self.rows_of_heads(kv_own)
        self.unit_rows = np.arange(units * tp_rank, units * (tp_rank + 1))
        vocab = -(-config["vocab_size"] // 64) * 64 // tp
        self.vocab_rows = np.arange(vocab * tp_rank, vocab * (tp_rank + 1))

    def rows_of_heads(self, heads):
        return np.array([h * self.head_dim + i for h in heads for i in range(self.head_dim)])

    def take(self, name):
        return self.tensors[name][1]

    def vocabulary(self, name):
        """The rank's rows, zeros for those past the vocabulary."""
        whole = self.take(name)
        out = np.zeros((len(self.vocab_rows), whole.shape[1]), whole.dtype)
        for at, row in enumerate(self.vocab_rows):
            if row < whole.shape[0]:
                out[at] = whole[row]
        return out

    def ends(self):
        """Whether the rank holds what lies before the layers, and what lies behind them."""
        return self.stage == 0, self.stage == self.stages - 1

    def layers(self):
        if self.stage_counts:
            first = sum(self.stage_counts[: self.stage])
            return range(first, first + self.stage_counts[self.stage])
        return layers_of_stage(self.config["num_hidden_layers"], self.stages, self.stage)

    def stored_slices(self):
        """Stored name -> what the rank holds of it, in model order."""
        out = {}
        first, last = self.ends()
        tied = self.config.get("tie_word_embeddings", False)
        if first or (last and tied):
            out["model.embed_tokens.weight"] = self.vocabulary("model.embed_tokens.weight")
        for layer in self.layers():
            prefix = f"model.layers.{layer}."
            self.attention(prefix, out)
            self.feed_forward(layer, prefix, out)
            for module in (
                "self_attn.q_norm",
                "self_attn.k_norm",
                "input_layernorm",
                "post_attention_layernorm",
                "pre_feedforward_layernorm",
                "post_feedforward_layernorm",
                "post_self_attn_layernorm",
                "post_mlp_layernorm",
            ):
                if f"{prefix}{module}.weight" in self.tensors:
                    out[f"{prefix}{module}.weight"] = self.take(f"{prefix}{module}.weight")
        if last:
            out["model.norm.weight"] = self.take("model.norm.weight")
            head = "model.embed_tokens.weight" if tied else "lm_head.weight"
            out["lm_head.weight"] = self.vocabulary(head)
        return out

    def attention(self, prefix, out):
        for module, own in {
            "self_attn.q_proj": self.query_rows,
            "self_attn.k_proj": self.kv_rows,
            "self_attn.v_proj": self.kv_rows,
        }.items():
            self.own_rows(prefix + module, own, out)
        self.own_columns(prefix + "self_attn.o_proj", self.query_rows, out)

    def feed_forward(self, layer, prefix, out):
        self.mlp(prefix + "mlp", self.unit_rows, out)

    def mlp(self, module, units, out):
        self.own_rows(module + ".gate_proj", units, out)
        self.own_rows(module + ".up_proj", units, out)
        self.own_columns(module + ".down_proj", units, out)

    def own_rows(self, module, own, out):
        for kind in ("weight", "bias"):
            if f"{module}.{kind}" in self.tensors:
                out[f"{module}.{kind}"] = self.take(f"{module}.{kind}")[own]

    def own_columns(self, module, own, out):
        """A bias that is added after the sum over ranks is whole."""
        out[f"{module}.weight"] = self.take(f"{module}.weight")[:, own]
        if f"{module}.bias" in self.tensors:
            out[f"{module}.bias"] = self.take(f"{module}.bias")

    GROUPS = {
        "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    }

    def fused_slices(self):
        """The same under the engine's names: q, k, v and gate, up below each other."""
        stored = self.stored_slices()
        for layer in range(self.config["num_hidden_layers"]):
            for fused, parts in self.GROUPS.items():
                for kind in ("weight", "bias"):
                    names = [f"model.layers.{layer}.{part}.{kind}" for part in parts]
                    if names[0] in stored:
                        pieces = [stored.pop(name) for name in names]
                        stored[f"model.layers.{layer}.{fused}.{kind}"] = np.concatenate(pieces)
        return stored


def reference(config, tensors, options, rank):
    """Name -> array of one global rank."""
    import reference_dense  # which are made of what is here
    import reference_experts

    tp_rank = rank % options.tp
    pp_rank = rank // options.tp % options.pp
    place = (config, tensors, options.tp, tp_rank, options.pp, pp_rank, options.pipeline_layers)
    make = reference_experts.rank_class(config)
    if make is None:
        share = reference_dense.CLASSES.get(config["architectures"][0], Rank)(*place)
    else:
        dp_rank = rank // (options.tp * options.pp)
        share = make(*place, options.dp, dp_rank, options.ep, options.round_robin)
    return share.fused_slices() if options.layout == "vllm" else share.stored_slices()


def type_of(array, dtype):
    """What an array of words is, where the model's own numbers are `dtype`."""
    return {np.uint32: "F32", np.uint8: "F8_E4M3"}.get(array.dtype.type, dtype)


def compare_dump(config, tensors, options):
    """Differences between the dump directory and the reference, as lines of text."""
    dtype = tensors["model.norm.weight"][0]
    world = options.dp * options.pp * options.tp
    problems, checked = [], 0
    expected_files = {f"rank{rank}.safetensors" for rank in range(world)}
    for extra in sorted(set(os.listdir(options.dump)) - expected_files):
        problems.append(f"unexpected file {extra}")
    for rank in range(world):
        path = os.path.join(options.dump, f"rank{rank}.safetensors")
        if not os.path.exists(path):
            problems.append(f"rank {rank}: {path} is not there")
            continue
        held, wanted = read_safetensors(path), reference(config, tensors, options, rank)
        for name in sorted(set(held) - set(wanted)):
            problems.append(f"rank {rank}: {name} should not be there")
        for name, array in wanted.items():
            checked += 1
            if name not in held:
                problems.append(f"rank {rank}: {name} is missing")
            elif held[name][0] != type_of(array, dtype) or held[name][1].shape != array.shape:
                problems.append(
                    f"rank {rank}: {name} is {held[name][0]} {held[name][1].shape}, "
                    f"not {type_of(array, dtype)} {array.shape}"
                )
            elif not np.array_equal(held[name][1], array):
                places = np.argwhere(held[name][1] != array)
                problems.append(
                    f"rank {rank}: {name} differs in {len(places)} elements, "
                    f"first at {places[0].tolist()}"
                )
    return problems, checked


def compare_manifest(config, tensors, options):
    """Differences between the reference and a manifest of vLLM's parameters."""
    with open(options.manifest) as file:
        manifest = {n: e for n, e in json.load(file).items() if e[0] == "param"}
    wanted = reference(config, tensors, options, options.rank)
    problems = [f"{n} is in one of them only" for n in sorted(set(wanted) ^ set(manifest))]
    for name in sorted(set(wanted) & set(manifest)):
        array = np.ascontiguousarray(wanted[name])
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:32]
        dtype = TORCH[type_of(array, tensors["model.norm.weight"][0])]
        if [dtype, list(array.shape), digest] != manifest[name][1:4]:
            problems.append(f"{name}: {dtype} {array.shape} {digest}, vLLM: {manifest[name]}")
    return problems, len(wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", required=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--dump")
    what.add_argument("--manifest")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--dp", type=int, default=1)
    parser.add_argument("--ep", action="store_true")
    parser.add_argument("--round-robin", action="store_true")
    parser.add_argument(
        "--pipeline-layers", type=lambda text: [int(n) for n in text.split(",")], default=None
    )
    parser.add_argument("--layout", choices=["vllm", "hf"], default="vllm")
    options = parser.parse_args()
    config, tensors = read_checkpoint(options.checkpoint)
    compare = compare_dump if options.dump else compare_manifest
    problems, checked = compare(config, tensors, options)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{checked} tensors compared, {len(problems)} differences")
    return 1 if problems or checked == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
