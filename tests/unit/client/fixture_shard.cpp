// SPDX-License-Identifier: Apache-2.0
#include "unit/client/fixture_shard.hpp"

#include <cstring>
#include <stdexcept>

#include "model/extent.hpp"

namespace preload::test {
namespace {

std::span<const std::byte> as_span(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

Fd sealed_copy(const std::string& name, std::span<const std::byte> bytes) {
  Fd fd = make_memfd(name, bytes.size());
  {
    const Mapping mapping = map_fd(fd.get(), bytes.size(), true, name);
    std::memcpy(mapping.data(), bytes.data(), bytes.size());
  }
  seal_memfd(fd.get());
  return fd;
}

constexpr TensorClass kSlabClasses[] = {TensorClass::kShared, TensorClass::kPrivate};

}  // namespace

FixtureShard::FixtureShard(std::uint64_t slab_bytes)
    : slab_bytes_(slab_bytes), slabs_(2, std::vector<std::byte>(slab_bytes, std::byte{0xEE})) {}

wire::ManifestTensor& FixtureShard::place(const std::string& name, DType dtype, const Dims& shape,
                                          const Dims& strides, TensorClass cls) {
  wire::ManifestTensor tensor;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.strides = strides;
  tensor.cls = cls;
  tensor.slab = cls == TensorClass::kPrivate ? 1 : 0;
  tensor.offset = used_[tensor.slab];
  tensor.bytes = element_bytes(extent_elements(shape, strides), dtype);
  used_[tensor.slab] = align_up(tensor.offset + tensor.bytes, kTensorAlignmentBytes);
  if (used_[tensor.slab] > slab_bytes_) throw std::length_error("the fixture's slab is full");
  names_.push_back(name);
  return tensors_.emplace_back(tensor);
}

void FixtureShard::add(const std::string& name, DType dtype, const Dims& shape,
                       std::string_view row_major, TensorClass cls, TensorKind kind) {
  wire::ManifestTensor& tensor = place(name, dtype, shape, contiguous_strides(shape), cls);
  if (tensor.bytes != row_major.size()) throw std::length_error("bytes do not fit " + name);
  tensor.kind = kind;
  tensor.hash = hash_bytes(as_span(row_major));
  // (data of an empty view may be null)
  std::ranges::copy(as_span(row_major),
                    slabs_[tensor.slab].begin() + static_cast<std::ptrdiff_t>(tensor.offset));
}

void FixtureShard::add_strided(const std::string& name, DType dtype, const Dims& shape,
                               const Dims& strides, std::string_view row_major) {
  wire::ManifestTensor& tensor = place(name, dtype, shape, strides, TensorClass::kShared);
  tensor.hash = hash_bytes(as_span(row_major));
  const std::size_t size = dtype_bits(dtype) / 8;
  for (std::int64_t k = 0; k < element_count(shape); ++k) {
    std::int64_t rest = k;
    std::int64_t at = 0;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      at += rest % shape[axis] * strides[axis];
      rest /= shape[axis];
    }
    std::memcpy(&slabs_[0][tensor.offset + static_cast<std::size_t>(at) * size],
                row_major.data() + static_cast<std::size_t>(k) * size, size);
  }
}

void FixtureShard::add_alias(const std::string& name, const std::string& of) {
  for (std::uint32_t i = 0; i < names_.size(); ++i) {
    if (names_[i] != of) continue;
    wire::ManifestTensor tensor = tensors_[i];
    tensor.alias = i;
    names_.push_back(name);
    tensors_.push_back(tensor);
    return;
  }
  throw std::out_of_range("no tensor " + of);
}

Residency FixtureShard::residency(Endpoint endpoint) const {
  std::vector<wire::ManifestTensor> tensors = tensors_;
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].name = names_[i];
  std::vector<wire::ManifestSlab> slabs;
  Residency residency;
  for (std::size_t i = 0; i < slabs_.size(); ++i) {
    slabs.push_back({slab_bytes_, kSlabClasses[i]});
    SlabHandle handle;
    handle.cls = kSlabClasses[i];
    handle.bytes = slab_bytes_;
    handle.fd = sealed_copy("fixture-slab", slabs_[i]);
    residency.slabs.push_back(std::move(handle));
  }
  residency.endpoint = std::move(endpoint);
  residency.job = "job-1";
  residency.model = "fixture";
  residency.fields = {{"dtype", "BF16"}, {"tp_size", "2"}};
  residency.key = key();
  residency.checkpoint = std::string(64, 'c');
  residency.tensor_count = tensors.size();
  residency.manifest = sealed_copy("fixture-manifest",
                                   as_span(wire::encode_manifest(slabs, tensors, metadata_json_)));
  return residency;
}

std::string bytes_of_w() {
  std::vector<std::uint16_t> values;
  for (std::uint16_t k = 0; k < 15; ++k) values.push_back(static_cast<std::uint16_t>(0x3f80 + k));
  return bytes_of(values);
}

FixtureShard one_of_everything() {
  FixtureShard shard;
  shard.add("w", DType::kBF16, {3, 5}, bytes_of_w());
  shard.add_alias("tied", "w");
  shard.add("scalar", DType::kF32, {}, bytes_of<float>({3.5F}));
  shard.add("empty", DType::kF32, {0, 4}, "");
  std::vector<float> grid;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 3; ++j) grid.push_back(static_cast<float>(10 * i + j));
  }
  shard.add_strided("strided", DType::kF32, {4, 3}, {1, 4}, bytes_of(grid));
  shard.add("scale", DType::kF32, {2}, bytes_of<float>({1, 2}), TensorClass::kPrivate,
            TensorKind::kBuffer);
  for (int i = 0; i <= static_cast<int>(DType::kF6E3M2); ++i) {
    const auto dtype = static_cast<DType>(i);
    std::string bytes(8 * dtype_bits(dtype) / 8, '\0');
    for (std::size_t k = 0; k < bytes.size(); ++k) {
      bytes[k] = static_cast<char>(dtype == DType::kBool ? k % 2 : 16 + k);
    }
    shard.add("dtype." + std::string(dtype_name(dtype)), dtype, {2, 4}, bytes);
  }
  return shard;
}

}  // namespace preload::test
