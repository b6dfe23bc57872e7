// SPDX-License-Identifier: Apache-2.0
#include "cli/dump.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/bytes.hpp"
#include "client/region.hpp"
#include "client/slab_reader.hpp"
#include "model/extent.hpp"

namespace preload::cli {
namespace {

using client::Attachment;
using client::Region;

std::uint64_t dense_bytes(const wire::ManifestTensor& tensor) {
  return element_bytes(element_count(tensor.shape), tensor.dtype);
}

// Where each tensor goes in the file, and the header that says so.
struct FileLayout {
  std::string head;                   // length and JSON, padded to 8 bytes
  std::vector<std::uint64_t> offset;  // of each tensor, absolute
  std::uint64_t bytes = 0;
};

FileLayout lay_out_file(const wire::ManifestView& manifest) {
  FileLayout layout;
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < manifest.size(); ++i) {
    const wire::ManifestTensor tensor = manifest[i];
    const std::uint64_t end = at + dense_bytes(tensor);
    header[std::string(tensor.name)] = {
        {"dtype", dtype_name(tensor.dtype)},
        {"shape", std::vector<std::int64_t>(tensor.shape.begin(), tensor.shape.end())},
        {"data_offsets", {at, end}}};
    layout.offset.push_back(at);
    at = end;
  }
  std::string json = header.dump();
  json.resize(align_up(json.size(), 8), ' ');
  const std::uint64_t length = json.size();
  layout.head.assign(reinterpret_cast<const char*>(&length), sizeof(length));  // little endian
  layout.head += json;
  for (std::uint64_t& offset : layout.offset) offset += layout.head.size();
  layout.bytes = layout.head.size() + at;
  return layout;
}

// A file beside its final name, renamed by commit() and removed otherwise.
class NewFile {
 public:
  explicit NewFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".part") {
    fd_ =
        open_fd(AT_FDCWD, temporary_, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666, Errc::kUsage);
  }
  ~NewFile() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const std::byte> bytes, std::uint64_t offset) const {
    while (!bytes.empty()) {
      const long n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      check_sys(n, fmt::format("writing '{}'", temporary_));
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
  }
  void commit() {
    check_sys(::fsync(fd_.get()), fmt::format("writing '{}'", temporary_));
    check_sys(::rename(temporary_.c_str(), path_.c_str()), fmt::format("renaming to '{}'", path_));
    temporary_.clear();
  }

 private:
  std::string path_;
  std::string temporary_;
  Fd fd_;
};

// Row-major tensors go to the file as they come, from several threads.
void write_pieces(const Attachment& attachment, const std::vector<Region>& regions,
                  const FileLayout& layout, const NewFile& file) {
  const client::RegionPieces cut = client::cut_into_pieces(regions);
  client::read_pieces(
      attachment, cut.pieces, client::default_threads(),
      [&](std::size_t piece, std::span<const std::byte> bytes) {
        for (std::size_t i = cut.first[piece]; i < cut.first[piece + 1]; ++i) {
          const Region& r = cut.regions[i];
          file.write(bytes.subspan(r.memory_offset - cut.pieces[piece].offset, r.row_bytes),
                     layout.offset[r.tag] + r.index_offset);
        }
      });
}

// A strided tensor is put together in memory first.
void write_strided(const Attachment& attachment, const std::vector<Region>& regions,
                   std::uint64_t bytes, std::uint64_t offset, const NewFile& file) {
  std::vector<std::byte> dense(bytes);
  const client::RegionPieces cut = client::cut_into_pieces(regions);
  client::read_pieces(attachment, cut.pieces, client::default_threads(),
                      [&](std::size_t piece, std::span<const std::byte> from) {
                        for (std::size_t i = cut.first[piece]; i < cut.first[piece + 1]; ++i) {
                          const Region& r = cut.regions[i];
                          const std::byte* source =
                              from.data() + (r.memory_offset - cut.pieces[piece].offset);
                          for (std::uint64_t row = 0; row < r.rows; ++row) {
                            std::memcpy(&dense[r.index_offset + row * r.index_stride],
                                        source + row * r.memory_stride, r.row_bytes);
                          }
                        }
                      });
  file.write(dense, offset);
}

}  // namespace

void dump_safetensors(const Attachment& attachment, const std::string& directory,
                      const std::string& name) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    throw Error(Errc::kUsage, fmt::format("cannot make '{}': {}", directory, error.message()));
  }
  const wire::ManifestView& manifest = attachment.manifest();
  const FileLayout layout = lay_out_file(manifest);
  NewFile file(directory + "/" + name);
  file.write(std::as_bytes(std::span(layout.head)), 0);
  std::vector<Region> row_major;
  for (std::uint32_t i = 0; i < manifest.size(); ++i) {
    const wire::ManifestTensor tensor = manifest[i];
    const std::vector<Region> regions = client::row_major_regions(tensor, i);
    if (regions.size() == 1 && regions[0].rows == 1) {
      row_major.push_back(regions[0]);
    } else if (!regions.empty()) {
      write_strided(attachment, regions, dense_bytes(tensor), layout.offset[i], file);
    }
  }
  write_pieces(attachment, row_major, layout, file);
  file.commit();
}

}  // namespace preload::cli
