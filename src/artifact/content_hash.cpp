// SPDX-License-Identifier: Apache-2.0
#include "artifact/content_hash.hpp"

#include <span>
#include <vector>

#include "artifact/optional_cancel.hpp"
#include "base/bytes.hpp"
#include "base/fd.hpp"
#include "base/sha256.hpp"

namespace preload::artifact {

std::string content_hash(int fd, const std::string& name, const Cancel* cancel,
                         std::uint64_t most) {
  std::vector<std::byte> buffer(kMiB);
  Sha256 hash;
  for (std::uint64_t done = 0; done < most;) {
    const std::size_t n = pread_full(fd, buffer, done, name);
    if (n == 0) break;
    check_cancel(cancel);
    hash.add(std::span(buffer).first(n));
    done += n;
  }
  return hash.hex();
}

}  // namespace preload::artifact
