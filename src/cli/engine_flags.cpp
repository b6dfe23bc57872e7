// SPDX-License-Identifier: Apache-2.0
#include "cli/engine_flags.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace preload::cli {
namespace {

using nlohmann::json;

constexpr std::string_view kBecauseEplb =
    "redundant experts move between ranks while the engine runs, and what is served never changes: "
    "serve without them";
constexpr std::string_view kBecauseContext =
    "context parallelism is a dimension of ranks that is not built: use the data-, pipeline-, "
    "tensor- and expert-parallel ones";
constexpr std::string_view kBecauseElastic =
    "the ranks of a job are fixed when it starts: start another for another size";

constexpr auto kFlags = std::to_array<EngineFlag>({
    {"enable-eplb", "", true, kBecauseEplb},
    {"eplb-config", "", false, kBecauseEplb},
    {"num-redundant-experts", "", false, kBecauseEplb},
    {"decode-context-parallel-size", "dcp", false, kBecauseContext},
    {"prefill-context-parallel-size", "pcp", false, kBecauseContext},
    {"dcp-q-replicate", "", true, kBecauseContext},
    {"enable-elastic-ep", "", true, kBecauseElastic},
    {"elastic-ep-max-dp-size", "", false, kBecauseElastic},
});

// Of --eplb-config everything else is about when experts move, which --enable-eplb decides.
constexpr std::string_view kRedundant = "num_redundant_experts";

bool is_zero(const json& value) { return value.is_number() && value == 0; }

bool is_neutral_eplb(const std::optional<std::string>& path, const std::string& value) {
  const json config = json::parse(value, nullptr, false);
  if (path) return *path != kRedundant || is_zero(config);
  return config.is_object() && (!config.contains(kRedundant) || is_zero(config.at(kRedundant)));
}

}  // namespace

const EngineFlag* find_engine_flag(std::string_view name, bool is_long) noexcept {
  if (name.empty()) return nullptr;
  const auto at =
      std::ranges::find(kFlags, name, is_long ? &EngineFlag::name : &EngineFlag::abbreviation);
  return at == kFlags.end() ? nullptr : &*at;
}

bool is_on(std::string_view value) noexcept {
  return value == "true" || value == "True" || value == "1";
}

bool is_off(std::string_view value) noexcept {
  return value == "false" || value == "False" || value == "0";
}

bool is_neutral(const EngineFlag& flag, const std::optional<std::string>& path,
                const std::optional<std::string>& value) {
  if (!value) return false;
  if (flag.name == "eplb-config") return is_neutral_eplb(path, *value);
  if (path) return false;
  if (flag.is_switch) return is_off(*value);
  if (flag.name == "num-redundant-experts") return *value == "0";
  // Without --enable-elastic-ep, which is refused, no engine looks at it.
  if (flag.name == "elastic-ep-max-dp-size") return true;
  return *value == "1";  // ranks along a dimension
}

}  // namespace preload::cli
