// SPDX-License-Identifier: Apache-2.0
#include "model/model_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
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

ConfigField field_of(const json& value) {
  ConfigField field;
  field.shown = value.dump();
  if (value.is_boolean()) field.value = value.get<bool>();
  if (value.is_number_integer()) field.value = value.get<std::int64_t>();
  if (value.is_string()) field.value = value.get<std::string>();
  if (value.is_array() &&
      std::ranges::all_of(value, [](const json& item) { return item.is_number_integer(); })) {
    field.value = value.get<std::vector<std::int64_t>>();
  }
  return field;
}

[[noreturn]] void refuse(const char* name, std::string_view wanted, const json& value) {
  throw Error(Errc::kModel,
              fmt::format("config.json: \"{}\" must be {}, not {}", name, wanted, value.dump()));
}

// What no level states is the family's default. What the top level does not state is taken from
// `text_config`, where multimodal configs keep the language model's numbers.
ConfigFields fields_of(const json& config, const Family* family) {
  std::map<std::string, ConfigField, std::less<>> fields;
  const auto add = [&](const json& object) {
    for (const auto& [name, value] : object.items()) {
      if (!value.is_null()) fields.try_emplace(name, field_of(value));
    }
  };
  add(config);
  const auto text = config.find("text_config");
  const bool nested = text != config.end() && text->is_object();
  if (family != nullptr && text != config.end() && !nested && !text->is_null()) {
    refuse("text_config", "an object", *text);
  }
  if (nested) add(*text);
  if (family != nullptr) {
    for (const auto& [name, value] : family->defaults) {
      // A stated null is no silence.
      if (config.contains(name) || (nested && text->contains(name))) continue;
      fields.try_emplace(std::string(name),
                         std::visit([](const auto& v) { return field_of(json(v)); }, value));
    }
  }
  return {std::move(fields), family != nullptr};
}

std::string architecture_of(const json& config) {
  const auto at = config.find("architectures");
  if (at == config.end() || at->is_null() || (at->is_array() && at->empty())) return {};
  if (!at->is_array() || !at->front().is_string()) {
    refuse("architectures", "a list of names", *at);
  }
  return at->front().get<std::string>();
}

// Configs name the type as torch does; types without a name here are none that weights load as.
std::optional<DType> dtype_of(const ConfigFields& fields) {
  const char* name = fields.has("dtype") ? "dtype" : "torch_dtype";
  std::string text = fields.text(name);
  if (text.empty()) return std::nullopt;
  if (text.starts_with("torch.")) text.erase(0, 6);
  if (text == "bfloat16") return DType::kBF16;
  if (text == "float16" || text == "half") return DType::kF16;
  if (text == "float32" || text == "float") return DType::kF32;
  if (text == "float64" || text == "double") return DType::kF64;
  if (text != "auto" && fields.strict()) {
    fields.refuse(name, "one of bfloat16, float16, float32, float64");
  }
  return std::nullopt;
}

// Families call the number of experts by one of these.
std::int64_t experts_of(const ConfigFields& fields) {
  for (const char* name : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (fields.has(name)) return fields.number(name);
  }
  return 0;
}

std::string quantization_of(const json& config) {
  const auto at = config.find("quantization_config");
  if (at == config.end() || at->is_null()) return {};
  if (!at->is_object()) refuse("quantization_config", "an object", *at);
  const auto method = at->find("quant_method");
  if (method == at->end()) {
    // ModelOpt's own file says so in other words.
    const auto producer = at->find("producer");
    const bool modelopt = producer != at->end() && producer->is_object() &&
                          producer->value("name", json()) == "modelopt";
    return modelopt ? "modelopt" : "unnamed";
  }
  if (!method->is_string()) refuse("quant_method", "a text", *method);
  return method->get<std::string>();
}

}  // namespace

ModelSpec parse_model_spec(const std::string& config_json, const std::string& overrides_json) {
  json config = parse_object(config_json, "config.json");
  if (!overrides_json.empty()) overlay(config, parse_object(overrides_json, "--hf-overrides"));
  ModelSpec spec;
  spec.architecture = architecture_of(config);
  spec.config = fields_of(config, find_family(spec.architecture));
  const ConfigFields& fields = spec.config;
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
  spec.num_experts = experts_of(fields);
  spec.tie_word_embeddings = fields.flag("tie_word_embeddings");
  spec.attention_bias = fields.flag("attention_bias") || fields.flag("bias");
  spec.qkv_bias = fields.has("qkv_bias") ? fields.flag("qkv_bias") : spec.attention_bias;
  spec.mlp_bias = fields.flag("mlp_bias");
  spec.dtype = dtype_of(fields);
  spec.quantization = quantization_of(config);
  if (!spec.quantization.empty()) spec.quantization_json = config.at("quantization_config").dump();
  return spec;
}

}  // namespace preload
