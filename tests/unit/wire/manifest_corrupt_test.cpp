// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "unit/wire/manifest_sample.hpp"
#include "wire/manifest_format.hpp"

namespace preload::wire {
namespace {

// Bytes that end where an unreadable page begins: a read past them ends the test.
class Guarded {
 public:
  explicit Guarded(std::string_view bytes) : bytes_(bytes.size()) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    usable_ = (bytes.size() + page - 1) / page * page;
    void* at =
        ::mmap(nullptr, usable_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mapping_ = Mapping(at, usable_ + page);
    check_sys(::mprotect(mapping_.data() + usable_, page, PROT_NONE), "mprotect");
    std::memcpy(mapping_.data() + usable_ - bytes_, bytes.data(), bytes_);
  }
  std::span<const std::byte> span() const { return {mapping_.data() + usable_ - bytes_, bytes_}; }

 private:
  std::size_t bytes_, usable_ = 0;
  Mapping mapping_;
};

// Reads all that a view offers, when there is one.
bool accepts(std::string_view bytes) {
  const Guarded guarded(bytes);
  try {
    const ManifestView view(guarded.span());
    std::size_t touched = view.metadata_json().size();
    for (std::size_t i = 0; i < view.size(); ++i) {
      const ManifestTensor tensor = view[i];
      for (const char c : tensor.name) touched += static_cast<unsigned char>(c);
      touched += view.find(tensor.name).has_value() ? 1 : 0;
      if (tensor.bytes > 0) {
        EXPECT_LT(tensor.slab, view.slab_count());
        EXPECT_LE(tensor.offset, view.slab(tensor.slab).bytes);
        EXPECT_LE(tensor.bytes, view.slab(tensor.slab).bytes - tensor.offset);
      }
      if (tensor.alias) {
        EXPECT_FALSE(view[*tensor.alias].alias);
      }
    }
    view.find("no such name");
    return touched > 0;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kProtocol) << error.what();
    return false;
  }
}

std::string changed(const std::function<void(format::Header&)>& change) {
  std::string bytes = sample_manifest();
  format::Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  change(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

std::string changed_record(std::size_t index, const std::function<void(format::Record&)>& change) {
  std::string bytes = sample_manifest();
  format::Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  format::Record record;
  char* at = bytes.data() + header.records.offset + index * sizeof record;
  std::memcpy(&record, at, sizeof record);
  change(record);
  std::memcpy(at, &record, sizeof record);
  return bytes;
}

TEST(CorruptManifest, TheSampleItselfIsAccepted) { EXPECT_TRUE(accepts(sample_manifest())); }

TEST(CorruptManifest, EveryTruncationIsRefused) {
  const std::string whole = sample_manifest();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(accepts(std::string_view(whole).substr(0, size))) << size;
}

TEST(CorruptManifest, EveryWrongHeaderIsRefused) {
  using format::Header;
  const std::vector<std::pair<const char*, std::function<void(Header&)>>> changes{
      {"magic", [](Header& h) { h.magic[7] = 'X'; }},
      {"version", [](Header& h) { h.version = 2; }},
      {"header_bytes", [](Header& h) { h.header_bytes = 120; }},
      {"total_bytes large", [](Header& h) { h.total_bytes += 1; }},
      {"total_bytes huge", [](Header& h) { h.total_bytes = ~0ULL; }},
      {"total_bytes small", [](Header& h) { h.total_bytes = 8; }},
      {"total_bytes short", [](Header& h) { h.total_bytes -= 1; }},
      {"tensor_count", [](Header& h) { h.tensor_count += 1; }},
      {"tensor_count huge", [](Header& h) { h.tensor_count = ~0U; }},
      {"tensor_count less", [](Header& h) { h.tensor_count -= 1; }},
      {"slab_count", [](Header& h) { h.slab_count = 3; }},
      {"slab_count none", [](Header& h) { h.slab_count = 0; }},
      {"records in the header", [](Header& h) { h.records.offset = 0; }},
      {"records misaligned", [](Header& h) { h.records.offset += 4; }},
      {"records past the end", [](Header& h) { h.records.offset = h.total_bytes; }},
      {"records wrap", [](Header& h) { h.records.offset = ~0ULL - 7; }},
      {"records bytes", [](Header& h) { h.records.bytes = ~0ULL; }},
      {"slabs bytes", [](Header& h) { h.slabs.bytes += 16; }},
      {"dims bytes odd", [](Header& h) { h.dims.bytes -= 1; }},
      {"dims none", [](Header& h) { h.dims.bytes = 0; }},
      {"slots not a power of two", [](Header& h) { h.slots.bytes -= 4; }},
      {"slots none", [](Header& h) { h.slots.bytes = 0; }},
      {"slots elsewhere", [](Header& h) { h.slots.offset = h.records.offset; }},
      {"strings none", [](Header& h) { h.strings.bytes = 0; }},
      {"strings short", [](Header& h) { h.strings.bytes -= 1; }},
      {"metadata none", [](Header& h) { h.metadata.bytes = 0; }},
      {"metadata unterminated", [](Header& h) { h.metadata.bytes -= 1; }},
      {"metadata past the end", [](Header& h) { h.metadata.bytes += 1; }},
  };
  for (const auto& [name, change] : changes) EXPECT_FALSE(accepts(changed(change))) << name;
}

TEST(CorruptManifest, EveryWrongRecordIsRefused) {
  using format::Record;
  struct Case {
    const char* name;
    std::size_t record;
    std::function<void(Record&)> change;
  };
  const std::vector<Case> cases{
      {"offset past the slab", 0, [](Record& r) { r.offset = 4096 - 255; }},
      {"offset wraps", 0, [](Record& r) { r.offset = ~0ULL; }},
      {"bytes past the slab", 0, [](Record& r) { r.bytes = 4097; }},
      {"bytes wrap", 2, [](Record& r) { r.bytes = ~0ULL; }},
      {"bytes under the shape", 2, [](Record& r) { r.bytes = 59; }},
      {"sub-byte bytes under the shape", 5, [](Record& r) { r.bytes = 4; }},
      {"name past the pool", 0, [](Record& r) { r.name_offset = 100'000; }},
      {"name wraps", 0, [](Record& r) { r.name_offset = ~0U; }},
      {"name without its end", 0, [](Record& r) { r.name_bytes -= 1; }},
      {"name over the next", 0, [](Record& r) { r.name_bytes += 15; }},
      {"name as long as can be", 0, [](Record& r) { r.name_bytes = ~0U; }},
      {"dims past the pool", 0, [](Record& r) { r.dims = 1'000; }},
      {"dims wrap", 0, [](Record& r) { r.dims = ~0U; }},
      {"too many dims", 0, [](Record& r) { r.ndim = 9; }},
      {"dims over the end", 5, [](Record& r) { r.ndim = 8; }},
      {"slab", 0, [](Record& r) { r.slab = 2; }},
      {"slab of the other class", 0,
       [](Record& r) {
         r.slab = 1;
         r.offset = 0;
       }},
      {"slab of a tensor without elements", 4, [](Record& r) { r.slab = 9; }},
      {"alias of nothing", 1, [](Record& r) { r.alias = 6; }},
      {"alias of itself", 1, [](Record& r) { r.alias = 1; }},
      {"alias elsewhere", 1, [](Record& r) { r.offset = 512; }},
      {"alias of what lies elsewhere", 1, [](Record& r) { r.alias = 2; }},
      {"target that is an alias", 0, [](Record& r) { r.alias = 1; }},
      {"layout", 0, [](Record& r) { r.layout = 1; }},
      {"dtype", 0, [](Record& r) { r.dtype = 22; }},
      {"wider dtype", 0, [](Record& r) { r.dtype = 15; }},
      {"kind", 0, [](Record& r) { r.kind = 2; }},
      {"class", 0, [](Record& r) { r.cls = 2; }},
      {"class unlike its slab", 3, [](Record& r) { r.cls = 0; }},
  };
  for (const Case& c : cases) EXPECT_FALSE(accepts(changed_record(c.record, c.change))) << c.name;
}

TEST(CorruptManifest, ShapesThatOverflowAreRefused) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  for (const Dims& dims : {Dims{kHuge, kHuge, 1, 1}, Dims{2, 2, kHuge, kHuge}, Dims{-1, 1, 1, 1},
                           Dims{1, 1, -1, 1}, Dims{kHuge, 1, 1, 1}}) {
    std::string bytes = sample_manifest();
    format::Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    std::memcpy(bytes.data() + header.dims.offset, dims.begin(), 4 * sizeof(std::int64_t));
    EXPECT_FALSE(accepts(bytes)) << to_string(dims);
  }
}

TEST(CorruptManifest, AHashTableWithoutAnEndIsRefused) {
  for (const std::uint32_t slot : {0U, 5U, 6U, 0xFFFFFFFEU}) {
    std::string bytes = sample_manifest();
    format::Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    for (std::size_t at = 0; at < header.slots.bytes; at += 4)
      std::memcpy(bytes.data() + header.slots.offset + at, &slot, 4);
    EXPECT_FALSE(accepts(bytes)) << slot;
  }
}

// What changes a hash value or a letter of the metadata is not corrupt as a table; whatever the
// outcome, nothing outside the bytes is read.
TEST(CorruptManifest, NoFlippedByteLeadsOutOfTheTable) {
  const std::string whole = sample_manifest();
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      accepts(bytes);
    }
}

TEST(CorruptManifest, NoRandomDamageLeadsOutOfTheTable) {
  const std::string whole = sample_manifest();
  std::mt19937_64 random(20240817);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = whole;
    for (std::uint64_t n = random() % 6 + 1; n-- > 0;)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    if (!accepts(bytes)) ++refused;
  }
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace preload::wire
