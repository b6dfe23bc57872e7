// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/fd.hpp"
#include "serve/socket_dir.hpp"

namespace preload {

// A directory of the test's own, 0700, removed with all that is in it.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "preload-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) check_sys(-1, "mkdtemp");
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const noexcept { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  SocketDir open() const { return SocketDir::open(path_, false); }

 private:
  std::string path_;
};

}  // namespace preload
