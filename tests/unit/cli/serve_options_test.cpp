// SPDX-License-Identifier: Apache-2.0
#include "cli/serve_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.hpp"

namespace preload::cli::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--model", "m"});
  try {
    parse_serve_options(arguments);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    return error.what();
  }
  return "nothing was refused";
}

TEST(ServeOptions, HaveTheDocumentedDefaults) {
  const ServeOptions serve = parse_serve_options({"--model", "org/name"});
  EXPECT_EQ(serve.model.model, "org/name");
  EXPECT_EQ(serve.model.tp, 1);
  EXPECT_EQ(serve.model.pp, 1);
  EXPECT_EQ(serve.model.dp, std::nullopt);
  EXPECT_EQ(serve.model.layout, LayoutRequest{});
  EXPECT_EQ(serve.model.open.revision, "main");
  EXPECT_FALSE(serve.model.open.rebuild_index);
  EXPECT_EQ(serve.cuda, std::nullopt);
  EXPECT_EQ(serve.export_kind, HandleKind::kVmm);
  EXPECT_EQ(serve.ring_bytes, 512 * kMiB);
  EXPECT_EQ(serve.threads, 0);
  EXPECT_EQ(serve.slot, "");
  EXPECT_TRUE(serve.socket_dir.allow_uids.empty());
}

TEST(ServeOptions, ReadEveryFlag) {
  const ServeOptions serve = parse_serve_options({"--model=m",
                                                  "-tp",
                                                  "2",
                                                  "-pp",
                                                  "3",
                                                  "-dp",
                                                  "4",
                                                  "--dtype",
                                                  "half",
                                                  "--layout",
                                                  "hf",
                                                  "--hf-overrides",
                                                  R"({"a":1})",
                                                  "--revision",
                                                  "v2",
                                                  "--load-format",
                                                  "safetensors",
                                                  "--rebuild-index",
                                                  "--ignore-tensor",
                                                  "x*",
                                                  "--device",
                                                  "cuda",
                                                  "--export",
                                                  "cuda-ipc",
                                                  "--ring-bytes",
                                                  "64M",
                                                  "--reader",
                                                  "mmap",
                                                  "--reader-threads",
                                                  "5",
                                                  "--reads-in-flight",
                                                  "24",
                                                  "--allow-uid",
                                                  "7",
                                                  "--allow_uid=8,9",
                                                  "--log-level",
                                                  "debug",
                                                  "--weight-cache-socket-dir",
                                                  "/d",
                                                  "--slot",
                                                  "a-1"});
  EXPECT_EQ(serve.model.tp, 2);
  EXPECT_EQ(serve.model.pp, 3);
  EXPECT_EQ(serve.model.dp, 4);
  LayoutRequest layout;
  layout.layout = "hf";
  layout.dtype = DType::kF16;
  layout.ignore = {"x*"};
  EXPECT_EQ(serve.model.layout, layout);
  EXPECT_EQ(serve.model.hf_overrides, R"({"a":1})");
  EXPECT_EQ(serve.model.open.revision, "v2");
  EXPECT_TRUE(serve.model.open.rebuild_index);
  EXPECT_EQ(serve.cuda, true);
  EXPECT_EQ(serve.reader, ReadMethod::kMmap);
  EXPECT_EQ(serve.export_kind, HandleKind::kCudaIpc);
  EXPECT_EQ(serve.ring_bytes, 64 * kMiB);
  EXPECT_EQ(serve.threads, 5);
  EXPECT_EQ(serve.reads_in_flight, 24);
  EXPECT_EQ(serve.socket_dir.allow_uids, (std::vector<unsigned>{7, 8, 9}));
  EXPECT_EQ(serve.log_level, log::Level::kDebug);
  EXPECT_EQ(serve.socket_dir.path, "/d");
  EXPECT_EQ(serve.slot, "a-1");
}

