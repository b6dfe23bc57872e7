# SPDX-License-Identifier: Apache-2.0
"""What each rank must hold of decoders with experts: the part of reference_slicing.py beyond the
dense decoder.

The definition: a layer with experts has a router, whole on every rank, and E gated MLPs. The
dp * tp ranks of a pipeline stage are numbered dp_rank * tp + tp_rank and share the experts: with
expert parallelism rank i of n owns whole ones, a run each (the first E mod n ranks one more) or,
dealt out in turn, every n-th; without it every rank owns the same run of units of all experts. A
shared expert is an MLP of the tensor-parallel ranks. Latent attention owns heads of what comes out
of the latent vectors; the projections into them are whole. The engine holds some tensors under
several names and stacks a rank's experts, gate above up.
"""
import numpy as np
from reference_slicing import Rank


def float32(words):
    """bfloat16 words as float32 words: the same number with more places."""
    return words.astype(np.uint32) << 16 if words.dtype == np.uint16 else words


class ExpertRank(Rank):
    EXPERTS = "mlp.experts"
    NAMES = ("gate_proj", "down_proj", "up_proj")
    ROUTER = "mlp.gate"
    SHARED = None
    EVERY_STAGE = True  # embeddings, final norm and head are built by every stage
    # Whether the engine's module of the experts holds the router too.
    ROUTER_ALIAS = True

    def __init__(self, *place):
        *dense, dp, dp_rank, ep, round_robin = place
        super().__init__(*dense)
        tp, tp_rank = dense[2], dense[3]
        self.count = next(
            self.config[name]
            for name in ("num_experts", "num_local_experts", "n_routed_experts")
            if name in self.config
        )
        ranks, index = dp * tp, dp_rank * tp + tp_rank
        self.spread = ep and ranks > 1
        self.sliced, self.slice = (1, 0) if self.spread else (ranks, index)
        if not self.spread:
            self.own_experts = list(range(self.count))
        elif round_robin and self.may_deal_out(dp):
            self.own_experts = list(range(index, self.count, ranks))
        else:
            sizes = [self.count // ranks + (r < self.count % ranks) for r in range(ranks)]
            self.own_experts = list(range(sum(sizes[:index]), sum(sizes[: index + 1])))
        self.shared_whole = self.spread and tp > 1 and dp > 1
        self.tp, self.tp_rank = tp, tp_rank

    def may_deal_out(self, dp):
        return False

    def ends(self):
        return (True, True) if self.EVERY_STAGE else super().ends()

    def has_experts(self, layer):
        step = self.config.get("decoder_sparse_step", 1)
        return (layer + 1) % step == 0 and layer not in self.config.get("mlp_only_layers", [])

    def expert_units(self):
        return self.config.get("moe_intermediate_size") or self.config["intermediate_size"]

    def run(self, units, parts, index):
        return np.arange(units // parts * index, units // parts * (index + 1))

    def feed_forward(self, layer, prefix, out):
        if not self.has_experts(layer):
            return super().feed_forward(layer, prefix, out)
        self.router(prefix, out)
        self.shared(prefix, out)
        units = self.run(self.expert_units(), self.sliced, self.slice)
        gate, down, up = self.NAMES
        for expert in self.own_experts:
            module = f"{prefix}{self.EXPERTS}.{expert}."
            self.own_rows(module + gate, units, out)
            self.own_rows(module + up, units, out)
            self.own_columns(module + down, units, out)
        return None

    def router(self, prefix, out):
        out[f"{prefix}{self.ROUTER}.weight"] = self.take(f"{prefix}{self.ROUTER}.weight")

    def shared(self, prefix, out):
        if self.SHARED is None:
            return
        whole = self.take(f"{prefix}{self.SHARED}.gate_proj.weight").shape[0]
        parts, index = (1, 0) if self.is_shared_whole() else (self.tp, self.tp_rank)
        self.mlp(prefix + self.SHARED, self.run(whole, parts, index), out)

    def is_shared_whole(self):
        return False

    def fused_slices(self):
        out = super().fused_slices()
        for layer in self.layers():
            if self.has_experts(layer):
                self.stack(f"model.layers.{layer}.", out)
            self.engine_names(f"model.layers.{layer}.", out)
        return out

    def stack(self, prefix, out):
        gate, down, up = self.NAMES
        w13, w2 = [], []
        for expert in self.own_experts:
            module = f"{prefix}{self.EXPERTS}.{expert}."
            halves = [out.pop(f"{module}{name}.weight") for name in (gate, up)]
            w13.append(np.concatenate(halves))
            w2.append(out.pop(f"{module}{down}.weight"))
        out[f"{prefix}{self.EXPERTS}.routed_experts.w13_weight"] = np.stack(w13)
        out[f"{prefix}{self.EXPERTS}.routed_experts.w2_weight"] = np.stack(w2)
        if self.ROUTER_ALIAS:
            router = out[f"{prefix}{self.ROUTER}.weight"]
            out[f"{prefix}{self.EXPERTS}.gate.weight"] = router
        if self.SHARED is not None:
            shared = f"{prefix}{self.SHARED}."
            fused = [out.pop(f"{shared}{name}.weight") for name in ("gate_proj", "up_proj")]
            out[f"{shared}gate_up_proj.weight"] = np.concatenate(fused)
            for name in ("gate_up_proj.weight", "down_proj.weight"):
                out[f"{prefix}{self.EXPERTS}._shared_experts._layer.{name}"] = out[shared + name]

    def engine_names(self, prefix, out):
        pass


class Mixtral(ExpertRank):
    EXPERTS = "block_sparse_moe.experts"
    NAMES = ("w1", "w2", "w3")
    ROUTER = "block_sparse_moe.gate"
    ROUTER_ALIAS = False

    def has_experts(self, layer):
        return True


class Qwen2Moe(ExpertRank):
    SHARED = "mlp.shared_expert"
    ROUTER_ALIAS = False

    def router(self, prefix, out):
        super().router(prefix, out)
        out[prefix + "mlp.shared_expert_gate.weight"] = self.take(
            prefix + "mlp.shared_expert_gate.weight"
        )

    def stack(self, prefix, out):
        super().stack(prefix, out)
        gate = out[prefix + "mlp.shared_expert_gate.weight"]
        out[prefix + "mlp.shared_expert.expert_gate.weight"] = gate
        out[prefix + "mlp.experts._shared_experts._layer.expert_gate.weight"] = gate


class Qwen3Moe(ExpertRank):
    pass


class DeepSeek(ExpertRank):
    SHARED = "mlp.shared_experts"
    EVERY_STAGE = False
    GROUPS = {"mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj")}

    def may_deal_out(self, dp):
        return self.config["n_group"] > 1 and dp == 1

    def is_shared_whole(self):
        return self.shared_whole

    def has_experts(self, layer):
        return layer >= self.config["first_k_dense_replace"]

    def heads_of(self, width):
        """Rows of the rank's heads, each of so many rows."""
        return self.run(self.config["num_attention_heads"] * width, self.tp, self.tp_rank)

    def attention(self, prefix, out):
        config, at = self.config, prefix + "self_attn."
        query = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
        whole = ["kv_a_proj_with_mqa", "kv_a_layernorm"]
        if config.get("q_lora_rank"):
            whole += ["q_a_proj", "q_a_layernorm"]
        for module in whole:
            out[f"{at}{module}.weight"] = self.take(f"{at}{module}.weight")
        name = "q_b_proj" if config.get("q_lora_rank") else "q_proj"
        self.own_rows(at + name, self.heads_of(query), out)
        both = config["qk_nope_head_dim"] + config["v_head_dim"]
        self.own_rows(at + "kv_b_proj", self.heads_of(both), out)
        self.own_columns(at + "o_proj", self.heads_of(config["v_head_dim"]), out)

    def router(self, prefix, out):
        super().router(prefix, out)
        name = prefix + "mlp.gate.e_score_correction_bias"
        if name in self.tensors:
            out[name] = self.take(name)

    def stack(self, prefix, out):
        super().stack(prefix, out)
        name = prefix + "mlp.gate.e_score_correction_bias"
        if name in out:
            out[name] = float32(out[name])
            for module in ("mlp.experts.gate", "mlp.experts.routed_experts"):
                out[f"{prefix}{module}.e_score_correction_bias"] = out[name]

    def engine_names(self, prefix, out):
        at = prefix + "self_attn."
        if f"{at}q_a_proj.weight" in out:
            into = [out.pop(f"{at}{n}.weight") for n in ("q_a_proj", "kv_a_proj_with_mqa")]
            out[at + "fused_qkv_a_proj.weight"] = np.concatenate(into)
        for name in [n for n in out if n.startswith(at)]:
            out[f"{at}mla_attn.{name.removeprefix(at)}"] = out[name]
        out[at + "mla_attn.mla_attn.kv_b_proj.weight"] = out[at + "kv_b_proj.weight"]


class GptOss(ExpertRank):
    """Gate and up alternate; the experts of a layer are one tensor, input first."""

    ROUTER = "mlp.router"

    def has_experts(self, layer):
        return True

    def attention(self, prefix, out):
        super().attention(prefix, out)
        heads = self.run(self.config["num_attention_heads"], self.tp, self.tp_rank)
        out[prefix + "self_attn.sinks"] = self.take(prefix + "self_attn.sinks")[heads]

    def feed_forward(self, layer, prefix, out):
        for kind in ("weight", "bias"):
            out[f"{prefix}mlp.router.{kind}"] = self.take(f"{prefix}mlp.router.{kind}")
        at = prefix + "mlp.experts."
        units = self.run(self.config["intermediate_size"], self.sliced, self.slice)
        pairs = np.stack([2 * units, 2 * units + 1], axis=1).reshape(-1)
        own = self.own_experts
        out[at + "gate_up_proj"] = self.take(at + "gate_up_proj")[own][:, :, pairs]
        out[at + "gate_up_proj_bias"] = self.take(at + "gate_up_proj_bias")[own][:, pairs]
        out[at + "down_proj"] = self.take(at + "down_proj")[own][:, units]
        # All ranks' results are added up: one of them adds the bias.
        bias = self.take(at + "down_proj_bias")[own]
        out[at + "down_proj_bias"] = bias if self.slice == 0 else np.zeros_like(bias)

    def fused_slices(self):
        out = Rank.fused_slices(self)
        named = {}
        for name, array in out.items():
            name = name.replace(".self_attn.", ".attn.").replace("embed_tokens", "embedding")
            for stored, engine in (("gate_up_proj", "w13"), ("down_proj", "w2")):
                at = ".mlp.experts." + stored
                if name.endswith(at):
                    name = name.replace(at, f".mlp.experts.routed_experts.{engine}_weight")
                    array = array.transpose(0, 2, 1)
                name = name.replace(at + "_bias", f".mlp.experts.routed_experts.{engine}_bias")
            named[name] = array
        return named


CLASSES = {
    "MixtralForCausalLM": Mixtral,
    "Qwen2MoeForCausalLM": Qwen2Moe,
    "Qwen3MoeForCausalLM": Qwen3Moe,
    "DeepseekV2ForCausalLM": DeepSeek,
    "DeepseekV3ForCausalLM": DeepSeek,
    "GptOssForCausalLM": GptOss,
}


def rank_class(config):
    """The class of the config's architecture; None for the dense decoder."""
    return CLASSES.get(config["architectures"][0])
