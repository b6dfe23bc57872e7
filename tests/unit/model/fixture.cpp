// SPDX-License-Identifier: Apache-2.0
#include "unit/model/fixture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace preload::test {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Reads one wide float, for programs that convert.
double decode(const std::byte* at, DType dtype) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, at, 4);
    return static_cast<double>(value);
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, 2);
  if (dtype == DType::kBF16) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
  }
  const int exponent = (bits >> 10) & 31;
  const double mantissa = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

// Rounds a finite value that float16 reaches to the nearest, ties to even.
std::uint16_t half_bits(double value) {
  const double magnitude = std::abs(value);
  const int exponent = magnitude == 0 ? -14 : std::max(std::ilogb(magnitude), -14);
  const double units = std::nearbyint(std::ldexp(magnitude, 10 - exponent));
  const auto bits = static_cast<std::uint16_t>(((exponent + 14) << 10) + static_cast<int>(units));
  return static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000U : 0U));
}

// Writes one finite wide float, rounded to nearest even, or a byte.
void encode(double value, DType dtype, std::byte* at) {
  if (dtype == DType::kU8) {
    const auto byte = static_cast<std::uint8_t>(value);
    std::memcpy(at, &byte, 1);
    return;
  }
  const auto single = static_cast<float>(value);
  if (dtype == DType::kF32) {
    std::memcpy(at, &single, 4);
    return;
  }
  if (dtype != DType::kBF16 && dtype != DType::kF16) {
    throw std::logic_error("the interpreter writes F32, F16, BF16 and U8 only");
  }
  const auto wide = std::bit_cast<std::uint32_t>(single);
  const auto upper = static_cast<std::uint16_t>((wide + 0x7fffU + ((wide >> 16) & 1U)) >> 16);
  const std::uint16_t bits = dtype == DType::kF16 ? half_bits(value) : upper;
  std::memcpy(at, &bits, 2);
}

// Copies element by element, each found by counting through the sizes.
void copy_move(const Move& move, const SourceTensor& source, const Bytes& stored,
               const TargetTensor& tensor, Bytes& out) {
  const std::size_t from = dtype_bits(source.dtype) / 8;
  const std::size_t to = dtype_bits(tensor.dtype) / 8;
  const std::int64_t count = element_count(move.sizes);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t source_at = move.source_offset;
    std::int64_t target_at = move.target_offset;
    for (std::size_t axis = move.sizes.size(); axis-- > 0;) {
      const std::int64_t index = rest % move.sizes[axis];
      rest /= move.sizes[axis];
      source_at += index * move.source_strides[axis];
      target_at += index * move.target_strides[axis];
    }
    const std::byte* read = stored.data() + static_cast<std::size_t>(source_at) * from;
    std::byte* write = out.data() + static_cast<std::size_t>(target_at) * to;
    if (move.conversion == Conversion::kValue) {
      encode(decode(read, source.dtype), tensor.dtype, write);
    } else {
      std::memcpy(write, read, to);
    }
  }
}

// Configs and stored tensors, by the fixture's name.
const nlohmann::ordered_json& fixture_families() {
  static const nlohmann::ordered_json families = [] {
    nlohmann::ordered_json all = nlohmann::ordered_json::object();
    for (const char* file : {"/families.json", "/families_more.json"}) {
      std::ifstream in(std::string(PRELOAD_FIXTURES) + file);
      all.update(nlohmann::ordered_json::parse(in).at("families"));
    }
    return all;
  }();
  return families;
}

}  // namespace

Bytes rule_bytes(const SourceTensor& tensor) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : tensor.name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  const bool is_float =
      tensor.dtype == DType::kBF16 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kF32;
  Bytes bytes(static_cast<std::size_t>((tensor.bytes + 7) / 8 * 8));
  for (std::size_t k = 0; k < bytes.size() / 8; ++k) {
    std::uint64_t word = mix(hash + k);
    if (is_float) word = (word & 0x83ff83ff83ff83ffULL) | 0x3c003c003c003c00ULL;
    std::memcpy(bytes.data() + 8 * k, &word, 8);
  }
  bytes.resize(static_cast<std::size_t>(tensor.bytes));
  return bytes;
}

Checkpoint make_checkpoint(const std::string& config_json, const std::vector<Stored>& tensors) {
  Checkpoint checkpoint;
  checkpoint.directory = "/checkpoint";
  checkpoint.name = "checkpoint";
  checkpoint.config_json = config_json;
  std::uint64_t at = 1000;
  for (const Stored& stored : tensors) {
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(element_count(stored.shape)) * dtype_bits(stored.dtype) / 8;
    checkpoint.tensors.push_back({stored.name, stored.dtype, stored.shape, 0, at, bytes});
    at += bytes;
  }
  SourceFile file;
  file.name = "model.safetensors";
  file.bytes = at;
  checkpoint.files = {file};
  return checkpoint;
}

