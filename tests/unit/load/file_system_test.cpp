// SPDX-License-Identifier: Apache-2.0
#include "load/file_system.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/fd.hpp"
#include "support/temp_dir.hpp"

namespace preload {
namespace {

constexpr std::size_t kBytes = 64 << 20;

class PageCache : public testing::Test {
 protected:
  void SetUp() override {
    directory_.write("file", std::string(kBytes, 'x'));
    fd_ = open_fd(AT_FDCWD, directory_ / "file", O_RDONLY, 0, Errc::kInternal);
    if (file_system_kind(fd_.get()) == FileSystemKind::kMemory) {
      GTEST_SKIP()
          << "the directory for temporary files is in memory: nothing leaves its page cache";
    }
    fsync(fd_.get());
  }

  std::size_t cached_pages() const {
    const Mapping mapping = map_fd(fd_.get(), kBytes, false, "the file");
    std::vector<unsigned char> pages(kBytes / 4096);
    mincore(mapping.data(), kBytes, pages.data());
    return static_cast<std::size_t>(
        std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; }));
  }

  test::TempDir directory_;
  Fd fd_;
};

TEST_F(PageCache, IsSeenToHoldWhatWasJustWritten) {
  EXPECT_TRUE(is_in_page_cache(fd_.get(), kBytes));
}

TEST_F(PageCache, IsNotFilledByLookingAtIt) {
  posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (cached_pages() != 0) GTEST_SKIP() << "this file system keeps what it is asked to drop";
  for (int look = 0; look < 4; ++look) EXPECT_FALSE(is_in_page_cache(fd_.get(), kBytes)) << look;
  EXPECT_LE(cached_pages(), 4U * 64 * 4) << "samples, perhaps of larger blocks, and no read-ahead";
}

}  // namespace
}  // namespace preload
