// SPDX-License-Identifier: Apache-2.0
#include "cli/speculative_config.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "cli/draft_options.hpp"

namespace preload::cli {
namespace {

using testing::HasSubstr;

void expect_refused(const std::string& text, const std::string& reason, int tp = 1) {
  try {
    parse_speculative_config(text, tp);
    ADD_FAILURE() << "taken: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage) << text;
    EXPECT_THAT(error.what(), HasSubstr(reason));
  }
}

TEST(SpeculativeConfig, TakesTheDraftsThatAreHeld) {
  const auto mtp = parse_speculative_config(R"({"method":"mtp","num_speculative_tokens":1})", 1);
  EXPECT_EQ(mtp.draft, DraftMethod::kMtp);
  EXPECT_EQ(mtp.model, "");
  const auto older =
      parse_speculative_config(R"({"method":"deepseek_mtp","num-speculative-tokens":1})", 1);
  EXPECT_EQ(older.method, "mtp");
  EXPECT_EQ(older.draft, DraftMethod::kMtp);
  const auto eagle = parse_speculative_config(
      R"({"method":"eagle","model":"/d","revision":"r","draft_tensor_parallel_size":2})", 2);
  EXPECT_EQ(eagle.draft, DraftMethod::kEagle);
  EXPECT_EQ(eagle.model, "/d");
  EXPECT_EQ(eagle.revision, "r");
  EXPECT_EQ(parse_speculative_config(R"({"method":"eagle3","model":"/d"})", 1).draft,
            DraftMethod::kEagle3);
}

TEST(SpeculativeConfig, DeducesTheMethodFromTheModelsNameAsTheEngineDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"model":"yuhuili/EAGLE-LLaMA3-Instruct-8B"})", "eagle"},
      {R"({"model":"AngelSlim/Qwen3-8B_eagle3"})", "eagle3"},
      {R"({"model":"org/some-DFlash-model"})", "dflash"},
      {R"({"model":"org/small-llama"})", "draft_model"},
      {R"({"model":"ngram"})", "ngram"},
      {R"({"method":"[ngram]"})", "ngram"},
      {R"({"method":"draft_model","model":"x/EAGLE-y"})", "eagle"},
      {R"({"method":"medusa","model":"x/EAGLE-y"})", "medusa"},
  };
  for (const auto& [text, method] : cases) {
    EXPECT_EQ(parse_speculative_config(text, 1).method, method) << text;
  }
}

TEST(SpeculativeConfig, OfAnotherMethodHoldsNothingWhateverItsDraftsSize) {
  for (const char* text :
       {R"({"method":"ngram","prompt_lookup_max":4})", R"({"method":"suffix"})",
        R"({"method":"medusa","model":"/m"})",
        R"({"method":"draft_model","model":"/m","draft_tensor_parallel_size":1})"}) {
    EXPECT_EQ(parse_speculative_config(text, 4).draft, std::nullopt) << text;
    ModelOptions target;
    target.speculative = parse_speculative_config(text, 4);
    EXPECT_FALSE(draft_options(target));
    EXPECT_THAT(why_not_held(target), testing::Optional(HasSubstr("target is served")));
  }
}

TEST(SpeculativeConfig, RefusesWhatTheEngineWouldNotTakeAndWhatIsNotServed) {
  expect_refused("[]", "must be a JSON object");
  expect_refused("{", "must be a JSON object");
  expect_refused(R"({"methd":"mtp"})", "did you mean \"method\"");
  expect_refused(R"({"method":"eagel","model":"/d"})", "knows no method \"eagel\"");
  expect_refused("{}", "neither \"method\" nor \"model\"");
  expect_refused(R"({"num_speculative_tokens":2,"method":null})", "neither \"method\"");
  for (const char* method : {"medusa", "mlp_speculator", "draft_model", "custom_class", "dflash"}) {
    expect_refused(fmt::format(R"({{"method":"{}"}})", method), "needs \"model\"");
  }
  expect_refused(R"({"method":3})", "\"method\" must be a text, not 3");
  expect_refused(R"({"method":"eagle"})", "needs \"model\"");
  expect_refused(R"({"method":"mtp","num_speculative_tokens":0})", "1 or more, not 0");
  expect_refused(R"({"method":"mtp","tensor_parallel_size":1})", "draft_tensor_parallel_size");
  expect_refused(R"({"method":"eagle3","model":"/d","draft_tensor_parallel_size":1})",
                 "shares MTP and EAGLE drafts between the target's 2 ranks", 2);
  expect_refused(R"({"method":"eagle3","model":"/d","draft_tensor_parallel_size":3})",
                 "neither 1 nor the target's --tensor-parallel-size 2", 2);
  expect_refused(R"({"method":"mtp","quantization":"fp8"})", "\"quantization\" fp8");
  expect_refused(R"({"method":"mtp","moe_backend":"triton"})", "\"moe_backend\" triton");
  expect_refused(R"({"method":"eagle3","model":"/d","parallel_drafting":true})",
                 "\"parallel_drafting\"");
}

TEST(DraftOptions, AreTheTargetsWithoutWhatIsItsAlone) {
  ModelOptions target;
  target.model = "/t";
  target.hf_overrides = R"({"a":1})";
  target.layout.ignore = {"x"};
  target.pp = 2;
  target.speculative = parse_speculative_config(R"({"method":"mtp"})", 1);
  auto draft = draft_options(target);
  ASSERT_TRUE(draft);
  EXPECT_EQ(draft->model, "/t");
  EXPECT_EQ(draft->hf_overrides, "");
  EXPECT_TRUE(draft->layout.ignore.empty());
  EXPECT_EQ(draft->layout.draft->method, DraftMethod::kMtp);
  EXPECT_FALSE(draft->speculative);
  target.speculative = parse_speculative_config(R"({"method":"eagle","model":"/d"})", 1);
  EXPECT_EQ(draft_options(target)->model, "/d");
}

TEST(DraftOptions, AreNoneInTheLayoutTransformers) {
  ModelOptions target;
  target.layout.layout = "transformers";
  target.speculative = parse_speculative_config(R"({"method":"mtp"})", 1);
  EXPECT_FALSE(draft_options(target));
  EXPECT_THAT(why_not_held(target), testing::Optional(HasSubstr("transformers has no draft")));
}

TEST(DraftOptions, PutTheDraftOnTheLastStageAsOneStage) {
  ParallelSizes sizes{2, 3, 2};
  sizes.expert_parallel = true;
  sizes.stage_layers = {1, 2, 3};
  ModelOptions draft;
  draft.layout.draft = DraftRequest{DraftMethod::kMtp};
  EXPECT_EQ(draft_sizes(draft, sizes).pp, 1);
  EXPECT_EQ(draft_sizes(draft, sizes).tp, 2);
  EXPECT_TRUE(draft_sizes(draft, sizes).stage_layers.empty());
  EXPECT_TRUE(draft_sizes(draft, sizes).expert_parallel);
  draft.layout.draft->method = DraftMethod::kEagle;
  EXPECT_FALSE(draft_sizes(draft, sizes).expert_parallel);  // it has no experts
  for (int global = 0; global < sizes.world(); ++global) {
    const RankCoords rank = coords_of(global, sizes);
    const auto draft = draft_coords(rank, sizes);
    ASSERT_EQ(draft.has_value(), rank.pp == 2) << global;
    if (!draft) continue;
    EXPECT_EQ(draft->global, global);
    EXPECT_EQ(draft->pp, 0);
    EXPECT_EQ(draft->tp, rank.tp);
    EXPECT_EQ(draft->dp, rank.dp);
  }
}

}  // namespace
}  // namespace preload::cli
