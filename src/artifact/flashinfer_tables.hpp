// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "artifact/tier.hpp"

namespace preload::artifact {

// FlashInfer's autotuning tables where vLLM keeps them (vllm/model_executor/warmup/
// flashinfer_autotune_cache.py, vLLM 0.32): <folder>/<hash>/autotune_configs.json, where <folder>
// is $VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR, else
// $VLLM_CACHE_ROOT/flashinfer_autotune_cache/<FlashInfer's version>/<architecture>, and <hash> 64
// digits made of all of vLLM's configuration. Nobody but vLLM can compute that hash: it is found by
// looking, and is the config hash of the entry's key.

// Stores each table below `folder`; how many there are. `config` (config_hash() of the job) goes
// with them as a label, by which they are found again. One line of log for what fails.
std::size_t store_flashinfer_tables(Tier& tier, const std::string& folder, const RankCoords& rank,
                                    const std::string& config, const Metadata& metadata);

// Puts the tables of this rank and configuration below `folder`, where none is yet; how many.
std::size_t restore_flashinfer_tables(Tier& tier, const std::string& folder, const RankCoords& rank,
                                      const std::string& config, const Environment& here);

}  // namespace preload::artifact
