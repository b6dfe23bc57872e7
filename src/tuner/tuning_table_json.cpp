// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "tuner/tuning_table.hpp"
#include "wire/json_object.hpp"

namespace preload::tuner {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using wire::JsonObject;

constexpr const char* kFormat = "preload-nccl-tuning";
constexpr std::uint64_t kVersion = 1;

ordered_json to_json(const Timing& timing) {
  return {{"algorithm", name(timing.candidate.algorithm)},
          {"protocol", name(timing.candidate.protocol)},
          {"channels", timing.channels},
          {"microseconds", timing.microseconds}};
}

ordered_json to_json(const Entry& entry) {
  ordered_json offered = ordered_json::array();
  for (const Candidate candidate : entry.offered) offered.push_back(text_of(candidate));
  return {{"collective", name(entry.collective)},
          {"min_bytes", entry.min_bytes},
          {"max_bytes", entry.max_bytes},
          {"measured_bytes", entry.measured_bytes},
          {"ranks", entry.shape.ranks},
          {"nodes", entry.shape.nodes},
          {"registered_buffers", entry.registered_buffers},
          {"pipelined_ops", entry.pipelined_ops},
          {"offered", std::move(offered)},
          {"own", to_json(entry.own)},
          {"chosen", entry.chosen ? to_json(*entry.chosen) : ordered_json(nullptr)},
          {"gain", entry.gain()}};
}

// Reads one object and refuses what it does not know: a misspelt member must not be a default.
class Reader {
 public:
  Reader(const json& value, std::string what, std::initializer_list<std::string_view> members)
      : object_(value, what, Errc::kUsage), what_(std::move(what)) {
    for (const auto& [key, member] : value.items()) {
      if (std::find(members.begin(), members.end(), key) == members.end()) {
        throw Error(Errc::kUsage, fmt::format("{}: member \"{}\" is unknown", what_, key));
      }
    }
  }

  const JsonObject& operator*() const { return object_; }
  const JsonObject* operator->() const { return &object_; }
  std::string inside(std::string_view name) const { return fmt::format("{}: {}", what_, name); }

  template <class Value>
  Value named(const char* name, std::optional<Value> (*from)(std::string_view) noexcept) const {
    const std::string text = object_.text(name);
    const std::optional<Value> value = from(text);
    if (!value) refuse(fmt::format("\"{}\" is no {} of NCCL", text, name));
    return *value;
  }

  bool flag(const char* name) const {
    object_.at(name);
    return object_.flag_or(name, false);
  }

  [[noreturn]] void refuse(std::string_view text) const {
    throw Error(Errc::kUsage, fmt::format("{}: {}", what_, text));
  }

 private:
  const JsonObject object_;
  const std::string what_;
};

// "2.28.3", as NCCL counts since 2.9.
int version_from(const Reader& table) {
  const std::string text = table->text("nccl_version");
  int parts[3] = {};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int i = 0; i < 3; ++i) {
    const auto [next, error] = std::from_chars(at, end, parts[i]);
    const bool last = i == 2;
    if (error != std::errc() || parts[i] < 0 || parts[i] > 99 ||
        (last ? next != end : next == end) || (!last && *next != '.')) {
      table.refuse(fmt::format("nccl_version \"{}\" is not of the form 2.28.3", text));
    }
    at = next + 1;
  }
  return parts[0] * 10000 + parts[1] * 100 + parts[2];
}

Timing timing_from(const json& value, const std::string& what) {
  const Reader object(value, what, {"algorithm", "protocol", "channels", "microseconds"});
  Timing timing;
  timing.candidate.algorithm = object.named("algorithm", algorithm_from);
  timing.candidate.protocol = object.named("protocol", protocol_from);
  timing.channels = object->small_number("channels");
  timing.microseconds = object->number("microseconds");
  return timing;
}

Candidate candidate_from(const json& value, const Reader& entry) {
  if (!value.is_string()) entry->reject("offered", "an array of texts such as \"ring/ll\"");
  const auto text = value.get<std::string>();
  const std::size_t slash = std::min(text.find('/'), text.size());
  const auto algorithm = algorithm_from(std::string_view(text).substr(0, slash));
  const auto protocol = protocol_from(
      slash == text.size() ? std::string_view() : std::string_view(text).substr(slash + 1));
  if (!algorithm || !protocol) {
    entry.refuse(fmt::format("offered: \"{}\" is no algorithm and protocol of NCCL", text));
  }
  return {*algorithm, *protocol};
}