Checkpoint fixture_checkpoint(const std::string& family) {
  const nlohmann::ordered_json& spec = fixture_families().at(family);
  Checkpoint checkpoint;
  checkpoint.directory = "/fixtures/" + family;
  checkpoint.name = family;
  checkpoint.config_json = spec.at("config").dump();
  for (const auto& [name, tensors] : spec.at("files").items()) {
    SourceFile file;
    file.name = name;
    file.bytes = 4096;
    for (const auto& [tensor, stored] : tensors.items()) {
      SourceTensor source;
      source.name = tensor;
      source.dtype = dtype_from_name(stored.at(0).template get<std::string>()).value();
      for (const auto& extent : stored.at(1)) source.shape.push_back(extent.template get<int>());
      source.file = static_cast<std::uint32_t>(checkpoint.files.size());
      source.offset = file.bytes;
      source.bytes =
          static_cast<std::uint64_t>(element_count(source.shape)) * dtype_bits(source.dtype) / 8;
      file.bytes += source.bytes;
      checkpoint.tensors.push_back(source);
    }
    checkpoint.files.push_back(file);
  }
  return checkpoint;
}

std::string llama_config(const LlamaSize& size) {
  return nlohmann::json{
      {"architectures", {"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"dtype", "bfloat16"},
      {"hidden_size", size.hidden},
      {"intermediate_size", size.intermediate},
      {"num_hidden_layers", size.layers},
      {"num_attention_heads", size.heads},
      {"num_key_value_heads", size.kv_heads},
      {"head_dim", size.head_dim},
      {"vocab_size", size.vocab},
      {"tie_word_embeddings", size.tied},
  }
      .dump();
}

std::vector<Stored> llama_tensors(const LlamaSize& size) {
  const DType type = DType::kBF16;
  const int query = size.heads * size.head_dim;
  const int key = size.kv_heads * size.head_dim;
  std::vector<Stored> tensors{{"model.embed_tokens.weight", type, {size.vocab, size.hidden}}};
  for (int layer = 0; layer < size.layers; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    tensors.push_back({at + "input_layernorm.weight", type, {size.hidden}});
    tensors.push_back({at + "mlp.down_proj.weight", type, {size.hidden, size.intermediate}});
    tensors.push_back({at + "mlp.gate_proj.weight", type, {size.intermediate, size.hidden}});
    tensors.push_back({at + "mlp.up_proj.weight", type, {size.intermediate, size.hidden}});
    tensors.push_back({at + "post_attention_layernorm.weight", type, {size.hidden}});
    tensors.push_back({at + "self_attn.k_proj.weight", type, {key, size.hidden}});
    tensors.push_back({at + "self_attn.o_proj.weight", type, {size.hidden, query}});
    tensors.push_back({at + "self_attn.q_proj.weight", type, {query, size.hidden}});
    tensors.push_back({at + "self_attn.v_proj.weight", type, {key, size.hidden}});
  }
  tensors.push_back({"model.norm.weight", type, {size.hidden}});
  if (!size.tied) tensors.push_back({"lm_head.weight", type, {size.vocab, size.hidden}});
  return tensors;
}

Checkpoint llama_checkpoint(const LlamaSize& size) {
  return make_checkpoint(llama_config(size), llama_tensors(size));
}

std::vector<Bytes> execute(const CopyProgram& program, const Checkpoint& checkpoint) {
  std::map<std::uint32_t, Bytes> stored;
  std::vector<Bytes> out(program.tensors.size());
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    const TargetTensor& tensor = program.tensors[t];
    if (tensor.alias) continue;
    if (tensor.strides != contiguous_strides(tensor.shape)) {
      throw std::logic_error("the interpreter knows dense targets only");
    }
    // Where nothing is moved or filled a pattern shows that no one wrote.
    const std::size_t element = dtype_bits(tensor.dtype) / 8;
    out[t].assign(static_cast<std::size_t>(element_count(tensor.shape)) * element, std::byte{0xa5});
    for (std::size_t at = 0; tensor.fill && at < out[t].size(); at += element) {
      encode(*tensor.fill, tensor.dtype, out[t].data() + at);
    }
    for (const Move& move : tensor.moves) {
      const SourceTensor& source = checkpoint.tensors.at(move.source);
      const auto [at, is_new] = stored.try_emplace(move.source);
      if (is_new) at->second = rule_bytes(source);
      copy_move(move, source, at->second, tensor, out[t]);
    }
  }
  for (std::size_t t = 0; t < program.tensors.size(); ++t) {
    if (program.tensors[t].alias) out[t] = out.at(*program.tensors[t].alias);
  }
  return out;
}

const TargetTensor& tensor_named(const CopyProgram& program, std::string_view name) {
  for (const TargetTensor& tensor : program.tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::out_of_range(fmt::format("no tensor {}", name));
}

void leave_as_float(Checkpoint& checkpoint, const std::string& list, const std::string& module) {
  auto config = nlohmann::json::parse(checkpoint.config_json);
  config["quantization_config"][list].push_back(module);
  checkpoint.config_json = config.dump();
}

}  // namespace preload::test
