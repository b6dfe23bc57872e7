// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <tuple>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "checkpoint/header_json.hpp"

namespace preload {

namespace {

constexpr std::string_view kDamaged = "the file is damaged: download or write it again";

// Bytes of a tensor, or nothing when its size does not fit the arithmetic of a file.
std::optional<std::uint64_t> tensor_bytes(const Dims& shape, DType dtype) {
  std::uint64_t extents = 1;  // without the zeros, so that 2^40 × 2^40 × 0 is caught too
  bool zero = false;
  for (const std::int64_t extent : shape) {
    if (extent == 0) {
      zero = true;
      continue;
    }
    const auto product = checked_mul(extents, static_cast<std::uint64_t>(extent));
    if (!product) return std::nullopt;
    extents = *product;
  }
  const auto bits = checked_mul(extents, dtype_bits(dtype));
  if (!bits || *bits > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return std::nullopt;
  }
  if (zero) return 0;
  if (*bits % 8 != 0) return std::nullopt;
  return *bits / 8;
}

// Checks one entry alone. Offsets stay relative to the data.
std::optional<SourceTensor> check_entry(std::string_view file, HeaderEntry& entry,
                                        Problems& problems) {
  const auto refuse = [&](const std::string& what) {
    problems.add(file, entry.name, fmt::format("{}; {}", what, kDamaged));
    return std::nullopt;
  };
  SourceTensor tensor;
  if (entry.name.find('\0') != std::string::npos) return refuse("has a NUL in its name");
  const std::optional<DType> dtype = dtype_from_name(entry.dtype);
  if (!dtype) {
    problems.add(file, entry.name,
                 fmt::format("has the unknown dtype {}; convert it to one that this version reads",
                             quote(entry.dtype)));
    return std::nullopt;
  }
  for (const std::uint64_t extent : std::span(entry.shape).first(entry.dimensions)) {
    if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return refuse(fmt::format("has an extent of {}", extent));
    }
    tensor.shape.push_back(static_cast<std::int64_t>(extent));
  }
  const std::uint64_t begin = entry.data_offsets[0];
  const std::uint64_t end = entry.data_offsets[1];
  if (begin > end)
    return refuse(fmt::format("has data_offsets [{}, {}] that run backwards", begin, end));
  const std::optional<std::uint64_t> bytes = tensor_bytes(tensor.shape, *dtype);
  if (!bytes) {
    return refuse(
        fmt::format("has {} elements {}, which is no number of bytes that a file can hold",
                    entry.dtype, to_string(tensor.shape)));
  }
  if (*bytes != end - begin) {
    return refuse(fmt::format("has data_offsets [{}, {}], {}, but {} {} takes {}", begin, end,
                              counted(end - begin, "byte"), entry.dtype, to_string(tensor.shape),
                              counted(*bytes, "byte")));
  }
  tensor.name = std::move(entry.name);
  tensor.dtype = *dtype;
  tensor.offset = begin;
  tensor.bytes = *bytes;
  return tensor;
}

// Sorted tensors must follow each other without a gap from the first data byte to the last.
void check_tiling(std::string_view file, const std::vector<SourceTensor>& tensors,
                  std::uint64_t data_bytes, bool all_known, Problems& problems) {
  std::uint64_t at = 0;
  std::string_view previous;
  for (const SourceTensor& tensor : tensors) {
    if (tensor.offset < at) {
      problems.add(file, tensor.name,
                   fmt::format("starts at data byte {}, inside of tensor {} that ends at {}; {}",
                               tensor.offset, quote(previous), at, kDamaged));
    } else if (tensor.offset > at && all_known) {
      problems.add(file, tensor.name,
                   fmt::format("starts at data byte {}, but nothing owns the {} before it; {}",
                               tensor.offset, counted(tensor.offset - at, "byte"), kDamaged));
    }
    if (tensor.offset + tensor.bytes >= at) {
      at = tensor.offset + tensor.bytes;
      previous = tensor.name;
    }
  }
  if (at < data_bytes && all_known) {
    problems.add(file, fmt::format("has {} after its last tensor that nothing owns; {}",
                                   counted(data_bytes - at, "byte"), kDamaged));
  }
}

void check_length(std::string_view file, const std::vector<SourceTensor>& tensors,
                  std::uint64_t data_bytes, std::uint64_t file_bytes, Problems& problems) {
  std::uint64_t promised = 0;
  std::size_t cut = 0;
  std::string_view first;
  for (const SourceTensor& tensor : tensors) {
    const std::uint64_t end = tensor.offset + tensor.bytes;
    promised = std::max(promised, end);
    if (end > data_bytes) {
      if (cut++ == 0) first = tensor.name;
    }
  }
  if (cut == 0) return;
  problems.add(file, fmt::format("is truncated: {} there, {} missing, from tensor "
                                 "{} on ({} cut off); download the file again",
                                 counted(file_bytes, "byte", "is", "are"),
                                 counted(promised - data_bytes, "byte", "is", "are"), quote(first),
                                 counted(cut, "tensor")));
}

}  // namespace

std::vector<SourceTensor> read_safetensors_header(std::string_view file, std::string_view json,
                                                  std::uint64_t file_bytes, Problems& problems) {
  std::vector<HeaderEntry> entries = parse_header_json(file, json, problems);
  std::vector<SourceTensor> tensors;
  tensors.reserve(entries.size());
  for (HeaderEntry& entry : entries) {
    if (auto tensor = check_entry(file, entry, problems)) tensors.push_back(std::move(*tensor));
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const SourceTensor& a, const SourceTensor& b) {
                     return std::tie(a.offset, a.bytes) < std::tie(b.offset, b.bytes);
                   });
  const std::uint64_t data_start = 8 + json.size();
  const std::uint64_t data_bytes = file_bytes - data_start;
  // With an entry already refused, the hole it leaves is no news.
  const bool all_known = problems.empty();
  check_length(file, tensors, data_bytes, file_bytes, problems);
  check_tiling(file, tensors, data_bytes, all_known, problems);
  for (SourceTensor& tensor : tensors) tensor.offset += data_start;
  return tensors;
}

}  // namespace preload
