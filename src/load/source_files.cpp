// SPDX-License-Identifier: Apache-2.0
#include "load/source_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/log.hpp"
#include "load/aligned_buffer.hpp"
#include "load/direct_read.hpp"
#include "load/file_system.hpp"
#include "load/uring.hpp"

namespace preload {

namespace {

// Shorter reads are left to the page cache and its read-ahead.
constexpr std::uint64_t kLeastDirectBytes = 128 * 1024;

std::int64_t mtime_ns(const struct stat& status) {
  return static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
}

void check_against_header(int fd, const SourceFile& file, const std::string& shown) {
  struct stat status {};
  check_sys(fstat(fd, &status), fmt::format("cannot look at {}", shown), Errc::kCheckpoint);
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes < file.bytes) {
    throw Error(Errc::kCheckpoint,
                fmt::format("{} has {}, {} fewer than when its header was read: it was "
                            "truncated meanwhile; restore it and start again",
                            shown, counted(bytes, "byte"), file.bytes - bytes));
  }
  if (bytes != file.bytes || mtime_ns(status) != file.mtime_ns) {
    throw Error(Errc::kCheckpoint,
                fmt::format("{} changed since its header was read ({} then, {} now): start "
                            "again once nothing writes to the checkpoint",
                            shown, counted(file.bytes, "byte"), bytes));
  }
}

// By this thread's ring, and plainly where the thread gets none.
DirectRead read_by_uring(const DirectRange& range, int in_flight) {
  thread_local const std::unique_ptr<Uring> ring = Uring::open();
  return ring ? ring->read(range, in_flight) : read_direct(range);
}

bool goes_past_cache(ReadMethod method) noexcept {
  return method == ReadMethod::kDirect || method == ReadMethod::kUring;
}

ReadMethod available(ReadMethod wanted) {
  require_built(wanted);
  if (wanted != ReadMethod::kUring) return wanted;
  const std::optional<int> refusal = Uring::refusal();
  if (!refusal) return wanted;
  log::warn(
      fmt::format("--reader uring: the kernel refuses io_uring to this process ({}; see "
                  "kernel.io_uring_disabled and the container's seccomp profile): read by "
                  "--reader direct",
                  errno_text(*refusal)));
  return ReadMethod::kDirect;
}

}  // namespace

SourceFiles::SourceFiles(const Checkpoint& checkpoint, const std::vector<std::uint32_t>& files,
                         const ReadOptions& options)
    : watch_(options.watch) {
  std::optional<ReadMethod> method = options.method;
  if (method) method = available(*method);
  files_.resize(checkpoint.files.size());
  std::vector<std::string> paths;
  for (const SourceFile& file : checkpoint.files) {
    paths.push_back(checkpoint.directory + "/" + file.name);
  }
  for (const std::uint32_t file : files) {
    Open& open = files_.at(file);
    if (open.fd) continue;
    const std::string& path = paths[file];
    open.file = &checkpoint.files[file];
    open.shown = fmt::format("'{}'", path);
    open.fd = open_fd(AT_FDCWD, path, O_RDONLY, 0, Errc::kCheckpoint);
    check_against_header(open.fd.get(), *open.file, open.shown);
    open.kind = file_system_kind(open.fd.get());
    settle_method(open, method);
    open.gate =
        gate_of(open.fd.get(), open.kind == FileSystemKind::kNetwork ? options.in_flight.network
                                                                     : options.in_flight.local);
    if (goes_past_cache(open.method)) open_direct(open, path);
  }
  if (watch_ != nullptr) watch_->set_paths(std::move(paths));
}

void SourceFiles::settle_method(Open& open, std::optional<ReadMethod> wanted) {
  if (wanted == ReadMethod::kMmap && open.kind == FileSystemKind::kNetwork) {
    log::warn(
        fmt::format("{} is on a network file system: read by pread, never mapped", open.shown));
    wanted = ReadMethod::kPread;
  }
  if (!wanted) {
    const bool cached =
        open.kind != FileSystemKind::kLocal || is_in_page_cache(open.fd.get(), open.file->bytes);
    wanted = cached ? ReadMethod::kPread : ReadMethod::kDirect;
  }
  open.method = *wanted;
  if (open.method == ReadMethod::kMmap) {
    open.mapping = MappedFile(open.fd.get(), open.file->bytes);
  }
}

ReadGate* SourceFiles::gate_of(int fd, int limit) {
  struct stat status {};
  if (limit <= 0 || fstat(fd, &status) != 0) return nullptr;
  return &gates_.try_emplace(status.st_dev, limit).first->second;
}

void SourceFiles::open_direct(Open& open, const std::string& path) {
  const int raw = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (raw < 0) {  // tmpfs and others know no direct reads
    open.method = ReadMethod::kPread;
    return;
  }
  open.direct = Fd(raw);
  open.alignment = direct_alignment(raw);
}

std::uint64_t SourceFiles::bytes_read() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& bytes : bytes_by_) sum += bytes.load(std::memory_order_relaxed);
  return sum;
}

void SourceFiles::use(ReadMethod method) {
  for (Open& open : files_) {
    if (!open.fd || goes_past_cache(open.method) != goes_past_cache(method)) continue;
    if (method == ReadMethod::kMmap && open.kind == FileSystemKind::kNetwork) continue;
    open.method = method;
    if (method == ReadMethod::kMmap && !open.mapping) {
      open.mapping = MappedFile(open.fd.get(), open.file->bytes);
    }
  }
}

