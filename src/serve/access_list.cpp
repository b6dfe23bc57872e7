// SPDX-License-Identifier: Apache-2.0
#include "serve/access_list.hpp"

#include <endian.h>
#include <fmt/format.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace preload {
namespace {

constexpr const char* kAttribute = "system.posix_acl_access";
constexpr std::size_t kMaxBytes = 64 * 1024;  // of any extended attribute

// Permissions by tag and id: the kernel wants the entries in just this order.
using Entries = std::map<std::pair<unsigned, std::uint32_t>, unsigned>;

constexpr auto kNobody = static_cast<std::uint32_t>(ACL_UNDEFINED_ID);

Entries of_mode(mode_t mode) {
  return {{{ACL_USER_OBJ, kNobody}, mode >> 6U & 7U},
          {{ACL_GROUP_OBJ, kNobody}, mode >> 3U & 7U},
          {{ACL_OTHER, kNobody}, mode & 7U}};
}

Entries read_entries(const std::string& path, mode_t mode) {
  std::vector<char> bytes(kMaxBytes);
  const ssize_t size = ::getxattr(path.c_str(), kAttribute, bytes.data(), bytes.size());
  if (size < static_cast<ssize_t>(sizeof(posix_acl_xattr_header))) return of_mode(mode);
  Entries entries;
  for (std::size_t at = sizeof(posix_acl_xattr_header);
       at + sizeof(posix_acl_xattr_entry) <= static_cast<std::size_t>(size);
       at += sizeof(posix_acl_xattr_entry)) {
    posix_acl_xattr_entry entry;
    std::memcpy(&entry, bytes.data() + at, sizeof entry);
    entries[{le16toh(entry.e_tag), le32toh(entry.e_id)}] = le16toh(entry.e_perm);
  }
  return entries;
}

std::string encode(const Entries& entries) {
  const posix_acl_xattr_header header{htole32(POSIX_ACL_XATTR_VERSION)};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  for (const auto& [who, permissions] : entries) {
    const posix_acl_xattr_entry entry{htole16(static_cast<std::uint16_t>(who.first)),
                                      htole16(static_cast<std::uint16_t>(permissions)),
                                      htole32(who.second)};
    bytes.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  }
  return bytes;
}

}  // namespace

void allow_access(const std::string& path, const std::vector<unsigned>& uids, Access access,
                  const std::string& what) {
  if (uids.empty()) return;
  const auto wanted = static_cast<unsigned>(access);
  struct stat status {};
  check_sys(::stat(path.c_str(), &status), fmt::format("cannot stat {}", what), Errc::kUsage);
  Entries entries = read_entries(path, status.st_mode);
  if ((entries[{ACL_OTHER, kNobody}] & wanted) == wanted) return;
  for (const unsigned uid : uids) entries[{ACL_USER, uid}] |= wanted;
  // Without a mask so far, the group's own rights were what it is now to bound.
  const auto mask = entries.try_emplace({ACL_MASK, kNobody}, entries[{ACL_GROUP_OBJ, kNobody}]);
  mask.first->second |= wanted;
  const std::string bytes = encode(entries);
  if (::setxattr(path.c_str(), kAttribute, bytes.data(), bytes.size(), 0) == 0) return;
  const int error = errno;
  throw Error(Errc::kUsage,
              fmt::format("cannot open {} to the users of --allow-uid: {}; the socket directory "
                          "must be ours and its file system must keep POSIX access control lists, "
                          "as ext4, xfs and tmpfs do: choose another with "
                          "--weight-cache-socket-dir",
                          what, errno_text(error)));
}

}  // namespace preload
