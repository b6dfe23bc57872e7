// SPDX-License-Identifier: Apache-2.0
#include "unit/load/random_load.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

#include "load/float_convert.hpp"

namespace preload::test {

namespace {

constexpr std::uint64_t kFileHead = 37;  // an odd place for the first tensor

std::uint64_t element_bytes(DType dtype) { return dtype_bits(dtype) / 8; }

// Builds one random load, tensor by tensor.
class Builder {
 public:
  Builder(RandomLoad& load, std::uint64_t seed, std::uint64_t max_rows)
      : load_(load), random_(seed), max_rows_(max_rows) {}

  void run() {
    for (std::uint32_t f = 0; f < 3; ++f) files_.emplace_back(random_bytes(kFileHead + f));
    for (int round = 0; round < 3; ++round) {
      whole(DType::kBF16);
      whole(DType::kU8);
      columns();
      fused();
      transposed();
      interleaved();
      converted(DType::kF32, DType::kBF16);
      converted(DType::kBF16, DType::kF32);
      converted(DType::kF16, DType::kBF16);
      converted_columns(DType::kF64, DType::kF16);
      padded(0);
      padded(0x3f80);
      constant();
      column_major();
      scalar();
      empty();
      alias();
    }
    finish();
  }

 private:
  std::uint64_t pick(std::uint64_t low, std::uint64_t high) {
    return std::uniform_int_distribution<std::uint64_t>(low, high)(random_);
  }
  std::string random_bytes(std::uint64_t count) {
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  // A stored tensor of rows x columns at the end of a random file; returns its index.
  std::uint32_t source(DType dtype, std::uint64_t rows, std::uint64_t columns) {
    const auto file = static_cast<std::uint32_t>(pick(0, files_.size() - 1));
    if (pick(0, 3) == 0) files_[file] += random_bytes(pick(1, 9));  // a gap
    SourceTensor tensor;
    tensor.name = fmt::format("s{}", load_.checkpoint.tensors.size());
    tensor.dtype = dtype;
    tensor.shape = {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
    tensor.file = file;
    tensor.offset = files_[file].size();
    tensor.bytes = rows * columns * element_bytes(dtype);
    files_[file] += random_bytes(tensor.bytes);
    load_.checkpoint.tensors.push_back(tensor);
    return static_cast<std::uint32_t>(load_.checkpoint.tensors.size() - 1);
  }

  std::uint32_t target(DType dtype, const Dims& shape) {
    TargetTensor tensor;
    tensor.name = fmt::format("t{}", load_.program.tensors.size());
    tensor.dtype = dtype;
    tensor.shape = shape;
    tensor.strides = contiguous_strides(shape);
    load_.program.tensors.push_back(tensor);
    return static_cast<std::uint32_t>(load_.program.tensors.size() - 1);
  }
  static Dims dims(std::uint64_t rows, std::uint64_t columns) {
    return {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)};
  }

  // Offsets and strides in bytes.
  void op(std::uint32_t source, std::uint64_t source_offset, std::uint64_t file_stride,
          std::uint64_t rows, std::uint64_t row_bytes, std::uint32_t target,
          std::uint64_t target_offset, std::uint64_t target_stride, bool converts = false) {
    const SourceTensor& from = load_.checkpoint.tensors[source];
    CopyOp op;
    op.file = from.file;
    op.file_offset = from.offset + source_offset;
    op.file_stride = file_stride;
    op.rows = rows;
    op.row_bytes = row_bytes;
    op.tensor = target;
    op.target_offset = target_offset;
    op.target_stride = target_stride;
    op.source = source;
    op.source_offset = source_offset;
    op.to = load_.program.tensors[target].dtype;
    op.from = converts ? from.dtype : op.to;
    load_.plan.ops.push_back(op);
  }

  void whole(DType dtype) {
    const auto rows = pick(1, max_rows_);
    const auto columns = pick(1, 700);
    const auto bytes = rows * columns * element_bytes(dtype);
    op(source(dtype, rows, columns), 0, 0, 1, bytes, target(dtype, dims(rows, columns)), 0, 0);
  }

  // A tensor-parallel slice of columns, close together or far apart.
  void columns() {
    const auto rows = pick(2, max_rows_);
    const auto all = pick(8, pick(0, 1) == 0 ? 300 : 20000);
    const auto mine = pick(1, all / 2);
    const auto first = pick(0, all - mine);
    const auto from = source(DType::kBF16, rows, all);
    op(from, first * 2, all * 2, rows, mine * 2, target(DType::kBF16, dims(rows, mine)), 0,
       mine * 2);
  }

  void fused() {
    const auto columns = pick(1, 500);
    const auto top = pick(1, max_rows_);
    const auto bottom = pick(1, max_rows_);
    const auto into = target(DType::kU8, dims(top + bottom, columns));
    const auto skipped = pick(0, 5);
    op(source(DType::kU8, top, columns), 0, columns, top, columns, into, 0, columns);
    op(source(DType::kU8, skipped + bottom, columns), skipped * columns, 0, 1, bottom * columns,
       into, top * columns, 0);
  }

  void transposed() {
    const auto rows = pick(1, 20);
    const auto columns = pick(2, 60);
    const auto from = source(DType::kBF16, rows, columns);
    const auto into = target(DType::kBF16, dims(columns, rows));
    for (std::uint64_t r = 0; r < rows; ++r) {
      op(from, r * columns * 2, 2, columns, 2, into, r * 2, rows * 2);
    }
  }

  // Two sources, row by row in turn.
  void interleaved() {
    const auto rows = pick(2, max_rows_);
    const auto columns = pick(1, 90);
    const auto into = target(DType::kU8, dims(2 * rows, columns));
    for (std::uint64_t half = 0; half < 2; ++half) {
      op(source(DType::kU8, rows, columns), 0, columns, rows, columns, into, half * columns,
         2 * columns);
    }
  }

  void converted(DType from, DType to) {
    const auto rows = pick(1, max_rows_);
    const auto columns = pick(1, 300);
    op(source(from, rows, columns), 0, 0, 1, rows * columns * element_bytes(from),
       target(to, dims(rows, columns)), 0, 0, true);
  }

  void converted_columns(DType from, DType to) {
    const auto rows = pick(2, max_rows_);
    const auto all = pick(4, 200);
    const auto mine = pick(1, all - 1);
    const auto first = pick(0, all - mine);
    const auto wide = mine + pick(0, 3);  // the target's rows may have room between them
    const auto into = target(to, dims(rows, wide));
    if (wide != mine) load_.plan.fills.push_back({into, 0});
    op(source(from, rows, all), first * element_bytes(from), all * element_bytes(from), rows,
       mine * element_bytes(from), into, 0, wide * element_bytes(to), true);
  }

  void padded(std::uint64_t bits) {
    const auto rows = pick(1, max_rows_);
    const auto columns = pick(1, 200);
    const auto into = target(DType::kBF16, dims(rows + pick(1, 9), columns));
    load_.plan.fills.push_back({into, bits});
    op(source(DType::kBF16, rows, columns), 0, 0, 1, rows * columns * 2, into, 0, 0);
  }

  void constant() {
    const auto into = target(DType::kF32, dims(pick(1, 9), pick(1, 9)));
    load_.plan.fills.push_back({into, 0xbf800000});
  }

  // Held transposed in memory, served as its logical shape.
  void column_major() {
    const auto rows = pick(2, 60);
    const auto columns = pick(2, 60);
    const auto into = target(DType::kF32, dims(columns, rows));
    load_.program.tensors[into].strides = {1, static_cast<std::int64_t>(columns)};
    op(source(DType::kF32, rows, columns), 0, 0, 1, rows * columns * 4, into, 0, 0);
  }

  void scalar() { op(source(DType::kF32, 1, 1), 0, 0, 1, 4, target(DType::kF32, {}), 0, 0); }
  void empty() { op(source(DType::kF32, 0, 5), 0, 0, 1, 0, target(DType::kF32, dims(0, 5)), 0, 0); }
  void alias() {
    TargetTensor tensor = load_.program.tensors.front();
    tensor.name += "_too";
    tensor.alias = 0;
    load_.program.tensors.push_back(tensor);
  }

  std::uint64_t extent_bytes(const TargetTensor& tensor) const {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      if (tensor.shape[i] == 0) return 0;
      last += (tensor.shape[i] - 1) * tensor.strides[i];
    }
    return static_cast<std::uint64_t>(last + 1) * element_bytes(tensor.dtype);
  }

