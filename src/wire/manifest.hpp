// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "model/copy_program.hpp"

namespace preload::wire {

// One tensor as a client sees it. An alias has its target's place and says whose it is.
struct ManifestTensor {
  std::string_view name;
  DType dtype = DType::kBF16;
  Dims shape;
  Dims strides;  // elements
  std::uint32_t slab = 0;
  std::uint64_t offset = 0;  // bytes in the slab
  std::uint64_t bytes = 0;   // extent
  TensorKind kind = TensorKind::kParam;
  TensorClass cls = TensorClass::kShared;
  std::optional<std::uint32_t> alias;  // record index of the tensor it is another name of
  Hash128 hash;                        // over the row-major bytes
};

struct ManifestSlab {
  std::uint64_t bytes = 0;
  TensorClass cls = TensorClass::kShared;
};

// The table: versioned header, fixed records, slabs, dims pool, hash table, string pool, then JSON.
// Written once by the daemon into a sealed memfd, searched in place by clients. Throws
// Error(kInternal) on what a view would refuse, e.g. a name that occurs twice.
std::string encode_manifest(const std::vector<ManifestSlab>& slabs,
                            const std::vector<ManifestTensor>& tensors,
                            std::string_view metadata_json);

// A view over encoded bytes. The constructor checks every bound once (slab ranges, pools, strides,
// aliases) and throws Error(kProtocol); access afterwards cannot leave the bytes. Names and the
// metadata are followed by a NUL that they do not contain: data() is a C string.
class ManifestView {
 public:
  explicit ManifestView(std::span<const std::byte> bytes);
  std::size_t size() const noexcept;  // tensors
  ManifestTensor operator[](std::size_t i) const noexcept;
  std::optional<std::uint32_t> find(std::string_view name) const noexcept;  // hash table in place
  std::size_t slab_count() const noexcept;
  ManifestSlab slab(std::size_t i) const noexcept;
  std::string_view metadata_json() const noexcept;

 private:
  struct Record;
  Record record(std::size_t i) const noexcept;
  std::string_view name_of(const Record& record) const noexcept;
  void check_records() const;

  std::span<const std::byte> records_, slabs_, dims_, slots_, strings_;
  std::string_view metadata_;
};

}  // namespace preload::wire
