// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/problems.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/counted.hpp"
#include "base/error.hpp"

namespace preload {

namespace {

constexpr std::size_t kMaxLines = 10'000;
constexpr std::size_t kLinesPerFile = 50;
constexpr std::size_t kQuotedBytes = 240;

}  // namespace

void Problems::add(std::string_view file, std::string_view text) {
  add_line(fmt::format("{}: {}", file, text));
}

void Problems::add(std::string_view file, std::string_view tensor, std::string_view text) {
  add_line(fmt::format("{}: tensor {} {}", file, quote(tensor), text));
}

void Problems::add_line(std::string line) {
  if (lines_.size() < kMaxLines) {
    lines_.push_back(std::move(line));
  } else {
    ++unkept_;
  }
}

void Problems::merge(std::string_view file, const Problems& of_file) {
  const std::size_t all = of_file.lines_.size() + of_file.unkept_;
  const std::size_t kept = std::min(of_file.lines_.size(), kLinesPerFile);
  for (std::size_t i = 0; i < kept; ++i) add_line(of_file.lines_[i]);
  if (kept < all) add(file, fmt::format("and {} like these", counted(all - kept, "more problem")));
}

void Problems::throw_if_any(std::string_view checkpoint) const {
  if (lines_.empty()) return;
  std::string text = fmt::format("checkpoint {} is refused, {}:", checkpoint,
                                 counted(lines_.size() + unkept_, "problem"));
  for (const std::string& line : lines_) text += "\n  " + line;
  if (unkept_ > 0) text += fmt::format("\n  and {} more", unkept_);
  throw Error(Errc::kCheckpoint, std::move(text));
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kQuotedBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  if (text.size() > kQuotedBytes) out += fmt::format("… ({} bytes)", text.size());
  return out + "\"";
}

std::string quote_list(const std::vector<std::string>& names, std::size_t limit) {
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < limit; ++i) {
    if (i > 0) out += ", ";
    out += quote(names[i]);
  }
  if (names.size() > limit) out += fmt::format(" and {} more", names.size() - limit);
  return out;
}

}  // namespace preload
