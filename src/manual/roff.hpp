// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace preload::manual {

// A page of man(7) macros, built from the top down. Texts are plain UTF-8: what roff would take for
// its own is escaped.
class Roff {
 public:
  void title(std::string_view name, std::string_view date, std::string_view source);
  void section(std::string_view heading);
  void paragraphs(std::string_view text);  // an empty line begins a new one
  // A tagged paragraph; the tag is given in roff, made of bold() and italic().
  void entry(const std::string& tag, std::string_view text);
  void example(std::string_view purpose, std::string_view line);
  void line(const std::string& roff);  // as it is

  const std::string& text() const noexcept { return text_; }

 private:
  void wrapped(std::string_view text);

  std::string text_;
  bool after_heading_ = false;  // where roff wants no paragraph macro
};

// In running roff. Dashes are those that can be copied into a shell.
std::string bold(std::string_view text);
std::string italic(std::string_view text);
std::string literal(std::string_view text);

}  // namespace preload::manual
