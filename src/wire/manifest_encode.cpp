// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "wire/manifest.hpp"
#include "wire/manifest_format.hpp"

namespace preload::wire {
namespace {

using format::Header;
using format::kNone;
using format::Record;
using format::Section;
using format::Slab;

std::uint8_t dtype_code(DType dtype) {
  const auto it = std::find(format::kDTypes.begin(), format::kDTypes.end(), dtype);
  if (it == format::kDTypes.end())
    throw Error(Errc::kInternal, "a dtype has no code in the manifest");
  return static_cast<std::uint8_t>(it - format::kDTypes.begin());
}

// Shapes and strides, each combination once: a model of 90,000 tensors has a few dozen.
class DimsPool {
 public:
  std::uint32_t add(const Dims& shape, const Dims& strides) {
    std::vector<std::int64_t> both(shape.begin(), shape.end());
    both.insert(both.end(), strides.begin(), strides.end());
    const auto [it, fresh] = index_.try_emplace(both, static_cast<std::uint32_t>(values_.size()));
    if (fresh) values_.insert(values_.end(), both.begin(), both.end());
    return it->second;
  }
  const std::vector<std::int64_t>& values() const noexcept { return values_; }

 private:
  std::vector<std::int64_t> values_;
  std::map<std::vector<std::int64_t>, std::uint32_t> index_;
};

// Open addressing with linear probing, at most half full.
std::vector<std::uint32_t> hash_slots(const std::vector<ManifestTensor>& tensors) {
  std::size_t count = 2;
  while (count < 2 * tensors.size()) count *= 2;
  std::vector<std::uint32_t> slots(count, kNone);
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    std::size_t at = format::name_hash(tensors[i].name) & (count - 1);
    for (; slots[at] != kNone; at = (at + 1) & (count - 1))
      if (tensors[slots[at]].name == tensors[i].name)
        throw Error(Errc::kInternal,
                    fmt::format("two tensors of a manifest are named {}", tensors[i].name));
    slots[at] = i;
  }
  return slots;
}

Record encode_record(const ManifestTensor& tensor, std::size_t name_offset, DimsPool& dims) {
  if (tensor.shape.size() != tensor.strides.size())
    throw Error(Errc::kInternal, fmt::format("{} has {} dimensions and {} strides", tensor.name,
                                             tensor.shape.size(), tensor.strides.size()));
  Record record{};
  record.hash_lo = tensor.hash.lo;
  record.hash_hi = tensor.hash.hi;
  record.offset = tensor.offset;
  record.bytes = tensor.bytes;
  record.name_offset = static_cast<std::uint32_t>(name_offset);
  record.name_bytes = static_cast<std::uint32_t>(tensor.name.size());
  record.dims = dims.add(tensor.shape, tensor.strides);
  record.slab = tensor.slab;
  record.alias = tensor.alias.value_or(kNone);
  record.ndim = static_cast<std::uint8_t>(tensor.shape.size());
  record.dtype = dtype_code(tensor.dtype);
  record.kind = tensor.kind == TensorKind::kBuffer ? 1 : 0;
  record.cls = tensor.cls == TensorClass::kPrivate ? 1 : 0;
  return record;
}

// Lays the sections one after another behind the header.
class Table {
 public:
  Table() : bytes_(sizeof(Header), '\0') {}

  template <class T>
  Section append(const std::vector<T>& items) {
    return append({reinterpret_cast<const char*>(items.data()), items.size() * sizeof(T)});
  }
  Section append(std::string_view raw) {
    bytes_.resize(align_up(bytes_.size(), 8), '\0');
    const Section section{bytes_.size(), raw.size()};
    bytes_.append(raw);
    return section;
  }
  std::string finish(Header header) {
    header.magic = format::kMagic;
    header.version = format::kVersion;
    header.header_bytes = sizeof(Header);
    header.total_bytes = bytes_.size();
    std::memcpy(bytes_.data(), &header, sizeof header);
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
};

}  // namespace

std::string encode_manifest(const std::vector<ManifestSlab>& slabs,
                            const std::vector<ManifestTensor>& tensors,
                            std::string_view metadata_json) {
  if (tensors.size() >= kNone || slabs.size() >= kNone)
    throw Error(Errc::kInternal, "too many tensors for one manifest");
  std::string names;
  DimsPool dims;
  std::vector<Record> records;
  records.reserve(tensors.size());
  for (const ManifestTensor& tensor : tensors) {
    records.push_back(encode_record(tensor, names.size(), dims));
    names.append(tensor.name);
    names.push_back('\0');
  }
  if (names.size() > kNone)
    throw Error(Errc::kInternal, "the tensors' names do not fit into one manifest");
  std::vector<Slab> slab_entries;
  for (const ManifestSlab& slab : slabs)
    slab_entries.push_back({slab.bytes, slab.cls == TensorClass::kPrivate ? 1U : 0U, 0});

  Table table;
  Header header{};
  header.tensor_count = static_cast<std::uint32_t>(tensors.size());
  header.slab_count = static_cast<std::uint32_t>(slabs.size());
  header.records = table.append(records);
  header.slabs = table.append(slab_entries);
  header.dims = table.append(dims.values());
  header.slots = table.append(hash_slots(tensors));
  header.strings = table.append(names);
  header.metadata = table.append(std::string(metadata_json) + '\0');
  std::string encoded = table.finish(header);
  try {
    ManifestView(std::as_bytes(std::span(encoded)));
  } catch (const Error& error) {
    throw Error(Errc::kInternal, fmt::format("a manifest would be refused: {}", error.what()));
  }
  return encoded;
}

}  // namespace preload::wire
