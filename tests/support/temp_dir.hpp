// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace preload::test {

// A directory of its own for one test, removed with everything in it.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const noexcept { return path_; }
  std::string operator/(std::string_view name) const;  // absolute path of an entry

  // Each makes missing parent directories.
  void write(std::string_view name, std::string_view bytes) const;
  void make_directory(std::string_view name) const;
  void link(std::string_view name, std::string_view target) const;  // symbolic, target as given
  void remove(std::string_view name) const;
  void truncate(std::string_view name, std::uint64_t bytes) const;
  void flip_byte(std::string_view name, std::uint64_t offset) const;
  std::string read(std::string_view name) const;
  std::uint64_t size(std::string_view name) const;

 private:
  std::string path_;
};

// Sets (or with nullptr unsets) an environment variable until the end of the scope.
class ScopedEnv {
 public:
  ScopedEnv(std::string name, const char* value);
  ~ScopedEnv();
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  std::string name_;
  std::string old_;
  bool had_ = false;
};

}  // namespace preload::test
