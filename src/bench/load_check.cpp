// SPDX-License-Identifier: Apache-2.0
#include "bench/load_check.hpp"

#include <fmt/format.h>

#include <set>
#include <string>

#include "base/error.hpp"
#include "cli/file_regions.hpp"
#include "load/hash_files.hpp"
#include "plan/served_rows.hpp"
#include "plan/source_hashes.hpp"

namespace preload::bench {

namespace {

constexpr const char* kRemedy =
    "memory, a GPU or the file system returned wrong data, or the loader has a bug: check ECC "
    "errors and the disk, and run again";

std::vector<std::optional<Hash128>> hash_consumed(const LoadPlan& plan,
                                                  const Checkpoint& checkpoint, int threads) {
  std::set<std::uint32_t> consumed;
  for (const CopyOp& op : plan.ops) consumed.insert(op.source);
  std::vector<std::optional<Hash128>> hashes(checkpoint.tensors.size());
  for (const SourceHash& hash :
       hash_sources(checkpoint, {consumed.begin(), consumed.end()}, threads, Cancel())) {
    hashes[hash.source] = hash.hash;
  }
  return hashes;
}

// Of the tensors whose row-major bytes are what the moves bring, and zeros.
std::vector<std::optional<Hash128>> hash_moved(const LoadPlan& plan, const CopyProgram& program,
                                               const Checkpoint& checkpoint, int threads) {
  const std::vector<ServedHash> origin = served_hash_sources(program, plan);
  std::vector<std::optional<Hash128>> hashes(program.tensors.size());
  for (std::size_t t = 0; t < hashes.size(); ++t) {
    if (origin[t] == ServedHash::kCopies) hashes[t] = Hash128{};
  }
  const std::vector<Hash128> stored = cli::hash_file_regions(checkpoint, plan.ops, threads);
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (auto& hash = hashes[plan.ops[i].tensor]) *hash += stored[i];
  }
  for (std::size_t t = 0; t < hashes.size(); ++t) {
    if (const auto alias = program.tensors[t].alias) hashes[t] = hashes[*alias];
  }
  return hashes;
}

}  // namespace

LoadCheck::LoadCheck(const LoadPlan& plan, const CopyProgram& program, const Checkpoint& checkpoint,
                     int threads)
    : plan_(plan),
      program_(program),
      checkpoint_(checkpoint),
      served_(hash_moved(plan, program, checkpoint, threads)),
      sources_(hash_consumed(plan, checkpoint, threads)) {}

void LoadCheck::check(const LoadResult& result) {
  check_served(result.served);
  check_sources(result.sources);
  before_ = result.served;
}

void LoadCheck::check_served(const std::vector<Hash128>& served) const {
  for (std::size_t t = 0; t < served.size(); ++t) {
    const std::string& name = program_.tensors[t].name;
    if (served_[t] && served[t] != *served_[t]) {
      throw Error(Errc::kCheckpoint,
                  fmt::format("tensor {}: what was loaded hashes to {}, its bytes in the files to "
                              "{}; {}",
                              name, to_hex(served[t]), to_hex(*served_[t]), kRemedy));
    }
    if (!before_.empty() && served[t] != before_[t]) {
      throw Error(
          Errc::kCheckpoint,
          fmt::format("tensor {}: what was loaded hashes to {}, in the run before to {}; {}", name,
                      to_hex(served[t]), to_hex(before_[t]), kRemedy));
    }
  }
}

void LoadCheck::check_sources(std::vector<SourceRegion> regions) const {
  // Of tensors that this rank reads in part there is no whole to compare.
  for (const SourceHash& read : combine_regions(checkpoint_, std::move(regions)).hashes) {
    const std::optional<Hash128>& stored = sources_[read.source];
    if (!stored || read.hash == *stored) continue;
    const SourceTensor& tensor = checkpoint_.tensors[read.source];
    throw Error(Errc::kCheckpoint,
                fmt::format("tensor {}: what was read of {} hashes to {}, the file to {}; {}",
                            tensor.name, checkpoint_.files[tensor.file].name, to_hex(read.hash),
                            to_hex(*stored), kRemedy));
  }
}

}  // namespace preload::bench
