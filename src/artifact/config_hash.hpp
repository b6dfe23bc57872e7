// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "model/layout.hpp"
#include "plan/topology.hpp"

namespace preload::artifact {

// What decides whether work done for one job is of use to another, by name, in canonical text.
using ConfigFields = std::map<std::string, std::string>;

// Of a model and its topology: architecture, all of config.json that shapes kernels, quantisation,
// dtype, KV-cache dtype, kernel backends, sizes of tp, pp, dp and ep, and layout. Not the weights:
// a fine-tuned model shares its base's. Callers add what else decides ("command", "nodes" …).
ConfigFields config_fields(const ModelSpec& spec, const LayoutRequest& request,
                           const ParallelSizes& sizes);

std::string config_hash(const ConfigFields& fields);  // SHA-256 of the canonical JSON, 64 digits

}  // namespace preload::artifact
