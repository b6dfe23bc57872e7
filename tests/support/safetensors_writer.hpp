// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/temp_dir.hpp"

namespace preload::test {

// Written from the format's definition, not with the reader under test.
struct StoredTensor {
  std::string name;
  std::string dtype;  // safetensors' name
  std::vector<std::int64_t> shape;
  std::string bytes;
};

// A reproducible pattern that differs from name to name; never periodic within a tensor.
std::string pattern_bytes(std::string_view seed, std::size_t bytes);
// A tensor with the pattern of its name.
StoredTensor stored(std::string name, std::string dtype, std::vector<std::int64_t> shape);

// A whole file: header of the given tensors in order, data back to back, header padded to 8.
std::string safetensors_file(const std::vector<StoredTensor>& tensors);
// A whole file around a raw header and raw data; the length field may lie.
std::string raw_safetensors(std::string_view header, std::string_view data);
std::string raw_safetensors(std::uint64_t header_bytes, std::string_view header,
                            std::string_view data);
// Bytes before the first data byte of a file that the functions above made.
std::uint64_t data_start(std::string_view file);

std::string shard_name(std::size_t shard, std::size_t shards);  // model-00001-of-00002.safetensors
// model.safetensors.index.json of these shards.
std::string index_json(const std::vector<std::vector<StoredTensor>>& shards);
// config.json plus model.safetensors, or shards with their index when there are several.
void write_checkpoint(const TempDir& directory, std::string_view prefix,
                      const std::vector<std::vector<StoredTensor>>& shards,
                      std::string_view config_json);
void write_checkpoint(const TempDir& directory,
                      const std::vector<std::vector<StoredTensor>>& shards,
                      std::string_view config_json = R"({"architectures": ["TestModel"]})");

}  // namespace preload::test
