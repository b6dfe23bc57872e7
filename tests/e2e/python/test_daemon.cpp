// SPDX-License-Identifier: Apache-2.0
//
// preload_test_daemon DIR [--device host:N] [--slot S] [--many COUNT] [--loading | --failed TEXT]:
// serves one of every kind of tensor in socket directory DIR, without a checkpoint or a launcher,
// and prints READY: from host memory, or, as preload_gpu_test_daemon, from the memory of the first
// GPU. Ends when its standard input does. Part of the tests.
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "plan/shard_description.hpp"
#include "unit/client/live_server.hpp"
#ifdef PRELOAD_TEST_ON_GPU
#include "gpu/device_residency.hpp"
#endif

namespace {

using preload::test::FixtureShard;
using preload::test::LiveServer;

struct Options {
  std::string directory;
  preload::Endpoint endpoint{"host:0", "", preload::Role::kTarget};
  int many = 0;
  bool loading = false;
  std::optional<std::string> failed;
};

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  options.directory = arguments.at(0);
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == "--device") options.endpoint.device = arguments.at(++i);
    if (arguments[i] == "--slot") options.endpoint.slot = arguments.at(++i);
    if (arguments[i] == "--many") options.many = std::stoi(arguments.at(++i));
    if (arguments[i] == "--loading") options.loading = true;
    if (arguments[i] == "--failed") options.failed = arguments.at(++i);
  }
  return options;
}

FixtureShard many_tensors(int count) {
  constexpr std::uint64_t kGranularity = 2 << 20;
  FixtureShard shard((static_cast<std::uint64_t>(count) * 512 / kGranularity + 1) * kGranularity);
  for (int i = 0; i < count; ++i) {
    shard.add("model.layers." + std::to_string(i) + ".self_attn.qkv_proj.weight",
              preload::DType::kBF16, {4, 8}, std::string(64, static_cast<char>(i)));
  }
  return shard;
}

FixtureShard shard_of(const Options& options) {
  FixtureShard shard =
      options.many > 0 ? many_tensors(options.many) : preload::test::one_of_everything();
  preload::ShardDescription description;
  description.model = "fixture";
  description.key = FixtureShard::key();
  description.fields = {{"dtype", "BF16"}, {"tp_size", "2"}};
  shard.set_metadata(preload::to_json(description));
  return shard;
}

preload::Residency residency_of(const Options& options) {
  preload::Residency residency = shard_of(options).residency(options.endpoint);
#ifdef PRELOAD_TEST_ON_GPU
  residency = preload::test::on_device(std::move(residency), 0);
#endif
  return residency;
}

void wait_for_end_of_input() {
  for (std::string line; std::getline(std::cin, line);) {
  }
}

void say(const char* word) {
  std::puts(word);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse({argv + 1, argv + argc});
  preload::log::set_up(preload::log::Level::kWarn, "test daemon");
  const preload::SocketDir directory = preload::SocketDir::open(options.directory, true);
  preload::StateFile state;
  state.model = "fixture";
  if (options.failed) {
    state.state = "FAILED";
    state.code = "checkpoint";
    state.text = *options.failed;
    write_state(directory, options.endpoint, state);
    return 0;
  }
  if (options.loading) {  // until a line says that it is done
    const preload::Fd lock = take_lock(directory, options.endpoint);
    state.state = "LOADING";
    write_state(directory, options.endpoint, state);
    say("LOADING");
    std::string line;
    std::getline(std::cin, line);
  }
  const LiveServer server(options.directory, residency_of(options));
  say("READY");
  wait_for_end_of_input();
}
