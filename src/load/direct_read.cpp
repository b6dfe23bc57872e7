// SPDX-License-Identifier: Apache-2.0
#include "load/direct_read.hpp"

#include <unistd.h>

#include <cerrno>

namespace preload {

DirectRead read_direct(const DirectRange& range) noexcept {
  std::size_t done = 0;
  while (done < range.out.size()) {
    const ssize_t n = ::pread(range.fd, range.out.data() + done, range.out.size() - done,
                              static_cast<off_t>(range.offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {done, errno, range.offset + done};
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
    // A short read that ends off the grid is the end of the file.
    if (done % range.alignment != 0) break;
  }
  return {done, 0, 0};
}

}  // namespace preload
