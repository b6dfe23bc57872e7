// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace preload::cli::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    parse_bench_options(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    return error.what();
  }
  return "nothing was refused";
}

std::string load_refusal(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"load", "--model", "m"});
  return refusal(arguments);
}

TEST(BenchOptions, HaveTheDocumentedDefaults) {
  const BenchLoadOptions bench = parse_bench_options({"load", "--model", "org/name"});
  EXPECT_EQ(bench.model.model, "org/name");
  EXPECT_EQ(bench.model.layout, LayoutRequest{});
  EXPECT_EQ(bench.sizes, (ParallelSizes{1, 1, 1}));
  EXPECT_EQ(bench.rank, 0);
  EXPECT_EQ(bench.cuda, std::nullopt);
  EXPECT_EQ(bench.ring_bytes, 512 * kMiB);
  EXPECT_EQ(bench.reader, std::nullopt);
  EXPECT_EQ(bench.threads, 0);
  EXPECT_FALSE(bench.cold);
  EXPECT_EQ(bench.runs, 5);
  EXPECT_THAT(bench.peers, ElementsAre("safetensors", "fastsafetensors", "runai_model_streamer",
                                       "instanttensor"));
  EXPECT_FALSE(bench.json);
}

TEST(BenchOptions, ReadEveryFlag) {
  const BenchLoadOptions bench = parse_bench_options({"load",
                                                      "--model=m",
                                                      "-tp",
                                                      "2",
                                                      "-pp",
                                                      "2",
                                                      "--rank",
                                                      "3",
                                                      "--layout",
                                                      "hf",
                                                      "--device",
                                                      "host",
                                                      "--reader",
                                                      "direct",
                                                      "--reader-threads",
                                                      "4",
                                                      "--ring-bytes",
                                                      "64M",
                                                      "--cold",
                                                      "--runs",
                                                      "3",
                                                      "--peers",
                                                      "instanttensor,safetensors,instanttensor",
                                                      "--json"});
  EXPECT_EQ(bench.sizes, (ParallelSizes{1, 2, 2}));
  EXPECT_EQ(bench.rank, 3);
  EXPECT_EQ(bench.model.layout.layout, "hf");
  EXPECT_EQ(bench.cuda, false);
  EXPECT_EQ(bench.reader, ReadMethod::kDirect);
  EXPECT_EQ(bench.threads, 4);
  EXPECT_EQ(bench.ring_bytes, 64 * kMiB);
  EXPECT_TRUE(bench.cold);
  EXPECT_EQ(bench.runs, 3);
  EXPECT_THAT(bench.peers, ElementsAre("instanttensor", "safetensors"));
  EXPECT_TRUE(bench.json);
  EXPECT_THAT(parse_bench_options({"load", "--model", "m", "--hot", "--peers", "none"}).peers,
              IsEmpty());
}

TEST(BenchOptions, NameTheBenches) {
  EXPECT_THAT(refusal({"--model", "m"}), HasSubstr("preload bench load"));
  EXPECT_THAT(refusal({"lod", "--model", "m"}), HasSubstr("unknown bench 'lod'"));
  EXPECT_THAT(refusal({"load", "more", "--model", "m"}), HasSubstr("unexpected argument 'more'"));
}

TEST(BenchOptions, RefuseValuesThatAreSetButWrong) {
  EXPECT_THAT(refusal({"load"}), HasSubstr("--model is missing"));
  EXPECT_THAT(load_refusal({"--hot", "--cold"}), HasSubstr("--hot and --cold"));
  EXPECT_THAT(load_refusal({"--runs", "0"}), HasSubstr("--runs"));
  EXPECT_THAT(load_refusal({"-tp", "2", "--rank", "2"}), HasSubstr("--rank 2: of 2 ranks"));
  EXPECT_THAT(load_refusal({"--device", "rocm"}), HasSubstr("not built yet"));
  EXPECT_THAT(load_refusal({"--reader", "fast"}), HasSubstr("auto, pread, mmap, direct"));
  EXPECT_THAT(load_refusal({"--ring-bytes", "0"}), HasSubstr("--ring-bytes"));
  for (const char* peers : {"", "safetensors,", "vllm", "auto,safetensors"}) {
    EXPECT_THAT(load_refusal({"--peers", peers}), HasSubstr("--peers must be auto, none")) << peers;
  }
  EXPECT_THAT(load_refusal({"--slot", "a"}), HasSubstr("unknown option --slot"));
}

}  // namespace
}  // namespace preload::cli::test
