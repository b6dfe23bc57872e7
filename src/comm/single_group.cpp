// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/mpi_session.hpp"

namespace preload {
namespace {

// A world of one: every collective is answered from its own input.
class SingleGroup final : public Group {
 public:
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 1; }

  std::vector<std::string> all_gather(std::string_view mine, const Wait& wait) override {
    wait.cancel.check();
    return {std::string(mine)};
  }

  std::string broadcast(std::string_view mine, int root, const Wait& wait) override {
    wait.cancel.check();
    if (root != 0) {
      throw Error(Errc::kInternal, fmt::format("broadcast from rank {} of a group of 1", root));
    }
    return std::string(mine);
  }

  std::vector<std::string> all_to_all(const std::vector<std::string>& out,
                                      const Wait& wait) override {
    wait.cancel.check();
    if (out.size() != 1) {
      throw Error(Errc::kInternal, fmt::format("{} parts for a group of 1", out.size()));
    }
    return out;
  }

  void exchange(std::span<const GroupMessage> out, std::span<const GroupMessage> in,
                const Wait& wait) override {
    wait.cancel.check();
    if (out.empty() && in.empty()) return;
    throw Error(Errc::kInternal, "a message to another rank of a group of 1");
  }

  void barrier(const Wait& wait) override { wait.cancel.check(); }
  void finalize(const Wait& wait) override { wait.cancel.check(); }
};

}  // namespace

std::unique_ptr<Group> make_single_group() { return std::make_unique<SingleGroup>(); }

std::unique_ptr<Group> make_group(const Launcher& launcher) {
  if (launcher.kind == Launcher::Kind::kNone) return make_single_group();
  return make_mpi_group(launcher, std::chrono::seconds(60));
}

}  // namespace preload
