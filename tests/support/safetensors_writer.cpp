// SPDX-License-Identifier: Apache-2.0
#include "support/safetensors_writer.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace preload::test {

namespace {

unsigned element_bits(std::string_view dtype) {
  if (dtype == "F4") return 4;
  if (dtype == "F6_E2M3" || dtype == "F6_E3M2") return 6;
  if (dtype == "BOOL" || dtype == "U8" || dtype == "I8" || dtype.substr(0, 3) == "F8_") return 8;
  if (dtype == "BF16" || dtype == "F16" || dtype == "I16" || dtype == "U16") return 16;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 32;
  if (dtype == "F64" || dtype == "I64" || dtype == "U64" || dtype == "C64") return 64;
  throw std::invalid_argument("no such dtype: " + std::string(dtype));
}

std::string in_json(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace

std::string pattern_bytes(std::string_view seed, std::size_t bytes) {
  std::uint64_t state = 0xcbf29ce484222325ULL;
  for (const char c : seed) {
    state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  std::string out(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    out[i] = static_cast<char>(state >> 56);
  }
  return out;
}

StoredTensor stored(std::string name, std::string dtype, std::vector<std::int64_t> shape) {
  std::uint64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= static_cast<std::uint64_t>(extent);
  std::string bytes = pattern_bytes(name, elements * element_bits(dtype) / 8);
  return {std::move(name), std::move(dtype), std::move(shape), std::move(bytes)};
}

std::string safetensors_file(const std::vector<StoredTensor>& tensors) {
  // Written as text: the JSON library's ordered object takes quadratic time.
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::string data;
  for (const StoredTensor& tensor : tensors) {
    header += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          in_json(tensor.name), tensor.dtype, fmt::join(tensor.shape, ","),
                          data.size(), data.size() + tensor.bytes.size());
    data += tensor.bytes;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return raw_safetensors(header, data);
}

std::string raw_safetensors(std::string_view header, std::string_view data) {
  return raw_safetensors(header.size(), header, data);
}

std::string raw_safetensors(std::uint64_t header_bytes, std::string_view header,
                            std::string_view data) {
  std::string file;
  for (unsigned i = 0; i < 8; ++i) file += static_cast<char>(header_bytes >> (8 * i));
  file += header;
  file += data;
  return file;
}

std::uint64_t data_start(std::string_view file) {
  std::uint64_t header_bytes = 0;
  for (unsigned i = 8; i-- > 0;) {
    header_bytes = header_bytes << 8 | static_cast<unsigned char>(file.at(i));
  }
  return 8 + header_bytes;
}

std::string shard_name(std::size_t shard, std::size_t shards) {
  if (shards == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, shards);
}

std::string index_json(const std::vector<std::vector<StoredTensor>>& shards) {
  std::map<std::string, std::string> map;  // a tensor in several shards: the last one is named
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    for (const StoredTensor& tensor : shards[i]) {
      map[tensor.name] = shard_name(i, shards.size());
      total += tensor.bytes.size();
    }
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  return index.dump(1);
}

void write_checkpoint(const TempDir& directory, std::string_view prefix,
                      const std::vector<std::vector<StoredTensor>>& shards,
                      std::string_view config_json) {
  const auto at = [&](std::string_view name) {
    return prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
  };
  directory.write(at("config.json"), config_json);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    directory.write(at(shard_name(i, shards.size())), safetensors_file(shards[i]));
  }
  if (shards.size() > 1) directory.write(at("model.safetensors.index.json"), index_json(shards));
}

void write_checkpoint(const TempDir& directory,
                      const std::vector<std::vector<StoredTensor>>& shards,
                      std::string_view config_json) {
  write_checkpoint(directory, "", shards, config_json);
}

}  // namespace preload::test
