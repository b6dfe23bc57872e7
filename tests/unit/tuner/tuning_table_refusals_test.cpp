// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "support/temp_dir.hpp"
#include "tuner/table_file.hpp"
#include "tuner/tuning_table.hpp"
#include "unit/tuner/sample_table.hpp"

namespace preload::test {
namespace {

using namespace tuner;
using nlohmann::json;
using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    tuning_table_from_json(text, "table.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    return error.what();
  }
  return "";
}

struct Spoiled {
  const char* member;  // JSON pointer; the value goes there
  const char* value;   // empty: the member goes
  const char* text;    // in the refusal
};

const Spoiled kSpoiled[] = {
    Spoiled{"/format", "\"nccl\"", "no tuning table of preload"},
    Spoiled{"/version", "2", "version 2, and this preload reads version 1"},
    Spoiled{"/version", "\"1\"", "\"version\" must be a whole number"},
    Spoiled{"/remark", "\"x\"", "member \"remark\" is unknown"},
    Spoiled{"/nccl_version", "22803", "must be a string"},
    Spoiled{"/nccl_version", "\"2.28\"", "not of the form 2.28.3"},
    Spoiled{"/nccl_version", "\"2.28.3.1\"", "not of the form 2.28.3"},
    Spoiled{"/nccl_version", "\"2.28.3x\"", "not of the form 2.28.3"},
    Spoiled{"/nccl_version", "\"2.128.3\"", "not of the form 2.28.3"},
    Spoiled{"/nccl_version", "\"0.0.0\"", "NCCL version is missing"},
    Spoiled{"/topology", "", "\"topology\" is missing"},
    Spoiled{"/topology/gpus", "[]", "gpus must be names"},
    Spoiled{"/topology/gpus", R"(["b", "a"])", "sorted, each once"},
    Spoiled{"/topology/gpus", "[1]", "an array of names"},
    Spoiled{"/topology/ranks", "1", "at least 2 ranks"},
    Spoiled{"/topology/nodes", "0", "no more nodes than ranks"},
    Spoiled{"/topology/nodes", "9", "no more nodes than ranks"},
    Spoiled{"/topology/ranks_per_node", "9", "ranks_per_node must be from 1"},
    Spoiled{"/margin", "1.0", "the margin must be"},
    Spoiled{"/margin", "-0.1", "the margin must be"},
    Spoiled{"/communicators/0/ranks", "16", "does not fit into the topology"},
    Spoiled{"/communicators/1/ranks", "2", "no communicator of 4 ranks on 1 node was formed"},
    Spoiled{"/entries", "{}", "\"entries\" must be an array"},
    Spoiled{"/entries/0", "3", "entries[0] is not a JSON object"},
    Spoiled{"/entries/1/collective", "\"alltoall\"", "\"alltoall\" is no collective of NCCL"},
    Spoiled{"/entries/1/min_bytes", "-1", "\"min_bytes\" must be a whole number"},
    Spoiled{"/entries/1/min_bytes", "9000", "its measured size, 8192 bytes"},
    Spoiled{"/entries/1/max_bytes", "8000", "its measured size, 8192 bytes"},
    Spoiled{"/entries/1/max_bytes", "65537", "two entries of allreduce cover 65537 bytes"},
    Spoiled{"/entries/1/pipelined_ops", "0", "pipelined_ops must be 1 or more"},
    Spoiled{"/entries/1/pipelined_ops", "4294967296", "a whole number of 32 bits"},
    Spoiled{"/entries/1/registered_buffers", "1", "must be true or false"},
    Spoiled{"/entries/1/registered_buffers", "", "\"registered_buffers\" is missing"},
    Spoiled{"/entries/1/offered", "[]", "offered must be candidates"},
    Spoiled{"/entries/1/offered/0", "\"ring/simple\"", "sorted, each once"},
    Spoiled{"/entries/1/offered/0", "\"ring\"", "\"ring\" is no algorithm and protocol"},
    Spoiled{"/entries/1/offered/0", "\"ring/fast\"", "\"ring/fast\" is no algorithm"},
    Spoiled{"/entries/1/offered/0", "7", "\"offered\" must be an array of texts"},
    Spoiled{"/entries/1/offered/3", "\"pat/simple\"", "nvls/simple is not among what was"},
    Spoiled{"/entries/1/own", "null", "\"own\" is missing"},
    Spoiled{"/entries/1/own/microseconds", "0", "own: its time must be more than 0"},
    Spoiled{"/entries/1/own/channels", "4", "own: its channels are NCCL's"},
    Spoiled{"/entries/1/chosen/algorithm", "\"best\"", "\"best\" is no algorithm of NCCL"},
    Spoiled{"/entries/1/chosen/protocol", "\"\"", "\"\" is no protocol of NCCL"},
    Spoiled{"/entries/1/chosen/channels", "65", "channels must be from 0 to 64"},
    Spoiled{"/entries/1/chosen/channels", "-1", "channels must be from 0 to 64"},
    Spoiled{"/entries/1/chosen/speed", "1", "member \"speed\" is unknown"},
    Spoiled{"/entries/1/chosen/microseconds", "11", "gain: the times say 0.136364"},
    Spoiled{"/entries/1/gain", "", "\"gain\" is missing"},
    Spoiled{"/margin", "0.3", "its gain, 0.2500, is below the margin"}};

TEST(TuningTable, RefusesEachSpoiledMemberWithTheReason) {
  for (const Spoiled& spoiled : kSpoiled) {
    SCOPED_TRACE(std::string(spoiled.member) + " = " + spoiled.value);
    json table = json::parse(sample_text());
    const json::json_pointer at(spoiled.member);
    if (*spoiled.value == '\0') {
      table.at(at.parent_pointer()).erase(at.back());
    } else {
      table[at] = json::parse(spoiled.value);
    }
    const std::string text = refusal(table.dump());
    EXPECT_THAT(text, HasSubstr("table.json: "));
    EXPECT_THAT(text, HasSubstr(spoiled.text));
  }
}

TEST(TuningTable, RefusesWhatIsNoJson) {
  EXPECT_THAT(refusal(""), HasSubstr("table.json is not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("table.json is not a JSON object"));
  const std::string good = sample_text();
  for (std::size_t size = 1; size < good.size(); size += 7) {
    EXPECT_NE(refusal(good.substr(0, size)), "") << size;
  }
  EXPECT_THAT(refusal(std::string(100000, '[')), HasSubstr("nested"));
}

TEST(TuningTable, RefusesChannelsThatNcclWouldNotBound) {
  json table = json::parse(sample_text());
  json& entry = table["entries"][1];
  entry["offered"] = {"ring/ll", "collnet_chain/simple"};
  entry["chosen"]["algorithm"] = "collnet_chain";
  EXPECT_THAT(refusal(table.dump()), HasSubstr("must be left to it (0)"));
  entry["chosen"]["channels"] = 0;
  EXPECT_EQ(refusal(table.dump()), "");
}

TEST(TuningTable, FileThatCannotBeReadIsNamedWithTheRemedy) {
  const TempDir directory;
  directory.write("broken.json", "{");
  directory.make_directory("folder");
  const auto reading = [&](const char* name) -> std::string {
    try {
      read_table_file(directory / name);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  for (const char* name : {"absent.json", "broken.json", "folder"}) {
    EXPECT_THAT(reading(name), HasSubstr(directory / name));
    EXPECT_THAT(reading(name), HasSubstr("`preload tune`"));
  }
  EXPECT_THAT(reading("absent.json"), HasSubstr("ENOENT"));
}

}  // namespace
}  // namespace preload::test
