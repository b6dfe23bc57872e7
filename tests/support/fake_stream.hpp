// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace preload::test {

// What stands for a CUDA stream where NCCL is fake_collectives.cpp: work in order, on a thread of
// its own.
class FakeStream {
 public:
  virtual ~FakeStream() = default;
  virtual void push(std::function<void()> work) = 0;
};

}  // namespace preload::test
