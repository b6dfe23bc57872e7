// SPDX-License-Identifier: Apache-2.0
#include "unit/artifact/tar_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace preload::artifact {
namespace {

constexpr std::size_t kBlock = 512;

void put(std::string& block, std::size_t at, std::size_t size, std::string_view text) {
  std::copy_n(text.begin(), std::min(size, text.size()),
              block.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace

TarFile& TarFile::header(const Header& header) {
  std::string block(kBlock, '\0');
  put(block, 0, 100, header.name);
  put(block, 100, 8, fmt::format("{:07o}", header.mode));
  put(block, 108, 8, "0000000");
  put(block, 116, 8, "0000000");
  put(block, 124, 12, fmt::format("{:011o}", header.bytes));
  put(block, 136, 12, "00000000000");
  put(block, 148, 8, "        ");
  block[156] = header.type;
  put(block, 157, 100, header.link);
  put(block, 257, 8, std::string_view("ustar\00000", 8));
  const unsigned sum = std::accumulate(block.begin(), block.end(), 0U, [](unsigned total, char c) {
    return total + static_cast<unsigned char>(c);
  });
  put(block, 148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  bytes_ += block;
  return *this;
}

TarFile& TarFile::file(const std::string& name, std::string_view content, unsigned mode) {
  header({.name = name, .type = '0', .link = {}, .bytes = content.size(), .mode = mode});
  return raw(content);
}

TarFile& TarFile::directory(const std::string& name) {
  return header({.name = name, .type = '5', .link = {}, .bytes = 0, .mode = 0755});
}

TarFile& TarFile::symbolic_link(const std::string& name, const std::string& target) {
  return header({.name = name, .type = '2', .link = target, .bytes = 0, .mode = 0777});
}

TarFile& TarFile::raw(std::string_view bytes) {
  bytes_ += bytes;
  bytes_.resize((bytes_.size() + kBlock - 1) / kBlock * kBlock, '\0');
  return *this;
}

std::string TarFile::finish() const { return bytes_ + std::string(2 * kBlock, '\0'); }

}  // namespace preload::artifact
