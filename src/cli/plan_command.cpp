// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "cli/command.hpp"
#include "cli/draft_options.hpp"
#include "cli/group_reads.hpp"
#include "cli/serve_options.hpp"
#include "model/extent.hpp"
#include "model/model_layout.hpp"
#include "plan/spread_choice.hpp"
#include "plan/topology.hpp"

namespace preload::cli {
namespace {

using ShareId = int;  // of ModelLayout::share_id

constexpr int kMostRanks = 1'000'000;

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
    out += fmt::format("    {:<56} {:<5} {:<16} {}\n", one_line(tensor.name),
                       dtype_name(tensor.dtype), to_string(tensor.shape),
                       tensor.alias ? "is " + one_line(program.tensors[*tensor.alias].name)
                                    : format_bytes(extent_bytes(tensor)));
  }
  return out;
}

// What the ranks of the last stage hold of a draft beside their target.
class DraftPlan {
 public:
  DraftPlan(DraftModel draft, const ParallelSizes& target)
      : draft_(std::move(draft)), target_(target), sizes_(draft_sizes(draft_.options, target)) {
    layout_ = open_layout(draft_.checkpoint, draft_.spec, draft_.options.layout, sizes_);
  }

  std::string json(const RankCoords& rank, bool summary) const {
    const auto coords = draft_coords(rank, target_);
    if (!coords) return "null";
    const ShareSize share = layout_->share(*coords);
    return fmt::format(
        "{{\"bytes\":{},\"read_bytes\":{}{}{}}}", share.held_bytes, share.read_bytes,
        summary ? "" : ",\"tensors\":", summary ? "" : tensors_json(layout_->program(*coords)));
  }
  std::string table(const RankCoords& rank, bool summary) const {
    const auto coords = draft_coords(rank, target_);
    if (!coords) return {};
    const ShareSize share = layout_->share(*coords);
    return fmt::format("  draft {}: holds {}, of which it reads {}\n{}", draft_.options.model,
                       format_bytes(share.held_bytes), format_bytes(share.read_bytes),
                       summary ? "" : tensors_table(layout_->program(*coords)));
  }

 private:
  const DraftModel draft_;
  const ParallelSizes target_;
  const ParallelSizes sizes_;
  std::unique_ptr<ModelLayout> layout_;
};

// Prints rank after rank, so that a plan of any size takes the memory of one.
class PlanPrinter {
 public:
  PlanPrinter(const ModelLayout& layout, const ParallelSizes& sizes,
              const std::vector<RankPlace>& places, GroupReads reads, const DraftPlan* draft,
              bool json, bool summary)
      : layout_(layout),
        sizes_(sizes),
        places_(places),
        reads_(std::move(reads)),
        draft_(draft),
        json_(json),
        summary_(summary) {}

  void print_ranks(int first, int last) {
    if (json_) {
      print(fmt::format("{{\"world\":{},\"ranks\":[", sizes_.world()));
    } else {
      print(fmt::format(
          "{}: dp {} x pp {} x tp {}\n{:>6} {:>5} {:>5} {:>5} {:>4} {:>5} "
          "{:>5} {:>12} {:>12} {:>12} {:>12} {:>9}\n",
          counted(sizes_.world(), "rank"), sizes_.dp, sizes_.pp, sizes_.tp, "rank", "node", "local",
          "dp", "pp", "tp", "ep", "holds", "reads", "sends", "receives", "seconds"));
    }
    for (int global = first; global <= last; ++global) {
      if (json_ && global > first) print(",");
      print_rank(coords_of(global, sizes_), places_[static_cast<std::size_t>(global)]);
    }
    if (json_) print("],\"nodes\":[");
    for (int global = first; global <= last;) {
      const RankPlace& place = places_[static_cast<std::size_t>(global)];
      if (json_ && global > first) print(",");
      print_node(place);
      global = first_of(place) + place.local_size;
    }
    if (json_) print("]}\n");
  }

