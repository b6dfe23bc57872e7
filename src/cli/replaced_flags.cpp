// SPDX-License-Identifier: Apache-2.0
#include "cli/replaced_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.hpp"
#include "cli/option_table.hpp"

namespace preload::cli {
namespace {

std::string option_name(const std::string& argument) {
  std::string name = argument.substr(0, argument.find('='));
  name.erase(0, name.find_first_not_of('-'));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// The command line without the replaced flags, and the numbers in it that the launcher needs.
struct Launch {
  std::string rest;
  std::optional<int> nodes;
  int world = 1;
  bool world_known = false;
};

std::string quoted(const std::string& argument) {
  if (argument.find_first_of(" '\"\\{}[]*?$&|;<>()!#~`") == std::string::npos) return argument;
  std::string out = "'";
  for (const char c : argument) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Launch launch_of(const std::vector<std::string>& arguments) {
  Launch launch;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::string name = argument.starts_with('-') ? option_name(argument) : "";
    const std::size_t equals = argument.find('=');
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with('-')) {
      value = arguments[i + 1];
    }
    int number = 0;
    const bool numeric =
        !value.empty() &&
        std::from_chars(value.data(), value.data() + value.size(), number).ec == std::errc{};
    if (find_replaced_flag(name) != nullptr) {
      if (name == "nnodes" && numeric) launch.nodes = number;
      if (equals == std::string::npos && !value.empty()) ++i;
      continue;
    }
    const bool size = name == "tp" || name == "pp" || name == "dp" ||
                      name == "tensor-parallel-size" || name == "pipeline-parallel-size" ||
                      name == "data-parallel-size";
    if (size && numeric && number > 0 && number <= 1 << 20 && launch.world <= 1 << 20) {
      launch.world *= number;
      launch.world_known = true;
    }
    launch.rest += " " + quoted(argument);
  }
  return launch;
}

}  // namespace

const ReplacedFlag* find_replaced_flag(std::string_view name) noexcept {
  const auto at = std::ranges::find(replaced_flags(), name, &ReplacedFlag::name);
  return at == replaced_flags().end() ? nullptr : &*at;
}

void refuse_replaced_flag(std::string_view command, const ReplacedFlag& flag,
                          const std::vector<std::string>& arguments) {
  const Launch launch = launch_of(arguments);
  const std::string ranks = launch.world_known ? fmt::format("{}", launch.world) : "RANKS";
  throw Error(Errc::kUsage,
              fmt::format("--{} is not taken: {}. Use\n"
                          "  srun {}--ntasks={} --mpi=pmix preload {}{}\nor\n"
                          "  mpirun -np {} preload {}{}",
                          flag.name, flag.because,
                          launch.nodes ? fmt::format("--nodes={} ", *launch.nodes) : "", ranks,
                          command, launch.rest, ranks, command, launch.rest));
}

}  // namespace preload::cli
