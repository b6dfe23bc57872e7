// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"

namespace preload {

namespace {

using Json = nlohmann::json;

constexpr int kVersion = 1;

Json encode_file(const SourceFile& file) {
  return Json::array({file.name, file.bytes, file.inode, file.mtime_ns, file.ctime_ns});
}

SourceFile decode_file(const Json& row) {
  return {.name = row.at(0).get<std::string>(),
          .bytes = row.at(1).get<std::uint64_t>(),
          .inode = row.at(2).get<std::uint64_t>(),
          .mtime_ns = row.at(3).get<std::int64_t>(),
          .ctime_ns = row.at(4).get<std::int64_t>()};
}

Json encode_tensor(const SourceTensor& tensor) {
  Json row = Json::array(
      {tensor.name, static_cast<unsigned>(tensor.dtype), tensor.file, tensor.offset, tensor.bytes});
  for (const std::int64_t extent : tensor.shape) row.push_back(extent);
  return row;
}

SourceTensor decode_tensor(Json& row, std::size_t files) {
  constexpr std::size_t kFixed = 5;
  const auto dtype = row.at(1).get<unsigned>();
  SourceTensor tensor{.name = std::move(row.at(0).get_ref<std::string&>()),
                      .dtype = static_cast<DType>(dtype),
                      .shape = {},
                      .file = row.at(2).get<std::uint32_t>(),
                      .offset = row.at(3).get<std::uint64_t>(),
                      .bytes = row.at(4).get<std::uint64_t>()};
  if (dtype > static_cast<unsigned>(DType::kF6E3M2) || tensor.file >= files ||
      row.size() < kFixed || row.size() > kFixed + Dims::kMax) {
    throw Error(Errc::kInternal, "an encoded checkpoint holds a tensor that no encoder writes");
  }
  for (std::size_t i = kFixed; i < row.size(); ++i) {
    tensor.shape.push_back(row[i].get<std::int64_t>());
  }
  return tensor;
}

}  // namespace

std::string encode(const Checkpoint& checkpoint) {
  Json files = Json::array();
  for (const SourceFile& file : checkpoint.files) files.push_back(encode_file(file));
  Json tensors = Json::array();
  for (const SourceTensor& tensor : checkpoint.tensors) tensors.push_back(encode_tensor(tensor));
  const Json document =
      Json::array({kVersion, checkpoint.directory, checkpoint.name, checkpoint.config_json,
                   std::move(files), std::move(tensors), checkpoint.warnings});
  std::string bytes;
  Json::to_msgpack(document, nlohmann::detail::output_adapter<char>(bytes));
  return bytes;
}

Checkpoint decode_checkpoint(std::string_view bytes) try {
  Json document = Json::from_msgpack(bytes.begin(), bytes.end());
  if (document.at(0) != kVersion || document.size() != 7) {
    throw Error(Errc::kInternal, "an encoded checkpoint is of another version");
  }
  Checkpoint checkpoint{.directory = document.at(1).get<std::string>(),
                        .name = document.at(2).get<std::string>(),
                        .config_json = document.at(3).get<std::string>(),
                        .files = {},
                        .tensors = {},
                        .warnings = document.at(6).get<std::vector<std::string>>()};
  for (const Json& row : document.at(4)) checkpoint.files.push_back(decode_file(row));
  checkpoint.tensors.reserve(document.at(5).size());
  for (Json& row : document.at(5)) {
    checkpoint.tensors.push_back(decode_tensor(row, checkpoint.files.size()));
  }
  return checkpoint;
} catch (const Json::exception& error) {
  throw Error(Errc::kInternal,
              std::string("an encoded checkpoint cannot be decoded: ") + error.what());
}

}  // namespace preload
