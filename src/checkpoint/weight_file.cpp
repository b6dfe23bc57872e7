// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <thread>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "checkpoint/safetensors_header.hpp"

namespace preload {

namespace {

constexpr std::size_t kReaders = 8;
constexpr std::string_view kLfsMagic = "version https://git-lfs.github.com/spec/";

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// The target of a link that leads nowhere, or empty.
std::string dangling_target(int directory, const std::string& name) {
  std::array<char, 4096> target;
  const ssize_t n = ::readlinkat(directory, name.c_str(), target.data(), target.size());
  return n > 0 ? std::string(target.data(), static_cast<std::size_t>(n)) : std::string();
}

std::string missing_text(int directory, const std::string& name) {
  const std::string target = dangling_target(directory, name);
  if (target.empty()) return "is not there; download it, or name the right directory";
  return fmt::format("is a link to {}, which is not there; download the checkpoint again",
                     quote(target));
}

// The length field, or nothing when it cannot be a safetensors header's.
std::optional<std::uint64_t> header_length(std::span<const std::byte, 8> field,
                                           std::uint64_t file_bytes, const std::string& name,
                                           Problems& problems) {
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | std::to_integer<std::uint64_t>(field[i]);
  constexpr std::string_view kNoHeader = "it is no safetensors file, or damaged: download it again";
  if (std::memcmp(field.data(), "PK\x03\x04", 4) == 0 && length > kMaxHeaderBytes) {
    problems.add(name,
                 "is a pickled PyTorch archive under a safetensors name; convert it with "
                 "safetensors.torch.save_file, since nothing is ever unpickled here");
  } else if (length > kMaxHeaderBytes) {
    problems.add(name, fmt::format("claims a header of {} bytes, more than the {} that the format "
                                   "allows; {}",
                                   length, kMaxHeaderBytes, kNoHeader));
  } else if (length > file_bytes - 8) {
    problems.add(name,
                 fmt::format("claims a header of {} bytes but has only {} after the "
                             "length: at least {} missing; {}",
                             length, counted(file_bytes - 8, "byte"),
                             counted(length - (file_bytes - 8), "byte", "is", "are"), kNoHeader));
  } else if (length < 2) {
    problems.add(name, fmt::format("claims a header of {}, too short for one; {}",
                                   counted(length, "byte"), kNoHeader));
  } else {
    return length;
  }
  return std::nullopt;
}

// Reads the header text after the checks that need no JSON.
std::optional<std::string> header_text(int fd, const std::string& name, std::uint64_t file_bytes,
                                       Problems& problems) {
  std::array<std::byte, 64> start{};
  const std::size_t got = pread_full(fd, start, 0, name);
  const std::string_view text(reinterpret_cast<const char*>(start.data()), got);
  if (is_lfs_pointer(text)) {
    problems.add(name, lfs_problem());
    return std::nullopt;
  }
  if (file_bytes == 0 || got < 8) {
    problems.add(name, fmt::format("has {}, too few for a safetensors file; download it again",
                                   counted(file_bytes, "byte")));
    return std::nullopt;
  }
  const auto length = header_length(std::span(start).first<8>(), file_bytes, name, problems);
  if (!length) return std::nullopt;
  std::string json(*length, '\0');
  const std::size_t read = pread_full(fd, std::as_writable_bytes(std::span(json)), 8, name);
  if (read < json.size()) {
    problems.add(name, fmt::format("became shorter while its header was read: {} of {} bytes", read,
                                   json.size()));
    return std::nullopt;
  }
  if (json.front() != '{') {
    problems.add(name,
                 "has a header that does not start with '{'; it is no safetensors file, or "
                 "damaged: download it again");
    return std::nullopt;
  }
  return json;
}

}  // namespace

bool is_lfs_pointer(std::string_view text) noexcept { return text.starts_with(kLfsMagic); }

std::string lfs_problem() {
  return "is a git-lfs pointer, not the file itself; run `git lfs pull` in the checkpoint's "
         "repository, or download the checkpoint again";
}

Fd open_weight_file(int directory, const std::string& name, Problems& problems) {
  // Without O_NONBLOCK a FIFO under this name would block for ever.
  Fd fd(::openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    const int error = errno;
    problems.add(name, error == ENOENT ? missing_text(directory, name)
                                       : fmt::format("cannot be opened: {}", errno_text(error)));
    return {};
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) {
    problems.add(name, fmt::format("cannot be examined: {}", errno_text(errno)));
    return {};
  }
  if (!S_ISREG(status.st_mode)) {
    problems.add(name, S_ISDIR(status.st_mode)
                           ? "is a directory, not a file; put the file itself there"
                           : "is no regular file; put the file itself there");
    return {};
  }
  return fd;
}

std::optional<std::string> read_text_file(int directory, const std::string& name,
                                          std::size_t limit_bytes, Problems& problems) {
  try {
    const Fd fd = open_weight_file(directory, name, problems);
    if (!fd) return std::nullopt;
    std::string text = read_all(fd.get(), name, limit_bytes);
    if (!is_lfs_pointer(text)) return text;
    problems.add(name, lfs_problem());
  } catch (const Error& error) {
    problems.add(name, error.what());
  }
  return std::nullopt;
}

std::optional<WeightFile> read_weight_file(int directory, const std::string& name,
                                           Problems& problems) {
  try {
    const Fd fd = open_weight_file(directory, name, problems);
    if (!fd) return std::nullopt;
    struct stat status {};
    check_sys(::fstat(fd.get(), &status), "cannot examine " + name, Errc::kCheckpoint);
    WeightFile weights;
    weights.file = {.name = name,
                    .bytes = static_cast<std::uint64_t>(status.st_size),
                    .inode = status.st_ino,
                    .mtime_ns = nanoseconds(status.st_mtim),
                    .ctime_ns = nanoseconds(status.st_ctim)};
    const auto json = header_text(fd.get(), name, weights.file.bytes, problems);
    if (!json) return std::nullopt;
    weights.tensors = read_safetensors_header(name, *json, weights.file.bytes, problems);
    if (!problems.empty()) return std::nullopt;
    return weights;
  } catch (const Error& error) {  // an I/O error of this file is no reason to hide the others
    problems.add(name, error.what());
    return std::nullopt;
  }
}

std::vector<std::optional<WeightFile>> read_weight_files(int directory,
                                                         const std::vector<std::string>& names,
                                                         Problems& problems) {
  std::vector<std::optional<WeightFile>> files(names.size());
  std::vector<Problems> found(names.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < names.size();) {
      files[i] = read_weight_file(directory, names[i], found[i]);
    }
  };
  {
    std::vector<std::jthread> readers;
    for (std::size_t i = 1; i < std::min(kReaders, names.size()); ++i) readers.emplace_back(work);
    work();
  }
  for (std::size_t i = 0; i < names.size(); ++i) problems.merge(names[i], found[i]);
  return files;
}

}  // namespace preload
