// SPDX-License-Identifier: Apache-2.0
#include "artifact/bundle_path.hpp"

#include <linux/limits.h>

#include <algorithm>

namespace preload::artifact {
namespace {

std::vector<std::string> split(std::string_view path) {
  std::vector<std::string> names;
  while (true) {
    const std::size_t slash = path.find('/');
    names.emplace_back(path.substr(0, slash));
    if (slash == path.npos) return names;
    path.remove_prefix(slash + 1);
  }
}

bool is_plain(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= NAME_MAX;
}

}  // namespace

std::vector<std::string> path_names(std::string_view path) {
  if (path.ends_with('/')) path.remove_suffix(1);
  if (path.empty() || path.size() >= PATH_MAX) return {};
  std::vector<std::string> names = split(path);
  if (!std::ranges::all_of(names, is_plain)) names.clear();
  return names;
}

bool link_stays_inside(std::string_view target, std::size_t depth) {
  if (target.empty() || target.size() >= PATH_MAX) return false;
  const std::vector<std::string> names = split(target);
  const auto plain =
      std::ranges::find_if(names, [](const std::string& name) { return name != ".."; });
  return static_cast<std::size_t>(plain - names.begin()) <= depth &&
         std::all_of(plain, names.end(), is_plain);
}

}  // namespace preload::artifact
