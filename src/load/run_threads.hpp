// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace preload {

// Runs body(index, stop) on `count` threads and `meanwhile(stop)` on this one, and joins them all.
// The first exception wins: it sets `stop`, which the bodies watch, and is thrown here once every
// thread has ended.
template <class Body, class Meanwhile>
void run_threads(int count, Body body, Meanwhile meanwhile) {
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::exception_ptr first;
  const auto record = [&] {
    stop.store(true, std::memory_order_relaxed);
    const std::lock_guard lock(mutex);
    if (!first) first = std::current_exception();
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(count));
    try {
      for (int index = 0; index < count; ++index) {
        threads.emplace_back([&, index] {
          try {
            body(index, stop);
          } catch (...) {
            record();
          }
        });
      }
      meanwhile(stop);
    } catch (...) {  // no more threads to be had, or from `meanwhile`
      record();
    }
  }
  if (first) std::rethrow_exception(first);
}

template <class Body>
void run_threads(int count, Body body) {
  run_threads(count, std::move(body), [](const std::atomic<bool>&) {});
}

// CPUs that this process may run on.
int usable_cpus() noexcept;

}  // namespace preload