 private:
  static std::string ep_text(const RankCoords& rank, std::string_view off) {
    return rank.ep ? fmt::format("{}", *rank.ep) : std::string(off);
  }
  static int first_of(const RankPlace& place) noexcept { return place.global - place.local; }
  const GroupReads::Node& node_of(const RankPlace& place) { return reads_.node_of(place); }

  void print_rank(const RankCoords& rank, const RankPlace& place) {
    const std::uint64_t held = share_of(rank).held_bytes;
    const RankReads& reads = node_of(place).ranks[static_cast<std::size_t>(place.local)];
    const double seconds = estimate_seconds({&reads, 1}, node_of(place).rates);
    if (json_) {
      print(fmt::format(
          "{{\"global\":{},\"node\":{},\"local\":{},\"dp\":{},\"pp\":{},\"tp\":{},"
          "\"ep\":{},\"bytes\":{},\"read_bytes\":{},\"gap_bytes\":{},\"sent_bytes\":{},"
          "\"received_bytes\":{},\"seconds\":{:.3f}{}{}{}{}}}",
          rank.global, place.node, place.local, rank.dp, rank.pp, rank.tp, ep_text(rank, "null"),
          held, reads.read_bytes, reads.gap_bytes, reads.sent_bytes, reads.received_bytes, seconds,
          summary_ ? "" : ",\"tensors\":", summary_ ? "" : tensors_of(rank),
          draft_ == nullptr ? "" : ",\"draft\":",
          draft_ == nullptr ? "" : draft_->json(rank, summary_)));
      return;
    }
    print(fmt::format(
        "{:>6} {:>5} {:>5} {:>5} {:>4} {:>5} {:>5} {:>12} {:>12} {:>12} {:>12} {:>9.3f}\n{}{}",
        rank.global, place.node, place.local, rank.dp, rank.pp, rank.tp, ep_text(rank, "-"),
        format_bytes(held), format_bytes(reads.read_bytes), format_bytes(reads.sent_bytes),
        format_bytes(reads.received_bytes), seconds, summary_ ? "" : tensors_of(rank),
        draft_ == nullptr ? "" : draft_->table(rank, summary_)));
  }

  void print_node(const RankPlace& place) {
    const GroupReads::Node& node = node_of(place);
    RankReads sum;
    for (const RankReads& rank : node.ranks) {
      sum.read_bytes += rank.read_bytes;
      sum.sent_bytes += rank.sent_bytes;
    }
    if (json_) {
      print(
          fmt::format("{{\"node\":{},\"ranks\":{},\"read_bytes\":{},\"sent_bytes\":{},"
                      "\"spread\":{},\"nodes\":{},\"seconds\":{:.3f}}}",
                      place.node, place.local_size, sum.read_bytes, sum.sent_bytes, node.spread,
                      node.nodes, node.seconds));
      return;
    }
    std::string how = ", each rank what it holds";
    if (node.spread) {
      how = fmt::format(" once{} and hands on {}",
                        node.nodes > 1 ? fmt::format(", as a group of {} nodes,", node.nodes) : "",
                        format_bytes(sum.sent_bytes));
    }
    print(fmt::format("node {} ({}) reads {}{}; about {:.3f} s\n", place.node,
                      counted(place.local_size, "rank"), format_bytes(sum.read_bytes), how,
                      node.seconds));
  }

  ShareSize share_of(const RankCoords& rank) {
    const auto [at, is_new] = shares_.try_emplace(layout_.share_id(rank));
    if (is_new) at->second = layout_.share(rank);
    return at->second;
  }

  // Replicas print the text of the first; without replicas nothing is kept.
  std::string tensors_of(const RankCoords& rank) {
    const ShareId id = layout_.share_id(rank);
    if (const auto known = texts_.find(id); known != texts_.end()) return known->second;
    const CopyProgram program = layout_.program(rank);
    std::string text = json_ ? tensors_json(program) : tensors_table(program);
    if (sizes_.dp > 1) texts_[id] = text;
    return text;
  }

  const ModelLayout& layout_;
  const ParallelSizes& sizes_;
  const std::vector<RankPlace>& places_;
  GroupReads reads_;
  const DraftPlan* const draft_;  // nullptr: there is none
  const bool json_;
  const bool summary_;
  std::map<ShareId, ShareSize> shares_;
  std::map<ShareId, std::string> texts_;
};