TEST(ServeOptions, RefuseValuesThatAreSetButWrong) {
  EXPECT_THAT(refusal({"--device", "rocm"}), HasSubstr("--device rocm is not built yet"));
  EXPECT_THAT(refusal({"--device", "tpu"}), HasSubstr("--device must be one of cuda, host"));
  EXPECT_THAT(refusal({"--export", "shm"}), HasSubstr("--export must be one of vmm, cuda-ipc"));
  EXPECT_THAT(refusal({"--device", "host", "--export", "vmm"}), HasSubstr("--export"));
  EXPECT_THAT(refusal({"--layout", "sglang"}), HasSubstr("vllm, transformers, hf"));
  EXPECT_THAT(refusal({"--load-format", "ipc_cache"}),
              AllOf(HasSubstr("ipc_cache"), HasSubstr("use auto or safetensors")));
  EXPECT_THAT(refusal({"--load-format", "hdf5"}), HasSubstr("auto, safetensors"));
  EXPECT_THAT(refusal({"--dtype", "int8"}), HasSubstr("--dtype must be one of"));
  EXPECT_THAT(refusal({"--hf-overrides", "{"}), HasSubstr("--hf-overrides must be a JSON object"));
  EXPECT_THAT(refusal({"-tp", "0"}), HasSubstr("--tensor-parallel-size"));
  EXPECT_THAT(refusal({"--ring-bytes", "none"}), HasSubstr("--ring-bytes"));
  EXPECT_THAT(refusal({"--ring-bytes", "0"}), HasSubstr("--ring-bytes"));
  EXPECT_THAT(refusal({"--reads-in-flight", "0"}), HasSubstr("--reads-in-flight"));
  EXPECT_THAT(refusal({"--reader", "aio"}), HasSubstr("auto, pread, mmap, direct, uring"));
  EXPECT_THAT(refusal({"--allow-uid", "root"}), HasSubstr("--allow-uid"));
  EXPECT_THAT(refusal({"--log-level", "loud"}), HasSubstr("loud"));
  for (const std::string& slot :
       std::vector<std::string>{"", "A", "a_b", std::string(33, 'a'), "a/b"}) {
    EXPECT_THAT(refusal({"--slot", slot}), HasSubstr("--slot must be")) << slot;
  }
  EXPECT_THAT(refusal({"--model", ""}), HasSubstr("--model is empty"));
}

TEST(ServeOptions, TheLayoutTransformersTakesReplicasAlone) {
  EXPECT_EQ(parse_serve_options({"--model", "m", "--layout", "transformers", "-dp", "2"})
                .model.layout.layout,
            "transformers");
  for (const std::string flag : {"--tensor-parallel-size", "--pipeline-parallel-size"}) {
    EXPECT_THAT(refusal({"--layout", "transformers", flag, "2"}),
                AllOf(HasSubstr(flag + " 2"), HasSubstr("--data-parallel-size makes replicas")));
  }
  EXPECT_THAT(refusal({"--layout", "transformers", "-dp", "2", "--enable-expert-parallel"}),
              HasSubstr("--enable-expert-parallel with --data-parallel-size 2"));
}

TEST(ServeOptions, NeedAModel) {
  try {
    parse_serve_options({"-tp", "2"});
    ADD_FAILURE() << "taken without a model";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("--model is missing"));
  }
}

TEST(ServeOptions, TakeTheLogLevelFromTheEnvironmentUnlessAFlagGivesIt) {
  ::setenv("PRELOAD_LOG_LEVEL", "warn", 1);
  EXPECT_EQ(parse_serve_options({"--model", "m"}).log_level, log::Level::kWarn);
  EXPECT_EQ(parse_serve_options({"--model", "m", "--log-level", "error"}).log_level,
            log::Level::kError);
  ::setenv("PRELOAD_LOG_LEVEL", "", 1);
  EXPECT_EQ(parse_serve_options({"--model", "m"}).log_level, log::Level::kInfo) << "empty is unset";
  ::setenv("PRELOAD_LOG_LEVEL", "loud", 1);
  EXPECT_THROW(parse_serve_options({"--model", "m"}), Error);
  ::unsetenv("PRELOAD_LOG_LEVEL");
}

TEST(ServeOptions, ExpertsAndStagesAreSharedAsTold) {
  const ServeOptions serve = parse_serve_options(
      {"--model", "m", "-pp", "3", "--pipeline-layers", "10,11,11", "--enable_expert_parallel",
       "--expert-placement-strategy", "round_robin", "--all2all-backend", "deepep_low_latency"});
  const ParallelSizes sizes = job_sizes(serve.model, 12);
  EXPECT_EQ(sizes, (ParallelSizes{4, 3, 1, true, {10, 11, 11}}));
  EXPECT_EQ(serve.model.layout.placement, ExpertPlacement::kRoundRobin);
  EXPECT_EQ(serve.model.layout.all2all_backend, "deepep_low_latency");
}

