// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/error.hpp"
#include "comm/mpi_leave.hpp"
#include "comm/mpi_session.hpp"

namespace preload {

std::string mpi_description() { return "without MPI"; }

std::unique_ptr<Group> make_mpi_group(const Launcher& launcher, std::chrono::seconds, std::size_t) {
  throw Error(Errc::kLauncher,
              fmt::format("started by {} with {} tasks, but this preload was built without MPI: "
                          "build it with -DPRELOAD_MPI=ON, or run it without a launcher",
                          launcher_name(launcher.kind), launcher.size));
}

void leave_mpi() noexcept {}

}  // namespace preload
