// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory/slab.hpp"
#include "plan/key.hpp"
#include "plan/topology.hpp"
#include "serve/socket_dir.hpp"
#include "wire/counters.hpp"

namespace preload {

// Everything a rank serves. Needs no CUDA, no MPI: handles, a sealed manifest and text.
struct Residency {
  Endpoint endpoint;
  std::string job;
  std::string model;
  RankCoords coords;
  KeyFields fields;
  std::string key;         // digest of fields
  std::string checkpoint;  // checkpoint id
  std::string receipt_json;
  std::string shard_json;  // as in the manifest
  std::uint64_t generation = 1;
  std::uint64_t overhead_bytes = 0;  // device memory of this process above the weights, measured
  int local_size = 1;                // daemons of this job and role in this directory
  std::string engine_caches;         // directory of what a warm-up left; empty: none
  Fd manifest;                       // sealed memfd
  std::uint64_t tensor_count = 0;
  std::vector<SlabHandle> slabs;
  std::vector<wire::LoadPath> loads;  // how it came into memory
};

}  // namespace preload
