// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/counted.hpp"
#include "model/family_matcher.hpp"
#include "model/mxfp4.hpp"
#include "model/part_shard.hpp"

// What a matcher finds wrong with config, parallelism and stored tensors.
namespace preload {
namespace {

constexpr std::int64_t kTrtllmRows = 128;

}  // namespace

void FamilyLayout::Matcher::check_numbers() {
  const ModelSpec& spec = layout_.spec_;
  const std::pair<std::string_view, std::int64_t> needed[] = {
      {"hidden_size", spec.hidden_size},
      {"num_hidden_layers", spec.num_hidden_layers},
      {"num_attention_heads", spec.num_attention_heads},
      {"vocab_size", spec.vocab_size},
  };
  for (const auto& [name, value] : needed) {
    if (value < 1) {
      problems_.push_back(
          fmt::format("config.json states no \"{}\", or 0: it must be 1 or more", name));
    }
  }
  if (layout_.family_.experts.sparse && spec.num_experts < 1) {
    problems_.emplace_back("config.json states no number of experts");
  }
  if (layout_.family_.draft.in_target && layout_.numbers_.count < 1) {
    problems_.emplace_back(
        "config.json states no layers behind the model's last one that a draft could consist of");
  }
  if (!problems_.empty()) return;
  if (spec.head_dim < 1) {
    problems_.push_back(
        fmt::format("hidden_size {} is smaller than num_attention_heads {}, and "
                    "config.json states no \"head_dim\"",
                    spec.hidden_size, spec.num_attention_heads));
  }
}

void FamilyLayout::Matcher::check_parallelism() {
  const ModelSpec& spec = layout_.spec_;
  const ParallelSizes& sizes = layout_.sizes_;
  const auto& stages = sizes.stage_layers;
  if (sizes.pp > 1 && sizes.pp > spec.num_hidden_layers) {
    problems_.push_back(
        fmt::format("num_hidden_layers {} cannot be split over "
                    "--pipeline-parallel-size {} stages",
                    spec.num_hidden_layers, sizes.pp));
  }
  const std::int64_t placed = std::accumulate(stages.begin(), stages.end(), std::int64_t{0});
  if (!stages.empty() && placed != spec.num_hidden_layers) {
    problems_.push_back(fmt::format("--pipeline-layers {} places {}, num_hidden_layers is {}",
                                    fmt::join(stages, ","), counted(placed, "layer"),
                                    spec.num_hidden_layers));
  }
  const Experts& experts = layout_.family_.experts;
  if (sizes.expert_parallel && !experts.sparse) {
    problems_.push_back(
        fmt::format("--enable-expert-parallel is for models with experts, which {} has not",
                    spec.architecture));
  }
  const int ranks = sizes.dp * sizes.tp;
  if (sizes.expert_parallel && experts.even && spec.num_experts % ranks != 0) {
    problems_.push_back(fmt::format(
        "{} experts do not divide by the {} ranks of expert parallelism (--data-parallel-size {} x "
        "--tensor-parallel-size {}), and vLLM loads {} only where they do",
        spec.num_experts, ranks, sizes.dp, sizes.tp, spec.architecture));
  }
  const RankShare share = layout_.rank_share(coords_of(0, sizes));
  const auto check_rules = [&](const Section& section) {
    for (const LayoutRule& rule : section.rules) {
      if (layout_.tied(rule)) continue;
      for (std::string& reason : indivisible(rule, spec, share)) {
        if (std::ranges::find(problems_, reason) == problems_.end()) {
          problems_.push_back(std::move(reason));
        }
      }
    }
  };
  check_rules(layout_.first_section_);
  std::ranges::for_each(layout_.layer_sections_, check_rules);
  check_rules(layout_.last_section_);
}

// What vLLM refuses of a model with experts, whatever its weights are.
void FamilyLayout::Matcher::check_engine_experts() {
  const ModelSpec& spec = layout_.spec_;
  const ParallelSizes& sizes = layout_.sizes_;
  const Experts& experts = layout_.family_.experts;
  if (experts.sparse == nullptr || layout_.style_ != RuleStyle::kEngine) return;
  if (experts.one_a_rank && sizes.tp > spec.num_experts) {
    problems_.push_back(
        fmt::format("--tensor-parallel-size {} is greater than the number of experts {}, which "
                    "vLLM refuses for {}",
                    sizes.tp, spec.num_experts, spec.architecture));
  }
  const int world = sizes.world();
  if (experts.divides_world && spec.intermediate_size % world != 0) {
    problems_.push_back(fmt::format(
        "intermediate_size {} is not divisible by the {} ranks of the job, which vLLM refuses for "
        "{} however its experts are shared",
        spec.intermediate_size, world, spec.architecture));
  }
  const int ranks = layout_.rank_share(coords_of(0, sizes)).experts.tp_size;
  for (const Section& section : layout_.layer_sections_) {
    for (const LayoutRule& rule : section.rules) {
      // layers/fused_moe/oracle/unquantized.py; all that is cut by rows is gate or up.
      if (rule.share != Share::kExperts || rule.content != Content::kFloats ||
          layout_.request_.moe_backend != "flashinfer_trtllm" || layout_.format_) {
        continue;
      }
      for (const LayoutPart& part : rule.parts) {
        if (part.split != Split::kColumns || part.columns / ranks % kTrtllmRows == 0) continue;
        problems_.push_back(fmt::format(
            "{}: the MoE backend flashinfer_trtllm makes vLLM pad a rank's {} columns to a "
            "multiple of {}, which is not built: use another backend",
            part.stored, part.columns / ranks, kTrtllmRows));
        return;
      }
    }
  }
}

void FamilyLayout::Matcher::check_mxfp4() {
  if (!layout_.format_ || !layout_.format_->mxfp4) return;
  if (layout_.style_ == RuleStyle::kEngine && layout_.dtype_ != DType::kBF16) {
    problems_.push_back(
        fmt::format("MXFP4 experts with --dtype {} are refused by vLLM: use bfloat16",
                    layout_.dtype_ ? dtype_name(*layout_.dtype_) : "auto"));
  }
  const int ranks = layout_.rank_share(coords_of(0, layout_.sizes_)).experts.tp_size;
  std::ranges::move(mxfp4_refusals(layout_.spec_, layout_.request_.moe_backend,
                                   *layout_.format_->mxfp4, ranks, layout_.style_),
                    std::back_inserter(problems_));
}

void FamilyLayout::Matcher::check_extents(const std::vector<LayoutRule>& rules) {
  const auto check = [&](const std::string& text, std::int64_t extent) {
    if (extent > 0) return;
    const bool field = text.find(' ') == std::string::npos;
    std::string problem = field ? fmt::format("config.json states no \"{}\"", text)
                                : fmt::format("config.json makes {} {}", text, extent);
    if (std::ranges::find(problems_, problem) == problems_.end()) {
      problems_.push_back(std::move(problem));
    }
  };
  for (const LayoutRule& rule : rules) {
    for (const LayoutPart& part : rule.parts) {
      check(part.row_text, part.rows);
      if (!part.one_axis()) check(part.column_text, part.columns);
    }
  }
}

void FamilyLayout::Matcher::check_tensor(const SourceTensor& tensor, const LayoutRule& rule,
                                         const LayoutPart& part) {
  const Dims wanted = stored_shape(part);
  const bool fits = part.scalar ? element_count(tensor.shape) == 1 : tensor.shape == wanted;
  if (!fits) {
    shapes_.push_back(fmt::format("{} is {}, the config makes it {} ({})", tensor.name,
                                  to_string(tensor.shape), to_string(wanted),
                                  stored_shape_text(part)));
  } else if (part.exact) {
    if (tensor.dtype == *part.exact) return;
    shapes_.push_back(fmt::format("{} is stored as {}, it must be {}", tensor.name,
                                  dtype_name(tensor.dtype), dtype_name(*part.exact)));
  } else if (rule.content == Content::kQuantised) {
    if (tensor.dtype == DType::kF8E4M3) return;
    shapes_.push_back(
        fmt::format("{} is stored as {} with a scale beside it: scales are of F8_E4M3", tensor.name,
                    dtype_name(tensor.dtype)));
  } else if (rule.content == Content::kFloats && layout_.format_ && !layout_.format_->mxfp4 &&
             tensor.dtype == DType::kF8E4M3) {
    shapes_.push_back(fmt::format("{} is stored as {} without its {} beside it", tensor.name,
                                  dtype_name(tensor.dtype), layout_.format_->scale));
  } else if (layout_.style_ != RuleStyle::kAsStored && !is_wide_float(tensor.dtype)) {
    shapes_.push_back(
        fmt::format("{} is stored as {}, the {} layout needs a float of 16 bits or "
                    "more",
                    tensor.name, dtype_name(tensor.dtype), layout_.request_.layout));
  }
}

}  // namespace preload