Shape shape_from(const Reader& object) {
  return {object->small_number("ranks"), object->small_number("nodes")};
}

Entry entry_from(const json& value, const std::string& what) {
  const Reader object(value, what,
                      {"collective", "min_bytes", "max_bytes", "measured_bytes", "ranks", "nodes",
                       "registered_buffers", "pipelined_ops", "offered", "own", "chosen", "gain"});
  Entry entry;
  entry.collective = object.named("collective", collective_from);
  entry.min_bytes = object->unsigned_number("min_bytes");
  entry.max_bytes = object->unsigned_number("max_bytes");
  entry.measured_bytes = object->unsigned_number("measured_bytes");
  entry.shape = shape_from(object);
  entry.registered_buffers = object.flag("registered_buffers");
  entry.pipelined_ops = object->small_number("pipelined_ops");
  for (const json& candidate : object->array("offered")) {
    entry.offered.push_back(candidate_from(candidate, object));
  }
  entry.own = timing_from(object->at("own"), object.inside("own"));
  if (const json* chosen = object->find("chosen")) {
    entry.chosen = timing_from(*chosen, object.inside("chosen"));
  }
  return entry;
}

// It follows from the times, and is there for people: it must not say something else.
void check_gain(const json& entry, double gain, const std::string& what) {
  constexpr double kRounding = 1e-6;
  const JsonObject object(entry, what, Errc::kUsage);
  if (std::abs(object.number("gain") - gain) <= kRounding) return;
  throw Error(Errc::kUsage, fmt::format("{}: gain: the times say {:.6f}", what, gain));
}

Topology topology_from(const json& value, const std::string& what) {
  const Reader object(value, what, {"gpus", "ranks", "nodes", "ranks_per_node"});
  Topology topology;
  for (const json& gpu : object->array("gpus")) {
    if (!gpu.is_string()) object->reject("gpus", "an array of names");
    topology.gpus.push_back(gpu.get<std::string>());
  }
  topology.world = shape_from(object);
  topology.ranks_per_node = object->small_number("ranks_per_node");
  return topology;
}

}  // namespace

std::string to_json(const TuningTable& table) {
  ordered_json shapes = ordered_json::array();
  for (const Shape& shape : table.shapes) {
    shapes.push_back({{"ranks", shape.ranks}, {"nodes", shape.nodes}});
  }
  std::vector<Entry> sorted = table.entries;
  std::sort(sorted.begin(), sorted.end(), comes_before);
  ordered_json entries = ordered_json::array();
  for (const Entry& entry : sorted) entries.push_back(to_json(entry));
  const Topology& topology = table.topology;
  const ordered_json whole = {{"format", kFormat},
                              {"version", kVersion},
                              {"nccl_version", nccl_version_text(table.nccl_version)},
                              {"topology",
                               {{"gpus", topology.gpus},
                                {"ranks", topology.world.ranks},
                                {"nodes", topology.world.nodes},
                                {"ranks_per_node", topology.ranks_per_node}}},
                              {"margin", table.margin},
                              {"communicators", std::move(shapes)},
                              {"entries", std::move(entries)}};
  return whole.dump(1, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

TuningTable tuning_table_from_json(std::string_view text, std::string_view what) {
  const json whole = wire::parse_json(text, what, Errc::kUsage);
  const Reader object(
      whole, std::string(what),
      {"format", "version", "nccl_version", "topology", "margin", "communicators", "entries"});
  if (object->text("format") != kFormat) {
    object.refuse(fmt::format("format must be \"{}\": it is no tuning table of preload", kFormat));
  }
  if (const auto version = object->unsigned_number("version"); version != kVersion) {
    object.refuse(
        fmt::format("it is of version {}, and this preload reads version {}", version, kVersion));
  }
  TuningTable table;
  table.nccl_version = version_from(object);
  table.topology = topology_from(object->at("topology"), object.inside("topology"));
  table.margin = object->number("margin");
  for (const json& value : object->array("communicators")) {
    const Reader shape(value, object.inside("communicators"), {"ranks", "nodes"});
    table.shapes.push_back(shape_from(shape));
  }
  const auto what_of = [&](std::size_t index) {
    return object.inside(fmt::format("entries[{}]", index));
  };
  const json& entries = object->array("entries");
  for (const json& value : entries) {
    table.entries.push_back(entry_from(value, what_of(table.entries.size())));
  }
  check(table, what);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    check_gain(entries[i], table.entries[i].gain(), what_of(i));
  }
  return table;
}

}  // namespace preload::tuner
