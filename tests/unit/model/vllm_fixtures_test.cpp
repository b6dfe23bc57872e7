// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/hash.hpp"
#include "model/layout.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

using nlohmann::ordered_json;

// "qwen3_moe.dp2tp2pp1ep.r1.json": what vLLM 0.32.0 held on rank 1 of dp 2 and tp 2 with expert
// parallelism ("rr": and with round-robin placement). "llama_eagle_draft…": of the draft model of
// the checkpoint "llama_eagle".
struct Manifest {
  std::string family;
  ParallelSizes sizes;
  LayoutRequest request;
  int global = 0;
  ordered_json tensors;
};

constexpr std::string_view kDraft = "_draft";

DraftMethod draft_method(const std::string& family) {
  if (family.find("eagle3") != std::string::npos) return DraftMethod::kEagle3;
  return family.find("eagle") != std::string::npos ? DraftMethod::kEagle : DraftMethod::kMtp;
}

std::vector<Manifest> manifests() {
  const std::regex pattern(R"((\w+)\.(?:dp(\d+))?tp(\d+)pp(\d+)(ep|rr|)\.r(\d+)\.json)");
  std::vector<Manifest> found;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(PRELOAD_FIXTURES) + "/vllm-0.32.0")) {
    const std::string name = entry.path().filename().string();
    std::smatch match;
    if (!std::regex_match(name, match, pattern)) {
      ADD_FAILURE() << "unexpected file name " << name;
      continue;
    }
    std::ifstream in(entry.path());
    Manifest& manifest = found.emplace_back();
    manifest.family = match[1];
    if (manifest.family.ends_with(kDraft)) {
      manifest.family.resize(manifest.family.size() - kDraft.size());
      manifest.request.draft = DraftRequest{draft_method(manifest.family), 1003};
    }
    manifest.sizes = {match[2].matched ? std::stoi(match[2]) : 1, std::stoi(match[4]),
                      std::stoi(match[3])};
    manifest.sizes.expert_parallel = match[5].length() > 0;
    if (match[5] == "rr") manifest.request.placement = ExpertPlacement::kRoundRobin;
    manifest.request.moe_backend = "cpu";  // what the engine took there
    manifest.global = std::stoi(match[6]);
    manifest.tensors = ordered_json::parse(in);
  }
  return found;
}

std::string torch_name(DType dtype) {
  if (dtype == DType::kBF16) return "bfloat16";
  if (dtype == DType::kF16) return "float16";
  if (dtype == DType::kF32) return "float32";
  if (dtype == DType::kI64) return "int64";
  if (dtype == DType::kU8) return "uint8";
  if (dtype == DType::kF8E4M3) return "float8_e4m3fn";
  return "other";
}

CopyProgram program_of(const Manifest& manifest, const Checkpoint& checkpoint) {
  const ModelSpec spec = layout_spec(checkpoint, manifest.request, "");
  return make_program(checkpoint, spec, manifest.request, manifest.sizes,
                      coords_of(manifest.global, manifest.sizes));
}

TEST(VllmLayout, HoldsEveryParameterThatVllmHoldsByteForByte) {
  std::size_t checked = 0;
  for (const Manifest& manifest : manifests()) {
    SCOPED_TRACE(manifest.family + " dp " + std::to_string(manifest.sizes.dp) +
                 (manifest.sizes.expert_parallel ? " ep" : "") + " tp " +
                 std::to_string(manifest.sizes.tp) + " pp " + std::to_string(manifest.sizes.pp) +
                 " rank " + std::to_string(manifest.global));
    const Checkpoint checkpoint = fixture_checkpoint(manifest.family);
    const CopyProgram program = program_of(manifest, checkpoint);
    const std::vector<Bytes> bytes = execute(program, checkpoint);
    std::vector<std::string> expected;
    for (const auto& [name, entry] : manifest.tensors.items()) {
      if (entry.at(0) != "param") continue;  // buffers are computed by the engine
      expected.push_back(name);
      const auto at = std::ranges::find(program.tensors, name, &TargetTensor::name);
      ASSERT_NE(at, program.tensors.end()) << name;
      EXPECT_EQ(torch_name(at->dtype), entry.at(1).get<std::string>()) << name;
      EXPECT_EQ(ordered_json(std::vector<std::int64_t>(at->shape.begin(), at->shape.end())),
                entry.at(2))
          << name;
      const Bytes& held = bytes[static_cast<std::size_t>(at - program.tensors.begin())];
      const std::string_view text(reinterpret_cast<const char*>(held.data()), held.size());
      EXPECT_EQ(sha256_hex(text).substr(0, 32), entry.at(3).get<std::string>()) << name;
      EXPECT_EQ(at->kind, TensorKind::kParam) << name;
      ++checked;
    }
    std::vector<std::string> held;
    for (const TargetTensor& tensor : program.tensors) held.push_back(tensor.name);
    EXPECT_EQ(held, expected) << "names, in the engine's order";
  }
  // At least 117 manifests; the smallest holds 7 parameters.
  EXPECT_GE(checked, 117U * 7U);
}

TEST(VllmLayout, FixturesCoverEveryKindOfParallelism) {
  const std::vector<Manifest> all = manifests();
  EXPECT_TRUE(std::ranges::any_of(all, [](const Manifest& m) { return m.sizes.tp == 4; }));
  EXPECT_TRUE(std::ranges::any_of(all, [](const Manifest& m) { return m.sizes.pp == 2; }));
  EXPECT_TRUE(std::ranges::any_of(
      all, [](const Manifest& m) { return m.sizes.dp == 2 && !m.sizes.expert_parallel; }));
  EXPECT_TRUE(std::ranges::any_of(all, [](const Manifest& m) {
    return m.sizes.dp * m.sizes.tp == 4 && m.sizes.expert_parallel;
  }));
  EXPECT_TRUE(std::ranges::any_of(
      all, [](const Manifest& m) { return m.request.placement == ExpertPlacement::kRoundRobin; }));
  EXPECT_GE(all.size(), 117U);
}

}  // namespace
}  // namespace preload::test
