// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/decoder_rules.hpp"

// What families of draft models share.
namespace preload::draft {

// Of a checkpoint of the draft's own.
inline Interval all_layers(const ModelSpec& spec) { return {0, spec.num_hidden_layers}; }

constexpr Rule if_stored(Rule rule) {
  rule.if_stored = true;
  return rule;
}
constexpr Rule first(Rule rule) {
  rule.layers = Layers::kFirst;
  return rule;
}
constexpr Rule later(Rule rule) {
  rule.layers = Layers::kLater;
  return rule;
}

}  // namespace preload::draft
