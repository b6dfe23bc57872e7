// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace preload::hook {

// Output of programs as lines fit for a log: what a carriage return overwrites (progress bars) and
// what only a terminal understands (colours) is left out, a very long line is cut, and so are empty
// ones.
class LineSplitter {
 public:
  explicit LineSplitter(std::function<void(std::string_view)> on_line)
      : on_line_(std::move(on_line)) {}
  void add(std::string_view bytes);
  void end();  // what has no line feed at its end is a line, too

 private:
  void emit();

  std::function<void(std::string_view)> on_line_;
  std::string line_;
};

}  // namespace preload::hook
