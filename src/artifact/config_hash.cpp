// SPDX-License-Identifier: Apache-2.0
#include "artifact/config_hash.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace preload::artifact {
namespace {

using nlohmann::json;

// Of who wrote the file and with what, not of the model.
constexpr std::array kRemarks = {"_name_or_path", "_commit_hash", "transformers_version"};

json object_of(const std::string& text, const char* what) {
  json value = json::parse(text.empty() ? "{}" : text, nullptr, false);
  if (!value.is_object()) {
    throw Error(Errc::kModel, fmt::format("{} is not a JSON object: mend it", what));
  }
  return value;
}

std::string canonical_config(const std::string& config_json, const std::string& hf_overrides) {
  json config = object_of(config_json, "config.json");
  config.update(object_of(hf_overrides, "--hf-overrides"));
  for (const char* remark : kRemarks) config.erase(remark);
  return sha256_hex(config.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

JobFields job_fields(const std::string& config_json, const std::string& hf_overrides,
                     const LayoutRequest& request, const ParallelSizes& sizes) {
  JobFields fields;
  fields["config"] = canonical_config(config_json, hf_overrides);
  fields["layout"] = request.layout;
  fields["dtype"] = request.dtype ? dtype_name(*request.dtype) : "auto";
  fields["kv_cache_dtype"] = request.kv_cache_dtype;
  fields["moe_backend"] = request.moe_backend;
  fields["all2all_backend"] = request.all2all_backend;
  fields["expert_placement"] =
      request.placement == ExpertPlacement::kRoundRobin ? "round_robin" : "linear";
  fields["tp"] = fmt::format("{}", sizes.tp);
  fields["pp"] = fmt::format("{}", sizes.pp);
  fields["dp"] = fmt::format("{}", sizes.dp);
  fields["ep"] = fmt::format("{}", sizes.expert_parallel ? sizes.dp * sizes.tp : 1);
  fields["stage_layers"] = fmt::format("{}", fmt::join(sizes.stage_layers, ","));
  return fields;
}

std::string config_hash(const JobFields& fields) { return sha256_hex(json(fields).dump()); }

}  // namespace preload::artifact
