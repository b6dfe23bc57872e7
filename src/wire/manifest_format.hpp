// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to src/wire: the bytes of the manifest table, as docs/protocol.md gives them. Little
// endian, every section aligned to 8 bytes.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "checkpoint/dtype.hpp"

namespace preload::wire::format {

static_assert(std::endian::native == std::endian::little, "records are used in place");

inline constexpr std::array<char, 8> kMagic{'P', 'R', 'L', 'D', 'M', 'F', 'S', 'T'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kNone = 0xFFFFFFFF;  // no alias, an empty hash slot

struct Section {
  std::uint64_t offset;  // from the table's first byte
  std::uint64_t bytes;
};

struct Header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t total_bytes;
  std::uint32_t tensor_count;
  std::uint32_t slab_count;
  Section records, slabs, dims, slots, strings, metadata;
};
static_assert(sizeof(Header) == 128);

struct Record {
  std::uint64_t hash_lo, hash_hi;
  std::uint64_t offset;  // in the slab
  std::uint64_t bytes;
  std::uint32_t name_offset;  // in the string pool
  std::uint32_t name_bytes;   // without the NUL
  std::uint32_t dims;         // index in the dims pool: shape, then strides
  std::uint32_t slab;
  std::uint32_t alias;   // record index or kNone
  std::uint32_t layout;  // 0: strided elements
  std::uint8_t ndim;
  std::uint8_t dtype;  // code below
  std::uint8_t kind;   // 0 param, 1 buffer
  std::uint8_t cls;    // 0 shared, 1 private
  std::uint32_t reserved;
};
static_assert(sizeof(Record) == 64);

struct Slab {
  std::uint64_t bytes;
  std::uint32_t cls;
  std::uint32_t reserved;
};
static_assert(sizeof(Slab) == 16);

// The code of a dtype is its place here: only ever appended to, whatever the enum's order.
inline constexpr std::array kDTypes{
    DType::kBool,   DType::kU8,         DType::kI8,         DType::kF8E5M2, DType::kF8E4M3,
    DType::kF8E8M0, DType::kF8E4M3Fnuz, DType::kF8E5M2Fnuz, DType::kI16,    DType::kU16,
    DType::kF16,    DType::kBF16,       DType::kI32,        DType::kU32,    DType::kF32,
    DType::kF64,    DType::kI64,        DType::kU64,        DType::kC64,    DType::kF4,
    DType::kF6E2M3, DType::kF6E3M2,
};

// FNV-1a, 64 bits: where the probing for a name begins.
constexpr std::uint64_t name_hash(std::string_view name) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

template <class T>
T load(std::span<const std::byte> bytes, std::size_t index) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace preload::wire::format
