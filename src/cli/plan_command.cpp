// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "cli/command.hpp"
#include "cli/serve_options.hpp"
#include "model/extent.hpp"
#include "model/model_layout.hpp"
#include "plan/topology.hpp"

namespace preload::cli {
namespace {

// Ranks of the same stage and tensor-parallel rank hold the same share.
using ShareId = std::pair<int, int>;  // pp, tp

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) {
    throw Error(Errc::kInternal, "standard output cannot be written");
  }
}

std::string tensors_json(const CopyProgram& program) {
  std::string out = "[";
  for (const TargetTensor& tensor : program.tensors) {
    if (out.size() > 1) out += ",";
    out +=
        fmt::format("{{\"name\":{},\"dtype\":\"{}\",\"shape\":[{}],\"bytes\":{}",
                    nlohmann::json(tensor.name).dump(), dtype_name(tensor.dtype),
                    fmt::join(tensor.shape.begin(), tensor.shape.end(), ","), extent_bytes(tensor));
    if (tensor.alias) {
      out +=
          fmt::format(",\"alias\":{}", nlohmann::json(program.tensors[*tensor.alias].name).dump());
    }
    out += "}";
  }
  return out + "]";
}

std::string tensors_table(const CopyProgram& program) {
  std::string out;
  for (const TargetTensor& tensor : program.tensors) {
    out += fmt::format("    {:<56} {:<5} {:<16} {}\n", tensor.name, dtype_name(tensor.dtype),
                       to_string(tensor.shape),
                       tensor.alias ? "is " + program.tensors[*tensor.alias].name
                                    : format_bytes(extent_bytes(tensor)));
  }
  return out;
}

// Prints rank after rank, so that a plan of any size takes the memory of one.
class PlanPrinter {
 public:
  PlanPrinter(const ModelLayout& layout, const ParallelSizes& sizes,
              const std::vector<RankPlace>& places, bool json, bool summary)
      : layout_(layout), sizes_(sizes), places_(places), json_(json), summary_(summary) {}

  void print_ranks(int first, int last) {
    if (json_) {
      print(fmt::format("{{\"world\":{},\"ranks\":[", sizes_.world()));
    } else {
      print(
          fmt::format("{} ranks: dp {} x pp {} x tp {}\n{:>6} {:>5} {:>5} {:>5} {:>4} {:>5} "
                      "{:>14} {:>14}\n",
                      sizes_.world(), sizes_.dp, sizes_.pp, sizes_.tp, "rank", "node", "local",
                      "dp", "pp", "tp", "holds", "reads"));
    }
    for (int global = first; global <= last; ++global) {
      if (json_ && global > first) print(",");
      print_rank(coords_of(global, sizes_), places_[static_cast<std::size_t>(global)]);
    }
    if (json_) print("]}\n");
  }

 private:
  void print_rank(const RankCoords& rank, const RankPlace& place) {
    const ShareSize share = share_of(rank);
    if (json_) {
      print(fmt::format(
          "{{\"global\":{},\"node\":{},\"local\":{},\"dp\":{},\"pp\":{},\"tp\":{},"
          "\"ep\":null,\"bytes\":{},\"read_bytes\":{}{}{}}}",
          rank.global, place.node, place.local, rank.dp, rank.pp, rank.tp, share.held_bytes,
          share.read_bytes, summary_ ? "" : ",\"tensors\":", summary_ ? "" : tensors_of(rank)));
      return;
    }
    print(fmt::format("{:>6} {:>5} {:>5} {:>5} {:>4} {:>5} {:>14} {:>14}\n{}", rank.global,
                      place.node, place.local, rank.dp, rank.pp, rank.tp,
                      format_bytes(share.held_bytes), format_bytes(share.read_bytes),
                      summary_ ? "" : tensors_of(rank)));
  }

  ShareSize share_of(const RankCoords& rank) {
    const auto [at, is_new] = shares_.try_emplace(ShareId{rank.pp, rank.tp});
    if (is_new) at->second = layout_.share(rank);
    return at->second;
  }

  // Replicas print the text of the first; without replicas nothing is kept.
  std::string tensors_of(const RankCoords& rank) {
    const ShareId id{rank.pp, rank.tp};
    if (const auto known = texts_.find(id); known != texts_.end()) return known->second;
    const CopyProgram program = layout_.program(rank);
    std::string text = json_ ? tensors_json(program) : tensors_table(program);
    if (sizes_.dp > 1) texts_[id] = text;
    return text;
  }

  const ModelLayout& layout_;
  const ParallelSizes& sizes_;
  const std::vector<RankPlace>& places_;
  const bool json_;
  const bool summary_;
  std::map<ShareId, ShareSize> shares_;
  std::map<ShareId, std::string> texts_;
};

}  // namespace

int run_plan(const Arguments& arguments) {
  const ParsedOptions options("plan", arguments);
  const ModelOptions model = model_options(options);
  if (model.model.empty()) {
    throw Error(Errc::kUsage, "--model is missing: give a checkpoint directory or a hub id");
  }
  const std::optional<int> ranks = options.number("ranks", 1);
  if (!ranks) throw Error(Errc::kUsage, "--ranks is missing: how many ranks to plan for");
  const std::optional<int> only = options.number("rank", 0);
  if (only && *only >= *ranks) {
    throw Error(Errc::kUsage,
                fmt::format("--rank {}: of {} ranks the last is {}", *only, *ranks, *ranks - 1));
  }
  const ParallelSizes sizes = parallel_sizes(*ranks, model.dp, model.pp, model.tp);
  const std::vector<RankPlace> places = place_ranks(*ranks, options.number("nodes", 1).value_or(1));

  const Checkpoint checkpoint = open_checkpoint(model.model, model.open);
  const ModelSpec spec = parse_model_spec(checkpoint.config_json, model.hf_overrides);
  const auto layout = open_layout(checkpoint, spec, model.layout, sizes);
  for (const std::string& warning : checkpoint.warnings) log::warn(warning);
  PlanPrinter(*layout, sizes, places, options.has("json"), options.has("summary"))
      .print_ranks(only.value_or(0), only.value_or(*ranks - 1));
  return 0;
}

}  // namespace preload::cli
