// SPDX-License-Identifier: Apache-2.0
#include "model/kv_scales.hpp"

#include <fmt/format.h>

#include <iterator>

namespace preload {

std::vector<std::string> stored_kv_names(std::string_view attention, std::string_view parameter) {
  std::vector<std::string> names{fmt::format("{}.{}", attention, parameter)};
  const std::size_t line = parameter.find('_');
  if (line != 1) return names;  // prob_scale is never stored
  const std::string_view layer = attention.substr(0, attention.find('.'));
  const char letter = parameter.front();
  const bool scale = parameter.ends_with("_scale");
  if (scale && letter != 'q') {
    names.push_back(fmt::format("{}.{}_proj.{}", layer, letter, parameter));  // ModelOpt
  }
  // Latent attention is known under its own name and that of ModelOpt only.
  if (!attention.ends_with(".attn")) return names;
  names.push_back(fmt::format("{}.{}", layer, parameter));
  if (!scale) return names;
  if (letter == 'q') {
    names.push_back(fmt::format("{}.q.scale", layer));
    return names;
  }
  names.push_back(fmt::format("{}.qkv_proj.{}", layer, parameter));
  names.push_back(fmt::format("{}.qkqkv_proj.{}", layer, parameter));
  names.push_back(fmt::format("{}.{}_cache.scale", layer, letter));
  // The older name for both, of which the engine makes one and copies it after loading.
  if (letter == 'k') names.push_back(fmt::format("{}.kv_scale", layer));
  return names;
}

std::vector<std::string> stored_kv_names(std::string_view attention) {
  std::vector<std::string> all;
  for (const char* parameter :
       {"q_scale", "k_scale", "v_scale", "q_zero_point", "k_zero_point", "v_zero_point"}) {
    std::vector<std::string> names = stored_kv_names(attention, parameter);
    std::move(names.begin(), names.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace preload
