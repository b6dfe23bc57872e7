// SPDX-License-Identifier: Apache-2.0
// preload-runtime whose NCCL runs on host memory: `PRELOAD_RUNTIME` names it, --nccl-library
// names preload_fake_collectives.so, and NCCL_TUNER_PLUGIN the tuner plugin of the build.

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "base/environment.hpp"
#include "fake_stream.hpp"
#include "run/runtime.hpp"

namespace preload::test {
namespace {

constexpr std::uint64_t kFreeBytes = std::uint64_t{16} << 30;
constexpr auto kPoll = std::chrono::milliseconds(1);

class ThreadStream final : public FakeStream {
 public:
  ThreadStream() : thread_([this] { run(); }) {}
  ~ThreadStream() override {
    push({});
    thread_.join();
  }

  void push(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    changed_.notify_all();
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !work_.empty(); });
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      if (!work) return;
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::thread thread_;
};

class HostDevice final : public warmup::CollectiveDevice {
 public:
  void use() override {}
  void* stream() noexcept override { return static_cast<FakeStream*>(&stream_); }
  std::byte* source() noexcept override { return buffer_; }
  std::byte* target() noexcept override { return buffer_; }

  double time(const Work& work) override {
    using Clock = std::chrono::steady_clock;
    struct Run {  // outlives this call where it is given up
      std::mutex mutex;
      std::condition_variable changed;
      Clock::time_point begin, end;
      bool done = false;
    };
    const auto run = std::make_shared<Run>();
    work.enqueue();
    stream_.push([run] { run->begin = Clock::now(); });
    for (int i = 0; i < work.repetitions; ++i) work.enqueue();
    stream_.push([run] {
      const std::lock_guard lock(run->mutex);
      run->end = Clock::now();
      run->done = true;
      run->changed.notify_all();
    });
    std::unique_lock lock(run->mutex);
    while (!run->changed.wait_for(lock, kPoll, [&] { return run->done; })) work.wait();
    return std::chrono::duration<double>(run->end - run->begin).count() / work.repetitions;
  }

 private:
  ThreadStream stream_;
  std::byte buffer_[1] = {};
};

warmup::Backend host_backend() {
  warmup::Backend backend;
  backend.gpu = false;
  backend.plugin = environment("NCCL_TUNER_PLUGIN");
  backend.free_bytes = [](int) { return kFreeBytes; };
  backend.make_device = [](int, std::uint64_t) { return std::make_unique<HostDevice>(); };
  return backend;
}

}  // namespace
}  // namespace preload::test

int main(int argc, char** argv) {
  const int status = preload::run::run_runtime(argc, argv, preload::test::host_backend);
  if (status != 0) std::_Exit(status);
  return 0;
}
