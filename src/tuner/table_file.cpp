// SPDX-License-Identifier: Apache-2.0
#include "tuner/table_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace preload::tuner {
namespace {

// Some 50,000 entries.
constexpr std::size_t kMaxBytes = std::size_t{32} << 20;

[[noreturn]] void refuse(const std::string& text) { throw Error(Errc::kUsage, text); }

}  // namespace

TuningTable read_table_file(const std::string& path) {
  // Not to wait for a writer where somebody names a pipe.
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    refuse(fmt::format("the tuning table '{}' cannot be opened: {}; write one with `preload tune`",
                       path, errno_text(errno)));
  }
  struct stat status {};
  check_sys(::fstat(file.get(), &status), fmt::format("cannot stat '{}'", path));
  if (!S_ISREG(status.st_mode)) {
    refuse(
        fmt::format("the tuning table '{}' is no regular file; name the file that `preload tune` "
                    "wrote",
                    path));
  }
  const std::string what = fmt::format("the tuning table '{}'", path);
  try {
    return tuning_table_from_json(read_all(file.get(), what, kMaxBytes), what);
  } catch (const Error& error) {
    refuse(fmt::format("{}; write it again with `preload tune`", error.what()));
  }
}

std::vector<Entry> entries_for(const TuningTable& table, const TableUser& user,
                               const std::string& path) {
  const std::string measured = nccl_version_text(table.nccl_version);
  if (!user.nccl_version) {
    refuse(
        fmt::format("the tuning table '{}' is of NCCL {}, and the NCCL of this process does not "
                    "tell its version; use one that is a shared library of its own",
                    path, measured));
  }
  if (*user.nccl_version != table.nccl_version) {
    refuse(
        fmt::format("the tuning table '{}' is of NCCL {}, this is NCCL {}; tune with this one: "
                    "`preload tune --nccl-library FILE`",
                    path, measured, nccl_version_text(*user.nccl_version)));
  }
  const std::vector<std::string>& gpus = table.topology.gpus;
  if (user.gpu && std::find(gpus.begin(), gpus.end(), *user.gpu) == gpus.end()) {
    refuse(
        fmt::format("the tuning table '{}' was measured on {}, this is {}; tune on GPUs of this "
                    "kind with `preload tune`, mixed kinds in one job",
                    path, fmt::join(gpus, ", "), *user.gpu));
  }
  if (std::find(table.shapes.begin(), table.shapes.end(), user.shape) == table.shapes.end()) {
    refuse(
        fmt::format("the tuning table '{}' is of another topology: it was measured in a job of "
                    "{}, without a communicator of {} such as this one; tune with the ranks and "
                    "flags of this job: `preload tune`",
                    path, text_of(table.topology.world), text_of(user.shape)));
  }
  std::vector<Entry> mine;
  std::copy_if(table.entries.begin(), table.entries.end(), std::back_inserter(mine),
               [&](const Entry& entry) { return entry.shape == user.shape; });
  std::sort(mine.begin(), mine.end(), comes_before);
  return mine;
}

}  // namespace preload::tuner
