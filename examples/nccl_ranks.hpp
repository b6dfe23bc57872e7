// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

// The ranks of nccl_all_reduce: what each is told, how they meet, and how they are started here.

struct Options {
  int rank = -1;
  int ranks = 0;
  std::vector<int> devices;  // by rank; empty: rank modulo the devices that are there
  std::string id;
  bool separate_hosts = false;
  bool graph = false;  // launch from a CUDA graph, as engines do
  int repeats = 15;
  std::vector<std::size_t> sizes;
};

inline void cuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(result));
}

inline void nccl(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  throw std::runtime_error(std::string(what) + ": NCCL: " + ncclGetErrorString(result) +
                           "; NCCL_DEBUG=WARN shows more");
}

inline std::string environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

// What rank 0 has to say to the others: through a file that appears whole.
inline std::vector<ncclUniqueId> share_ids(const Options& options, std::size_t count) {
  std::vector<ncclUniqueId> ids(count);
  const auto bytes = static_cast<std::streamsize>(count * sizeof(ncclUniqueId));
  if (options.rank == 0) {
    if (std::filesystem::exists(options.id)) {
      throw std::runtime_error("--id: '" + options.id + "' is there already: remove it first");
    }
    for (ncclUniqueId& id : ids) nccl(ncclGetUniqueId(&id), "naming a communicator");
    const std::string temporary = options.id + ".new";
    if (!std::ofstream(temporary, std::ios::binary)
             .write(reinterpret_cast<const char*>(ids.data()), bytes)
             .flush()) {
      throw std::runtime_error("cannot write '" + temporary + "'");
    }
    std::filesystem::rename(temporary, options.id);
    return ids;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!std::filesystem::exists(options.id)) {
    if (std::chrono::steady_clock::now() > end) {
      throw std::runtime_error("rank 0 did not write '" + options.id + "' within two minutes");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::ifstream(options.id, std::ios::binary).read(reinterpret_cast<char*>(ids.data()), bytes);
  return ids;
}

template <class Value>
std::vector<Value> numbers(const std::string& text) {
  std::vector<Value> values;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    values.push_back(static_cast<Value>(std::stoull(part)));
  }
  return values;
}

inline constexpr const char* kUsage =
    "usage: nccl_all_reduce [--ranks N] [--devices D,D,...] [--separate-hosts] [--graph]\n"
    "                       [--sizes BYTES,BYTES,...] [--repeats N] [--rank R --id FILE]\n"
    "NCCL_TUNER_PLUGIN and PRELOAD_TUNER_TABLE name the plugin and the table.\n";

inline Options parse(int argc, char** argv) {
  Options options;
  if (const std::string rank = environment("RANK"); !rank.empty()) options.rank = std::stoi(rank);
  if (const std::string ranks = environment("WORLD_SIZE"); !ranks.empty()) {
    options.ranks = std::stoi(ranks);
  }
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) throw std::invalid_argument(flag + " wants a value");
      return argv[++i];
    };
    if (flag == "--rank") {
      options.rank = std::stoi(value());
    } else if (flag == "--ranks") {
      options.ranks = std::stoi(value());
    } else if (flag == "--devices") {
      options.devices = numbers<int>(value());
    } else if (flag == "--id") {
      options.id = value();
    } else if (flag == "--sizes") {
      options.sizes = numbers<std::size_t>(value());
    } else if (flag == "--repeats") {
      options.repeats = std::stoi(value());
    } else if (flag == "--separate-hosts") {
      options.separate_hosts = true;
    } else if (flag == "--graph") {
      options.graph = true;
    } else {
      throw std::invalid_argument("unknown: " + flag);
    }
  }
  if (options.sizes.empty()) {
    for (std::size_t bytes = 1024; bytes <= (std::size_t{64} << 20); bytes *= 2) {
      options.sizes.push_back(bytes);
    }
  }
  if (std::any_of(options.sizes.begin(), options.sizes.end(),
                  [](std::size_t bytes) { return bytes < 8 || bytes % 2 != 0; })) {
    throw std::invalid_argument("--sizes: even numbers of bytes, 8 or more");
  }
  if (options.ranks < 2 || options.repeats < 5) {
    throw std::invalid_argument("--ranks must be 2 or more, --repeats 5 or more");
  }
  if (!options.devices.empty() &&
      options.devices.size() != static_cast<std::size_t>(options.ranks)) {
    throw std::invalid_argument("--devices: one for each rank");
  }
  if (options.rank >= options.ranks || (options.rank >= 0 && options.id.empty())) {
    throw std::invalid_argument("--rank: from 0 to below --ranks, with --id FILE");
  }
  return options;
}

// Runs `run` in a process for each rank, all on this machine, and returns the worst of what they
// return. The first that fails (2) ends the others: NCCL would wait for it for ever.
inline int run_here(Options options, int (*run)(const Options& options)) {
  char directory[] = "/tmp/nccl_all_reduce.XXXXXX";
  if (mkdtemp(directory) == nullptr) throw std::runtime_error("cannot make a directory in /tmp");
  options.id = std::string(directory) + "/id";
  std::vector<pid_t> running;
  for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      const int status = run(options);
      std::fflush(nullptr);
      _exit(status);
    }
    if (pid > 0) running.push_back(pid);
  }
  int worst = static_cast<int>(running.size()) == options.ranks ? 0 : 2;
  while (!running.empty()) {
    if (worst == 2) {
      for (const pid_t pid : running) kill(pid, SIGKILL);
    }
    int status = 0;
    const pid_t ended = wait(&status);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 2);
    running.erase(std::remove(running.begin(), running.end(), ended), running.end());
  }
  std::filesystem::remove_all(directory);
  return worst;
}
