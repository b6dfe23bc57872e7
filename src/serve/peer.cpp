// SPDX-License-Identifier: Apache-2.0
#include "serve/peer.hpp"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace preload {

Peer peer_of(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  check_sys(::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size),
            "cannot tell who is at the other end of the socket", Errc::kProtocol);
  return {credentials.uid, credentials.pid};
}

bool is_trusted(unsigned uid, const std::vector<unsigned>& allow_uids) noexcept {
  return uid == ::geteuid() || uid == 0 ||
         std::find(allow_uids.begin(), allow_uids.end(), uid) != allow_uids.end();
}

std::vector<unsigned> uids_from_text(const std::string& text, std::string_view from) {
  std::vector<unsigned> uids;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;; ++at) {
    unsigned uid = 0;
    const auto [next, failure] = std::from_chars(at, end, uid);
    // (uid_t)-1 is nobody's: the kernel's word for "unchanged".
    if (failure != std::errc{} || (next != end && *next != ',') || uid == static_cast<uid_t>(-1))
      throw Error(Errc::kUsage, fmt::format("{} must be a numeric user id, or several with commas "
                                            "between them (`id -u NAME` shows it): '{}'",
                                            from, text));
    uids.push_back(uid);
    if (next == end) return uids;
    at = next;
  }
}

std::string user_text(unsigned uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::array<char, 4096> buffer;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return fmt::format("uid {} ({})", uid, found->pw_name);
  return fmt::format("uid {}", uid);
}

std::string mode_text(mode_t mode) { return fmt::format("{:04o}", mode & 07777U); }

std::string kind_text(mode_t mode) {
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISFIFO(mode)) return "a FIFO";
  return "a device";
}

}  // namespace preload
