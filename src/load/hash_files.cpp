// SPDX-License-Identifier: Apache-2.0
#include "load/hash_files.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <span>

#include "base/bytes.hpp"
#include "load/run_threads.hpp"
#include "load/source_files.hpp"

namespace preload {

namespace {

// Small enough to stay in a core's L2 cache between reading and hashing.
constexpr std::uint64_t kBlockBytes = kMiB;
constexpr int kMaxThreads = 16;

// A piece of one tensor, by the tensor's place in the results.
struct Block {
  std::size_t result = 0;
  std::uint64_t offset = 0;  // in the tensor
  std::uint64_t bytes = 0;
};

// One contiguous read per tensor, in the order of the disk. Tensors without bytes have no hash.
std::vector<FileRows> whole_tensors(const Checkpoint& checkpoint,
                                    const std::vector<std::uint32_t>& sources) {
  std::vector<FileRows> ops;
  for (const std::uint32_t source : sources) {
    const SourceTensor& tensor = checkpoint.tensors.at(source);
    if (tensor.bytes == 0) continue;
    FileRows op;
    op.file = tensor.file;
    op.file_offset = tensor.offset;
    op.row_bytes = tensor.bytes;
    op.source = source;
    ops.push_back(op);
  }
  std::ranges::sort(ops, {}, [](const FileRows& op) { return std::pair(op.file, op.file_offset); });
  return ops;
}

std::vector<Block> blocks_of(const std::vector<FileRows>& ops) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    for (std::uint64_t at = 0; at < ops[i].row_bytes; at += kBlockBytes) {
      blocks.push_back({i, at, std::min(kBlockBytes, ops[i].row_bytes - at)});
    }
  }
  return blocks;
}

}  // namespace

std::vector<SourceHash> hash_sources(const Checkpoint& checkpoint,
                                     const std::vector<std::uint32_t>& sources, int threads,
                                     const Cancel& cancel, const ReadOptions& reading) {
  const std::vector<FileRows> ops = whole_tensors(checkpoint, sources);
  const std::vector<Block> blocks = blocks_of(ops);
  std::vector<SourceHash> results(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) results[i].source = ops[i].source;
  if (blocks.empty()) return results;

  std::vector<std::uint32_t> needed;
  for (const FileRows& op : ops) needed.push_back(op.file);
  SourceFiles files(checkpoint, needed, reading);
  std::atomic<std::size_t> next{0};
  std::mutex mutex;  // guards the sums
  if (threads <= 0) threads = std::min(usable_cpus(), kMaxThreads);
  threads =
      static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(threads), blocks.size()));
  run_threads(threads, [&](int, const std::atomic<bool>& stop) {
    std::vector<std::byte> buffer(kBlockBytes);
    for (std::size_t i; !stop.load() && (i = next.fetch_add(1)) < blocks.size();) {
      cancel.check();
      const Block& block = blocks[i];
      const FileRows& op = ops[block.result];
      const auto bytes = std::span(buffer).first(block.bytes);
      files.read(op.file, op.file_offset + block.offset, bytes);
      const Hash128 part = hash_bytes(bytes, block.offset);
      const std::lock_guard lock(mutex);
      results[block.result].hash += part;
    }
  });
  files.check_unchanged();
  return results;
}

}  // namespace preload
