// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/hash.hpp"
#include "model/layout.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

using nlohmann::ordered_json;

const std::map<std::string, DType> kDtypes = {
    {"float16", DType::kF16}, {"bfloat16", DType::kBF16}, {"float32", DType::kF32}};

// "gpt_oss.float16.json": what from_pretrained(dtype="float16") of transformers 5.19.0 made of the
// checkpoint gpt_oss; without a type, of dtype="auto".
struct Recording {
  std::string family;
  std::optional<DType> dtype;
  ordered_json tensors;
};

std::vector<Recording> recordings() {
  std::vector<Recording> found;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(PRELOAD_FIXTURES) +
                                                               "/transformers-5.19.0")) {
    std::string family = entry.path().stem().string();
    Recording& recording = found.emplace_back();
    if (const std::size_t dot = family.find('.'); dot != std::string::npos) {
      recording.dtype = kDtypes.at(family.substr(dot + 1));
      family.resize(dot);
    }
    recording.family = family;
    std::ifstream in(entry.path());
    recording.tensors = ordered_json::parse(in);
  }
  return found;
}

// Buffers that transformers computes and no checkpoint holds.
bool is_computed(const std::string& name, const ordered_json& entry) {
  if (entry.at(0) != "buffer") return false;
  return name.ends_with("inv_freq") || name.ends_with(".embed_scale") ||
         name.ends_with(".position_ids");
}

std::string digest(const Bytes& bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return sha256_hex(text).substr(0, 32);
}

CopyProgram program_of(const Checkpoint& checkpoint, std::optional<DType> dtype,
                       const ParallelSizes& sizes = {1, 1, 1}) {
  LayoutRequest request;
  request.layout = "transformers";
  request.dtype = dtype;
  return make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""), request, sizes,
                      coords_of(0, sizes));
}

TEST(TransformersLayout, HoldsEveryLoadedTensorThatTransformersHoldsByteForByte) {
  for (const Recording& recording : recordings()) {
    SCOPED_TRACE(recording.family);
    const Checkpoint checkpoint = fixture_checkpoint(recording.family);
    const CopyProgram program = program_of(checkpoint, recording.dtype);
    const std::vector<Bytes> bytes = execute(program, checkpoint);
    std::set<std::string> expected;
    for (const auto& [name, entry] : recording.tensors.items()) {
      if (is_computed(name, entry)) continue;
      expected.insert(name);
      const auto at = std::ranges::find(program.tensors, name, &TargetTensor::name);
      if (at == program.tensors.end()) continue;  // the comparison of names shows it
      EXPECT_EQ(at->dtype, kDtypes.at(entry.at(1))) << name;
      EXPECT_EQ(ordered_json(std::vector<std::int64_t>(at->shape.begin(), at->shape.end())),
                entry.at(2))
          << name;
      EXPECT_EQ(at->kind, entry.at(0) == "buffer" ? TensorKind::kBuffer : TensorKind::kParam)
          << name;
      EXPECT_EQ(digest(bytes[static_cast<std::size_t>(at - program.tensors.begin())]),
                entry.at(3).get<std::string>())
          << name;
    }
    std::set<std::string> held;
    for (const TargetTensor& tensor : program.tensors) held.insert(tensor.name);
    EXPECT_EQ(held, expected);
    EXPECT_EQ(program.tensors.size(), held.size()) << "a name is served twice";
  }
}

TEST(TransformersLayout, FixturesCoverEveryArchitectureWithRules) {
  std::set<std::string> covered;
  for (const Recording& recording : recordings()) {
    const Checkpoint checkpoint = fixture_checkpoint(recording.family);
    covered.insert(parse_model_spec(checkpoint.config_json, "").architecture);
  }
  for (const std::string& architecture : known_architectures()) {
    EXPECT_TRUE(covered.contains(architecture)) << architecture;
  }
}

}  // namespace
}  // namespace preload::test
