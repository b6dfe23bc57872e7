// SPDX-License-Identifier: Apache-2.0
#include "run/residency_build.hpp"

#include <cstring>
#include <utility>

#include "plan/shard_description.hpp"
#include "wire/manifest.hpp"

namespace preload::run {
namespace {

Fd sealed_memfd(const std::string& bytes) {
  Fd fd = make_memfd("preload-manifest", bytes.size());
  {
    const Mapping mapping = map_fd(fd.get(), bytes.size(), true, "the manifest");
    std::memcpy(mapping.data(), bytes.data(), bytes.size());
  }
  seal_memfd(fd.get());
  return fd;
}

std::vector<wire::ManifestTensor> manifest_tensors(const RankPlan& plan, const LoadResult& result) {
  std::vector<wire::ManifestTensor> tensors;
  tensors.reserve(plan.program.tensors.size());
  for (std::size_t i = 0; i < plan.program.tensors.size(); ++i)
    tensors.push_back(manifest_tensor(plan, i, result.served[i]));
  return tensors;
}

}  // namespace

wire::ManifestTensor manifest_tensor(const RankPlan& plan, std::size_t index, const Hash128& hash) {
  const TargetTensor& target = plan.program.tensors[index];
  const Placement& place = plan.load.slabs.placements[index];
  wire::ManifestTensor tensor;
  tensor.name = target.name;
  tensor.dtype = target.dtype;
  tensor.shape = target.shape;
  tensor.strides = target.strides;
  tensor.slab = place.slab;
  tensor.offset = place.offset;
  tensor.bytes = place.bytes;
  tensor.kind = target.kind;
  tensor.cls = target.cls;
  tensor.alias = target.alias;
  tensor.hash = hash;
  return tensor;
}

Residency build_residency(const Launch& launch, const RankRole& role, const RankPlan& plan,
                          const LoadResult& result, std::string checkpoint_id,
                          std::string receipt_json) {
  Residency residency;
  residency.endpoint = role.endpoint;
  residency.job = launch.job;
  residency.model = plan.model.model;
  residency.coords = *role.coords;
  residency.local_size = role.local_daemons;
  residency.checkpoint = std::move(checkpoint_id);
  residency.fields = key_fields(plan.spec, plan.model.layout, plan.program, role.sizes,
                                *role.coords, residency.checkpoint);
  residency.key = key_digest(residency.fields);
  residency.receipt_json = std::move(receipt_json);
  residency.tensor_count = plan.program.tensors.size();

  ShardDescription shard;
  shard.model = plan.model.model;
  shard.directory = plan.checkpoint.directory;
  shard.hf_overrides = plan.model.hf_overrides;
  shard.request = plan.model.layout;
  shard.layout_version = plan.program.layout_version;
  shard.role = role.role;
  shard.sizes = role.sizes;
  shard.rank = *role.coords;
  shard.job = launch.job;
  shard.key = residency.key;
  shard.fields = residency.fields;
  shard.checkpoint_id = residency.checkpoint;
  shard.attributes_json = plan.program.attributes_json;
  residency.shard_json = to_json(shard);

  residency.loads.push_back(
      {std::string(read_method_name(result.method)), result.bytes_read, result.seconds});
  if (plan.reads.received_bytes > 0)
    residency.loads.push_back({"peers", plan.reads.received_bytes, result.seconds});

  std::vector<wire::ManifestSlab> slabs;
  for (const SlabSpec& slab : plan.load.slabs.slabs) slabs.push_back({slab.bytes, slab.cls});
  residency.manifest = sealed_memfd(
      wire::encode_manifest(slabs, manifest_tensors(plan, result), residency.shard_json));
  return residency;
}

}  // namespace preload::run