TEST(ServeOptions, WrongStagesAndBackendsAreNamed) {
  const auto refusal = [](std::vector<std::string> flags) -> std::string {
    flags.insert(flags.begin(), {"--model", "m"});
    try {
      parse_serve_options(flags);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kUsage);
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_NE(refusal({"--pipeline-layers", "3,3"}).find("names 2 stages"), std::string::npos);
  for (const char* layers : {"", "3,", ",3", "0,6", "3;3", "a"}) {
    EXPECT_NE(refusal({"-pp", "2", "--pipeline-layers", layers}).find("--pipeline-layers"),
              std::string::npos)
        << layers;
  }
  EXPECT_NE(refusal({"--all2all-backend", "passthrough"}).find("deepep_low_latency"),
            std::string::npos);
  for (const char* flag : {"--enable-eplb", "--eplb-config.num_redundant_experts", "-dcp",
                           "--decode_context_parallel_size", "--prefill-context-parallel-size=2"}) {
    EXPECT_NE(refusal({flag, "2"}).find("is refused: "), std::string::npos) << flag;
  }
}

TEST(ServeOptions, FlagsThatAreRefusedMaySayWhatHoldsAnyway) {
  const std::vector<std::vector<std::string>> neutral{
      {"-dcp", "1"},
      {"-dcp=1"},
      {"--decode_context_parallel_size=1"},
      {"-pcp", "1"},
      {"--enable-eplb=false"},
      {"--enable-eplb=False"},
      {"--no-enable-eplb"},
      {"--eplb-config", R"({"window_size": 10})"},
      {"--eplb-config", R"({"num_redundant_experts": 0})"},
      {"--eplb-config.num_redundant_experts", "0"},
      {"--eplb-config.step_interval=10"},
      {"--num-redundant-experts", "0"},
      {"--dcp-q-replicate=false"},
      {"--no-enable-elastic-ep"},
      {"--elastic-ep-max-dp-size", "8"},
      {"--nnodes", "1"},
      {"--nnodes=1", "--node-rank", "0"},
  };
  for (std::vector<std::string> flags : neutral) {
    const std::string first = flags.front();
    flags.insert(flags.end(), {"--model", "m", "-tp", "2"});  // what follows is not eaten
    const ServeOptions options = parse_serve_options(flags);
    EXPECT_EQ(options.model.model, "m") << first;
    EXPECT_EQ(options.model.tp, 2) << first;
  }
}

TEST(ServeOptions, FlagsThatAreRefusedSayWhyWhereTheySayMore) {
  const std::vector<std::vector<std::string>> refused{
      {"-dcp", "2"},
      {"-dcp"},
      {"--enable-eplb"},
      {"--enable-eplb=true"},
      {"--eplb-config", R"({"num_redundant_experts": 2})"},
      {"--eplb-config", "no json"},
      {"--eplb-config.num_redundant_experts=1"},
      {"--num-redundant-experts=4"},
      {"--dcp-q-replicate"},
      {"--enable-elastic-ep=1"},
  };
  for (std::vector<std::string> flags : refused) {
    flags.insert(flags.begin(), {"--model", "m"});
    try {
      parse_serve_options(flags);
      ADD_FAILURE() << flags[2] << " was taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("is refused: ")) << flags[2];
    }
  }
}

TEST(ServeOptions, ASwitchMayBeWrittenOffInEveryWayThatVllmKnows) {
  const auto expert_parallel = [](const std::string& flag) {
    return parse_serve_options({"--model", "m", flag}).model.expert_parallel;
  };
  for (const char* on : {"-ep", "--enable-expert-parallel", "--enable_expert_parallel=True"}) {
    EXPECT_TRUE(expert_parallel(on)) << on;
  }
  for (const char* off : {"--no-enable-expert-parallel", "--enable-expert-parallel=False",
                          "--enable-expert-parallel=0", "--no_enable_expert_parallel"}) {
    EXPECT_FALSE(expert_parallel(off)) << off;
  }
  EXPECT_THROW(expert_parallel("--enable-expert-parallel=maybe"), Error);
  EXPECT_THROW(expert_parallel("--no-device"), Error);  // takes a value
}

TEST(ServeOptions, TheMoeBackendIsReadAsVllmReadsIt) {
  const auto backend = [](const std::vector<std::string>& arguments) {
    std::vector<std::string> all{"--model", "m"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return parse_serve_options(all).model.layout.moe_backend;
  };
  EXPECT_EQ(backend({}), "auto");
  EXPECT_EQ(
      backend({"--kernel-config", R"({"moe_backend": "Marlin", "linear_backend": "triton"})"}),
      "marlin");
  EXPECT_EQ(backend({"--kernel-config.moe_backend", "flashinfer-trtllm"}), "flashinfer_trtllm");
  EXPECT_EQ(backend({"--kernel_config", R"({"enable_jit_warmup": false})"}), "auto");
  for (const char* wrong : {R"({"moe_backend": "marlim"})", R"({"moe_backend": 3})", "[]",
                            R"({"moe_backends": "marlin"})"}) {
    EXPECT_THROW(backend({"--kernel-config", wrong}), Error) << wrong;
  }
}

TEST(ServeOptions, TheKvCacheTypeIsOneOfVllms) {
  EXPECT_EQ(parse_serve_options({"--model", "m", "--kv-cache-dtype", "fp8_e4m3"})
                .model.layout.kv_cache_dtype,
            "fp8_e4m3");
  EXPECT_THROW(parse_serve_options({"--model", "m", "--kv-cache-dtype", "fp7"}), Error);
}

}  // namespace
}  // namespace preload::cli::test
