// SPDX-License-Identifier: Apache-2.0
#include "artifact/key.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "base/error.hpp"

namespace preload::artifact {
namespace {

constexpr std::size_t kMaxPart = 128;
constexpr std::size_t kTagDigits = 8;

bool is_part(std::string_view part) {
  return !part.empty() && part.size() <= kMaxPart && part.front() != '.' &&
         std::ranges::all_of(part, [](unsigned char c) {
           return (std::isalnum(c) != 0 && c < 0x80) || c == '.' || c == '_' || c == '-';
         });
}

[[noreturn]] void refuse(std::string_view text) {
  throw Error(Errc::kUsage,
              fmt::format("'{}' is no key of an artifact: <kind>/<config-hash>/<filename>, each of "
                          "letters, digits, '.', '_' and '-', not beginning with '.', at most {} "
                          "characters",
                          text.substr(0, 4 * kMaxPart), kMaxPart));
}

// "dp0_rank3." and what follows the tag of the environment: ".json".
struct RankName {
  std::string_view owner;
  std::string_view suffix;
  friend bool operator==(const RankName&, const RankName&) = default;
};

std::size_t skip_number(std::string_view text, std::size_t at) {
  while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0) ++at;
  return at;
}

// Empty parts when the name is not one of rank_filename's.
RankName parse_rank_name(std::string_view name) {
  if (!name.starts_with("dp")) return {};
  std::size_t at = skip_number(name, 2);
  constexpr std::string_view kRank = "_rank";
  if (name.substr(at, kRank.size()) != kRank) return {};
  at = skip_number(name, at + kRank.size());
  if (at >= name.size() || name[at] != '.') return {};
  const std::string_view owner = name.substr(0, ++at);
  const std::string_view tag = name.substr(at, kTagDigits);
  const bool is_tag = tag.size() == kTagDigits && std::ranges::all_of(tag, [](unsigned char c) {
                        return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
                      });
  const std::string_view suffix = is_tag ? name.substr(at + kTagDigits) : std::string_view();
  if (!suffix.starts_with('.')) return {};
  return {owner, suffix};
}

}  // namespace

std::string Key::text() const {
  return fmt::format("{}/{}/{}/{}", kRoot, kind, config_hash, filename);
}

void check_key(const Key& key) {
  if (!is_part(key.kind) || !is_part(key.config_hash) || !is_part(key.filename)) {
    refuse(fmt::format("{}/{}/{}", key.kind, key.config_hash, key.filename));
  }
}

Key parse_key(std::string_view text) {
  std::string_view rest = text;
  if (rest.starts_with(kRoot) && rest.substr(kRoot.size()).starts_with('/')) {
    rest.remove_prefix(kRoot.size() + 1);
  }
  std::array<std::string_view, 3> parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t slash = rest.find('/');
    if ((slash == rest.npos) != (i + 1 == parts.size())) refuse(text);
    parts[i] = rest.substr(0, slash);
    if (slash != rest.npos) rest.remove_prefix(slash + 1);
  }
  if (!std::ranges::all_of(parts, is_part)) refuse(text);
  return {std::string(parts[0]), std::string(parts[1]), std::string(parts[2])};
}

std::string rank_filename(const RankCoords& rank, const Environment& environment,
                          std::string_view suffix) {
  return fmt::format("dp{}_rank{}.{}.{}", rank.dp, rank.global,
                     environment_digest(environment).substr(0, kTagDigits), suffix);
}

bool same_but_environment(std::string_view filename, std::string_view other) {
  const RankName name = parse_rank_name(filename);
  return !name.owner.empty() && name == parse_rank_name(other);
}

}  // namespace preload::artifact
