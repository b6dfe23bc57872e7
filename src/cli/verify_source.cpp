// SPDX-License-Identifier: Apache-2.0
#include "cli/verify_source.hpp"

#include <algorithm>
#include <cstring>
#include <map>

#include "cli/file_regions.hpp"
#include "client/region.hpp"
#include "model/layout.hpp"
#include "model/model_spec.hpp"
#include "plan/load_plan.hpp"

namespace preload::cli {
namespace {

using client::Region;

Hash128 operator-(const Hash128& a, const Hash128& b) {
  return {a.lo - b.lo, a.hi - b.hi - (a.lo < b.lo ? 1U : 0U)};
}

// The rows of `op` in the target's slab, placed by their offsets in the target's extent.
Region target_region(const CopyOp& op, const wire::ManifestTensor& tensor, std::uint32_t tag) {
  return {tag,
          tensor.slab,
          tensor.offset + op.target_offset,
          op.rows,
          target_row_bytes(op),
          op.target_stride,
          op.target_offset,
          op.target_stride};
}

// The hash that the rows of `region` would have if they held `element_bits` over and over.
Hash128 fill_hash(const Region& region, std::uint64_t element_bits, std::size_t element_bytes) {
  if (element_bits == 0) return {};
  constexpr std::uint64_t kBlockBytes = 1 << 16;  // a multiple of every element size
  std::vector<std::byte> block(std::min(kBlockBytes, region.row_bytes));
  for (std::size_t i = 0; i + element_bytes <= block.size(); i += element_bytes) {
    std::memcpy(&block[i], &element_bits, element_bytes);
  }
  Hash128 sum;
  for (std::uint64_t at = 0; at < region.row_bytes; at += block.size()) {
    const std::uint64_t bytes = std::min<std::uint64_t>(block.size(), region.row_bytes - at);
    // Every row holds the same bytes: no step in memory.
    sum += hash_rows(block.data(), region.rows, bytes, 0, region.index_offset + at,
                     region.index_stride);
  }
  return sum;
}

// One shard against one checkpoint.
class SourceCheck {
 public:
  SourceCheck(const client::Attachment& attachment, const ShardDescription& description,
              const Checkpoint& checkpoint, int threads)
      : attachment_(attachment),
        checkpoint_(checkpoint),
        threads_(threads),
        program_(make_program(
            checkpoint, layout_spec(checkpoint, description.request, description.hf_overrides),
            description.request, description.sizes, description.rank)),
        plan_(plan_load(program_, checkpoint)) {}

  std::vector<TensorMismatch> run() {
    find_records();
    drop_ops_without_record();
    compare_moves();
    compare_fills();
    return std::move(mismatches_);
  }

 private:
  // A tensor that the checkpoint calls for and the shard has not, or has as something else.
  void find_records() {
    const wire::ManifestView& manifest = attachment_.manifest();
    for (const TargetTensor& tensor : program_.tensors) {
      std::optional<wire::ManifestTensor> record;
      if (const auto index = manifest.find(tensor.name)) record = manifest[*index];
      const bool same = record && record->dtype == tensor.dtype && record->shape == tensor.shape &&
                        record->strides == tensor.strides;
      if (!same) {
        mismatches_.push_back({tensor.name, std::nullopt});
        record.reset();
      }
      records_.push_back(record);
    }
    if (manifest.size() > program_.tensors.size()) report_extra(manifest);
  }

  void report_extra(const wire::ManifestView& manifest) {
    std::vector<std::string_view> known;
    for (const TargetTensor& tensor : program_.tensors) known.push_back(tensor.name);
    std::ranges::sort(known);
    for (std::size_t i = 0; i < manifest.size(); ++i) {
      if (!std::ranges::binary_search(known, manifest[i].name)) {
        mismatches_.push_back({std::string(manifest[i].name), std::nullopt});
      }
    }
  }

  void drop_ops_without_record() {
    std::erase_if(plan_.ops, [this](const CopyOp& op) { return !records_[op.tensor]; });
    std::erase_if(plan_.fills, [this](const FillOp& fill) { return !records_[fill.tensor]; });
  }

  void compare_moves() {
    std::vector<Region> regions;
    for (std::uint32_t i = 0; i < plan_.ops.size(); ++i) {
      regions.push_back(target_region(plan_.ops[i], *records_[plan_.ops[i].tensor], i));
    }
    // Pieces are shared by neighbours in memory, so in memory's order.
    std::ranges::sort(regions, [](const Region& a, const Region& b) {
      return std::pair(a.slab, a.memory_offset) < std::pair(b.slab, b.memory_offset);
    });
    served_ = client::hash_regions(attachment_, regions, plan_.ops.size(), threads_);
    const std::vector<Hash128> stored = hash_file_regions(checkpoint_, plan_.ops, threads_);
    for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
      if (served_[i] == stored[i]) continue;
      TensorMismatch mismatch{program_.tensors[plan_.ops[i].tensor].name,
                              checkpoint_.tensors[plan_.ops[i].source].name};
      if (std::ranges::find(mismatches_, mismatch) == mismatches_.end()) {
        mismatches_.push_back(std::move(mismatch));
      }
    }
  }

  // What is left of a filled tensor's extent without its moves must be the fill. The hash is
  // linear: so are these differences.
  void compare_fills() {
    std::vector<Region> extents;
    for (std::uint32_t i = 0; i < plan_.fills.size(); ++i) {
      const wire::ManifestTensor& record = *records_[plan_.fills[i].tensor];
      extents.push_back({i, record.slab, record.offset, 1, record.bytes, 0, 0, 0});
    }
    std::vector<Hash128> rest =
        client::hash_regions(attachment_, extents, plan_.fills.size(), threads_);
    std::map<std::uint32_t, std::size_t> fill_of;
    for (std::size_t i = 0; i < plan_.fills.size(); ++i) {
      fill_of[plan_.fills[i].tensor] = i;
      rest[i] = rest[i] - fill_part(plan_.fills[i], extents[i]);
    }
    for (std::uint32_t i = 0; i < plan_.ops.size(); ++i) {
      const auto found = fill_of.find(plan_.ops[i].tensor);
      if (found == fill_of.end()) continue;
      const Region region = target_region(plan_.ops[i], *records_[plan_.ops[i].tensor], i);
      Hash128& left = rest[found->second];
      left = left - served_[i];
      left += fill_part(plan_.fills[found->second], region);
    }
    for (std::size_t i = 0; i < rest.size(); ++i) {
      if (rest[i] != Hash128{}) {
        mismatches_.push_back({program_.tensors[plan_.fills[i].tensor].name, std::nullopt});
      }
    }
  }

  Hash128 fill_part(const FillOp& fill, const Region& region) const {
    const std::size_t bytes = std::max(1U, dtype_bits(program_.tensors[fill.tensor].dtype) / 8);
    return fill_hash(region, fill.element_bits, bytes);
  }

  const client::Attachment& attachment_;
  const Checkpoint& checkpoint_;
  int threads_;
  CopyProgram program_;
  LoadPlan plan_;
  std::vector<std::optional<wire::ManifestTensor>> records_;  // by program tensor
  std::vector<Hash128> served_;                               // by op
  std::vector<TensorMismatch> mismatches_;
};

}  // namespace

std::vector<TensorMismatch> verify_source(const client::Attachment& attachment,
                                          const ShardDescription& description,
                                          const Checkpoint& checkpoint, int threads) {
  return SourceCheck(attachment, description, checkpoint, threads).run();
}

}  // namespace preload::cli
