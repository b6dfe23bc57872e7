// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "artifact/tier.hpp"

namespace preload::artifact {

// FlashInfer's autotuning tables where vLLM keeps them (vLLM 0.32: flashinfer_autotune_cache.py and
// kernel_warmup.py in vllm/model_executor/warmup):
// <folder>/<hash>/autotune_configs_dp<D>_rank<R>.json, before 0.32 one autotune_configs.json for
// all ranks. <folder> is $VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR, else
// $VLLM_CACHE_ROOT/flashinfer_autotune_cache/<FlashInfer's version>/<architecture>; <hash>, 64 hex
// digits, is made of all of vLLM's configuration, so that only vLLM can compute it: it is found by
// looking. It is the config hash of the entry's key, and vLLM's own file name the end of the
// entry's name, whose rank is the one that vLLM's name says:
// dp0_rank3.1f2e3d4c.autotune_configs_dp0_rank3.json.
struct FlashinferPlace {
  std::string named;      // $VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR; "" where that is not set:
  std::string vllm_root;  // $VLLM_CACHE_ROOT
};

// Stores each table of `place`; how many are in the tier then. `node_rank` is whose those are whose
// name tells no rank. `config` (config_hash() of the job) goes with them as the label "config", by
// which they are found again. A table that grew takes the place of what it was.
std::size_t store_flashinfer_tables(Tier& tier, const FlashinferPlace& place,
                                    const RankCoords& node_rank, const std::string& config,
                                    Metadata metadata);

// Puts the configuration's tables of every rank, and of those without one the node's, where vLLM
// has none yet; how many. Neither throws: one line of log for each table that was in the way.
std::size_t restore_flashinfer_tables(Tier& tier, const FlashinferPlace& place,
                                      const RankCoords& node_rank, const std::string& config,
                                      const Environment& here);

}  // namespace preload::artifact
