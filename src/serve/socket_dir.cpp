// SPDX-License-Identifier: Apache-2.0
#include "serve/socket_dir.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "serve/peer.hpp"

namespace preload {
namespace {

constexpr std::string_view kChooseAnother =
    "choose another with --weight-cache-socket-dir or $PRELOAD_SOCKET_DIR";

// Sockets and flock do not work across hosts, and on some of these not at all.
constexpr std::array<std::pair<std::uint32_t, std::string_view>, 12> kNetworkFileSystems{{
    {0x6969, "NFS"},
    {0x0BD00BD0, "Lustre"},
    {0x47504653, "GPFS"},
    {0x19830326, "BeeGFS"},
    {0x00C36400, "CephFS"},
    {0xFF534D42, "CIFS"},
    {0xFE534D42, "SMB"},
    {0x517B, "SMB"},
    {0x5346414F, "AFS"},
    {0xAAD7AAEA, "PanFS"},
    {0x20030528, "OrangeFS"},
    {0x01021997, "9P"},
}};

struct Choice {
  std::string path;
  bool derived;  // nobody named it: /tmp/preload-<uid>
};

Choice choose(const SocketDirChoice& given) {
  std::string path = given.path;
  if (path.empty()) {
    const char* variable = std::getenv("PRELOAD_SOCKET_DIR");
    if (variable != nullptr) path = variable;
  }
  if (path.empty()) return {fmt::format("/tmp/preload-{}", ::geteuid()), true};
  // A trailing slash would make O_NOFOLLOW follow.
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return {path, false};
}

[[noreturn]] void refuse(const std::string& path, std::string_view why) {
  throw Error(Errc::kUsage, fmt::format("socket directory '{}' {}", path, why));
}

void create_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return;
  const int error = errno;
  if (error == ENOENT)
    refuse(path,
           fmt::format("cannot be made: its parent is not there; make it or {}", kChooseAnother));
  refuse(path, fmt::format("cannot be made: {}; {}", errno_text(error), kChooseAnother));
}

// Opens what is really there: never through a link.
Fd open_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0) return Fd(fd);
  const int error = errno;
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode))
    refuse(path, fmt::format("is {} of {}, not a directory: name the directory itself, or {}",
                             kind_text(status.st_mode), user_text(status.st_uid), kChooseAnother));
  if (error == ENOENT)
    throw Error(Errc::kUnavailable,
                fmt::format("socket directory '{}' is not there: no daemon has run with it; start "
                            "one, or {}",
                            path, kChooseAnother));
  refuse(path, fmt::format("cannot be opened: {}", errno_text(error)));
}

std::vector<unsigned> allowed_uids(const SocketDirChoice& given) {
  std::vector<unsigned> uids = given.allow_uids;
  const char* variable = std::getenv("PRELOAD_ALLOW_UIDS");
  if (variable == nullptr || *variable == '\0') return uids;
  for (const unsigned uid : uids_from_text(variable, "$PRELOAD_ALLOW_UIDS")) uids.push_back(uid);
  return uids;
}

// A daemon keeps its locks in what is its own; a client goes where it was sent, to whom it trusts.
void check_owner_and_mode(int fd, const Choice& choice, bool own,
                          const std::vector<unsigned>& allow_uids) {
  struct stat status {};
  check_sys(::fstat(fd, &status), "cannot stat the socket directory", Errc::kUsage);
  if (own && status.st_uid != ::geteuid())
    refuse(choice.path, fmt::format("belongs to {}, not to {}: {}", user_text(status.st_uid),
                                    user_text(::geteuid()), kChooseAnother));
  if (!is_trusted(status.st_uid, allow_uids))
    refuse(choice.path,
           fmt::format("belongs to {}, not to {}: {}, or trust that user's daemons with "
                       "--allow-uid {} or $PRELOAD_ALLOW_UIDS",
                       user_text(status.st_uid), user_text(::geteuid()), kChooseAnother,
                       status.st_uid));
  const mode_t forbidden = choice.derived ? 077 : 022;
  if ((status.st_mode & forbidden) != 0)
    refuse(choice.path,
           fmt::format("of {} can be {} by others (mode {}): run chmod 700 '{}'",
                       user_text(status.st_uid), (status.st_mode & 022) != 0 ? "written" : "read",
                       mode_text(status.st_mode), choice.path));
}

void check_file_system(int fd, const std::string& path) {
  struct statfs status {};
  check_sys(::fstatfs(fd, &status), "cannot tell the file system of the socket directory",
            Errc::kUsage);
  for (const auto& [magic, name] : kNetworkFileSystems)
    if (static_cast<std::uint32_t>(status.f_type) == magic)
      refuse(path, fmt::format("lies on {}, where sockets and locks do not work between processes "
                               "of one host: {} on a local file system",
                               name, kChooseAnother));
}

}  // namespace

SocketDir SocketDir::open(const SocketDirChoice& given, bool create) {
  const Choice choice = choose(given);
  std::vector<unsigned> allow_uids = allowed_uids(given);
  if (create && choice.derived && !allow_uids.empty())
    refuse(choice.path,
           "is ours alone, and --allow-uid (or $PRELOAD_ALLOW_UIDS) lets others in: name a "
           "directory with --weight-cache-socket-dir or $PRELOAD_SOCKET_DIR, for them as well");
  if (create) create_directory(choice.path);
  Fd fd = open_directory(choice.path);
  check_owner_and_mode(fd.get(), choice, create, allow_uids);
  check_file_system(fd.get(), choice.path);
  if (create)
    allow_access(fmt::format("/proc/self/fd/{}", fd.get()), allow_uids, Access::kEnter,
                 fmt::format("'{}'", choice.path));
  return SocketDir(std::move(fd), choice.path, std::move(allow_uids));
}

bool SocketDir::trusts(unsigned uid) const noexcept { return is_trusted(uid, allow_uids_); }

void SocketDir::share(const std::string& name, Access access) const {
  allow_access(proc_path(name), allow_uids_, access, fmt::format("'{}/{}'", path_, name));
}

std::string SocketDir::proc_path(const std::string& name) const {
  return fmt::format("/proc/self/fd/{}/{}", fd_.get(), name);
}

std::vector<std::string> SocketDir::list() const {
  // A new description: its position is nobody else's.
  Fd copy = open_fd(fd_.get(), ".", O_RDONLY | O_DIRECTORY, 0, Errc::kUnavailable);
  const auto close_dir = [](DIR* dir) { ::closedir(dir); };
  std::unique_ptr<DIR, decltype(close_dir)> dir(::fdopendir(copy.get()), close_dir);
  if (!dir)
    throw Error(Errc::kUnavailable, fmt::format("cannot list '{}': {}", path_, errno_text(errno)));
  copy.release();  // closedir closes it
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace preload
