// SPDX-License-Identifier: Apache-2.0
#include "wire/counters_json.hpp"

#include <string>

namespace preload::wire {

using nlohmann::json;

namespace {

AttachTimes attach_times(const JsonObject& object) {
  AttachTimes times;
  times.sum_s = object.number("sum_s");
  const json& classes = object.array("classes");
  // Another version may have other classes; their count still adds up.
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const JsonObject one(classes[i], "status reply: counters: attaches: class");
    const double bound = one.find("most_s") == nullptr ? 0 : one.number("most_s");
    std::size_t at = times.counts.size() - 1;
    for (std::size_t k = 0; k < AttachTimes::kBounds.size(); ++k) {
      if (bound > 0 && bound <= AttachTimes::kBounds[k]) {
        at = k;
        break;
      }
    }
    times.counts[at] += one.unsigned_number("count");
  }
  return times;
}

}  // namespace

json counters_json(const Counters& counters) {
  json classes = json::array();
  for (std::size_t i = 0; i < counters.attaches.counts.size(); ++i) {
    json most = nullptr;
    if (i < AttachTimes::kBounds.size()) most = AttachTimes::kBounds[i];
    classes.push_back({{"most_s", most}, {"count", counters.attaches.counts[i]}});
  }
  json loads = json::array();
  for (const LoadPath& load : counters.loads)
    loads.push_back({{"path", load.path}, {"bytes", load.bytes}, {"seconds", load.seconds}});
  json refusals = json::object();
  for (const auto& [code, count] : counters.refusals) refusals[code] = count;
  return {{"attaches", {{"sum_s", counters.attaches.sum_s}, {"classes", classes}}},
          {"refusals", refusals},
          {"loads", loads}};
}

Counters counters_member(const JsonObject& object, const char* name) {
  Counters counters;
  const json* value = object.find(name);
  if (value == nullptr) return counters;
  const JsonObject members(*value, "status reply: counters");
  counters.attaches =
      attach_times(JsonObject(members.at("attaches"), "status reply: counters: attaches"));
  const JsonObject refusals(members.at("refusals"), "status reply: counters: refusals");
  for (const auto& [code, count] : refusals.value().items())
    counters.refusals[code] = refusals.unsigned_number(code.c_str());
  for (const json& member : members.array("loads")) {
    const JsonObject load(member, "status reply: counters: load");
    counters.loads.push_back(
        {load.text("path"), load.unsigned_number("bytes"), load.number("seconds")});
  }
  return counters;
}

}  // namespace preload::wire
