// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/copy_program.hpp"
#include "serve/socket_dir.hpp"

namespace preload::cli {

// The arguments of one command, checked against the option table: `-` and `_` alike, `--name value`
// and `--name=value` alike, the last of a repeated option wins.
class ParsedOptions {
 public:
  // Throws Error(kUsage) naming the argument when the table gives `command` no such option, when a
  // value is missing or when a positional argument is not expected.
  ParsedOptions(std::string_view command, const std::vector<std::string>& arguments);

  bool has(std::string_view name) const;  // a switch, or an option with a value
  std::optional<std::string> text(std::string_view name) const;  // the value as given
  std::vector<std::string> all(std::string_view name) const;     // of a repeatable option
  std::optional<double> seconds(std::string_view name) const;    // >= 0
  std::optional<int> number(std::string_view name, int least) const;
  // The index in `choices` of the value. An unknown one is an error that lists them.
  std::optional<std::size_t> choice(std::string_view name,
                                    const std::vector<std::string_view>& choices) const;
  const std::vector<std::string>& positional() const noexcept { return positional_; }

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> positional_;
};

// --weight-cache-socket-dir and --allow-uid.
SocketDirChoice socket_dir_option(const ParsedOptions& options);

// What status, wait, stop, release, attach and verify share: which daemons are meant.
struct ClientOptions {
  SocketDirChoice socket_dir;
  std::optional<std::string> gpu;  // UUID, index or host:N
  std::optional<std::string> slot;
  std::optional<Role> role;
  bool json = false;
  std::optional<double> timeout_s;  // unset: the command's own default
};
ClientOptions client_options(const ParsedOptions& options);

// The text of `preload --help` and of `preload COMMAND --help`.
std::string help_text();
std::string help_text(std::string_view command);

// The nearest of `known` to a mistyped word, for "did you mean"; nothing when none is near.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace preload::cli