// Of an option in GB/s; unset when it is not given.
std::optional<double> rate_option(const ParsedOptions& options, std::string_view name) {
  const std::optional<std::string> text = options.text(name);
  if (!text) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text->c_str(), &end);
  if (end == text->c_str() || *end != '\0' || !(value > 0) || !std::isfinite(value)) {
    throw Error(Errc::kUsage,
                fmt::format("--{} must be a number of GB/s above 0: '{}'", name, *text));
  }
  return value * 1e9;
}

LinkRates link_rates(const ParsedOptions& options) {
  const bool device = device_option(options).value_or(true);
  LinkRates rates = usual_rates(device, false);
  rates.file = rate_option(options, "disk-rate").value_or(rates.file);
  if (device) {
    rates.host_to_device = rate_option(options, "pcie-rate").value_or(rates.host_to_device);
    rates.peer = rate_option(options, "nvlink-rate").value_or(rates.peer);
  } else if (options.has("pcie-rate") || options.has("nvlink-rate")) {
    throw Error(Errc::kUsage, "--pcie-rate and --nvlink-rate are for --device cuda");
  }
  return rates;
}

// Nodes that must read together do so at the rate of a usual fabric, unless another is given.
GroupReads::Hosts hosts_of(const ParsedOptions& options, Spread spread) {
  constexpr double kUsualNetwork = 50e9;  // 400 Gb/s
  GroupReads::Hosts hosts;
  hosts.shared_files = options.has("shared-files");
  hosts.network =
      rate_option(options, "network-rate").value_or(spread == Spread::kAlways ? kUsualNetwork : 0);
  return hosts;
}

}  // namespace

int run_plan(const Arguments& arguments) {
  const ParsedOptions options("plan", arguments);
  const ModelOptions model = model_options(options);
  if (model.model.empty()) {
    throw Error(Errc::kUsage, "--model is missing: give a checkpoint directory or a hub id");
  }
  const std::optional<int> ranks = options.number("ranks", 1);
  if (!ranks) throw Error(Errc::kUsage, "--ranks is missing: how many ranks to plan for");
  if (*ranks > kMostRanks) {
    throw Error(Errc::kUsage,
                fmt::format("--ranks {}: no job has more than {}", *ranks, kMostRanks));
  }
  const std::optional<int> only = options.number("rank", 0);
  if (only && *only >= *ranks) {
    throw Error(Errc::kUsage, fmt::format("--rank {}: of {} the last is {}", *only,
                                          counted(*ranks, "rank"), *ranks - 1));
  }
  const ParallelSizes sizes = job_sizes(model, *ranks);
  const std::vector<RankPlace> places = place_ranks(*ranks, options.number("nodes", 1).value_or(1));

  const LinkRates rates = link_rates(options);
  const Checkpoint checkpoint = open_checkpoint(model.model, model.open);
  const ModelSpec spec = layout_spec(checkpoint, model.layout, model.hf_overrides);
  const auto layout = open_layout(checkpoint, spec, model.layout, sizes);
  for (const std::string& warning : checkpoint.warnings) log::warn(warning);
  const LayoutNotes notes = layout->notes();
  for (const std::string& warning : notes.warnings) log::warn(warning);
  if (!notes.unservable.empty()) log::warn(fmt::format("serve refuses this: {}", notes.unservable));
  std::optional<DraftModel> draft_model = open_draft(model, checkpoint, spec);
  std::optional<DraftPlan> draft;
  if (draft_model) draft.emplace(std::move(*draft_model), sizes);
  const Spread spread = spread_option(options);
  PlanPrinter(*layout, sizes, places,
              GroupReads(*layout, sizes, places, spread, rates, hosts_of(options, spread)),
              draft ? &*draft : nullptr, options.has("json"), options.has("summary"))
      .print_ranks(only.value_or(0), only.value_or(*ranks - 1));
  return 0;
}

}  // namespace preload::cli
