// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace preload {

// Who is at the other end of a Unix socket, as the kernel says. pid is 0 when the peer lives in a
// PID namespace that this process does not see.
struct Peer {
  unsigned uid = 0;
  int pid = 0;
};
Peer peer_of(int socket);  // throws Error(kProtocol)

// Our own user and root are trusted, and whoever is named.
bool is_trusted(unsigned uid, const std::vector<unsigned>& allow_uids) noexcept;

// "990" or "990,1000". Throws Error(kUsage) saying what `from` has to be.
std::vector<unsigned> uids_from_text(const std::string& text, std::string_view from);

std::string user_text(unsigned uid);  // "uid 1000 (bob)"
std::string mode_text(mode_t mode);   // "0755"
std::string kind_text(mode_t mode);   // "a symbolic link", "a directory", "a socket", …

}  // namespace preload
