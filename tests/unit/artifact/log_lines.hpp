// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace preload::artifact {

// What is logged while `work` is done, by line.
template <class Work>
std::vector<std::string> log_lines_of(Work&& work) {
  testing::internal::CaptureStderr();
  std::forward<Work>(work)();
  const std::string text = testing::internal::GetCapturedStderr();
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace preload::artifact
