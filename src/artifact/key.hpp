// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "artifact/environment.hpp"
#include "plan/topology.hpp"

namespace preload::artifact {

inline constexpr std::string_view kRoot = "vllm-warmup-cache";

// The kinds that this version writes; others, of later versions, are listed and kept.
inline constexpr std::string_view kNcclTuner = "nccl_tuner";
inline constexpr std::string_view kFlashinferAutotune = "flashinfer_autotune";
inline constexpr std::string_view kCompileCache = "compile_cache";

// "vllm-warmup-cache/<kind>/<config-hash>/<filename>", the same in every tier.
struct Key {
  std::string kind;
  std::string config_hash;  // of config_hash(), of a bundle's content, or vLLM's own: opaque
  std::string filename;

  std::string text() const;
  friend auto operator<=>(const Key&, const Key&) = default;
};

// Each part: letters, digits, '.', '_' and '-', not beginning with '.', at most 128 characters.
// Throws Error(kUsage) naming the key.
void check_key(const Key& key);
Key parse_key(std::string_view text);  // with or without "vllm-warmup-cache/"

// "dp0_rank3.1f2e3d4c.json": the replica, the rank in the job (RankCoords::global), the first 8
// digits of the SHA-256 of the environment, so that what was made under several environments (kinds
// of GPU that share a home, a driver's upgrade taken back) lies side by side, and `suffix`.
std::string rank_filename(const RankCoords& rank, const Environment& environment,
                          std::string_view suffix);
// Whether both were made by rank_filename for the same rank and suffix, whatever the environment.
bool same_but_environment(std::string_view filename, std::string_view other);

}  // namespace preload::artifact