  // Two slabs, tensors in order, 512-byte aligned.
  void place() {
    SlabLayout& slabs = load_.plan.slabs;
    slabs.slabs.resize(2);
    std::uint64_t end[2] = {0, 0};
    for (std::size_t t = 0; t < load_.program.tensors.size(); ++t) {
      const TargetTensor& tensor = load_.program.tensors[t];
      if (tensor.alias) {
        slabs.placements.push_back(slabs.placements[*tensor.alias]);
        continue;
      }
      const std::uint32_t slab = t % 3 == 0 ? 1 : 0;
      slabs.placements.push_back({slab, end[slab], extent_bytes(tensor)});
      end[slab] = align_up(end[slab] + extent_bytes(tensor), kTensorAlignmentBytes);
    }
    for (std::size_t s = 0; s < 2; ++s) {
      slabs.slabs[s].bytes = align_up(std::max<std::uint64_t>(end[s], 1), kSlabGranularityBytes);
    }
  }

  void finish() {
    place();
    std::sort(load_.plan.ops.begin(), load_.plan.ops.end(), [](const CopyOp& a, const CopyOp& b) {
      return std::pair(a.file, a.file_offset) < std::pair(b.file, b.file_offset);
    });
    load_.plan.read_bytes = load_.op_bytes();
    load_.checkpoint.directory = load_.directory.path();
    for (std::size_t f = 0; f < files_.size(); ++f) {
      const std::string name = fmt::format("model-{}.safetensors", f);
      load_.directory.write(name, files_[f]);
      load_.checkpoint.files.push_back(describe_file(load_.directory, name));
    }
    load_.file_bytes = std::move(files_);
  }

