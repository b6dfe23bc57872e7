// SPDX-License-Identifier: Apache-2.0
#include "hook/line_splitter.hpp"

#include <cctype>
#include <cstddef>

namespace preload::hook {
namespace {

constexpr std::size_t kMostBytes = 4096;  // of a line; the rest of it is dropped
constexpr std::string_view kCut = " …";
constexpr char kEscape = '\x1b';

bool ends_sequence(char c) noexcept { return c >= '@' && c <= '~'; }

// Where the sequence that begins with the escape at `begin` ends: "ESC [ 31 m", or two characters.
std::size_t skip_sequence(std::string_view text, std::size_t begin) noexcept {
  std::size_t at = begin + 1;
  if (at >= text.size() || text[at] != '[') return at + 1;
  for (++at; at < text.size() && !ends_sequence(text[at]);) ++at;
  return at + 1;
}

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == kEscape) {
      at = skip_sequence(text, at);
      continue;
    }
    if (c == '\t') {
      out += ' ';
    } else if (std::iscntrl(static_cast<unsigned char>(c)) == 0) {
      out += c;
    }
    ++at;
  }
  return out;
}

}  // namespace

void LineSplitter::add(std::string_view bytes) {
  for (const char c : bytes) {
    if (c == '\n') {
      emit();
    } else if (c == '\r' || line_.empty() || line_.back() != '\r') {
      if (line_.size() <= kMostBytes) line_ += c;
    } else {
      line_.assign(1, c);
    }
  }
}

void LineSplitter::end() { emit(); }

void LineSplitter::emit() {
  std::string text = printable(line_);
  const bool cut = line_.size() > kMostBytes;
  line_.clear();
  if (cut) text += kCut;
  if (!text.empty()) on_line_(text);
}

}  // namespace preload::hook
