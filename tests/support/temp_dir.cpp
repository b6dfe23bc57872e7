// SPDX-License-Identifier: Apache-2.0
#include "support/temp_dir.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace preload::test {

namespace fs = std::filesystem;

namespace {

fs::path with_parents(const fs::path& path) {
  fs::create_directories(path.parent_path());
  return path;
}

}  // namespace

TempDir::TempDir() {
  std::string pattern = (fs::temp_directory_path() / "preload-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw std::runtime_error("mkdtemp failed for " + pattern);
  }
  path_ = fs::canonical(pattern).string();
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string TempDir::operator/(std::string_view name) const {
  return (fs::path(path_) / name).string();
}

void TempDir::write(std::string_view name, std::string_view bytes) const {
  std::ofstream out(with_parents(*this / name), std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw std::runtime_error("cannot write " + *this / name);
}

void TempDir::make_directory(std::string_view name) const { fs::create_directories(*this / name); }

void TempDir::link(std::string_view name, std::string_view target) const {
  fs::create_symlink(target, with_parents(*this / name));
}

void TempDir::remove(std::string_view name) const { fs::remove_all(*this / name); }

void TempDir::truncate(std::string_view name, std::uint64_t bytes) const {
  fs::resize_file(*this / name, bytes);
}

void TempDir::flip_byte(std::string_view name, std::uint64_t offset) const {
  std::fstream file(*this / name, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ 0x01));
  file.close();
  if (!file || byte < 0) throw std::runtime_error("cannot flip a byte of " + *this / name);
}

std::string TempDir::read(std::string_view name) const {
  std::ifstream in(*this / name, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + *this / name);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

std::uint64_t TempDir::size(std::string_view name) const { return fs::file_size(*this / name); }

ScopedEnv::ScopedEnv(std::string name, const char* value) : name_(std::move(name)) {
  if (const char* old = std::getenv(name_.c_str()); old != nullptr) {
    had_ = true;
    old_ = old;
  }
  if (value == nullptr) {
    ::unsetenv(name_.c_str());
  } else {
    ::setenv(name_.c_str(), value, 1);
  }
}

ScopedEnv::~ScopedEnv() {
  if (had_) {
    ::setenv(name_.c_str(), old_.c_str(), 1);
  } else {
    ::unsetenv(name_.c_str());
  }
}

}  // namespace preload::test
