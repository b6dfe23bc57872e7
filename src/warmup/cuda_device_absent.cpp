// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "warmup/collective_device.hpp"

namespace preload::warmup {
namespace {

[[noreturn]] void refuse() { throw Error(Errc::kDevice, "this build has no CUDA"); }

}  // namespace

std::unique_ptr<CollectiveDevice> make_cuda_device(int, std::uint64_t) { refuse(); }
std::uint64_t free_device_bytes(int) { refuse(); }

}  // namespace preload::warmup
