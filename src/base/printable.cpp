// SPDX-License-Identifier: Apache-2.0
#include "base/printable.hpp"

#include <fmt/format.h>

namespace preload {
namespace {

constexpr unsigned char kDelete = 0x7f;

std::string escaped(std::string_view text, std::string_view line_break) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, in UTF-8: terminals take some for the beginning of a sequence.
    const bool is_c1 = c == 0xc2 && i + 1 < text.size() &&
                       (static_cast<unsigned char>(text[i + 1]) & 0xe0U) == 0x80U;
    if (c == '\n') {
      out += line_break;
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_c1) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[++i]));
    } else if (c < ' ' || c == kDelete) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string one_line(std::string_view text) { return escaped(text, "\\n"); }

std::string indented(std::string_view text) { return escaped(text, "\n  "); }

}  // namespace preload