  RandomLoad& load_;
  std::mt19937_64 random_;
  std::uint64_t max_rows_;
  std::vector<std::string> files_;
};

template <class From, class To>
std::string convert_one(const char* source) {
  typename From::Bits bits;
  std::memcpy(&bits, source, sizeof bits);
  const typename To::Bits converted = convert_float<From, To>(bits);
  std::string out(sizeof converted, '\0');
  std::memcpy(out.data(), &converted, sizeof converted);
  return out;
}

// Only the pairs above; float_convert_test.cpp proves the conversion itself.
std::string convert_element(DType from, DType to, const char* source) {
  if (from == DType::kF32 && to == DType::kBF16) return convert_one<F32Format, BF16Format>(source);
  if (from == DType::kBF16 && to == DType::kF32) return convert_one<BF16Format, F32Format>(source);
  if (from == DType::kF16 && to == DType::kBF16) return convert_one<F16Format, BF16Format>(source);
  if (from == DType::kF64 && to == DType::kF16) return convert_one<F64Format, F16Format>(source);
  throw std::logic_error("a pair that no random load has");
}

// The tensor's elements in row-major order.
std::string row_major(const TargetTensor& tensor, const std::string& extent) {
  const std::uint64_t element = element_bytes(tensor.dtype);
  std::string bytes;
  const std::int64_t count = element_count(tensor.shape);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t at = 0;
    for (std::size_t d = tensor.shape.size(); d-- > 0;) {
      at += rest % tensor.shape[d] * tensor.strides[d];
      rest /= tensor.shape[d];
    }
    bytes += extent.substr(static_cast<std::uint64_t>(at) * element, element);
  }
  return bytes;
}

}  // namespace

