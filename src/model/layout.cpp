// SPDX-License-Identifier: Apache-2.0
#include "model/layout.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "model/family.hpp"
#include "model/family_layout.hpp"
#include "model/model_layout.hpp"
#include "model/stored_layout.hpp"
#include "model/weight_format.hpp"

namespace preload {
namespace {

// Whether the tensors can be served as they are stored, whatever they mean.
bool is_stored_layout(const LayoutRequest& request, const ParallelSizes& sizes) {
  return request.layout == "hf" && sizes.tp == 1 && sizes.pp == 1;
}

[[noreturn]] void refuse(const Checkpoint& checkpoint, const LayoutRequest& request,
                         const ParallelSizes& sizes, const std::string& why) {
  throw Error(Errc::kModel,
              fmt::format("{} cannot be served in the {} layout with --tensor-parallel-size {} and "
                          "--pipeline-parallel-size {}: {}. Unsharded and under its stored names "
                          "it can: --layout hf with both at 1",
                          checkpoint.name, request.layout, sizes.tp, sizes.pp, why));
}

}  // namespace

std::unique_ptr<ModelLayout> open_layout(const Checkpoint& checkpoint, const ModelSpec& spec,
                                         const LayoutRequest& request, const ParallelSizes& sizes) {
  if (request.layout != "vllm" && request.layout != "hf" && request.layout != "transformers") {
    throw Error(Errc::kModel,
                fmt::format("unknown layout '{}': use vllm, hf or transformers", request.layout));
  }
  check_layout_sizes(request, sizes);
  const Family* family = find_family(spec.architecture);
  if (request.layout == "transformers" && !spec.quantization.empty()) {
    refuse(checkpoint, request, sizes,
           fmt::format("its quantization_config says {}, and whether from_pretrained keeps such "
                       "weights or turns them into floats depends on the device and its kernels",
                       spec.quantization));
  }
  const FormatChoice choice =
      spec.quantization.empty() ? FormatChoice{} : weight_format(spec, request);
  if (family != nullptr && choice.refusal.empty()) {
    return std::make_unique<FamilyLayout>(*family, checkpoint, spec, request, sizes, choice.format);
  }
  const std::string why =
      family != nullptr ? choice.refusal
      : spec.architecture.empty()
          ? "its config.json states no architecture"
          : fmt::format("there are no sharding rules for {}", spec.architecture);
  if (is_stored_layout(request, sizes)) {
    return std::make_unique<StoredLayout>(checkpoint, spec, request, why);
  }
  if (family != nullptr) refuse(checkpoint, request, sizes, why);
  refuse(checkpoint, request, sizes,
         fmt::format("{}; the architectures with rules are {}", why,
                     fmt::join(known_architectures(), ", ")));
}

ModelSpec layout_spec(const Checkpoint& checkpoint, const LayoutRequest& request,
                      const std::string& hf_overrides) {
  ModelSpec spec = parse_model_spec(checkpoint.config_json, hf_overrides);
  if (!request.draft) return spec;
  const std::string architecture = draft_architecture(request.draft->method, spec);
  if (architecture.empty()) return spec;
  spec = parse_model_spec(checkpoint.config_json,
                          draft_overrides(checkpoint.config_json, architecture));
  spec.target_vocab_size = request.draft->target_vocab_size;
  return spec;
}

void check_layout_sizes(const LayoutRequest& request, const ParallelSizes& sizes) {
  if (request.layout != "transformers") return;
  const auto refuse_flag = [](std::string_view flag, std::string_view what) {
    throw Error(Errc::kUsage,
                fmt::format("--layout transformers holds a whole model, as from_pretrained does, "
                            "and {} {}: leave the flag out (--data-parallel-size makes replicas), "
                            "or use --layout vllm or hf",
                            flag, what));
  };
  if (sizes.tp > 1) {
    refuse_flag(fmt::format("--tensor-parallel-size {}", sizes.tp), "would cut its tensors");
  }
  if (sizes.pp > 1) {
    refuse_flag(fmt::format("--pipeline-parallel-size {}", sizes.pp), "would share out its layers");
  }
  if (sizes.expert_parallel && sizes.dp > 1) {
    refuse_flag("--enable-expert-parallel",
                fmt::format("with --data-parallel-size {} would share out its experts", sizes.dp));
  }
}

CopyProgram make_program(const Checkpoint& checkpoint, const ModelSpec& spec,
                         const LayoutRequest& request, const ParallelSizes& sizes,
                         const RankCoords& rank) {
  CopyProgram program = open_layout(checkpoint, spec, request, sizes)->program(rank);
  check_program(program, checkpoint);
  return program;
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Family* family : all_families()) {
    if (!family->is_draft()) names.emplace_back(family->architecture);
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace preload