bool SourceFiles::may_map() const noexcept {
  return std::ranges::none_of(
      files_, [](const Open& open) { return open.fd && open.kind == FileSystemKind::kNetwork; });
}

std::uint64_t SourceFiles::file_system() const noexcept {
  for (const Open& open : files_) {
    struct stat status {};
    if (open.fd && fstat(open.fd.get(), &status) == 0) return status.st_dev;
  }
  return 0;
}

bool SourceFiles::reads_past_the_cache() const noexcept {
  return std::ranges::any_of(files_, [](const Open& open) { return goes_past_cache(open.method); });
}

ReadMethod SourceFiles::main_method() const noexcept {
  std::size_t most = 0;
  for (std::size_t i = 1; i < bytes_by_.size(); ++i) {
    if (bytes_by_[i].load() > bytes_by_[most].load()) most = i;
  }
  return static_cast<ReadMethod>(most);
}

int SourceFiles::most_in_flight() const {
  int most = 0;
  for (const auto& [device, gate] : gates_) most = std::max(most, gate.most());
  return most;
}

void SourceFiles::read(std::uint32_t file, std::uint64_t offset, std::span<std::byte> out) {
  if (out.empty()) return;  // nothing to read, and perhaps no address to read it to
  const Open& open = files_[file];
  ReadMethod method = open.method;
  if (goes_past_cache(method) && out.size() < kLeastDirectBytes) method = ReadMethod::kPread;
  const ReadPass pass(open.gate,
                      method == ReadMethod::kUring ? Uring::requests_for(out.size()) : 1);
  const ReadWatch::Scope shown(watch_, file, offset, out.size());
  const std::size_t got = read_by(method, open, offset, out, pass.count());
  bytes_by_[static_cast<std::size_t>(method)].fetch_add(got, std::memory_order_relaxed);
  if (got == out.size()) return;
  throw Error(Errc::kCheckpoint,
              fmt::format("{} ends at byte {}, {} short of what its header promises at offset "
                          "{}: it was truncated while it was read; restore it and start again",
                          open.shown, offset + got, counted(out.size() - got, "byte"), offset));
}

std::size_t SourceFiles::read_by(ReadMethod method, const Open& open, std::uint64_t offset,
                                 std::span<std::byte> out, int in_flight) {
  switch (method) {
    case ReadMethod::kMmap:
      if (open.mapping.copy(offset, out)) return out.size();
      break;  // let pread say what is wrong, or find that it is not
    case ReadMethod::kDirect:
    case ReadMethod::kUring:
      return read_past_cache(method, open, offset, out, in_flight);
    case ReadMethod::kPread:
      break;
  }
  return pread_full(open.fd.get(), out, offset, open.shown);
}

// Direct reads need aligned memory, offsets and lengths: the covering range goes through a buffer
// of this thread. Where the file system refuses one after all, that extent is read buffered.
std::size_t SourceFiles::read_past_cache(ReadMethod method, const Open& open, std::uint64_t offset,
                                         std::span<std::byte> out, int in_flight) {
  thread_local AlignedBuffer bounce;
  const std::uint64_t begin = offset / open.alignment * open.alignment;
  const std::uint64_t end = align_up(offset + out.size(), open.alignment);
  const std::span<std::byte> covering = bounce.reserve(end - begin);
  const DirectRange range{open.direct.get(), begin, covering, open.alignment};
  const DirectRead read =
      method == ReadMethod::kUring ? read_by_uring(range, in_flight) : read_direct(range);
  if (read.error != 0 && !direct_refused_.exchange(true)) {
    log::warn(
        fmt::format("{} at offset {}: direct read refused ({}); such ranges are read "
                    "through the page cache",
                    open.shown, read.offset, errno_text(read.error)));
  }
  const std::uint64_t lead = offset - begin;
  if (read.error != 0 || read.bytes < lead + out.size()) {
    // Also the last word on how much there is.
    return pread_full(open.fd.get(), out, offset, open.shown);
  }
  std::memcpy(out.data(), covering.data() + lead, out.size());
  return out.size();
}

void SourceFiles::check_unchanged() const {
  for (const Open& open : files_) {
    if (open.fd) check_against_header(open.fd.get(), *open.file, open.shown);
  }
}

void read_rows(SourceFiles& files, const FileRows& rows, const Piece& piece,
               std::span<std::byte> out, std::span<std::byte> scratch) {
  const std::uint64_t first = file_offset(rows, piece);
  if (is_file_run(rows, piece)) {
    files.read(rows.file, first, out.first(piece.total_bytes()));
    return;
  }
  const std::uint64_t stride = rows.file_stride;
  std::uint64_t rows_at_once = 1;
  if (stride > piece.bytes && stride - piece.bytes <= kMaxGapBytes &&
      scratch.size() >= stride + piece.bytes) {
    rows_at_once = (scratch.size() - piece.bytes) / stride + 1;
  }
  for (std::uint64_t row = 0; row < piece.rows; row += rows_at_once) {
    std::byte* const to = out.data() + row * piece.bytes;
    const std::uint64_t offset = first + row * stride;
    if (rows_at_once == 1) {
      files.read(rows.file, offset, {to, piece.bytes});
      continue;
    }
    const std::uint64_t count = std::min(rows_at_once, piece.rows - row);
    files.read(rows.file, offset, scratch.first((count - 1) * stride + piece.bytes));
    for (std::uint64_t i = 0; i < count; ++i) {
      std::memcpy(to + i * piece.bytes, scratch.data() + i * stride, piece.bytes);
    }
  }
}

}  // namespace preload
