// SPDX-License-Identifier: Apache-2.0
#include "manual/roff.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cstdint>

namespace preload::manual {
namespace {

constexpr std::size_t kWidth = 78;

// The code point that begins at text[at], whose bytes are skipped. Our texts are valid UTF-8.
std::uint32_t next_code_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at++);
  if (first < 0x80) return first;
  const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  std::uint32_t point = first & (0x3fu >> more);
  for (int i = 0; i < more && at < text.size(); ++i) point = (point << 6) | (byte(at++) & 0x3fu);
  return point;
}

std::string escaped(std::string_view text, bool literal_dashes) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::uint32_t point = next_code_point(text, at);
    if (point == '\\') {
      out += "\\e";
    } else if (point == '-' && literal_dashes) {
      out += "\\-";
    } else if (point == '\'') {
      out += "\\(aq";
    } else if (point == '~') {
      out += "\\(ti";
    } else if (point == '`') {
      out += "\\(ga";
    } else if (point == '^') {
      out += "\\(ha";
    } else if (point < 0x80) {
      out += static_cast<char>(point);
    } else {
      out += fmt::format("\\[u{:04X}]", point);
    }
  }
  return out;
}

// Words that are typed keep their dashes; others may be broken at them.
bool is_typed(std::string_view word) {
  return word.starts_with('-') || word.find('_') != std::string_view::npos ||
         word.find('/') != std::string_view::npos;
}

}  // namespace

std::string bold(std::string_view text) { return "\\fB" + escaped(text, true) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + escaped(text, true) + "\\fR"; }
std::string literal(std::string_view text) { return escaped(text, true); }

void Roff::title(std::string_view name, std::string_view date, std::string_view source) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  line(fmt::format(".TH {} 1 \"{}\" \"{}\" \"preload\"", literal(upper), date, source));
}

void Roff::section(std::string_view heading) { line(fmt::format(".SH {}", heading)); }

void Roff::paragraphs(std::string_view text) {
  for (bool first = true; !text.empty(); first = false) {
    const std::size_t end = text.find("\n\n");
    if (!first) line(".PP");
    wrapped(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 2);
  }
}

void Roff::entry(const std::string& tag, std::string_view text) {
  line(".TP");
  line(tag);
  wrapped(text);
}

void Roff::example(std::string_view purpose, std::string_view line_text) {
  if (!after_heading_) line(".PP");
  wrapped(purpose);
  line(".PP");
  line(".RS 4");
  line(".nf");
  line("\\&" + literal(line_text));
  line(".fi");
  line(".RE");
}

void Roff::line(const std::string& roff) {
  after_heading_ = roff.starts_with(".SH");
  text_ += roff;
  text_ += '\n';
}

// Sentences begin on lines of their own, as roff wants them.
void Roff::wrapped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!out.empty() && (out.size() + 1 + word.size() > kWidth || out.ends_with('.'))) {
      line(out);
      out.clear();
    }
    if (!out.empty()) out += ' ';
    if (out.empty() && (word[0] == '.' || word[0] == '\'')) out += "\\&";
    out += escaped(word, is_typed(word));
  }
  if (!out.empty()) line(out);
}

}  // namespace preload::manual
