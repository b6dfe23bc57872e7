// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace preload {

// The backend of the engine's expert kernels, as --kernel-config names it.
inline constexpr std::string_view kAutoBackend = "auto";

// What a backend's kernels want of the size of an expert that a rank holds.
struct ExpertSizes {
  std::int64_t hidden = 1;        // rounded up to a multiple of this
  std::int64_t intermediate = 1;  // likewise; of a single gate or up projection
  bool exact = false;             // refused where it would have to be rounded
  friend bool operator==(const ExpertSizes&, const ExpertSizes&) = default;
};

// Of MXFP4 experts; nullptr when the backend has no kernels for these.
const ExpertSizes* mxfp4_expert_sizes(std::string_view moe_backend) noexcept;

// The backends that have MXFP4 kernels, and all that --kernel-config takes.
std::vector<std::string_view> mxfp4_backends();
std::vector<std::string_view> moe_backends();

}  // namespace preload
