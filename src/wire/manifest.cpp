// SPDX-License-Identifier: Apache-2.0
#include "wire/manifest.hpp"

#include <fmt/format.h>

#include <bit>
#include <limits>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "wire/manifest_format.hpp"

namespace preload::wire {

using format::Header;
using format::kNone;
using format::Section;

struct ManifestView::Record : format::Record {};

namespace {

[[noreturn]] void refuse(std::string_view why) {
  throw Error(Errc::kProtocol, fmt::format("the manifest is corrupt: {}", why));
}

// The bytes of a section that holds `count` items of `item_bytes`.
std::span<const std::byte> section(std::span<const std::byte> table, const Section& section,
                                   std::uint64_t count, std::uint64_t item_bytes,
                                   std::string_view name) {
  if (section.offset % 8 != 0 || section.offset < sizeof(Header) || section.offset > table.size() ||
      section.bytes > table.size() - section.offset)
    refuse(fmt::format("its {} lie outside of it", name));
  if (checked_mul(count, item_bytes) != section.bytes)
    refuse(fmt::format("its {} take {} bytes, which does not fit {} of them", name, section.bytes,
                       count));
  return table.subspan(section.offset, section.bytes);
}

// Bytes from the first element to the end of the last one; nothing when it does not fit 64 bits.
std::optional<std::uint64_t> extent_bytes(const ManifestTensor& tensor) {
  std::uint64_t last = 0;
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    const auto step = checked_mul(static_cast<std::uint64_t>(tensor.shape[d] - 1),
                                  static_cast<std::uint64_t>(tensor.strides[d]));
    if (!step || *step > std::numeric_limits<std::uint64_t>::max() - 1 - last) return std::nullopt;
    last += *step;
  }
  const auto bits = checked_mul(last + 1, dtype_bits(tensor.dtype));
  if (!bits || *bits > std::numeric_limits<std::uint64_t>::max() - 7) return std::nullopt;
  return (*bits + 7) / 8;
}

bool has_elements(const ManifestTensor& tensor) {
  for (const std::int64_t extent : tensor.shape)
    if (extent == 0) return false;
  return true;
}

void check_place(const ManifestTensor& tensor, const ManifestView& view) {
  for (std::size_t d = 0; d < tensor.shape.size(); ++d)
    if (tensor.shape[d] < 0 || tensor.strides[d] < 0)
      refuse(fmt::format("{} has a negative extent or stride", tensor.name));
  if (has_elements(tensor)) {
    const auto extent = extent_bytes(tensor);
    if (!extent || *extent > tensor.bytes)
      refuse(
          fmt::format("{}: shape and strides reach past its {} bytes", tensor.name, tensor.bytes));
  }
  if (view.slab_count() == 0 && tensor.bytes == 0 && tensor.slab == 0 && tensor.offset == 0)
    return;  // a shard without a byte: there is no slab to lie in
  if (tensor.slab >= view.slab_count())
    refuse(fmt::format("{} lies in slab {} of {}", tensor.name, tensor.slab, view.slab_count()));
  const ManifestSlab slab = view.slab(tensor.slab);
  if (tensor.offset > slab.bytes || tensor.bytes > slab.bytes - tensor.offset)
    refuse(fmt::format("{} reaches past the end of slab {}", tensor.name, tensor.slab));
  if (tensor.bytes > 0 && tensor.cls != slab.cls)
    refuse(fmt::format("{} and its slab differ in class", tensor.name));
}

void check_alias(const ManifestTensor& tensor, const ManifestView& view) {
  if (!tensor.alias) return;
  if (*tensor.alias >= view.size()) refuse(fmt::format("{} is an alias of nothing", tensor.name));
  const ManifestTensor target = view[*tensor.alias];
  if (target.alias) refuse(fmt::format("{} is an alias of an alias", tensor.name));
  if (target.slab != tensor.slab || target.offset != tensor.offset || target.bytes != tensor.bytes)
    refuse(fmt::format("{} lies elsewhere than {}, whose alias it is", tensor.name, target.name));
}

void check_slots(std::span<const std::byte> slots, std::size_t count) {
  const std::size_t slot_count = slots.size() / sizeof(std::uint32_t);
  if (!std::has_single_bit(slot_count) || slot_count < 2 || slots.size() % sizeof(std::uint32_t))
    refuse("its hash table has a wrong size");
  std::vector<bool> seen(count, false);
  std::size_t used = 0;
  for (std::size_t i = 0; i < slot_count; ++i) {
    const auto slot = format::load<std::uint32_t>(slots, i);
    if (slot == kNone) continue;
    if (slot >= count || seen[slot]) refuse("its hash table names a wrong tensor");
    seen[slot] = true;
    ++used;
  }
  if (used != count || used == slot_count) refuse("its hash table is incomplete");
}

}  // namespace

