// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/dims.hpp"
#include "checkpoint/dtype.hpp"

namespace preload {

// One weight file, with the stat receipt that lets a later run know it again.
struct SourceFile {
  std::string name;  // relative to the checkpoint's directory
  std::uint64_t bytes = 0;
  std::uint64_t inode = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  friend bool operator==(const SourceFile&, const SourceFile&) = default;
};

// One stored tensor: row-major bytes at [offset, offset + bytes) of its file.
struct SourceTensor {
  std::string name;
  DType dtype = DType::kBF16;
  Dims shape;
  std::uint32_t file = 0;    // index in Checkpoint::files
  std::uint64_t offset = 0;  // absolute in the file
  std::uint64_t bytes = 0;
  friend bool operator==(const SourceTensor&, const SourceTensor&) = default;
};

// All that a plan needs to know of a checkpoint: no descriptor, no payload byte. A value: rank 0
// reads it, the others receive it.
struct Checkpoint {
  std::string directory;    // absolute, as opened
  std::string name;         // what the user called it: a path or a hub id
  std::string config_json;  // config.json as stored; "{}" when the format carries none
  std::vector<SourceFile> files;
  std::vector<SourceTensor> tensors;  // by file, then by offset
  std::vector<std::string> warnings;  // for the log, once per job

  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

// Name lookup beside the value.
class TensorNames {
 public:
  explicit TensorNames(const Checkpoint& checkpoint);
  std::optional<std::uint32_t> find(std::string_view name) const;

 private:
  std::unordered_map<std::string_view, std::uint32_t> index_;
};

struct OpenOptions {
  std::string revision = "main";  // of a hub id
  bool rebuild_index = false;     // take the tensors from the headers when the index is stale
  std::string hub_cache;          // empty: $HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub
};

// The directory of `model`: itself when it is a directory, else the snapshot of a hub id in the
// local hub cache. Never downloads. Throws Error(kCheckpoint) naming what was tried.
std::string resolve_model(const std::string& model, const OpenOptions& options);

// Reads index and headers. Throws one Error(kCheckpoint) that lists every problem of every file.
Checkpoint open_checkpoint(const std::string& model, const OpenOptions& options);

// For the broadcast from rank 0. decode throws Error(kInternal) on bytes that encode did not write.
std::string encode(const Checkpoint& checkpoint);
Checkpoint decode_checkpoint(std::string_view bytes);

}  // namespace preload
