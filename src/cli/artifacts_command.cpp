// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "artifact/disk_tier.hpp"
#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "cli/age.hpp"
#include "cli/command.hpp"
#include "cli/options.hpp"

namespace preload::cli {
namespace {

using artifact::DiskTier;
using artifact::Entry;
using artifact::Key;
using artifact::Selection;
using nlohmann::ordered_json;

constexpr std::size_t kHashDigits = 12;  // enough to tell configurations apart by eye
constexpr int kDamaged = 3;

Selection selection_option(const ParsedOptions& options) {
  Selection selection;
  selection.kind = options.text("kind").value_or("");
  for (const std::string& key : options.all("key")) {
    selection.keys.push_back(artifact::parse_key(key));
  }
  return selection;
}

std::vector<Entry> entries_of(DiskTier& tier, const Selection& selection) {
  std::vector<Entry> entries = tier.list(selection.kind);
  std::erase_if(entries, [&](const Entry& entry) { return !selection.chooses(entry.key); });
  return entries;
}

ordered_json json_of(const Entry& entry) {
  return {{"key", entry.key.text()},
          {"kind", entry.key.kind},
          {"config_hash", entry.key.config_hash},
          {"filename", entry.key.filename},
          {"bytes", entry.bytes},
          {"sha256", entry.sha256},
          {"created", entry.created},
          {"used", entry.used},
          {"host", entry.host},
          {"environment", entry.metadata.environment},
          {"labels", entry.metadata.labels}};
}

// Stray files may have names that are no UTF-8.
void print(const ordered_json& object) {
  fmt::print("{}\n", object.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

void print_json(const DiskTier& tier, const std::vector<Entry>& entries) {
  ordered_json artifacts = ordered_json::array();
  for (const Entry& entry : entries) artifacts.push_back(json_of(entry));
  print({{"root", tier.root()}, {"artifacts", artifacts}});
}

void print_list(const DiskTier& tier, const std::vector<Entry>& entries) {
  const std::time_t now = ::time(nullptr);
  std::uint64_t bytes = 0;
  std::size_t kind_width = 4;
  for (const Entry& entry : entries) {
    bytes += entry.bytes;
    kind_width = std::max(kind_width, entry.key.kind.size());
  }
  if (!entries.empty()) {
    fmt::print("{:<{}}  {:<{}}  {:>10}  {:>5}  {:>5}  FILE\n", "KIND", kind_width, "CONFIG",
               kHashDigits, "BYTES", "AGE", "USED");
  }
  for (const Entry& entry : entries) {
    fmt::print("{:<{}}  {:<{}}  {:>10}  {:>5}  {:>5}  {}\n", entry.key.kind, kind_width,
               entry.key.config_hash.substr(0, kHashDigits), kHashDigits, format_bytes(entry.bytes),
               format_age(now - entry.created), format_age(now - entry.used), entry.key.filename);
  }
  fmt::print("{}, {} in {}\n", counted(entries.size(), "artifact"), format_bytes(bytes),
             tier.root().empty() ? "no cache folder" : tier.root());
}

void print_fields(const char* what, const std::map<std::string, std::string>& fields) {
  if (fields.empty()) return;
  fmt::print("  {}\n", what);
  for (const auto& [name, value] : fields)
    fmt::print("    {:<18} {}\n", one_line(name), one_line(value));
}

void print_details(const std::vector<Entry>& entries) {
  const std::time_t now = ::time(nullptr);
  for (const Entry& entry : entries) {
    fmt::print("{}\n  {} ({} bytes), made {} ago on {}, used {} ago\n  sha256 {}\n",
               entry.key.text(), format_bytes(entry.bytes), entry.bytes,
               format_age(now - entry.created), one_line(entry.host), format_age(now - entry.used),
               entry.sha256);
    print_fields("made under", entry.metadata.environment);
    print_fields("labels", entry.metadata.labels);
  }
}

int check(const DiskTier& tier, const Selection& selection, bool json) {
  const DiskTier::Checked checked = tier.check(selection);
  if (json) {
    ordered_json damaged = ordered_json::array();
    for (const auto& damage : checked.damages) {
      damaged.push_back({{"key", damage.key.text()}, {"problem", damage.problem}});
    }
    print({{"checked", checked.entries}, {"damaged", damaged}});
  } else {
    for (const auto& damage : checked.damages) {
      fmt::print("{}: {}\n", damage.key.text(), one_line(damage.problem));
    }
    fmt::print("{} of {} sound\n", checked.entries - checked.damages.size(),
               counted(checked.entries, "artifact", "is", "are"));
  }
  return checked.damages.empty() ? 0 : kDamaged;
}

artifact::PruneRule prune_rule(const ParsedOptions& options, Selection selection) {
  artifact::PruneRule rule;
  rule.selection = std::move(selection);
  rule.all = options.has("all");
  if (const auto age = options.text("unused")) {
    rule.unused_s = parse_age(*age);
    if (!rule.unused_s) {
      throw Error(Errc::kUsage,
                  fmt::format("--unused: '{}' is no age: 30d, 12h, 90m or 45s", *age));
    }
  }
  if (const auto size = options.text("max-bytes")) {
    const auto bytes = parse_bytes(*size);
    if (!bytes) {
      throw Error(Errc::kUsage, fmt::format("--max-bytes: '{}' is no size: 512M, 10G", *size));
    }
    rule.limits = {*bytes, std::numeric_limits<std::size_t>::max()};
  }
  return rule;
}

int prune(const DiskTier& tier, const artifact::PruneRule& rule, bool json) {
  const DiskTier::Pruned pruned = tier.prune(rule);
  ordered_json removed = ordered_json::array();
  for (const Key& key : pruned.keys) {
    if (json) {
      removed.push_back(key.text());
    } else {
      fmt::print("{}\n", key.text());
    }
  }
  ordered_json in_use = ordered_json::array();
  for (const Key& key : pruned.in_use) {
    if (json) {
      in_use.push_back(key.text());
    } else {
      fmt::print("{} stays: a job uses it\n", key.text());
    }
  }
  if (json) {
    print({{"removed", removed}, {"in_use", in_use}, {"bytes", pruned.bytes}});
  } else {
    fmt::print("{} removed, {}\n", counted(pruned.keys.size(), "artifact"),
               format_bytes(pruned.bytes));
  }
  return 0;
}

// Options of prune alone must not be lost on a user who forgot the word.
void refuse_prune_options(const ParsedOptions& options) {
  for (const char* name : {"unused", "max-bytes", "all"}) {
    if (options.has(name)) {
      throw Error(Errc::kUsage, fmt::format("--{} is an option of preload artifacts prune", name));
    }
  }
}

}  // namespace

int run_artifacts(const Arguments& arguments) {
  const ParsedOptions options("artifacts", arguments);
  const std::string action = options.positional().empty() ? "list" : options.positional().front();
  const Selection selection = selection_option(options);
  const bool json = options.has("json");
  DiskTier tier;
  if (action == "prune") return prune(tier, prune_rule(options, selection), json);
  refuse_prune_options(options);
  if (action == "check") return check(tier, selection, json);
  if (action != "list" && action != "show") {
    throw Error(
        Errc::kUsage,
        fmt::format("unknown action '{}'; the actions are list, show, check and prune", action));
  }
  const std::vector<Entry> entries = entries_of(tier, selection);
  if (json) {
    print_json(tier, entries);
  } else if (action == "list") {
    print_list(tier, entries);
  } else {
    print_details(entries);
  }
  return 0;
}

}  // namespace preload::cli