ManifestView::ManifestView(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(Header)) refuse("it is shorter than its header");
  const auto header = format::load<Header>(bytes, 0);
  if (header.magic != format::kMagic) refuse("it does not begin like one");
  if (header.version != format::kVersion)
    throw Error(Errc::kProtocol,
                fmt::format("the manifest has version {}, this side knows version {}: use the "
                            "same preload release on both sides",
                            header.version, format::kVersion));
  if (header.header_bytes != sizeof(Header) || header.total_bytes > bytes.size())
    refuse("it is shorter than it says");
  const auto table = bytes.first(header.total_bytes);
  if (table.size() < sizeof(Header)) refuse("it is shorter than its header");
  records_ = section(table, header.records, header.tensor_count, sizeof(format::Record), "records");
  slabs_ = section(table, header.slabs, header.slab_count, sizeof(format::Slab), "slabs");
  dims_ = section(table, header.dims, header.dims.bytes / sizeof(std::int64_t),
                  sizeof(std::int64_t), "dims");
  slots_ = section(table, header.slots, header.slots.bytes, 1, "hash slots");
  strings_ = section(table, header.strings, header.strings.bytes, 1, "strings");
  const auto text = section(table, header.metadata, header.metadata.bytes, 1, "metadata");
  if (text.empty() || text.back() != std::byte{0}) refuse("its metadata does not end");
  metadata_ = {reinterpret_cast<const char*>(text.data()), text.size() - 1};
  if (metadata_.find('\0') != std::string_view::npos) refuse("its metadata ends early");
  check_slots(slots_, size());
  check_records();
}

ManifestView::Record ManifestView::record(std::size_t i) const noexcept {
  return {format::load<format::Record>(records_, i)};
}

std::string_view ManifestView::name_of(const Record& record) const noexcept {
  return {reinterpret_cast<const char*>(strings_.data()) + record.name_offset, record.name_bytes};
}

// First what makes operator[] safe, then what it returns.
void ManifestView::check_records() const {
  const std::size_t pool = dims_.size() / sizeof(std::int64_t);
  for (std::size_t i = 0; i < size(); ++i) {
    const Record r = record(i);
    if (r.name_offset > strings_.size() || r.name_bytes >= strings_.size() - r.name_offset ||
        strings_[r.name_offset + r.name_bytes] != std::byte{0} ||
        name_of(r).find('\0') != std::string_view::npos)
      refuse(fmt::format("the name of tensor {} lies outside of it", i));
    if (r.ndim > Dims::kMax || r.dims > pool || 2U * r.ndim > pool - r.dims)
      refuse(fmt::format("the dimensions of {} lie outside of it", name_of(r)));
    if (r.dtype >= format::kDTypes.size() || r.kind > 1 || r.cls > 1 || r.layout != 0)
      refuse(fmt::format("{} has a dtype, kind, class or layout that this release does not know",
                         name_of(r)));
  }
  for (std::size_t i = 0; i < slab_count(); ++i)
    if (format::load<format::Slab>(slabs_, i).cls > 1) refuse("a slab has an unknown class");
  for (std::size_t i = 0; i < size(); ++i) {
    const ManifestTensor tensor = (*this)[i];
    check_place(tensor, *this);
    check_alias(tensor, *this);
  }
}

std::size_t ManifestView::size() const noexcept { return records_.size() / sizeof(format::Record); }

ManifestTensor ManifestView::operator[](std::size_t i) const noexcept {
  const Record r = record(i);
  ManifestTensor tensor;
  tensor.name = name_of(r);
  tensor.dtype = format::kDTypes[r.dtype];
  for (std::size_t d = 0; d < r.ndim; ++d)
    tensor.shape.push_back(format::load<std::int64_t>(dims_, r.dims + d));
  for (std::size_t d = 0; d < r.ndim; ++d)
    tensor.strides.push_back(format::load<std::int64_t>(dims_, r.dims + r.ndim + d));
  tensor.slab = r.slab;
  tensor.offset = r.offset;
  tensor.bytes = r.bytes;
  tensor.kind = r.kind == 1 ? TensorKind::kBuffer : TensorKind::kParam;
  tensor.cls = r.cls == 1 ? TensorClass::kPrivate : TensorClass::kShared;
  if (r.alias != kNone) tensor.alias = r.alias;
  tensor.hash = {r.hash_lo, r.hash_hi};
  return tensor;
}

std::optional<std::uint32_t> ManifestView::find(std::string_view name) const noexcept {
  const std::size_t mask = slots_.size() / sizeof(std::uint32_t) - 1;
  // An empty slot exists (checked), so the probing ends.
  for (std::size_t at = format::name_hash(name) & mask;; at = (at + 1) & mask) {
    const auto slot = format::load<std::uint32_t>(slots_, at);
    if (slot == kNone) return std::nullopt;
    if (name_of(record(slot)) == name) return slot;
  }
}

std::size_t ManifestView::slab_count() const noexcept {
  return slabs_.size() / sizeof(format::Slab);
}

ManifestSlab ManifestView::slab(std::size_t i) const noexcept {
  const auto slab = format::load<format::Slab>(slabs_, i);
  return {slab.bytes, slab.cls == 1 ? TensorClass::kPrivate : TensorClass::kShared};
}

std::string_view ManifestView::metadata_json() const noexcept { return metadata_; }

}  // namespace preload::wire
