// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "memory/device.hpp"

// Compiled where the build found no CUDA toolkit.
namespace preload {

namespace {
constexpr const char* kReason =
    "this build has no CUDA: use --device host, or build with -DPRELOAD_CUDA=ON where a CUDA "
    "toolkit is";
}  // namespace

bool built_with_cuda() noexcept { return false; }
std::vector<Device> visible_devices() { return {}; }
int visible_device_count() { return 0; }
std::string no_devices_reason() { return kReason; }
void set_device(int /*ordinal*/) { throw Error(Errc::kDevice, kReason); }
void give_up_context(int /*ordinal*/) { throw Error(Errc::kDevice, kReason); }
std::optional<std::uint64_t> device_used_bytes(const Device& /*device*/) { return std::nullopt; }
std::optional<std::uint64_t> process_used_bytes(const Device& /*device*/) { return std::nullopt; }
std::string describe_holders(const Device& /*device*/) { return {}; }

}  // namespace preload
