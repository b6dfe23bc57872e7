// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "model/layout.hpp"
#include "plan/topology.hpp"

namespace preload::artifact {

// What decides whether work done for one job is of use to another, by name, in canonical text.
using JobFields = std::map<std::string, std::string>;

// Of a model and its topology: config.json with --hf-overrides laid over it (without its authors'
// remarks), layout, dtype, quantisation, KV-cache dtype, kernel backends, sizes of tp, pp, dp and
// ep. Not the weights: a fine-tuned model shares its base's. Callers add what else decides
// ("command", "nodes", "nccl" …). Throws Error(kModel) for JSON that is none.
JobFields job_fields(const std::string& config_json, const std::string& hf_overrides,
                     const LayoutRequest& request, const ParallelSizes& sizes);

std::string config_hash(const JobFields& fields);  // SHA-256 of the canonical JSON, 64 digits

}  // namespace preload::artifact
