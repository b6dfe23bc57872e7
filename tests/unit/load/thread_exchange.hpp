// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "comm/rank_exchange.hpp"

namespace preload::test {

// Letters between ranks that are threads of this process.
class PostOffice {
 public:
  void post(std::uint32_t from, std::uint32_t to, std::string letter) {
    {
      const std::lock_guard lock(mutex_);
      letters_[{from, to}].push_back(std::move(letter));
    }
    changed_.notify_all();
  }
  std::string collect(std::uint32_t from, std::uint32_t to, const std::atomic<bool>& stop) {
    std::unique_lock lock(mutex_);
    auto& box = letters_[{from, to}];
    while (box.empty()) {
      if (stop.load()) throw Error(Errc::kInternal, "stopped");
      changed_.wait_for(lock, std::chrono::milliseconds(5));
    }
    std::string letter = std::move(box.front());
    box.pop_front();
    return letter;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<std::string>> letters_;
};

// What a rank's memory is read and written with.
struct MemoryAccess {
  std::function<std::string(const std::byte*, std::size_t)> read = [](const std::byte* data,
                                                                      std::size_t bytes) {
    return std::string(reinterpret_cast<const char*>(data), bytes);
  };
  std::function<void(std::byte*, const std::string&)> write = [](std::byte* data,
                                                                 const std::string& bytes) {
    std::memcpy(data, bytes.data(), bytes.size());
  };
  std::function<void(void* stream)> finish = [](void*) {};  // waits for what is queued
};

class ThreadExchange final : public RankExchange {
 public:
  ThreadExchange(PostOffice& office, std::uint32_t self, const MemoryAccess& access)
      : office_(office), self_(self), access_(access) {}
  void exchange(std::span<const Message> out, std::span<const Message> in, void* stream,
                const std::atomic<bool>& stop) override {
    access_.finish(stream);
    for (const Message& message : out) {
      office_.post(self_, message.rank, access_.read(message.data, message.bytes));
    }
    for (const Message& message : in) {
      const std::string letter = office_.collect(message.rank, self_, stop);
      if (letter.size() != message.bytes) {
        throw Error(Errc::kInternal, "a letter of another size than was expected");
      }
      access_.write(message.data, letter);
    }
  }
  void check() override {}
  void abort() noexcept override {}

 private:
  PostOffice& office_;
  const std::uint32_t self_;
  const MemoryAccess& access_;
};

}  // namespace preload::test
