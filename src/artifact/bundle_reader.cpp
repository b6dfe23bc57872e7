// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "artifact/bundle_path.hpp"
#include "artifact/libarchive.hpp"
#include "artifact/optional_cancel.hpp"
#include "artifact/staged_tree.hpp"
#include "artifact/tree_bundle.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"

namespace preload::artifact {
namespace {

using Names = std::vector<std::string>;

// For messages: a hostile name must not write to a terminal.
std::string shown(const char* path) {
  std::string text = path == nullptr ? "" : path;
  for (char& c : text) {
    if (std::iscntrl(static_cast<unsigned char>(c)) != 0) c = '?';
  }
  constexpr std::size_t kMost = 200;
  if (text.size() > kMost) text = text.substr(0, kMost) + "…";
  return text;
}

// Unpacks into a folder that nobody else knows yet.
class BundleReader {
 public:
  BundleReader(int bundle, int root, const BundleLimits& limits, const Cancel* cancel)
      : root_(root), limits_(limits), cancel_(cancel), archive_(lib_.read_new(), lib_.read_free) {
    check_sys(::lseek(bundle, 0, SEEK_SET), "cannot rewind a bundle");
    check(lib_.read_support_format_tar(archive_.get()), "");
    check(lib_.read_open_fd(archive_.get(), bundle, kMiB), "");
  }

  BundleSummary extract() {
    archive_entry* entry = nullptr;
    while (true) {
      const int result = lib_.read_next_header(archive_.get(), &entry);
      if (result == ARCHIVE_EOF) return summary_;
      check(result, "");
      check_cancel(cancel_);
      take(entry);
    }
  }

 private:
  [[noreturn]] static void refuse(const std::string& path, const std::string& why) {
    throw Error(Errc::kCheckpoint, fmt::format("the bundle is refused: '{}' {}", path, why));
  }
  void check(int result, const std::string& path) const {
    if (result == ARCHIVE_OK) return;
    throw Error(Errc::kCheckpoint,
                fmt::format("the bundle is broken{}: {}", path.empty() ? "" : " at '" + path + "'",
                            lib_.error_of(archive_.get())));
  }

  void take(archive_entry* entry) {
    const char* const raw = lib_.entry_pathname(entry);
    const std::string path = shown(raw);
    const Names names = raw == nullptr ? Names() : path_names(raw);
    if (names.empty()) refuse(path, "is no path inside a tree");
    if (names.size() > limits_.depth) {
      refuse(path, fmt::format("lies deeper than {} levels", limits_.depth));
    }
    if (++entries_ > limits_.entries) {
      refuse(path, fmt::format("is one of more than {} entries", limits_.entries));
    }
    if (!seen_.insert(names).second) refuse(path, "is in it twice");
    if (lib_.entry_hardlink(entry) != nullptr) refuse(path, "is a hard link");
    if ((lib_.entry_perm(entry) & (S_ISUID | S_ISGID)) != 0) refuse(path, "has a set-id bit");
    const Fd folder = parent_of(names, path);
    switch (lib_.entry_filetype(entry)) {
      case AE_IFDIR:
        check_sys(::mkdirat(folder.get(), names.back().c_str(), 0777),
                  fmt::format("cannot make '{}'", path));
        return;
      case AE_IFREG:
        return take_file(entry, folder.get(), names.back(), path);
      case AE_IFLNK:
        return take_link(entry, folder.get(), names, path);
      default:
        refuse(path, "is neither a file nor a directory nor a symbolic link");
    }
  }

  // Step by step and never through a link.
  Fd parent_of(const Names& names, const std::string& path) const {
    Fd folder = duplicate(root_);
    for (std::size_t i = 0; i + 1 < names.size(); ++i) {
      Fd next(::openat(folder.get(), names[i].c_str(),
                       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!next) refuse(path, "lies in no directory that comes before it");
      folder = std::move(next);
    }
    return folder;
  }

  void take_file(archive_entry* entry, int folder, const std::string& name,
                 const std::string& path) {
    const la_int64_t size = lib_.entry_size(entry);
    if (size < 0 || static_cast<std::uint64_t>(size) > limits_.bytes - summary_.bytes) {
      refuse(path, fmt::format("makes it larger than {}", format_bytes(limits_.bytes)));
    }
    const bool executable = (lib_.entry_perm(entry) & S_IXUSR) != 0;
    const Fd file = open_fd(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
                            executable ? 0777 : 0666, Errc::kInternal);
    std::uint64_t left = static_cast<std::uint64_t>(size);
    while (true) {
      const la_ssize_t n = lib_.read_data(archive_.get(), buffer_.data(), buffer_.size());
      if (n < 0) check(static_cast<int>(n), path);
      if (n == 0) break;
      check_cancel(cancel_);
      const auto bytes = static_cast<std::uint64_t>(n);
      if (bytes > left) refuse(path, "is longer than it says");
      left -= bytes;
      write_full(file.get(), std::span(buffer_).first(bytes), fmt::format("'{}'", path));
    }
    if (left > 0) refuse(path, "is shorter than it says");
    summary_.bytes += static_cast<std::uint64_t>(size);
    ++summary_.files;
  }

  void take_link(archive_entry* entry, int folder, const Names& names, const std::string& path) {
    const char* const target = lib_.entry_symlink(entry);
    if (target == nullptr || !link_stays_inside(target, names.size() - 1)) {
      refuse(path, fmt::format("is a link out of the tree, to '{}'", shown(target)));
    }
    check_sys(::symlinkat(target, folder, names.back().c_str()),
              fmt::format("cannot make the link '{}'", path));
  }

  const LibArchive& lib_ = LibArchive::get();
  int root_;
  const BundleLimits& limits_;
  const Cancel* cancel_;
  std::unique_ptr<archive, decltype(LibArchive::read_free)> archive_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMiB);
  std::set<Names> seen_;
  BundleSummary summary_;
  std::size_t entries_ = 0;
};

}  // namespace

BundleSummary extract_bundle(int bundle, const std::string& directory, const BundleLimits& limits,
                             const Cancel* cancel) {
  LibArchive::get();  // before anything is made
  StagedTree staged(directory);
  BundleSummary summary = BundleReader(bundle, staged.fd(), limits, cancel).extract();
  staged.merge(summary);
  return summary;
}

}  // namespace preload::artifact
