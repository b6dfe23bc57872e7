// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"

namespace preload::test {

// The text that opening `model` is refused with; empty, and a failure, when it is not refused with
// the checkpoint's code.
inline std::string refusal(const std::string& model, const OpenOptions& options = {}) {
  try {
    (void)open_checkpoint(model, options);
    ADD_FAILURE() << model << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kCheckpoint) << error.what();
    return error.what();
  }
  return {};
}

}  // namespace preload::test