RandomLoad::RandomLoad(std::uint64_t seed, std::uint64_t max_rows) {
  Builder(*this, seed, max_rows).run();
}

std::vector<std::string> RandomLoad::expected_extents() const {
  std::vector<std::string> extents;
  for (const Placement& place : plan.slabs.placements) extents.emplace_back(place.bytes, '\0');
  for (const FillOp& fill : plan.fills) {
    std::string& extent = extents[fill.tensor];
    const std::uint64_t element = element_bytes(program.tensors[fill.tensor].dtype);
    for (std::uint64_t at = 0; at < extent.size(); at += element) {
      std::memcpy(extent.data() + at, &fill.element_bits, element);  // little endian
    }
  }
  for (const CopyOp& op : plan.ops) {
    for (std::uint64_t row = 0; row < op.rows; ++row) {
      const char* from = file_bytes[op.file].data() + op.file_offset + row * op.file_stride;
      char* to = extents[op.tensor].data() + op.target_offset + row * op.target_stride;
      if (op.from == op.to) {
        std::memcpy(to, from, op.row_bytes);
        continue;
      }
      for (std::uint64_t at = 0; at < op.row_bytes; at += element_bytes(op.from)) {
        const std::string element = convert_element(op.from, op.to, from + at);
        std::memcpy(to, element.data(), element.size());
        to += element.size();
      }
    }
  }
  for (std::size_t t = 0; t < extents.size(); ++t) {
    if (program.tensors[t].alias) extents[t] = extents[*program.tensors[t].alias];
  }
  return extents;
}

std::vector<Hash128> RandomLoad::expected_served() const {
  const std::vector<std::string> extents = expected_extents();
  std::vector<Hash128> hashes;
  for (std::size_t t = 0; t < extents.size(); ++t) {
    const std::string bytes = row_major(program.tensors[t], extents[t]);
    hashes.push_back(hash_bytes(std::as_bytes(std::span(bytes))));
  }
  return hashes;
}

std::vector<Hash128> RandomLoad::expected_source() const {
  std::vector<Hash128> hashes;
  for (const CopyOp& op : plan.ops) {
    if (op.bytes() == 0) continue;
    Hash128 sum;
    for (std::uint64_t row = 0; row < op.rows; ++row) {
      const std::string bytes =
          file_bytes[op.file].substr(op.file_offset + row * op.file_stride, op.row_bytes);
      sum += hash_bytes(std::as_bytes(std::span(bytes)), op.source_offset + row * op.file_stride);
    }
    hashes.push_back(sum);
  }
  return hashes;
}

std::vector<SourceRegion> RandomLoad::expected_regions() const {
  const std::vector<Hash128> hashes = expected_source();
  std::vector<SourceRegion> regions;
  for (const CopyOp& op : plan.ops) {
    if (op.bytes() == 0) continue;
    regions.push_back({op.source, op.source_offset, op.rows, op.row_bytes, op.file_stride,
                       hashes[regions.size()]});
  }
  return regions;
}

std::uint64_t RandomLoad::op_bytes() const {
  std::uint64_t bytes = 0;
  for (const CopyOp& op : plan.ops) bytes += op.rows * op.row_bytes;
  return bytes;
}

std::vector<Hash128> source_hashes(const LoadResult& result) {
  std::vector<Hash128> hashes;
  for (const SourceRegion& region : result.sources) hashes.push_back(region.hash);
  return hashes;
}

SourceFile describe_file(const TempDir& directory, const std::string& name) {
  struct stat status {};
  if (stat((directory / name).c_str(), &status) != 0) throw std::runtime_error("no file " + name);
  SourceFile file;
  file.name = name;
  file.bytes = static_cast<std::uint64_t>(status.st_size);
  file.inode = status.st_ino;
  file.mtime_ns =
      static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
  file.ctime_ns =
      static_cast<std::int64_t>(status.st_ctim.tv_sec) * 1'000'000'000 + status.st_ctim.tv_nsec;
  return file;
}

}  // namespace preload::test
