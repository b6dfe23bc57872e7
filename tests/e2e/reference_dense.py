# SPDX-License-Identifier: Apache-2.0
"""What each rank must hold of dense decoders that differ from Llama: the part of
reference_slicing.py for Gemma, Phi-3 and GLM-4.

Gemma builds embeddings, final norm and head on every pipeline stage, and Gemma 2's head is its
embeddings under no other name. Phi-3 stores q, k and v in one tensor, and gate and up in one, as
GLM-4 does.
"""
import numpy as np
from reference_slicing import Rank


class Gemma3(Rank):
    def ends(self):
        return True, True


class Gemma2(Gemma3):
    def stored_slices(self):
        out = super().stored_slices()
        del out["lm_head.weight"]
        return out


class Glm4(Rank):
    def feed_forward(self, layer, prefix, out):
        units = self.config["intermediate_size"]
        both = np.concatenate([self.unit_rows, units + self.unit_rows])
        self.own_rows(prefix + "mlp.gate_up_proj", both, out)
        self.own_columns(prefix + "mlp.down_proj", self.unit_rows, out)


class Phi3(Glm4):
    def attention(self, prefix, out):
        config = self.config
        query = config["num_attention_heads"] * self.head_dim
        key = config["num_key_value_heads"] * self.head_dim
        parts = [self.query_rows, query + self.kv_rows, query + key + self.kv_rows]
        self.own_rows(prefix + "self_attn.qkv_proj", np.concatenate(parts), out)
        self.own_columns(prefix + "self_attn.o_proj", self.query_rows, out)


class Glm4(Rank):
    feed_forward = Phi3.feed_forward


CLASSES = {
    "Gemma2ForCausalLM": Gemma2,
    "Gemma3ForCausalLM": Gemma3,
    "Glm4ForCausalLM": Glm4,
    "Phi3ForCausalLM": Phi3,
}
