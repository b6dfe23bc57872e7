// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "artifact/bundle_path.hpp"
#include "artifact/disk_folder.hpp"
#include "artifact/libarchive.hpp"
#include "artifact/optional_cancel.hpp"
#include "artifact/tree_bundle.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"

namespace preload::artifact {
namespace {

class BundleWriter {
 public:
  BundleWriter(const std::string& directory, int out, const BundleLimits& limits,
               const Cancel* cancel)
      : directory_(directory),
        limits_(limits),
        cancel_(cancel),
        archive_(lib_.write_new(), lib_.write_free) {
    check(lib_.write_set_format_gnutar(archive_.get()));
    check(lib_.write_set_bytes_in_last_block(archive_.get(), 1));
    check(lib_.write_open_fd(archive_.get(), out));
  }

  BundleSummary write() {
    const Fd root = open_fd(AT_FDCWD, directory_, O_RDONLY | O_DIRECTORY, 0, Errc::kUsage);
    add_folder(root.get(), "", 1);
    check(lib_.write_close(archive_.get()));
    return summary_;
  }

 private:
  void check(la_ssize_t result) const {
    if (result < ARCHIVE_OK) {
      throw Error(Errc::kInternal,
                  fmt::format("cannot bundle '{}': {}", directory_, lib_.error_of(archive_.get())));
    }
  }
  [[noreturn]] void refuse(const std::string& path, const std::string& why) const {
    throw Error(Errc::kUsage, fmt::format("'{}/{}' {}", directory_, path, why));
  }
  void skip(const std::string& path, const std::string& why) {
    if (summary_.skipped++ == 0) summary_.first_skipped = fmt::format("'{}' {}", path, why);
  }

  void add_folder(int folder, const std::string& prefix, std::size_t depth) {
    for (const std::string& name : names_in(folder)) {
      const std::string path = prefix + name;
      struct stat status {};
      if (::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) continue;  // gone
      if (depth > limits_.depth) {
        refuse(path, fmt::format("lies deeper than the {} levels of a bundle", limits_.depth));
      }
      if (S_ISDIR(status.st_mode)) {
        add_directory(folder, name, path, depth);
      } else if (S_ISREG(status.st_mode)) {
        add_file(folder, name, path);
      } else if (S_ISLNK(status.st_mode)) {
        add_link(folder, name, path, depth);
      } else {
        skip(path, "is neither a file nor a directory");
      }
    }
  }

  void add_directory(int folder, const std::string& name, const std::string& path,
                     std::size_t depth) {
    const Fd fd(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) return skip(path, fmt::format("cannot be opened: {}", errno_text(errno)));
    header(path, AE_IFDIR, 0755, 0, nullptr);
    add_folder(fd.get(), path + "/", depth + 1);
  }

  void add_file(int folder, const std::string& name, const std::string& path) {
    const Fd fd(::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0) {
      return skip(path, fmt::format("cannot be opened: {}", errno_text(errno)));
    }
    const auto bytes = static_cast<std::uint64_t>(status.st_size);
    if (bytes > limits_.bytes - summary_.bytes) {
      refuse(path, fmt::format("makes the tree larger than the {} that a bundle holds",
                               format_bytes(limits_.bytes)));
    }
    header(path, AE_IFREG, (status.st_mode & S_IXUSR) != 0 ? 0755 : 0644, status.st_size, nullptr);
    for (std::uint64_t done = 0; done < bytes;) {
      check_cancel(cancel_);
      const std::size_t want = std::min<std::uint64_t>(buffer_.size(), bytes - done);
      const std::size_t n = pread_full(fd.get(), std::span(buffer_).first(want), done, path);
      if (n == 0)
        refuse(path, "became shorter while it was bundled: is the warm-up still at work?");
      check(lib_.write_data(archive_.get(), buffer_.data(), n));
      done += n;
    }
    summary_.bytes += bytes;
    ++summary_.files;
  }

  void add_link(int folder, const std::string& name, const std::string& path, std::size_t depth) {
    std::string target(PATH_MAX, '\0');
    const ssize_t n = ::readlinkat(folder, name.c_str(), target.data(), target.size());
    if (n <= 0 || static_cast<std::size_t>(n) >= target.size()) return skip(path, "is no link");
    target.resize(static_cast<std::size_t>(n));
    if (!link_stays_inside(target, depth - 1)) {
      return skip(path, fmt::format("leads out of the tree, to '{}'", target));
    }
    header(path, AE_IFLNK, 0777, 0, target.c_str());
  }

  void header(const std::string& path, unsigned type, unsigned permissions, la_int64_t bytes,
              const char* target) {
    check_cancel(cancel_);
    if (++entries_ > limits_.entries) {
      refuse(path, fmt::format("is more than the {} entries of a bundle", limits_.entries));
    }
    const std::unique_ptr<archive_entry, decltype(lib_.entry_free)> entry(lib_.entry_new(),
                                                                          lib_.entry_free);
    lib_.entry_set_pathname(entry.get(), path.c_str());
    lib_.entry_set_filetype(entry.get(), type);
    lib_.entry_set_perm(entry.get(), permissions);
    lib_.entry_set_size(entry.get(), bytes);
    lib_.entry_set_mtime(entry.get(), 0, 0);
    if (target != nullptr) lib_.entry_set_symlink(entry.get(), target);
    check(lib_.write_header(archive_.get(), entry.get()));
  }

  const LibArchive& lib_ = LibArchive::get();
  const std::string& directory_;
  const BundleLimits& limits_;
  const Cancel* cancel_;
  std::unique_ptr<archive, decltype(LibArchive::write_free)> archive_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kMiB);
  BundleSummary summary_;
  std::size_t entries_ = 0;
};

}  // namespace

BundleSummary write_bundle(const std::string& directory, int out, const BundleLimits& limits,
                           const Cancel* cancel) {
  return BundleWriter(directory, out, limits, cancel).write();
}

}  // namespace preload::artifact
