// SPDX-License-Identifier: Apache-2.0
#include "model/model_spec.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "model/family.hpp"

namespace preload {
namespace {

using nlohmann::json;

json parse_object(const std::string& text, std::string_view what) {
  json object;
  try {
    object = json::parse(text);
  } catch (const json::parse_error& error) {
    throw Error(Errc::kModel, fmt::format("{} is no valid JSON: {}", what, error.what()));
  }
  if (!object.is_object()) {
    throw Error(Errc::kModel, fmt::format("{} must be a JSON object", what));
  }
  return object;
}

// Lays `over` on `config`; objects within are laid over each other, everything else is replaced.
void overlay(json& config, const json& over) {
  for (const auto& [name, value] : over.items()) {
    json& at = config[name];
    if (at.is_object() && value.is_object()) {
      overlay(at, value);
    } else {
      at = value;
    }
  }
}

// Typed access to the config. What the top level does not state is taken from `text_config`, where
// multimodal configs keep the language model's numbers.
class Fields {
 public:
  Fields(const json& config, bool strict) : config_(config), strict_(strict) {
    const auto text = config.find("text_config");
    if (text != config.end() && text->is_object()) text_config_ = &*text;
  }

  const json* find(const char* name) const {
    for (const json* object : {&config_, text_config_}) {
      if (object == nullptr) continue;
      const auto at = object->find(name);
      if (at != object->end() && !at->is_null()) return &*at;
    }
    return nullptr;
  }

  std::int64_t number(const char* name) const {
    const json* value = find(name);
    if (value == nullptr) return 0;
    // Bounded so that products of a few of them stay within 64 bits.
    if (!value->is_number_integer() || value->get<double>() < 0 ||
        value->get<double>() > 1'000'000'000) {
      return unfit<std::int64_t>(name, "a whole number, 0 or more and at most 1000000000", *value);
    }
    return value->get<std::int64_t>();
  }

  bool flag(const char* name) const {
    const json* value = find(name);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return unfit<bool>(name, "true or false", *value);
    return value->get<bool>();
  }

  std::string text(const char* name) const {
    const json* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_string()) return unfit<std::string>(name, "a text", *value);
    return value->get<std::string>();
  }

  // What a field of wrong type counts as: absent where no rule needs it.
  template <class Value>
  Value unfit(const char* name, std::string_view wanted, const json& value) const {
    if (strict_) refuse(name, wanted, value);
    return Value{};
  }

  [[noreturn]] static void refuse(const char* name, std::string_view wanted, const json& value) {
    throw Error(Errc::kModel,
                fmt::format("config.json: \"{}\" must be {}, not {}", name, wanted, value.dump()));
  }

 private:
  const json& config_;
  const json* text_config_ = nullptr;
  bool strict_;
};

std::string architecture_of(const json& config) {
  const auto at = config.find("architectures");
  if (at == config.end() || at->is_null() || (at->is_array() && at->empty())) return {};
  if (!at->is_array() || !at->front().is_string()) {
    Fields::refuse("architectures", "a list of names", *at);
  }
  return at->front().get<std::string>();
}

// Configs name the type as torch does; types without a name here are none that weights load as.
std::optional<DType> dtype_of(const Fields& fields) {
  const char* name = fields.find("dtype") != nullptr ? "dtype" : "torch_dtype";
  std::string text = fields.text(name);
  if (text.empty()) return std::nullopt;
  if (text.starts_with("torch.")) text.erase(0, 6);
  if (text == "bfloat16") return DType::kBF16;
  if (text == "float16" || text == "half") return DType::kF16;
  if (text == "float32" || text == "float") return DType::kF32;
  if (text == "float64" || text == "double") return DType::kF64;
  if (text == "auto") return std::nullopt;
  return fields.unfit<std::optional<DType>>(name, "one of bfloat16, float16, float32, float64",
                                            json(text));
}

std::string quantization_of(const json& config) {
  const auto at = config.find("quantization_config");
  if (at == config.end() || at->is_null()) return {};
  if (!at->is_object()) Fields::refuse("quantization_config", "an object", *at);
  const auto method = at->find("quant_method");
  if (method == at->end()) return "unnamed";
  if (!method->is_string()) Fields::refuse("quant_method", "a text", *method);
  return method->get<std::string>();
}

}  // namespace

ModelSpec parse_model_spec(const std::string& config_json, const std::string& overrides_json) {
  json config = parse_object(config_json, "config.json");
  if (!overrides_json.empty()) overlay(config, parse_object(overrides_json, "--hf-overrides"));
  ModelSpec spec;
  spec.architecture = architecture_of(config);
  const Fields fields(config, find_family(spec.architecture) != nullptr);
  spec.model_type = fields.text("model_type");
  spec.hidden_size = fields.number("hidden_size");
  spec.intermediate_size = fields.number("intermediate_size");
  spec.num_hidden_layers = fields.number("num_hidden_layers");
  spec.num_attention_heads = fields.number("num_attention_heads");
  spec.num_key_value_heads = fields.number("num_key_value_heads");
  if (spec.num_key_value_heads == 0) spec.num_key_value_heads = spec.num_attention_heads;
  spec.head_dim = fields.number("head_dim");
  if (spec.head_dim == 0 && spec.num_attention_heads > 0) {
    spec.head_dim = spec.hidden_size / spec.num_attention_heads;
  }
  spec.vocab_size = fields.number("vocab_size");
  spec.tie_word_embeddings = fields.flag("tie_word_embeddings");
  spec.attention_bias = fields.flag("attention_bias") || fields.flag("bias");
  spec.qkv_bias =
      fields.find("qkv_bias") != nullptr ? fields.flag("qkv_bias") : spec.attention_bias;
  spec.mlp_bias = fields.flag("mlp_bias");
  spec.dtype = dtype_of(fields);
  spec.quantization = quantization_of(config);
  return spec;
}

}  // namespace preload
