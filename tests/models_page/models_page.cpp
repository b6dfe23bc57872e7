// SPDX-License-Identifier: Apache-2.0
#include "models_page/models_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
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
  std::string_view column;
  ParallelSizes sizes;
};
// The smallest of each kind of parallelism.
const Shape kShapes[] = {
    {"alone", {1, 1, 1}}, {"tp", {1, 1, 2}},       {"pp", {1, 2, 1}},
    {"dp", {2, 1, 1}},    {"ep", {2, 1, 1, true}},
};

// Refusals by number, in the order in which the page comes to them.
class Footnotes {
 public:
  std::string mark(const std::string& text) {
    const auto at = std::ranges::find(texts_, text);
    const auto index = at - texts_.begin();
    if (at == texts_.end()) texts_.push_back(text);
    return fmt::format("no [{}]", index + 1);
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

// A refusal without the specimen's name: what is behind the heading, or behind the first colon.
std::string reason_of(const std::string& text) {
  std::string reason = text;
  if (const std::size_t end = reason.find(":\n  "); end != std::string::npos) {
    reason = reason.substr(end + 4);
  } else if (const std::size_t colon = reason.find(": "); colon != std::string::npos) {
    reason = reason.substr(colon + 2);
  }
  for (std::size_t at = 0; (at = reason.find("\n  ", at)) != std::string::npos;) {
    reason.replace(at, 3, "; ");
  }
  constexpr std::size_t kMost = 300;
  if (reason.size() > kMost) reason = reason.substr(0, reason.rfind(' ', kMost)) + " …";
  std::ranges::replace(reason, '|', '/');
  return reason;
}

// "yes", or "no" and the footnote: whether every rank gets a program.
std::string verdict(const Checkpoint& checkpoint, std::string_view layout,
                    const ParallelSizes& sizes, Footnotes& notes) {
  LayoutRequest request;
  request.layout = layout;
  try {
    const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
    for (int rank = 0; rank < sizes.world(); ++rank) {
      make_program(checkpoint, spec, request, sizes, coords_of(rank, sizes));
    }
    return "yes";
  } catch (const Error& error) {
    return notes.mark(reason_of(error.what()));
  }
}

std::string table(std::span<const Specimen> specimens, Footnotes& notes) {
  std::string out = "| model | architecture | layout |";
  std::string rule = "|---|---|---|";
  for (const Shape& shape : kShapes) {
    out += fmt::format(" {} |", shape.column);
    rule += "---|";
  }
  out += "\n" + rule + "\n";
  for (const Specimen& specimen : specimens) {
    const Checkpoint checkpoint = fixture_checkpoint(std::string(specimen.fixture));
    const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
    const Family* family = find_family(spec.architecture);
    const bool has_experts = family != nullptr && family->experts.sparse != nullptr;
    for (const std::string_view layout : kLayouts) {
      const bool first = layout == kLayouts.front();
      out += first ? fmt::format("| {} | {} | {} |", specimen.model, spec.architecture, layout)
                   : fmt::format("| | | {} |", layout);
      for (const Shape& shape : kShapes) {
        const bool idle = shape.sizes.expert_parallel && !has_experts;
        out += fmt::format(" {} |", idle ? "–" : verdict(checkpoint, layout, shape.sizes, notes));
      }
      out += "\n";
    }
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
      "stale. Each\nline was tried with a small checkpoint of that model: *alone* on one rank, "
      "*tp* and *pp* on two, *dp* on two\nreplicas, *ep* on two replicas with "
      "`--enable-expert-parallel` (– where there are no experts). Other sizes are\nrefused where "
      "the engine refuses them: heads, rows or experts that do not divide. An architecture that "
      "is not\nhere is served as stored, with `--layout hf` on one rank.\n\n"
      "Layouts: `vllm` fits vLLM 0.32, `transformers` what transformers 5.16 to 5.19 hold after "
      "`from_pretrained`, `hf` keeps the\nstored names. Adding a model: "
      "[adding-a-model.md](adding-a-model.md).\n\n## Families\n\n";
  out += table(family_specimens(), notes);
  out += "\n## Quantised checkpoints\n\n";
  out += table(quantised_specimens(), notes);
  out += "\n## Why not\n\n" + notes.list();
  return out;
}

}  // namespace preload::test
