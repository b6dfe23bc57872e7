// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "serve/residency.hpp"
#include "wire/manifest.hpp"

namespace preload::test {

// Puts tensors of stated contents into host slabs (0: shared, 1: private) and makes what a server
// serves of them. Hashes are taken over the row-major bytes given, not over what lies in the slab.
class FixtureShard {
 public:
  explicit FixtureShard(std::uint64_t slab_bytes = 2 << 20);

  // Row-major bytes, held row-major.
  void add(const std::string& name, DType dtype, const Dims& shape, std::string_view row_major,
           TensorClass cls = TensorClass::kShared, TensorKind kind = TensorKind::kParam);
  // Row-major bytes, held with `strides` (elements); gaps hold 0xEE.
  void add_strided(const std::string& name, DType dtype, const Dims& shape, const Dims& strides,
                   std::string_view row_major);
  void add_alias(const std::string& name, const std::string& of);
  void set_metadata(std::string json) { metadata_json_ = std::move(json); }

  // With key fields {"dtype": "BF16", "tp_size": "2"} and a key of 64 digits.
  Residency residency(Endpoint endpoint) const;
  static std::string key() { return std::string(64, 'a'); }

 private:
  wire::ManifestTensor& place(const std::string& name, DType dtype, const Dims& shape,
                              const Dims& strides, TensorClass cls);

  std::uint64_t slab_bytes_;
  std::vector<std::string> names_;
  std::vector<wire::ManifestTensor> tensors_;  // names are filled in at the end
  std::vector<std::vector<std::byte>> slabs_;
  std::vector<std::uint64_t> used_{0, 0};
  std::string metadata_json_ = R"({"model":"fixture"})";
};

// One of everything: "w" (BF16 [3, 5]) and its alias "tied", "scalar", "empty", "strided"
// (transposed F32 [4, 3], element (i, j) = 10 i + j), "scale" (private buffer F32 [2] = {1, 2}),
// and "dtype.<NAME>" for each element type.
FixtureShard one_of_everything();

// The bytes of "w": value k of 15 is 0x3f80 + k.
std::string bytes_of_w();
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace preload::test
