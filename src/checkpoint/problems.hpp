// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace preload {

// Everything that is wrong with a checkpoint, gathered so that one refusal lists it all. A line
// names the file, the tensor where there is one, what is wrong and what to do about it.
class Problems {
 public:
  void add(std::string_view file, std::string_view text);
  void add(std::string_view file, std::string_view tensor, std::string_view text);
  // Takes over the lines about one file; past a few dozen they say nothing new and are counted.
  void merge(std::string_view file, const Problems& of_file);

  bool empty() const noexcept { return lines_.empty(); }  // no line is counted before one is kept
  // Throws Error(kCheckpoint) with every line when there is one.
  void throw_if_any(std::string_view checkpoint) const;

 private:
  void add_line(std::string line);

  std::vector<std::string> lines_;
  std::size_t unkept_ = 0;  // past the limit: a hostile file has millions
};

// Untrusted text for a message: in double quotes, control characters escaped, cut when very long.
std::string quote(std::string_view text);
// `"a", "b", "c" and 97 more`.
std::string quote_list(const std::vector<std::string>& names, std::size_t limit = 20);

}  // namespace preload
