// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "memory/device.hpp"

namespace preload {

std::string format_uuid(const char* label, const std::array<unsigned char, 16>& bytes) {
  std::string text = fmt::format("{}-", label);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

}  // namespace preload
