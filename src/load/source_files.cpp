// SPDX-License-Identifier: Apache-2.0
#include "load/source_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

namespace preload {

namespace {

// Below this a gap costs less to copy than another system call does; and what lies in it is read
// ahead by the kernel anyway.
constexpr std::uint64_t kMaxGapBytes = 16 * 1024;

std::int64_t mtime_ns(const struct stat& status) {
  return static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
}

void check_against_header(int fd, const SourceFile& file, const std::string& shown) {
  struct stat status {};
  check_sys(fstat(fd, &status), fmt::format("cannot look at {}", shown), Errc::kCheckpoint);
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes < file.bytes) {
    throw Error(Errc::kCheckpoint,
                fmt::format("{} has {} bytes, {} fewer than when its header was read: it was "
                            "truncated meanwhile; restore it and start again",
                            shown, bytes, file.bytes - bytes));
  }
  if (bytes != file.bytes || mtime_ns(status) != file.mtime_ns) {
    throw Error(Errc::kCheckpoint,
                fmt::format("{} changed since its header was read ({} bytes then, {} now): start "
                            "again once nothing writes to the checkpoint",
                            shown, file.bytes, bytes));
  }
}

}  // namespace

SourceFiles::SourceFiles(const Checkpoint& checkpoint, const std::vector<CopyOp>& ops) {
  files_.resize(checkpoint.files.size());
  for (const CopyOp& op : ops) {
    if (op.rows == 0 || op.row_bytes == 0 || files_.at(op.file).fd) continue;
    Open& open = files_[op.file];
    const std::string path = checkpoint.directory + "/" + checkpoint.files[op.file].name;
    open.file = &checkpoint.files[op.file];
    open.shown = fmt::format("'{}'", path);
    open.fd = open_fd(AT_FDCWD, path, O_RDONLY, 0, Errc::kCheckpoint);
    check_against_header(open.fd.get(), *open.file, open.shown);
  }
}

void SourceFiles::read(std::uint32_t file, std::uint64_t offset, std::span<std::byte> out) {
  const Open& open = files_[file];
  const std::size_t got = pread_full(open.fd.get(), out, offset, open.shown);
  bytes_read_.fetch_add(got, std::memory_order_relaxed);
  if (got == out.size()) return;
  throw Error(
      Errc::kCheckpoint,
      fmt::format("{} ends at byte {}, {} bytes short of what its header promises at offset "
                  "{}: it was truncated while it was read; restore it and start again",
                  open.shown, offset + got, out.size() - got, offset));
}

void SourceFiles::check_unchanged() const {
  for (const Open& open : files_) {
    if (open.fd) check_against_header(open.fd.get(), *open.file, open.shown);
  }
}

void read_rows(SourceFiles& files, const CopyOp& op, const Piece& piece, std::span<std::byte> out,
               std::span<std::byte> scratch) {
  const std::uint64_t first = file_offset(op, piece);
  if (is_file_run(op, piece)) {
    files.read(op.file, first, out.first(piece.total_bytes()));
    return;
  }
  const std::uint64_t stride = op.file_stride;
  std::uint64_t rows_at_once = 1;
  if (stride > piece.bytes && stride - piece.bytes <= kMaxGapBytes &&
      scratch.size() >= stride + piece.bytes) {
    rows_at_once = (scratch.size() - piece.bytes) / stride + 1;
  }
  for (std::uint64_t row = 0; row < piece.rows; row += rows_at_once) {
    std::byte* const to = out.data() + row * piece.bytes;
    const std::uint64_t offset = first + row * stride;
    if (rows_at_once == 1) {
      files.read(op.file, offset, {to, piece.bytes});
      continue;
    }
    const std::uint64_t count = std::min(rows_at_once, piece.rows - row);
    files.read(op.file, offset, scratch.first((count - 1) * stride + piece.bytes));
    for (std::uint64_t i = 0; i < count; ++i) {
      std::memcpy(to + i * piece.bytes, scratch.data() + i * stride, piece.bytes);
    }
  }
}

}  // namespace preload
