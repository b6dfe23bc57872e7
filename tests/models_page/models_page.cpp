// SPDX-License-Identifier: Apache-2.0
#include "models_page/models_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <regex>
#include <vector>

#include "base/error.hpp"
#include "model/family.hpp"
#include "model/layout.hpp"
#include "models_page/specimens.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

constexpr auto kLayouts = std::to_array<std::string_view>({"vllm", "hf", "transformers"});

struct Shape {
  std::string_view name;
  ParallelSizes sizes;
};
// The smallest of each kind of parallelism.
const Shape kShapes[] = {
    {"one", {1, 1, 1}}, {"tp", {1, 1, 2}},       {"pp", {1, 2, 1}},
    {"dp", {2, 1, 1}},  {"ep", {2, 1, 1, true}},
};

// Refusals by number, in the order in which the page comes to them.
class Footnotes {
 public:
  std::string mark(const std::string& text) {
    const auto at = std::ranges::find(texts_, text);
    const auto index = at - texts_.begin();
    if (at == texts_.end()) texts_.push_back(text);
    return fmt::format("[{}]", index + 1);
  }
  std::string list() const {
    std::string out;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      out += fmt::format("{}. {}\n", i + 1, texts_[i]);
    }
    return out;
  }

 private:
  std::vector<std::string> texts_;
};

// A refusal without its heading, which names the specimen.
std::string reason_of(const std::string& text, const std::string& specimen) {
  std::string reason = text;
  if (text.starts_with(specimen)) {
    const std::size_t colon = reason.find(':');
    reason = reason.substr(reason.find_first_not_of(" \n", colon + 1));
  }
  // Sizes that do not divide are said of all models; here they are the specimen's.
  const std::regex size(R"x(\n[^\n]*(divisible by|must divide)[^\n]*)x");
  const std::string others = std::regex_replace("\n" + reason, size, "");
  if (others.size() > 1) reason = others.substr(others.find_first_not_of(" \n"));
  reason = std::regex_replace(reason, std::regex("\n +"), "; ");
  // Of many names the first is enough.
  return std::regex_replace(reason, std::regex(R"x(("[^"]*"), "[^"]*"(, "[^"]*")*)x"), "$1, …");
}

// Why not every rank gets a program; nothing when each does.
std::optional<std::string> refusal(const Checkpoint& checkpoint, const LayoutRequest& request,
                                   const ParallelSizes& sizes) {
  try {
    const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
    for (int rank = 0; rank < sizes.world(); ++rank) {
      make_program(checkpoint, spec, request, sizes, coords_of(rank, sizes));
    }
    return std::nullopt;
  } catch (const Error& error) {
    return reason_of(error.what(), checkpoint.name);
  }
}

// "one, dp; no tp [1], pp [2]", or "no [1]".
std::string cell(const Checkpoint& checkpoint, const LayoutRequest& request, bool has_experts,
                 Footnotes& notes) {
  std::vector<std::string> served;
  std::vector<std::string> refused;
  for (const Shape& shape : kShapes) {
    if (shape.sizes.expert_parallel && !has_experts) continue;
    if (const auto why = refusal(checkpoint, request, shape.sizes)) {
      if (shape.sizes.world() == 1) return "no " + notes.mark(*why);
      refused.push_back(fmt::format("{} {}", shape.name, notes.mark(*why)));
    } else {
      served.emplace_back(shape.name);
    }
  }
  if (refused.empty()) return fmt::format("{}", fmt::join(served, ", "));
  return fmt::format("{}; no {}", fmt::join(served, ", "), fmt::join(refused, ", "));
}

std::string table(std::span<const Specimen> specimens, Footnotes& notes) {
  std::string out = "| model | architecture |";
  std::string rule = "|---|---|";
  for (const std::string_view layout : kLayouts) {
    out += fmt::format(" `{}` |", layout);
    rule += "---|";
  }
  out += "\n" + rule + "\n";
  for (const Specimen& specimen : specimens) {
    const Checkpoint checkpoint = fixture_checkpoint(std::string(specimen.fixture));
    const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
    const Family* family = find_family(spec.architecture);
    const bool has_experts = family != nullptr && family->experts.sparse != nullptr;
    out += fmt::format("| {} | {} |", specimen.model, spec.architecture);
    for (const std::string_view layout : kLayouts) {
      LayoutRequest request;
      request.layout = layout;
      request.moe_backend = specimen.moe_backend;
      out += fmt::format(" {} |", cell(checkpoint, request, has_experts, notes));
    }
    out += "\n";
  }
  return out;
}

}  // namespace

std::vector<std::string> architectures_without_specimen() {
  std::vector<std::string> missing = known_architectures();
  for (const Specimen& specimen : family_specimens()) {
    const Checkpoint checkpoint = fixture_checkpoint(std::string(specimen.fixture));
    std::erase(missing, parse_model_spec(checkpoint.config_json, "").architecture);
  }
  return missing;
}

std::string models_page() {
  Footnotes notes;
  std::string out =
      "# Models\n\n"
      "Made from the code by `cmake --build BUILD --target models_page`; a test fails when it is "
      "stale. Each cell\nsays what a small checkpoint of that model was served with: *one* rank, "
      "*tp* and *pp* of two, *dp* of two\nreplicas, *ep*: two replicas with "
      "`--enable-expert-parallel`, where there are experts. They combine freely. What\ndoes not "
      "divide (heads, rows, blocks, experts) is refused where the engine refuses it. An "
      "architecture that is\nnot here is served as stored, with `--layout hf` on one rank.\n\n"
      "`vllm` fits vLLM 0.32, `transformers` what `from_pretrained` of transformers 5 holds "
      "(checked with 5.17 and 5.19); `hf` keeps\nthe stored names. Kimi-K2 opened with "
      "`trust_remote_code` holds the stored "
      "names too: `hf`;\n`transformers` is for transformers' own class. Adding a model: "
      "[adding-a-model.md](adding-a-model.md).\n\n## Families\n\n";
  out += table(family_specimens(), notes);
  out += "\n## Quantised checkpoints\n\n";
  out += table(quantised_specimens(), notes);
  out += "\n## Why not\n\n" + notes.list();
  return out;
}

}  // namespace preload::test
